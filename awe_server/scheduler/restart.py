"""Parts of the job verbs: let suspended tasks go on where they were, or set tasks back to their beginning.

Costs the job's tasks and its live workunits, never its ranks. `let_go_on` and `set_back` list and start
nothing: `start_again` does that, once, when all tasks are as they should be.
"""

from collections.abc import Collection, Iterable

from awe_server.scheduler.demands import list_task
from awe_server.scheduler.places import made_for
from awe_server.scheduler.progress import advance_job, ranks_done
from awe_server.scheduler.state import (
    DONE_TASKS,
    RUNNING_TASKS,
    Client,
    Context,
    Document,
    Job,
    State,
    Task,
)
from awe_server.scheduler.transitions import JOB_MOVES, TASK_MOVES, WORKUNIT_MOVES, check_move
from shared_models.ids import WorkunitId, task_of
from shared_models.states import JobState, TaskState, WorkunitState
from shared_models.times import ZERO_TIME

#: Keys of a file that say what was found out about it, and where its output is on its way.
_FOUND_OUT = frozenset({"_md5", "_version", "_index", "_staging", "_missing"})


def standing(job: Job) -> JobState:
    """Where an active job stands, as its tasks say."""
    states = {task.state for task in job.tasks}
    if states & {TaskState.IN_PROGRESS, TaskState.COMPLETED}:
        return JobState.IN_PROGRESS
    return JobState.QUEUED if TaskState.QUEUED in states else JobState.INIT


def descendants(*tasks: Task) -> list[Task]:
    """The tasks and all that depend on them, over every path.

    Source: AWE lib/core/servermgr.go isAncestor; differs: AWE follows only the first dependency of each task.
    """
    found = dict.fromkeys(tasks)
    stack = list(tasks)
    while stack:
        new = [d for d in stack.pop().dependants if d not in found]
        found.update(dict.fromkeys(new))
        stack += new
    return list(found)


def with_unusable_inputs(tasks: Iterable[Task]) -> list[Task]:
    """Suspended tasks of which nothing is done, and a client could not use an input.

    What was found out about their inputs may be of what they were before somebody mended them.
    """
    return [
        task
        for task in tasks
        if task.state is TaskState.SUSPEND
        and not task.done
        and any(unit.input_failures for unit in task.units.values())
    ]


def let_go_on(state: State, tasks: Iterable[Task]) -> None:
    """Let suspended tasks go on: finished ranks count, unfinished ones may fail as often as new ones.

    Clients forget that these workunits failed on them: a lone client may try again. What a task that failed
    says of it goes; why it was not split, say, stays.
    """
    suspended = [task for task in tasks if task.state is TaskState.SUSPEND]
    failed: set[WorkunitId] = set()
    for task in suspended:
        if not task.is_cut or task.id == (task.job.error or {}).get("taskfailed"):
            task.notes = ""
        _move(task, _where_it_was(task))
        state.touch_task(task)
        for unit in task.units.values():
            check_move(WORKUNIT_MOVES, "workunit", unit.id, unit.state, WorkunitState.QUEUED)
            unit.state = WorkunitState.QUEUED
            unit.failed = unit.lost = unit.input_failures = unit.node_failures = unit.given_back = 0
            unit.not_before = 0.0
            state.touch_workunit(unit)
            failed.add(unit.id)
        task.retry = sorted(task.units.values(), key=lambda unit: unit.rank)
    if failed:
        for client in state.clients.values():
            _forget_skips(state, client, client.skip.keys() & failed)


def set_back(state: State, ctx: Context, job: Job, tasks: Collection[Task]) -> None:
    """Set tasks back to before their first attempt; whatever an older generation still says does not count.

    Their dependants must be among them, unless nothing of the tasks is done. Workunit documents go, output
    nodes go (effect), the submitted number of workunits counts again, and the first attempt has a number that
    none of these ranks ever had.
    """
    things = made_for(tasks)
    state.delete_nodes(ctx, things.nodes)
    state.delete_places(ctx, things.places, job.id)
    ids = {task.id for task in tasks}
    for client in state.clients.values():
        if client.skip:
            _forget_skips(state, client, {id for id in client.skip if task_of(id) in ids})
    for task in tasks:
        state.forget_workunits(task, ctx.wall_s)
        if task.state is not TaskState.PENDING:
            _move(task, TaskState.PENDING)
        _blank(task)
        state.touch_task(task)
    for task in tasks:
        parents = (state.tasks[id] for id in task.depends_on)
        task.waiting_for = sum(parent.state not in DONE_TASKS for parent in parents)
    job.open_tasks = sum(task.state not in DONE_TASKS for task in job.tasks)


def start_again(state: State, ctx: Context, job: Job, notes: str = "") -> None:
    """Make the job active as its tasks stand, and list or start what is ready.

    Of what stopped it nothing is said any more; `notes` say why it is active.
    """
    target = standing(job)
    check_move(JOB_MOVES, "job", job.id, job.state, target)
    job.state = target
    job.info = {**job.info, "completedtime": ZERO_TIME}
    job.notes, job.lastfailed, job.error = notes, "", None
    job.resumed += 1
    job.updatetime = ctx.wall_s
    state.touch_job(job)
    for task in job.tasks:
        if task.state not in RUNNING_TASKS:
            continue
        if task.done == task.totalwork:
            ranks_done(state, ctx, task)
        else:
            list_task(state, task)
    advance_job(state, ctx, job)


def _where_it_was(task: Task) -> TaskState:
    if not task.is_cut:
        return TaskState.PENDING
    return TaskState.IN_PROGRESS if task.done or task.units else TaskState.QUEUED


def _move(task: Task, target: TaskState) -> None:
    check_move(TASK_MOVES, "task", task.id, task.state, target)
    task.state = target


def _blank(task: Task) -> None:
    """Nothing of the task was ever done."""
    task.generation += 1
    task.first_attempt = task.max_attempt + 1
    task.is_cut = task.preparing = task.finishing = False
    task.blamed = None
    task.fresh_rank = task.end_rank = task.done = 0
    task.totalwork = task.totalwork_wanted
    task.partinfo = task.partinfo_wanted
    task.computetime = task.createddate = task.starteddate = task.completeddate = 0.0
    task.notes = ""
    task.inputs = [_not_located(io) if io.get("origin") else io for io in task.inputs]
    task.outputs = [_not_made(io) for io in task.outputs]
    task.input_bytes = 0


def _not_located(io: Document) -> Document:
    return {**_plain(io), "host": "", "node": "", "url": "", "size": 0}


def _not_made(io: Document) -> Document:
    """As the document gave it: an update names its node, and a Shock's node has a URL of its own."""
    blank = {**_plain(io), "size": 0}
    if io["type"] == "update" and not io["origin"]:
        return blank
    return {**blank, "node": "", "url": ""} if io["host"] else {**blank, "node": ""}


def _plain(io: Document) -> Document:
    """Without what was found out about a file that is not there any more."""
    return {key: value for key, value in io.items() if key not in _FOUND_OUT}


def _forget_skips(state: State, client: Client, ids: Collection[WorkunitId]) -> None:
    for id in ids:
        del client.skip[id]
    if ids:
        state.touch_client(client)
