"""A new job: check it as a whole, then give it its place in the queue."""

from awe_server.scheduler.graph import check_graph
from awe_server.scheduler.progress import advance_job
from awe_server.scheduler.state import Context, Document, Job, State, Task
from awe_server.scheduler.views import job_document, task_document
from shared_models.documents import Info, JobDocument, TaskDocument
from shared_models.errors import AlreadyExists, BadRequest, TooLarge
from shared_models.ids import JobId, make_task_id
from shared_models.limits import MAX_NEW_STORED_BYTES, MAX_REPEATED_INFO_BYTES, MAX_TOKEN_CHARS
from shared_models.states import TaskState
from shared_models.stored import json_size, oversize
from shared_models.times import ZERO_TIME, rfc3339


def submit_job(
    state: State,
    ctx: Context,
    document: JobDocument,
    *,
    job_id: JobId,
    owner: str,
    idempotency_key: str = "",
    datatoken: str = "",
) -> Job:
    """Build a job and admit it, in one step; see `build_job` and `admit_job`."""
    job = build_job(
        ctx, document, job_id=job_id, owner=owner, idempotency_key=idempotency_key, datatoken=datatoken
    )
    return admit_job(state, ctx, job)


def build_job(
    ctx: Context,
    document: JobDocument,
    *,
    job_id: JobId,
    owner: str,
    idempotency_key: str = "",
    datatoken: str = "",
) -> Job:
    """Check a document as a whole and make the job of it, which nobody knows of yet.

    It looks at nothing but its arguments, so a large document is built in a thread while the loop serves
    others. `datatoken`: see jobs.set_datatoken. Raises InvalidDocument (see graph.check_graph), TooLarge,
    BadRequest.
    """
    if len(datatoken) > MAX_TOKEN_CHARS:
        raise BadRequest("the token is too long")
    wanted = check_graph(document)
    job = Job(job_id, 0, _info(ctx, document.info, has_token=bool(datatoken)), _acl(owner))
    job.datatoken = datatoken
    job.shockhost = document.shockhost
    job.updatetime = ctx.wall_s
    job.idempotency = idempotency_key
    job.set_start(ctx)
    job.tasks = [
        _task(job, i, doc, names) for i, (doc, names) in enumerate(zip(document.tasks, wanted, strict=True))
    ]
    _check_sizes(job)
    return job


def admit_job(state: State, ctx: Context, job: Job) -> Job:
    """Take in a job that was built, number it, and start what is ready of it.

    A key with which the same owner submitted a live job gives that job again, whatever was built.
    Raises AlreadyExists.
    """
    owner = job.acl["owner"]
    known = state.idempotency.get((owner, job.idempotency)) if job.idempotency else None
    if known is not None:
        return known
    if job.id in state.jobs:
        raise AlreadyExists(f"job {job.id} exists already")
    job.jid = state.last_jid = state.last_jid + 1
    state.changes.counters = True
    take_in(state, job, job.tasks)
    state.touch_job(job)
    for task in job.tasks:
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
        state.named_nodes.file(task)
    for task in tasks:
        for id in task.depends_on:
            parent = state.tasks[id]
            parent.dependants.append(task)
            task.waiting_for += not parent.is_done
    job.open_tasks = sum(not task.is_done for task in tasks)
    job.revision = job.own_revision + sum(task.revision for task in tasks)


def _info(ctx: Context, info: Info, *, has_token: bool) -> Document:
    return {
        **info.model_dump(),
        "auth": has_token,
        "submittime": rfc3339(ctx.wall_s),
        "startedtime": ZERO_TIME,
        "completedtime": ZERO_TIME,
    }


def _acl(owner: str) -> Document:
    """The creator owns the job and is on all its lists."""
    users = [owner] if owner else []
    return {"owner": owner, "read": users, "write": users, "delete": users}


def _partinfo(given: Document | None) -> Document | None:
    """`inputs` stands there only if several are cut."""
    return given and {key: value for key, value in given.items() if value or key != "inputs"}


def _task(job: Job, index: int, doc: TaskDocument, names: list[str]) -> Task:
    task = Task(make_task_id(job.id, doc.taskid), job, doc.taskid, index)
    task.state = TaskState.PENDING
    task.depends_on = tuple(make_task_id(job.id, name) for name in names)
    given = doc.model_dump()
    task.inputs, task.outputs, task.predata = given["inputs"], given["outputs"], given["predata"]
    task.partinfo_wanted = task.partinfo = _partinfo(given["partinfo"])
    task.maxworksize = doc.maxworksize
    task.totalwork = task.totalwork_wanted = doc.totalwork
    task.userattr = given["userattr"]
    task.clientgroups = doc.clientgroups
    task.resources = given["resources"]
    task.time_limit_s = doc.time_limit_s
    task.max_failures = doc.max_failures
    task.retry_delay_s = doc.retry_delay_s
    task.skip = int(doc.skip)
    task.keep_failed = doc.keep_failed
    task.cmd = given["cmd"]
    task.private_env = task.cmd["environ"].pop("private")
    task.cmd["has_private_env"] = bool(task.private_env)
    return task


def _check_sizes(job: Job) -> None:
    """Job and tasks are documents of the store, also with all that the server adds to them later."""
    tasks = job.tasks
    for i, task in enumerate(tasks):
        if size := oversize(task_document(task), MAX_NEW_STORED_BYTES):
            raise TooLarge(f"tasks[{i}]: needs {size} bytes as stored, the limit is {MAX_NEW_STORED_BYTES}")
    info_bytes = json_size(job.info)
    if info_bytes * len(tasks) > MAX_REPEATED_INFO_BYTES:
        raise TooLarge(
            f"info: has {info_bytes} bytes and is shown with each of {len(tasks)} tasks, "
            f"the limit is {MAX_REPEATED_INFO_BYTES} together"
        )
    if size := oversize(job_document(job), MAX_NEW_STORED_BYTES):
        raise TooLarge(
            f"info and the ids of all {len(tasks)} tasks: need {size} bytes as stored, "
            f"the limit is {MAX_NEW_STORED_BYTES}"
        )
