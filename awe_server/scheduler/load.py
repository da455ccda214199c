"""Build the live state from documents, as after a restart: the inverse of views.py.

Derived values (remaining work, queues, who waits for whom) are computed, never read. Every client and lease
gets a full grace period. What a restart interrupted is asked for again: effects of tasks that were being
looked at or finished. Documents of a torn batch (a store without transactions; jobs are written last) are put
right.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from awe_server.scheduler.demands import delay_retry, list_retry, list_task
from awe_server.scheduler.failure import (
    halt_job,
    leave_to_others,
    own_delay_s,
    stop_work,
    withdraw,
    withdraw_all,
)
from awe_server.scheduler.progress import advance_job, ranks_done
from awe_server.scheduler.restart import descendants, set_back, standing
from awe_server.scheduler.state import (
    ACTIVE_JOBS,
    RUNNING_TASKS,
    Client,
    Context,
    Document,
    Job,
    Rules,
    State,
    Task,
    Workunit,
)
from awe_server.scheduler.submit import take_in
from shared_models.ids import ClientId, JobId, TaskId, WorkunitId
from shared_models.states import FailureKind, JobState, TaskState, WorkunitState
from shared_models.times import parse_rfc3339, rfc3339


@dataclass(slots=True)
class LoadInput:
    """What is stored and may still change: jobs that have not ended with all that is theirs; all clients."""

    jobs: Iterable[Document] = ()
    tasks: Iterable[Document] = ()
    workunits: Iterable[Document] = ()  #: also completed ones: they count; or instead of these:
    #: how many are completed, by task; only where these and the live ones are all that were handed out
    completed: Mapping[str, int] = field(default_factory=dict)
    clients: Iterable[Document] = ()
    counters: Document | None = None  #: meta "counters"
    queue: Document | None = None  #: meta "queue"
    rules: Rules = field(default_factory=Rules)


def load(documents: LoadInput, ctx: Context) -> State:
    """The state that these documents describe, and in its changes whatever has to be done or put right."""
    state = State(documents.rules)
    if documents.counters:
        state.last_jid = int(documents.counters["jid"])
    if documents.queue:
        state.queue_suspended = bool(documents.queue["suspended"])
    for document in documents.clients:
        client = _client(document)
        client.deadline_s = ctx.now_s + state.rules.lease_s
        client.offline_s = ctx.now_s
        state.clients[client.id] = client
    load_jobs(state, ctx, documents.jobs, documents.tasks, documents.workunits, documents.completed)
    for client in state.clients.values():
        if client.holds:
            _put_client_right(state, ctx, client)
    return state


def load_jobs(
    state: State,
    ctx: Context,
    jobs: Iterable[Document],
    tasks: Iterable[Document],
    workunits: Iterable[Document],
    completed: Mapping[str, int] | None = None,
) -> None:
    """Add jobs to the state: all of them at a start, or one that had ended and is wanted again."""
    by_job: dict[JobId, list[Task]] = {}
    new = {JobId(document["id"]): _job(ctx, document) for document in jobs}
    for document in tasks:
        job = new.get(JobId(document["jobid"]))
        if job is not None:
            by_job.setdefault(job.id, []).append(_task(job, document))
    for job in sorted(new.values(), key=lambda job: job.jid):
        take_in(state, job, sorted(by_job.get(job.id, ()), key=lambda task: task.index))
        state.last_jid = max(state.last_jid, job.jid)
    seen: dict[TaskId, set[int]] = {}
    for document in workunits:
        task = state.tasks.get(TaskId(document["taskid"]))
        if task is not None and task.job.id in new and document["generation"] == task.generation:
            seen.setdefault(task.id, set()).add(document["rank"])
            _place(state, ctx, task, document)
    for job in new.values():
        for task in job.tasks:
            if task.id in seen and not task.is_cut:
                _void(state, ctx, task)
            if task.state is TaskState.COMPLETED:
                task.done = task.totalwork
            elif completed and task.id in completed:
                task.done = completed[task.id]
            elif task.is_cut and not task.is_done:
                _restore_missing(state, task, seen.get(task.id, set()))
            if task.is_cut:
                task.set_input_bytes()
        _resume(state, ctx, job)


def _resume(state: State, ctx: Context, job: Job) -> None:
    """Go on where the documents say it stood."""
    _put_right(state, ctx, job)
    for task in job.tasks:
        if job.state not in ACTIVE_JOBS or task.state not in RUNNING_TASKS:
            continue
        for unit in sorted(task.units.values(), key=lambda unit: unit.rank):
            _offer(state, ctx, unit)
        if task.done >= task.totalwork:
            ranks_done(state, ctx, task)
        else:
            list_task(state, task)
    advance_job(state, ctx, job)


def _put_right(state: State, ctx: Context, job: Job) -> None:
    """Finish a halt or failure of which only the tasks were written; undo a resume that only they know of.

    A task that went on although its parents are to be done again is done again as well.
    """
    early = [task for task in job.tasks if task.waiting_for and task.state is not TaskState.PENDING]
    if early and job.state in ACTIVE_JOBS | {JobState.SUSPEND}:
        set_back(state, ctx, job, descendants(*early))
    states = {task.state for task in job.tasks}
    moves = any(u.state is not WorkunitState.SUSPEND for task in job.tasks for u in task.units.values())
    if job.state is JobState.SUSPEND and (moves or states & RUNNING_TASKS):
        stop_work(state, ctx, job, TaskState.SUSPEND, WorkunitState.SUSPEND)
    if job.state not in ACTIVE_JOBS:
        return
    if TaskState.FAILED_PERMANENT in states:
        stop_work(state, ctx, job, TaskState.FAILED_PERMANENT, WorkunitState.FAILED_PERMANENT)
        job.state = JobState.FAILED_PERMANENT
        job.notes = next(task.notes for task in job.tasks if task.state is TaskState.FAILED_PERMANENT)
        state.touch_job(job)
        state.forget_later(job)
    elif TaskState.SUSPEND in states:
        reason = next(task.notes for task in job.tasks if task.state is TaskState.SUSPEND)
        halt_job(state, ctx, job, reason or "suspended")
    else:
        _catch_up(state, ctx, job)


def _catch_up(state: State, ctx: Context, job: Job) -> None:
    """Move tasks that were handed out, and a job that is behind its tasks, to where they stand."""
    for task in job.tasks:
        if task.state is TaskState.QUEUED and (task.units or task.done):
            task.state = TaskState.IN_PROGRESS
            task.starteddate = ctx.wall_s
            state.touch_task(task)
    target = standing(job)
    if target is not job.state:
        job.state = target
        if target is JobState.IN_PROGRESS:
            job.info = {**job.info, "startedtime": rfc3339(ctx.wall_s)}
        state.touch_job(job)


def _put_client_right(state: State, ctx: Context, client: Client) -> None:
    """A client that got work is neither offline nor suspended: its own document is older (torn batch)."""
    if client.offline:
        client.offline = False
        state.touch_client(client)
    if client.suspended:
        withdraw_all(state, ctx, client, "client suspended")


def _void(state: State, ctx: Context, task: Task) -> None:
    """Workunits of a task that was not cut (torn batch) never were; their attempts are not counted again."""
    state.forget_workunits(task, ctx.wall_s)
    task.first_attempt = task.max_attempt + 1
    task.fresh_rank = task.done = 0
    state.touch_task(task)


def _place(state: State, ctx: Context, task: Task, document: Document) -> None:
    """Count a completed workunit; hold any other one."""
    rank = int(document["rank"])
    task.fresh_rank = max(task.fresh_rank, rank + 1)
    task.max_attempt = max(task.max_attempt, int(document["attempt"]))
    if document["state"] == WorkunitState.COMPLETED:
        task.done += 1
        return
    unit = _workunit(ctx, task, document)
    task.units[rank] = unit
    state.workunits[unit.id] = unit
    if unit.state is WorkunitState.CHECKOUT:
        client = state.clients.get(unit.client)
        if client is not None:
            client.holds[unit.id] = unit
            user = task.job.user
            state.running[user] = state.running.get(user, 0) + 1


def _offer(state: State, ctx: Context, unit: Workunit) -> None:
    """Queue a workunit again that waits for its next attempt, or that nobody holds."""
    if unit.state is WorkunitState.CHECKOUT:
        if unit.client not in state.clients:
            withdraw(state, ctx, unit, "its client is not known any more")
    elif unit.state is not WorkunitState.QUEUED:
        unit.state = WorkunitState.QUEUED
        state.touch_workunit(unit)
        list_retry(state, unit)
    elif unit.exit is not None and unit.not_before > ctx.wall_s:
        # The clock may have been set back meanwhile: no longer than it was to wait in all.
        wait_s = min(unit.not_before - ctx.wall_s, own_delay_s(state, unit, FailureKind(unit.exit["kind"])))
        leave_to_others(state, unit, ctx.now_s + wait_s)
        delay_retry(state, unit, ctx.now_s + wait_s)
    else:
        leave_to_others(state, unit, ctx.now_s)
        list_retry(state, unit)


def _restore_missing(state: State, task: Task, seen: set[int]) -> None:
    """Ranks that were handed out but have no document (torn batch) are queued as if they never were."""
    first = task.end_rank - task.totalwork
    if len(seen) == task.fresh_rank - first:
        return
    for rank in sorted(set(range(first, task.fresh_rank)) - seen):
        unit = Workunit(WorkunitId(f"{task.wuid_prefix}{rank}"), task, rank)
        unit.attempt = task.max_attempt
        if task.state is TaskState.SUSPEND:
            unit.state = WorkunitState.SUSPEND
        task.units[rank] = unit
        state.workunits[unit.id] = unit
        state.touch_workunit(unit)


def _job(ctx: Context, document: Document) -> Job:
    job = Job(JobId(document["id"]), int(document["jid"]), document["info"], document["acl"])
    job.state = JobState(document["state"])
    job.expiration = parse_rfc3339(document["expiration"])
    job.updatetime = parse_rfc3339(document["updatetime"])
    job.notes = document["notes"]
    job.lastfailed = document["lastfailed"]
    job.error = document["error"]
    job.resumed = document["resumed"]
    job.shockhost = document["shockhost"]
    job.own_revision = document["_own_revision"]
    job.idempotency = document["_idempotency"]
    job.datatoken = document["_datatoken"]
    job.set_start(ctx)
    return job


def _task(job: Job, document: Document) -> Task:
    task = Task(TaskId(document["id"]), job, document["task_name"], document["index"])
    task.state = TaskState(document["state"])
    task.private_env = document["_private_env"]
    task.depends_on = tuple(TaskId(id) for id in document["dependsOn"])
    task.totalwork_wanted = document["_totalwork_wanted"]
    task.partinfo_wanted = document["_partinfo_wanted"]
    task.is_cut = document["_is_cut"]
    task.blamed = document.get("_blamed")
    task.revision = document["_revision"]
    for key in ("createddate", "starteddate", "completeddate"):
        setattr(task, key, parse_rfc3339(document[key]))
    for key in _TASK_KEYS:
        setattr(task, key, document[key])
    task.keep_failed = document.get("keep_failed", False)
    if task.is_cut:
        task.end_rank = task.totalwork + (task.totalwork > 1)
    return task


_TASK_KEYS = (
    "cmd",
    "inputs",
    "outputs",
    "predata",
    "partinfo",
    "maxworksize",
    "totalwork",
    "computetime",
    "userattr",
    "clientgroups",
    "resources",
    "time_limit_s",
    "max_failures",
    "retry_delay_s",
    "notes",
    "skip",
    "generation",
    "fresh_rank",
    "first_attempt",
    "max_attempt",
)


def _workunit(ctx: Context, task: Task, document: Document) -> Workunit:
    unit = Workunit(WorkunitId(document["id"]), task, int(document["rank"]))
    unit.state = _state(document["state"])
    unit.client = ClientId(document["client"])
    unit.token = document["_token"]
    unit.failed = document["failed"]
    unit.lost = document["lost"]
    unit.attempt = document["attempt"]
    unit.input_failures = document["_input_failures"]
    unit.node_failures = document["_node_failures"]
    unit.given_back = document["_given_back"]
    unit.blamed = document["_blamed"]
    unit.exit = found = document["exit"]
    was_lost = bool(found) and found.get("kind") == FailureKind.LOST
    unit.missed = document.get("_missed", was_lost)  # older documents say only that
    unit.kept = document.get("kept", "")
    unit.computetime = document["computetime"]
    unit.notes = document["notes"]
    unit.perf = document["perf"]
    unit.outputs = document["outputs"]
    unit.generation = document["generation"]
    unit.checkout_s = ctx.now_s
    unit.checkout_time = _time(document["checkout_time"])
    unit.done_time = _time(document["done_time"])
    unit.not_before = _time(document["not_before"])
    return unit


#: A hundred thousand workunits have the same few states and times.
_state = lru_cache(maxsize=64)(WorkunitState)
_time = lru_cache(maxsize=1024)(parse_rfc3339)


def _client(document: Document) -> Client:
    client = Client(ClientId(document["id"]))
    client.describe(document)
    client.incarnation = document["incarnation"]
    client.regtime = parse_rfc3339(document["regtime"])
    client.suspended = document["suspended"]
    client.suspend_reason = document["suspend_reason"]
    client.offline = document["Status"] == "offline"
    client.total_checkout = document["total_checkout"]
    client.total_completed = document["total_completed"]
    client.total_failed = document["total_failed"]
    client.lastcompleted = parse_rfc3339(document["lastcompleted"])
    client.idle_since = parse_rfc3339(document["idle_since"])
    client.blamed = dict.fromkeys(WorkunitId(id) for id in document["_blamed"])
    client.skip = dict.fromkeys(WorkunitId(id) for id in document["skip_work"])
    return client
