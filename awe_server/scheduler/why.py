"""Why is it not running? Plain reasons with numbers and names, from the predicates that checkout itself uses.

Nothing here changes anything. Costs the job's tasks, and the clients once for each demand of a waiting task.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from math import ceil
from typing import TypedDict

from awe_server.scheduler.checkout import could_run, left
from awe_server.scheduler.demands import (
    CLOSED,
    PREDICATES,
    Demand,
    DemandKey,
    demand_as_is,
    has_work,
    too_small,
    unfit,
)
from awe_server.scheduler.holder import refusal
from awe_server.scheduler.state import (
    ACTIVE_JOBS,
    DONE_TASKS,
    RUNNING_TASKS,
    Client,
    Context,
    Job,
    State,
    Task,
    Workunit,
)
from shared_models.errors import JobNotFound
from shared_models.ids import JobId, WorkunitId, split_workunit_id
from shared_models.states import ClientStatus, FailureKind, JobState, TaskState, WorkunitState

MAX_TASK_ROWS = 50  #: tasks of a job that are explained one by one
MAX_WORKUNIT_ROWS = 5  #: workunits of a task that are explained one by one
MAX_NAMES = 3  #: names in one reason
MAX_ASKED = 5  #: clients that stand for all that could run a task

GIB = 2**30


class Reason(TypedDict):
    """What one thing waits for."""

    entity: str
    id: str
    state: str
    reason: str


def why_job(state: State, ctx: Context, job_id: JobId) -> list[Reason]:
    """The job, then its waiting tasks, each with those of its workunits that wait for something of their own.

    Empty once the job is completed or deleted. Raises JobNotFound.
    """
    job = state.jobs.get(job_id)
    if job is None:
        raise JobNotFound(job_id=job_id[:100])
    if job.state in (JobState.COMPLETED, JobState.DELETED):
        return []
    look = _Look(state, ctx)
    rows = [_row("job", job.id, job.state.value, look.job(job))]
    waiting = [task for task in job.tasks if task.state not in DONE_TASKS]
    for task in waiting[:MAX_TASK_ROWS]:
        rows += look.task_rows(task)
    if len(waiting) > MAX_TASK_ROWS:
        more = f"{len(waiting) - MAX_TASK_ROWS} more tasks are not done"
        rows.append(_row("job", job.id, job.state.value, more))
    return rows


def why_ended(job_id: str, state: JobState, notes: str) -> list[Reason]:
    """The same of a job that has ended and left memory."""
    if state is not JobState.FAILED_PERMANENT:
        return []
    return [_row("job", job_id, state.value, _for_good(notes))]


def why_workunit(state: State, ctx: Context, workunit_id: WorkunitId) -> list[Reason]:
    """What one workunit waits for; empty once it is done.

    Raises WorkunitNotFound.
    """
    look = _Look(state, ctx)
    unit = state.workunits.get(workunit_id)
    if unit is not None:
        return [_row("workunit", unit.id, unit.state.value, look.unit(unit))]
    task_id, rank = split_workunit_id(workunit_id)
    task = state.tasks.get(task_id)
    if task is None:
        raise refusal(state, workunit_id)
    if task.is_cut and task.fresh_rank <= rank < task.end_rank:
        shown = WorkunitState.QUEUED if task.state in RUNNING_TASKS else WorkunitState.SUSPEND
        return [_row("workunit", workunit_id, shown.value, look.ready(task) or look.task(task))]
    if not task.is_cut:
        return [_row("task", task.id, task.state.value, look.task(task))]
    if not task.end_rank - task.totalwork <= rank < task.end_rank:
        raise refusal(state, workunit_id)
    return []


def _row(entity: str, id: str, state: str, reason: str) -> Reason:
    return Reason(entity=entity, id=id, state=state, reason=reason)


class _Look:
    """One look at the state; what many tasks have in common is found out once."""

    def __init__(self, state: State, ctx: Context) -> None:
        self._state = state
        self._ctx = ctx
        self._live = [client for client in state.clients.values() if client.is_live]
        self._demands: dict[DemandKey, str] = {}
        self._fitting: dict[DemandKey, list[Client]] = {}
        self._outranked: dict[tuple[DemandKey, int], str] = {}  #: by priority, too
        #: Few are on any list; others need not be compared with the clients.
        self._skipped = {id for client in self._live for id in client.skip}

    def job(self, job: Job) -> str:
        """What a job waits for as a whole."""
        if job.state is JobState.FAILED_PERMANENT:
            return _for_good(job.notes)
        if job.state is JobState.SUSPEND:
            return f"suspended: {job.notes}"
        if job.start_s > self._ctx.now_s:
            return f"starts in {self._until(job.start_s)} (start_at)"
        held = sum(unit.state is WorkunitState.CHECKOUT for task in job.tasks for unit in task.units.values())
        if held:
            return f"{_count(held, 'workunit')} of it {_verb(held)} running"
        if self._state.queue_suspended and any(has_work(task) for task in job.tasks):
            return "queue is suspended"
        return f"{_count(job.open_tasks, 'task')} of {len(job.tasks)} not done"

    def task_rows(self, task: Task) -> list[Reason]:
        """The task and some of its workunits."""
        rows = [_row("task", task.id, task.state.value, self.task(task))]
        if task.state in RUNNING_TASKS or task.state is TaskState.SUSPEND:
            units = sorted(task.units.values(), key=lambda unit: unit.rank)
            own = islice((unit for unit in units if self._has_own_reason(unit)), MAX_WORKUNIT_ROWS)
            rows += [_row("workunit", unit.id, unit.state.value, self.unit(unit)) for unit in own]
        return rows

    def task(self, task: Task) -> str:
        """What a task that is not done waits for."""
        job = task.job
        if task.state is TaskState.SUSPEND:
            return f"suspended: {task.notes or job.notes}"
        if job.state not in ACTIVE_JOBS:
            return f"its job is in state {job.state.value}: {job.notes}"
        if task.finishing:
            return "task is done; outputs are being merged"
        if task.preparing:
            return "inputs are being looked at"
        if task.waiting_for:
            return f"pending: {self._parents(task)}"
        if job.start_s > self._ctx.now_s:
            return f"starts in {self._until(job.start_s)} (start_at)"
        ready = self.ready(task)
        return f"{ready}{_failed_before(task)}" if ready else self._busy(task)

    def ready(self, task: Task) -> str:
        """Why the ready workunits of a task are not taken; "" if there are none."""
        if not has_work(task):
            return ""
        if self._state.queue_suspended:
            return "queue is suspended"
        demand = demand_as_is(self._state, task)
        if demand.key not in self._demands:
            self._demands[demand.key] = self._demand(demand)
        rank = demand.key, task.job.priority
        if rank not in self._outranked:
            self._outranked[rank] = self._goes_first(task, demand)
        return self._no_disk(task, demand) or f"{self._demands[demand.key]}{self._outranked[rank]}"

    def unit(self, unit: Workunit) -> str:
        """What a workunit that was handed out before waits for."""
        job = unit.task.job
        if unit.state is WorkunitState.CHECKOUT:
            since_s = max(0, int(self._ctx.now_s - unit.checkout_s))
            return f"running on {self._name(unit.client)} for {_time(since_s)}, attempt {unit.attempt}"
        if unit.state is WorkunitState.FAILED_PERMANENT:
            return _for_good(job.notes)
        if unit.state is WorkunitState.SUSPEND:
            if job.lastfailed == unit.id:
                return f"suspended: {job.notes}"
            return f"its job is in state {job.state.value}: {job.notes}"
        skipping = self._skipping(unit)
        if unit.due_s > self._ctx.now_s:
            retry = f"retry in {self._until(unit.due_s)}"
            return f"{skipping}: {retry}" if skipping else f"{_failures(unit)}: {retry}"
        if self._state.queue_suspended:
            return "queue is suspended"
        return f"{skipping}: it is given to it again" if skipping else self.ready(unit.task)

    def _has_own_reason(self, unit: Workunit) -> bool:
        if unit.state is WorkunitState.QUEUED:
            return unit.due_s > self._ctx.now_s or bool(self._skipping(unit))
        return unit.state is WorkunitState.SUSPEND and unit.task.job.lastfailed == unit.id

    def _busy(self, task: Task) -> str:
        """Nothing of a task is ready: all is running or waits for another attempt."""
        running = sum(unit.state is WorkunitState.CHECKOUT for unit in task.units.values())
        delays = [unit.due_s for unit in task.units.values() if unit.due_s > self._ctx.now_s]
        parts = [f"{_count(running, 'workunit')} {_verb(running)} running"] if running else []
        if delays:
            waiting = f"{_count(len(delays), 'workunit')} {_verb(len(delays))}"
            parts.append(f"{waiting} tried again in {self._until(min(delays))}")
        return f"{', '.join(parts) or 'its turn comes at the next look'}{_failed_before(task)}"

    def _parents(self, task: Task) -> str:
        undone = [t for id in task.depends_on if (t := self._state.tasks[id]).state not in DONE_TASKS]
        return _names("task", [t.name for t in undone])

    def _demand(self, demand: Demand) -> str:
        """Narrow the live clients down, predicate by predicate, as checkout does."""
        candidates = self._live
        if not candidates:
            return f"no live client{self._absent()}"
        for predicate in PREDICATES:
            fitting = [client for client in candidates if predicate(demand, client) is None]
            if not fitting:
                if predicate is too_small:
                    return _lacking(demand, candidates)
                return _missing(demand, str(predicate(demand, candidates[0])))
            candidates = fitting
        free = sum(_has_room(demand, client) for client in candidates)
        if free:
            turn = f"{_count(free, 'client')} could run it now: its turn comes when one of them asks"
            return f"{turn}{_troubles(candidates)}"
        return f"{_count(len(candidates), 'client')} could run it, {_all(len(candidates))} busy"

    def _absent(self) -> str:
        """Why the clients that are known do not count."""
        states = Counter(
            "draining" if client.draining and not client.offline else client.status.value
            for client in self._state.clients.values()
        )
        if not states:
            return ""
        hint = ": awe clients says why" if ClientStatus.SUSPEND.value in states else ""
        return f" ({', '.join(f'{n} {state}' for state, n in sorted(states.items()))}{hint})"

    def _skipping(self, unit: Workunit) -> str:
        """Name the clients that could run a workunit if it had not failed there; "" if another can."""
        if unit.id not in self._skipped or unit.others_until_s <= self._ctx.now_s:
            return ""
        demand = demand_as_is(self._state, unit.task)
        fitting = self._fit(demand)
        if not fitting or any(could_run(demand, unit, client) for client in fitting):
            return ""
        names = _names("", [client.name or client.id for client in fitting])
        only = "the only client" if len(fitting) == 1 else "the only clients"
        return f"on the skip list of {names}, {only} that could run it"

    def _fit(self, demand: Demand) -> list[Client]:
        fitting = self._fitting.get(demand.key)
        if fitting is None:
            fitting = [client for client in self._live if unfit(demand, client) is None]
            self._fitting[demand.key] = fitting
        return fitting

    def _no_disk(self, task: Task, demand: Demand) -> str:
        """Say so if no client that could run a task has room for its inputs now."""
        fitting = self._fit(demand)
        most = max(fitting, key=lambda client: client.free_disk_bytes, default=None)
        if most is None or any(client.free_disk_bytes < 0 for client in fitting):
            return ""
        if most.free_disk_bytes >= task.input_bytes:
            return ""
        need, free = _megabytes(task.input_bytes), _megabytes(most.free_disk_bytes)
        text = f"its inputs take {need} of disk; of the clients that could run it,"
        return f"{text} {most.name or most.id} has most: {free} free for work{_troubles(fitting)}"

    def _goes_first(self, task: Task, demand: Demand) -> str:
        """Say so if better work is ready for who could run a task."""
        clients = self._fit(demand)[:MAX_ASKED]
        better = (
            other
            for other in self._state.demand_list
            if other.lanes and other.lanes[0].key[0] < -task.job.priority
        )
        if any(unfit(other, client) is None for other in better for client in clients):
            return "; work of a higher priority goes first"
        return ""

    def _name(self, client_id: str) -> str:
        client = self._state.clients.get(client_id)  # type: ignore[call-overload]
        return client.name or client.id if client else client_id

    def _until(self, at_s: float) -> str:
        return _time(ceil(at_s - self._ctx.now_s))


def _for_good(notes: str) -> str:
    return f"failed for good: {notes}"


def _missing(demand: Demand, reason: str) -> str:
    where = f" in group {_names('', [f'`{g}`' for g in sorted(demand.groups)])}" if demand.groups else ""
    if reason == "wrong_group":
        return f"no live client{where}"
    if reason == "wrong_app":
        return f"no live client{where} offers app `{demand.app}`"
    if reason == "out_of_reach":
        return _closed(demand, where)
    if reason == "stock_worker":
        return f"no live client{where} can do more than AWE's own workers, and this command needs more"
    return f"no live client{where} that offers app `{demand.app}` has a container engine"


def _closed(demand: Demand, where: str) -> str:
    """Which directories no client opens to jobs."""
    if CLOSED in demand.file_roots:
        return "it has files outside of the directories that this server opens to jobs (--file-root)"
    roots = _names("", [f"`{root}`" for root in sorted(demand.file_roots)])
    return f"no live client{where} that offers app `{demand.app}` opens {roots} to jobs (--file-root)"


def _lacking(demand: Demand, clients: list[Client]) -> str:
    """Which resource no client has enough of."""
    cores = max(client.cores or 1 for client in clients)
    gpus = max(client.gpus for client in clients)
    lacks = [
        f"needs {demand.cores} cores, largest client has {cores}" if demand.cores > cores else "",
        _bytes("memory", demand.memory_bytes, max(client.memory_bytes for client in clients)),
        _bytes("disk", demand.disk_bytes, max(client.disk_bytes for client in clients)),
        f"needs {demand.gpus} GPUs, largest client has {gpus}" if demand.gpus > gpus else "",
    ]
    found = "; ".join(filter(None, lacks))
    return found or "no single client has all that it needs: cores, memory, disk and GPUs together"


def _bytes(what: str, need: int, most: int) -> str:
    if need <= most:
        return ""
    return f"needs {need / GIB:.1f} GiB {what}, largest client has {most / GIB:.1f} GiB"


def _troubles(clients: Iterable[Client]) -> str:
    """What clients say that keeps them from taking work."""
    said = [f"{client.name or client.id}: {client.trouble}" for client in clients if client.trouble]
    more = f"; {len(said) - MAX_NAMES} more have troubles" if len(said) > MAX_NAMES else ""
    return "".join(f"; {text}" for text in said[:MAX_NAMES]) + more


def _megabytes(n: int) -> str:
    return f"{n / 1e6:,.1f} MB"


def _has_room(demand: Demand, client: Client) -> bool:
    free = left(client)
    return (
        free.cores >= demand.cores
        and free.memory_bytes >= demand.memory_bytes
        and free.disk_bytes >= demand.disk_bytes
        and free.gpus >= demand.gpus
    )


def _failed_before(task: Task) -> str:
    """What happened to those workunits of a task that are queued again."""
    failed = [
        unit
        for unit in task.units.values()
        if unit.state is WorkunitState.QUEUED and unit.failed + unit.node_failures and unit.notes
    ]
    return f"; {_count(len(failed), 'workunit')} failed before: {failed[-1].notes}" if failed else ""


def _failures(unit: Workunit) -> str:
    kind = f" ({unit.exit['kind']})" if unit.exit else ""
    if (unit.exit or {}).get("kind") == FailureKind.RELEASED:
        return f"given back at once {unit.given_back} time(s)"
    if (unit.exit or {}).get("kind") == FailureKind.LOST:
        return f"lost with its client {unit.lost} time(s), or with what runs commands there"
    times = unit.failed + unit.node_failures
    return f"failed {times} time(s){kind}"


def _names(what: str, names: Iterable[str]) -> str:
    """`task a, b, c and 4 more`."""
    all_names = list(names)
    shown = ", ".join(all_names[:MAX_NAMES])
    more = len(all_names) - MAX_NAMES
    text = f"{shown} and {more} more" if more > 0 else shown
    return f"{what} {text}" if what else text


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _verb(n: int) -> str:
    return "is" if n == 1 else "are"


def _all(n: int) -> str:
    return "it is" if n == 1 else "all are"


def _time(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7_200 else f"{seconds // 3_600} h"
