"""A new job: check it as a whole, then give it its place in the queue."""

from awe_server.scheduler.graph import check_graph
from awe_server.scheduler.progress import advance_job
from awe_server.scheduler.state import Context, Document, Job, State, Task
from shared_models.documents import Info, JobDocument, TaskDocument
from shared_models.errors import AlreadyExists, InvalidDocument
from shared_models.ids import JobId, make_task_id
from shared_models.limits import MAX_TASK_DOCUMENT_BYTES
from shared_models.states import TaskState
from shared_models.times import ZERO_TIME, rfc3339

MAX_PROBLEMS_SHOWN = 20


def submit_job(
    state: State,
    ctx: Context,
    document: JobDocument,
    *,
    job_id: JobId,
    owner: str,
    idempotency_key: str = "",
) -> Job:
    """Take a job in and start what is ready of it.

    A key with which the same owner submitted a live job gives that job again, whatever the document says.
    Raises InvalidDocument (see graph.check_graph) and then keeps nothing of it.
    """
    known = state.idempotency.get((owner, idempotency_key)) if idempotency_key else None
    if known is not None:
        return known
    if job_id in state.jobs:
        raise AlreadyExists(f"job {job_id} exists already")
    wanted = check_graph(document)
    _check_sizes(document)
    state.last_jid += 1
    state.changes.counters = True
    job = Job(job_id, state.last_jid, _info(ctx, document.info), _acl(owner))
    job.shockhost = document.shockhost
    job.updatetime = ctx.wall_s
    job.idempotency = idempotency_key
    job.set_start(ctx)
    tasks = [
        _task(job, i, doc, names) for i, (doc, names) in enumerate(zip(document.tasks, wanted, strict=True))
    ]
    take_in(state, job, tasks)
    state.touch_job(job)
    for task in tasks:
        state.touch_task(task)
    info = job.info
    state.record("JQ", jobid=job.id, name=info["name"], project=info["project"], user=info["user"])
    advance_job(state, ctx, job)
    return job


def take_in(state: State, job: Job, tasks: list[Task]) -> None:
    """Make a job and its tasks part of the state, and derive who waits for whom."""
    job.tasks = tasks
    state.jobs[job.id] = job
    if job.idempotency:
        state.idempotency[job.acl.get("owner") or "", job.idempotency] = job
    for task in tasks:
        state.tasks[task.id] = task
    for task in tasks:
        for id in task.depends_on:
            parent = state.tasks[id]
            parent.dependants.append(task)
            task.waiting_for += not parent.is_done
    job.open_tasks = sum(not task.is_done for task in tasks)
    job.revision = job.own_revision + sum(task.revision for task in tasks)


def _info(ctx: Context, info: Info) -> Document:
    return {
        **info.model_dump(),
        "auth": False,
        "submittime": rfc3339(ctx.wall_s),
        "startedtime": ZERO_TIME,
        "completedtime": ZERO_TIME,
    }


def _acl(owner: str) -> Document:
    """The creator owns the job and is on all its lists."""
    users = [owner] if owner else []
    return {"owner": owner, "read": users, "write": users, "delete": users}


def _task(job: Job, index: int, doc: TaskDocument, names: list[str]) -> Task:
    task = Task(make_task_id(job.id, doc.taskid), job, doc.taskid, index)
    task.state = TaskState.PENDING
    task.depends_on = tuple(make_task_id(job.id, name) for name in names)
    given = doc.model_dump()
    task.inputs, task.outputs, task.predata = given["inputs"], given["outputs"], given["predata"]
    task.partinfo_wanted = task.partinfo = given["partinfo"]
    task.maxworksize = doc.maxworksize
    task.totalwork = task.totalwork_wanted = doc.totalwork
    task.userattr = given["userattr"]
    task.clientgroups = doc.clientgroups
    task.resources = given["resources"]
    task.time_limit_s = doc.time_limit_s
    task.max_failures = doc.max_failures
    task.retry_delay_s = doc.retry_delay_s
    task.skip = int(doc.skip)
    task.cmd = given["cmd"]
    task.private_env = task.cmd["environ"].pop("private")
    task.cmd["has_private_env"] = bool(task.private_env)
    return task


def _check_sizes(document: JobDocument) -> None:
    """A task is one document of the store, also with what the server adds to it."""
    problems = []
    for i, task in enumerate(document.tasks):
        size = len(task.model_dump_json())
        if size > MAX_TASK_DOCUMENT_BYTES:
            problems.append(f"tasks[{i}]: has {size} bytes, the limit is {MAX_TASK_DOCUMENT_BYTES}")
    if problems:
        raise InvalidDocument(problems[:MAX_PROBLEMS_SHOWN])
