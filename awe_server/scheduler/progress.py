"""What follows when a task becomes ready, is cut, or is done: its workunits, its dependants, its job."""

from collections.abc import Iterable
from heapq import heappush

from awe_server.scheduler.demands import list_task, unlist_task
from awe_server.scheduler.facts import OutputFact
from awe_server.scheduler.places import to_delete, was_not_made
from awe_server.scheduler.split import processed
from awe_server.scheduler.state import (
    ACTIVE_JOBS,
    Context,
    Document,
    FinishTask,
    Job,
    PrepareTask,
    State,
    Task,
)
from awe_server.scheduler.transitions import JOB_MOVES, TASK_MOVES, check_move
from shared_models.ids import make_task_id
from shared_models.limits import MAX_NOTES_CHARS
from shared_models.states import JobState, TaskState
from shared_models.times import rfc3339


def advance_job(state: State, ctx: Context, job: Job) -> None:
    """Start whatever of a job is ready: after submit, resume, recompute, load, or when its time has come."""
    if job.state not in ACTIVE_JOBS:
        return
    if job.start_s > ctx.now_s:
        state.delayed_seq += 1
        heappush(state.starting, (job.start_s, state.delayed_seq, job))
        return
    for task in job.tasks:
        if task.state is TaskState.PENDING and task.waiting_for == 0 and not task.preparing:
            _start(state, ctx, [task])
    if job.open_tasks == 0:
        _complete_job(state, ctx, job)


def close_task(state: State, ctx: Context, task: Task, target: TaskState = TaskState.COMPLETED) -> None:
    """End a task as completed or skipped; start what waited for it; end the job with its last task."""
    check_move(TASK_MOVES, "task", task.id, task.state, target)
    _close(state, ctx, task, target)
    _start(state, ctx, _released(task))
    if task.job.open_tasks == 0 and task.job.state in ACTIVE_JOBS:
        _complete_job(state, ctx, task.job)


def cut(state: State, ctx: Context, task: Task, ranks: int) -> None:
    """Make a pending task's workunits available. One workunit has rank 0, several have 1..n."""
    check_move(TASK_MOVES, "task", task.id, task.state, TaskState.QUEUED)
    job = task.job
    task.totalwork = ranks
    task.fresh_rank = 0 if ranks == 1 else 1
    task.end_rank = task.fresh_rank + ranks
    task.is_cut = True
    task.preparing = False
    task.done = 0
    task.state = TaskState.QUEUED
    task.createddate = ctx.wall_s
    state.touch_task(task)
    if job.state is JobState.INIT:
        job.state = JobState.QUEUED
        job.updatetime = ctx.wall_s
        state.touch_job(job)
    state.record("TQ", jobid=job.id, taskid=task.id, totalwork=ranks)
    list_task(state, task)


def ranks_done(state: State, ctx: Context, task: Task) -> None:
    """All workunits are done: have the outputs made whole first, if there are any."""
    unlist_task(task)
    if task.outputs:
        task.finishing = True
        state.emit(FinishTask(task.id, task.generation))
    else:
        close_task(state, ctx, task)


def locate_inputs(state: State, task: Task) -> list[Document]:
    """The task's inputs with the nodes that their origins produced.

    An origin that was left out hands on its own input in place of its output.
    """
    return [located(state, task, io) for io in task.inputs]


def note(text: str, more: str) -> str:
    """Add a line to notes, bounded."""
    return f"{text}\n{more}".strip()[:MAX_NOTES_CHARS]


def with_outputs(outputs: list[Document], facts: Iterable[OutputFact]) -> list[Document]:
    """Outputs with what is known of their nodes."""
    known = {fact.filename: fact for fact in facts}
    return [_with_fact(io, known.get(io["filename"])) for io in outputs]


def _with_fact(io: Document, fact: OutputFact | None) -> Document:
    if fact is None:
        return io
    changed = {**io, "node": fact.node, "size": fact.size_bytes}
    changed.pop("_staging", None)
    told = {"_md5": fact.md5, "url": fact.url, "_staging": fact.staging, "_missing": fact.is_missing}
    for key, value in told.items():
        if value:
            changed[key] = value
    return changed


def located(state: State, task: Task, io: Document) -> Document:
    """A file of a task, with the place to which its origin, if it has one, brought it.

    What its origin did not make is nowhere: under its address elsewhere may be a file of somebody else.
    """
    if not io.get("origin"):
        return io
    producer = state.tasks[make_task_id(task.job.id, io["origin"])]
    if producer.state is TaskState.SKIPPED:
        (found,) = producer.inputs
    else:
        found = producer.output(io["filename"])
        if was_not_made(found) and (found["host"] or found["url"]):
            return {**io, "node": "", "host": "", "url": "", "size": 0}
    return {**io, "node": found["node"], "host": found["host"], "url": found["url"], "size": found["size"]}


def _released(task: Task) -> list[Task]:
    """Dependants that wait for nothing else now."""
    ready = []
    for dependant in task.dependants:
        dependant.waiting_for -= 1
        if dependant.waiting_for == 0:
            ready.append(dependant)
    return ready


def _start(state: State, ctx: Context, ready: list[Task]) -> None:
    """Have ready tasks looked at; those to be left out release others at once (a loop: chains are long)."""
    stack = ready[::-1]
    while stack:
        task = stack.pop()
        located = locate_inputs(state, task)
        if located != task.inputs:
            task.inputs = located
            state.touch_task(task)
        if task.skip:
            _close(state, ctx, task, TaskState.SKIPPED)
            stack += _released(task)[::-1]
        elif task.inputs or task.outputs or task.predata:
            task.preparing = True
            state.emit(PrepareTask(task.id, task.generation))
        else:
            cut(state, ctx, task, task.totalwork_wanted)


def _close(state: State, ctx: Context, task: Task, target: TaskState) -> None:
    if task.is_split and target is TaskState.COMPLETED:
        task.partinfo = processed(task.partinfo or {}, task.done, task.totalwork)
    task.state = target
    task.finishing = False
    task.completeddate = ctx.wall_s
    task.job.open_tasks -= 1
    state.touch_task(task)
    task.job.updatetime = ctx.wall_s
    state.touch_job(task.job)
    code = "TD" if target is TaskState.COMPLETED else "TS"
    state.record(code, jobid=task.job.id, taskid=task.id)


def _complete_job(state: State, ctx: Context, job: Job) -> None:
    check_move(JOB_MOVES, "job", job.id, job.state, JobState.COMPLETED)
    job.state = JobState.COMPLETED
    job.info = {**job.info, "completedtime": rfc3339(ctx.wall_s)}
    job.updatetime = ctx.wall_s
    state.touch_job(job)
    state.record("JD", jobid=job.id)
    things = to_delete(job.tasks)
    state.delete_nodes(ctx, things.nodes)
    state.delete_places(ctx, things.places, job.id)
    state.forget_later(job)
