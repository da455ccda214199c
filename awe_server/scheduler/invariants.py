"""Every fact that must hold between the entities and their indexes, whatever happened before.

For tests, the crash suite and `awe-server check`: costs the whole state, so no transition calls it.
"""

from collections import Counter
from collections.abc import Iterator

from awe_server.scheduler.demands import Demand, demand_key, has_work, unfit
from awe_server.scheduler.named_nodes import named_by
from awe_server.scheduler.state import (
    ACTIVE_JOBS,
    ENDED_JOBS,
    RUNNING_TASKS,
    Client,
    Job,
    State,
    Task,
    Workunit,
)
from shared_models.ids import TaskId
from shared_models.limits import MAX_SKIP_LIST
from shared_models.states import JobState, TaskState, WorkunitState

Facts = Iterator[str]

_STARTED_TASKS = frozenset({TaskState.IN_PROGRESS, TaskState.COMPLETED})
#: Tasks that have no workunits in memory.
_EMPTY_TASKS = frozenset({TaskState.INIT, TaskState.PENDING, TaskState.COMPLETED, TaskState.SKIPPED})
#: What the live workunits of a task may be.
_UNIT_STATES = {
    TaskState.QUEUED: {WorkunitState.QUEUED, WorkunitState.CHECKOUT},
    TaskState.IN_PROGRESS: {WorkunitState.QUEUED, WorkunitState.CHECKOUT},
    TaskState.SUSPEND: {WorkunitState.SUSPEND},
    TaskState.FAILED_PERMANENT: {WorkunitState.FAILED_PERMANENT},
}


def check(state: State) -> list[str]:
    """Whatever is wrong, one line each; empty when all is well."""
    broken: list[str] = []
    broken += _registries(state)
    for job in state.jobs.values():
        broken += [f"{job!r}: {fact}" for fact in _job(job)]
        for task in job.tasks:
            facts = (*_task(state, task), *_ranks(task), *_queueing(state, task))
            broken += [f"{task!r}: {fact}" for fact in facts]
    for unit in state.workunits.values():
        broken += [f"{unit!r}: {fact}" for fact in _workunit(state, unit)]
    for client in state.clients.values():
        broken += [f"{client!r}: {fact}" for fact in _client(state, client)]
    for demand in state.demand_list:
        broken += [f"demand {demand.key}: {fact}" for fact in _demand(demand)]
    broken += _delays(state)
    return broken


def _registries(state: State) -> Facts:
    tasks = [task for job in state.jobs.values() for task in job.tasks]
    if len(tasks) != len(state.tasks) or any(state.tasks.get(task.id) is not task for task in tasks):
        yield "the tasks of all jobs are not the tasks of the state"
    units = [unit for task in tasks for unit in task.units.values()]
    if len(units) != len(state.workunits) or any(state.workunits.get(unit.id) is not unit for unit in units):
        yield "the live workunits of all tasks are not the workunits of the state"
    if any(job.id != id for id, job in state.jobs.items()):
        yield "a job is filed under another id"
    if any(client.id != id for id, client in state.clients.items()):
        yield "a client is filed under another id"
    named: dict[str, set[TaskId]] = {}
    for task in tasks:
        for node_id in named_by((task.inputs, task.predata, task.outputs)):
            named.setdefault(node_id, set()).add(task.id)
    if named != state.named_nodes.as_dict():
        yield "the nodes that tasks name are not those that are filed"
    jids = Counter(job.jid for job in state.jobs.values())
    if any(n > 1 for n in jids.values()) or (jids and max(jids) > state.last_jid):
        yield "a jid is used twice, or is beyond the counter"
    for (owner, key), job in state.idempotency.items():
        if (
            state.jobs.get(job.id) is not job
            or job.idempotency != key
            or (job.acl.get("owner") or "") != owner
        ):
            yield f"idempotency key '{key}' leads to {job!r}"
    if state.stopped.keys() & state.clients.keys():
        yield "a client is told to stop and is there"
    leased = Counter(
        unit.task.job.user for client in state.clients.values() for unit in client.holds.values()
    )
    if dict(leased) != state.running:
        yield f"running is {state.running}, leases say {dict(leased)}"
    listed = [d.key for d in state.demand_list]
    if len(listed) != len(set(listed)) or {d.key: d for d in state.demand_list} != state.demands:
        yield "demands and demand_list differ"


def _job(job: Job) -> Facts:
    states = {task.state for task in job.tasks}
    if [task.index for task in job.tasks] != list(range(len(job.tasks))):
        yield "tasks are not in order"
    if job.open_tasks != sum(not task.is_done for task in job.tasks):
        yield f"open_tasks is {job.open_tasks}"
    if job.revision != job.own_revision + sum(task.revision for task in job.tasks):
        yield f"revision is {job.revision}"
    if job.state in ACTIVE_JOBS:
        yield from _active_job(job, states)
    else:
        if job.queues:
            yield "is not active and waits in a queue"
        if states & RUNNING_TASKS:
            yield f"has running tasks: {sorted(states)}"
        if any(task.preparing or task.finishing for task in job.tasks):
            yield "is not active and has effects on their way"
    if job.state is JobState.COMPLETED and job.open_tasks:
        yield f"is completed with {job.open_tasks} open tasks"
    if job.state is JobState.SUSPEND and not (job.notes and job.error):
        yield "is suspended without a reason"
    if TaskState.FAILED_PERMANENT in states and job.state not in (
        JobState.FAILED_PERMANENT,
        JobState.DELETED,
    ):
        yield "has failed-permanent tasks"


def _active_job(job: Job, states: set[TaskState]) -> Facts:
    if job.open_tasks == 0:
        yield "is active with nothing left to do"
    if TaskState.SUSPEND in states:
        yield "is active with suspended tasks"
    if states & _STARTED_TASKS:
        expected = JobState.IN_PROGRESS
    else:
        expected = JobState.QUEUED if TaskState.QUEUED in states else JobState.INIT
    if job.state is not expected:
        yield f"its tasks say {expected}: {sorted(states)}"
    if job.error is not None:
        yield "is active and shows an error"


def _task(state: State, task: Task) -> Facts:
    parents = [state.tasks[id] for id in task.depends_on]
    waiting_for = sum(not parent.is_done for parent in parents)
    if task.waiting_for != waiting_for:
        yield f"waiting_for is {task.waiting_for}, {waiting_for} parents are not done"
    if any(parent.job is not task.job or task not in parent.dependants for parent in parents):
        yield "a parent does not know it"
    if len(parents) != len(set(parents)) or any(task.id not in child.depends_on for child in task.dependants):
        yield "dependencies are double or one-sided"
    if waiting_for and task.state is not TaskState.PENDING:
        yield "went on before its parents were done"
    if task.is_cut != (task.state not in _EMPTY_TASKS or task.state is TaskState.COMPLETED):
        refused = task.state in (TaskState.SUSPEND, TaskState.FAILED_PERMANENT)
        if task.is_cut or not refused:
            yield f"is_cut is {task.is_cut}"
    active = task.job.state in ACTIVE_JOBS
    if task.preparing and not (task.state is TaskState.PENDING and waiting_for == 0 and active):
        yield "is being prepared"
    if task.finishing and not (task.state is TaskState.IN_PROGRESS and task.remainwork == 0 and task.outputs):
        yield "is being finished"
    ready = task.state is TaskState.PENDING and waiting_for == 0 and active
    if ready and not task.preparing and task.job.start_s == 0.0:
        yield "nobody looks at it"
    if task.state in RUNNING_TASKS and task.remainwork == 0 and not task.finishing:
        yield "all its work is done and nobody finishes it"


def _ranks(task: Task) -> Facts:
    first = task.end_rank - task.totalwork
    if not task.is_cut:
        if (task.fresh_rank, task.end_rank, task.done) != (0, 0, 0) or task.units or task.retry:
            yield "has ranks before it was cut"
        return
    if first != (0 if task.totalwork == 1 else 1) or not first <= task.fresh_rank <= task.end_rank:
        yield f"ranks {first}..{task.fresh_rank}..{task.end_rank} of {task.totalwork}"
    if task.state is TaskState.COMPLETED:
        if task.done != task.totalwork or task.units or task.fresh_rank != task.end_rank:
            yield f"is completed with {task.done} of {task.totalwork} done"
    elif task.fresh_rank - first != task.done + len(task.units):
        yield f"handed out {task.fresh_rank - first}: {task.done} done and {len(task.units)} live"
    if any(not first <= rank < task.fresh_rank or unit.rank != rank for rank, unit in task.units.items()):
        yield "a live workunit has a rank that was never handed out"
    if task.first_attempt > task.max_attempt + 1:
        yield f"attempts begin at {task.first_attempt}, the highest was {task.max_attempt}"
    allowed = _UNIT_STATES.get(task.state, set())
    wrong = {unit.state for unit in task.units.values()} - allowed
    if wrong:
        yield f"has workunits in {sorted(wrong)}"
    if task.state is TaskState.QUEUED and (task.done or task.units):
        yield "is queued and was handed out"


def _queueing(state: State, task: Task) -> Facts:
    if task.is_listed != has_work(task):
        yield f"is_listed is {task.is_listed}"
    ready = [u for u in task.units.values() if u.state is WorkunitState.QUEUED and u.due_s == 0.0]
    if task.retry != sorted(ready, key=lambda unit: unit.rank):
        yield f"offers {task.retry} again, ready are {ready}"
    if task.is_listed:
        queue = task.job.queues.get(task.demand) if task.demand else None
        if queue is None or task not in queue.tasks:
            yield "is listed and in no queue"
        elif task.demand is not None and task.demand.key != demand_key(task, state.rules.file_roots):
            yield f"waits where {task.demand.key} is asked"


def _workunit(state: State, unit: Workunit) -> Facts:
    task = unit.task
    if unit.id != f"{task.id}_{unit.rank}" or task.units.get(unit.rank) is not unit:
        yield "is not the workunit of its rank"
    if unit.generation != task.generation:
        yield f"is of generation {unit.generation}, its task of {task.generation}"
    if not task.first_attempt <= unit.attempt <= task.max_attempt:
        yield f"attempts of its task are {task.first_attempt}..{task.max_attempt}"
    leased = unit.state is WorkunitState.CHECKOUT
    holders = [client for client in state.clients.values() if unit.id in client.holds]
    if leased != (len(holders) == 1) or (leased and holders[0].id != unit.client):
        yield f"is held by {holders}"
    if leased and not (unit.token and unit.client):
        yield "is leased without token or client"
    if unit.due_s and unit.state is not WorkunitState.QUEUED:
        yield "has a retry delay"
    if (
        unit.state in (WorkunitState.SUSPEND, WorkunitState.FAILED_PERMANENT)
        and task.job.state in ACTIVE_JOBS
    ):
        yield "is out of play in an active job"
    if unit.state is WorkunitState.COMPLETED:
        yield "is completed and in memory"


def _client(state: State, client: Client) -> Facts:
    for id, unit in client.holds.items():
        if unit.id != id or state.workunits.get(id) is not unit or unit.client != client.id:
            yield f"holds {unit!r}"
        if unit.state is not WorkunitState.CHECKOUT:
            yield f"holds {unit!r} without a lease"
        if unit.task.job.state in ENDED_JOBS or unit.task.state not in RUNNING_TASKS:
            yield f"holds {unit!r} of {unit.task!r}"
    if client.holds and (client.offline or client.suspended):
        yield "holds work and gets none"
    if client.holds.keys() & client.withdrawn.keys():
        yield "is to discard what it holds"
    if len(client.skip) > MAX_SKIP_LIST:
        yield f"skips {len(client.skip)} workunits"
    if len(client.blamed) >= state.rules.max_client_failure and not client.suspended:
        yield f"has failed {len(client.blamed)} times in a row"
    if bool(client.suspend_reason) != client.suspended:
        yield f"suspend_reason is '{client.suspend_reason}'"
    if client.eligible_epoch == state.demand_epoch:
        known = state.demand_list[: client.eligible_seen]
        if client.eligible != [demand for demand in known if unfit(demand, client) is None]:
            yield "remembers other demands than it can serve"


def _demand(demand: Demand) -> Facts:
    if [lane.key for lane in demand.lanes] != sorted({lane.key for lane in demand.lanes}):
        yield "lanes are not in order"
    count = 0
    for lane in demand.lanes:
        if not lane.jobs:
            yield f"lane {lane.key} is empty"
        if [queue.jid for queue in lane.jobs] != sorted({queue.jid for queue in lane.jobs}):
            yield f"jobs of lane {lane.key} are not in order"
        for queue in lane.jobs:
            count += len(queue.tasks)
            job = queue.job
            if queue.lane is not lane or job.queues.get(demand) is not queue or lane.key[0] != -job.priority:
                yield f"{job!r} waits in the wrong lane {lane.key}"
            if [task.index for task in queue.tasks] != sorted({task.index for task in queue.tasks}):
                yield f"tasks of {job!r} are not in order"
            for task in queue.tasks:
                if not task.is_listed or task.demand is not demand or task.job is not job:
                    yield f"{task!r} waits in the wrong queue"
    if count != demand.listed:
        yield f"listed is {demand.listed}, {count} tasks wait"


def _delays(state: State) -> Facts:
    heap = Counter((due_s, unit.id) for due_s, _, unit in state.delayed)
    for unit in state.workunits.values():
        if unit.due_s and heap[unit.due_s, unit.id] < 1:
            yield f"{unit!r}: its retry delay never ends"
    if any(state.delayed[(i - 1) // 2][:2] > state.delayed[i][:2] for i in range(1, len(state.delayed))):
        yield "delayed is not a heap"
    starting = {id(job) for _, _, job in state.starting}
    for job in state.jobs.values():
        waits = any(t.state is TaskState.PENDING and not t.waiting_for and not t.preparing for t in job.tasks)
        if job.state in ACTIVE_JOBS and waits and id(job) not in starting:
            yield f"{job!r}: nobody starts it"
