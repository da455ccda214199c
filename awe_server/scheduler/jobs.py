"""What a person may do with a job. A verb completes at once, whatever clients do: work that runs is withdrawn
here and its holders are told; what they still say about it is refused (holder.py).

The engine brings a job that has left memory back before it calls a verb. Texts are AWE's where it has one.
Source: AWE lib/core/servermgr.go SuspendJob, ResumeSuspendedJobByUser, RecomputeJob, ResubmitJob,
DeleteJobByUser; differs: ended jobs cannot be suspended, resume keeps finished ranks and their count,
recompute reaches descendants over every path, and a job that goes on does not say any more what stopped it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from awe_server.scheduler.demands import relist_job
from awe_server.scheduler.failure import halt_job, stop_work
from awe_server.scheduler.places import kept_here, stage_places
from awe_server.scheduler.restart import (
    descendants,
    let_go_on,
    set_back,
    start_again,
    with_unusable_inputs,
)
from awe_server.scheduler.state import (
    ACTIVE_JOBS,
    ENDED_JOBS,
    Context,
    DeleteNodes,
    Job,
    Removal,
    State,
)
from shared_models.errors import BadRequest, Conflict, JobNotFound, TaskNotFound
from shared_models.expiration import expiration_s
from shared_models.ids import JobId, make_task_id
from shared_models.limits import MAX_NAME_CHARS, MAX_PRIORITY, MAX_TEXT_CHARS, MAX_TOKEN_CHARS
from shared_models.meaning import check_groups
from shared_models.problems import Problems
from shared_models.states import JobState, TaskState, WorkunitState

MANUALLY = "manually suspended"  #: AWE's reason when a person suspends a job


def suspend_job(state: State, ctx: Context, job_id: JobId, reason: str = MANUALLY) -> Job:
    """Stop a job until somebody resumes it; suspending a suspended job changes nothing.

    Raises JobNotFound, IllegalMove if the job has ended.
    """
    job = _find(state, job_id)
    if job.state is not JobState.SUSPEND:
        halt_job(state, ctx, job, reason)
    return job


def resume_job(state: State, ctx: Context, job_id: JobId) -> Job:
    """Let a suspended job go on: finished ranks count, failures are forgiven, refused inputs looked at again.

    So are those that a client could not use, if nothing of their task is done: they may be others by now.

    Raises JobNotFound, Conflict if the job is not suspended.
    """
    job = _find(state, job_id)
    if job.state is not JobState.SUSPEND:
        raise Conflict(f"job {job.id} is not in 'suspend' status", job_id=job.id, state=job.state.value)
    set_back(state, ctx, job, with_unusable_inputs(job.tasks))
    let_go_on(state, job.tasks)
    state.record("JU", jobid=job.id)
    start_again(state, ctx, job)
    return job


def recompute_job(state: State, ctx: Context, job_id: JobId, task_name: str) -> Job:
    """Do a task and everything that depends on it once more; what else is unfinished goes on.

    Raises JobNotFound, TaskNotFound, Conflict unless the job is completed or suspended.
    """
    job = _restartable(state, job_id)
    task = state.tasks.get(make_task_id(job.id, task_name))
    if task is None or task.job is not job:
        raise TaskNotFound(task_id=f"{job.id}_{task_name[:MAX_NAME_CHARS]}")
    again = descendants(task)
    set_back(state, ctx, job, again)
    let_go_on(state, job.tasks)
    state.record("JC", jobid=job.id, taskid=task.id, tasks=len(again))
    start_again(state, ctx, job, f"recomputed from task {task.id}")
    return job


def resubmit_job(state: State, ctx: Context, job_id: JobId) -> Job:
    """Do the whole job once more, under the same id.

    Raises JobNotFound, Conflict unless the job is completed or suspended.
    """
    job = _restartable(state, job_id)
    set_back(state, ctx, job, job.tasks)
    state.record("JC", jobid=job.id, tasks=len(job.tasks))
    start_again(state, ctx, job, "restarted from the beginning")
    return job


def recover_job(state: State, ctx: Context, job_id: JobId) -> Job:
    """Do nothing, successfully: AWE's way to bring back a job that its server forgot; here none is forgotten.

    Raises JobNotFound.
    """
    return _find(state, job_id)


def delete_job(state: State, ctx: Context, job_id: JobId, full: bool = False) -> Job:
    """End a job for good; work that runs is told to stop. `full`: its documents and output nodes go as well.

    Deleting a deleted job changes nothing. Raises JobNotFound.
    """
    job = _find(state, job_id)
    if job.state is not JobState.DELETED:
        if job.state not in ENDED_JOBS:
            stop_work(state, ctx, job, TaskState.SUSPEND, WorkunitState.SUSPEND)
        job.state = JobState.DELETED
        job.notes = "deleted"
        job.updatetime = ctx.wall_s
        state.touch_job(job)
        state.record("JL", jobid=job.id)
    if full:
        _remove(state, ctx, job)
    else:
        state.forget_later(job)
    return job


def remove_unreadable(state: State, ctx: Context, job_id: JobId, node_ids: Sequence[str]) -> None:
    """Remove a job whose documents make no sense, with its output nodes. Raises Conflict if it is live."""
    if job_id in state.jobs:
        raise Conflict(f"job {job_id} can be read", job_id=job_id)
    _remove_documents(state, ctx, job_id, node_ids)


def set_priority(state: State, ctx: Context, job_id: JobId, priority: int) -> Job:
    """Higher goes first, from the next checkout on; it becomes at least 1, as at submission.

    Raises JobNotFound, BadRequest.
    """
    if type(priority) is not int or not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        raise BadRequest(f"priority must be a whole number between {-MAX_PRIORITY} and {MAX_PRIORITY}")
    return _set_info(state, ctx, job_id, relist_job, priority=max(1, priority))


def set_clientgroups(state: State, ctx: Context, job_id: JobId, clientgroups: str) -> Job:
    """Replace the client groups that may run the job; queued work moves, running work goes on.

    Tasks with client groups of their own keep them. Raises JobNotFound, BadRequest, InvalidDocument.
    """
    problems = Problems()
    groups = check_groups(_text("clientgroups", clientgroups), "clientgroups", problems)
    problems.raise_if_any()
    return _set_info(state, ctx, job_id, relist_job, clientgroups=groups)


def set_pipeline(state: State, ctx: Context, job_id: JobId, pipeline: str) -> Job:
    """Replace the pipeline's name. Raises JobNotFound, BadRequest."""
    return _set_info(state, ctx, job_id, None, pipeline=_text("pipeline", pipeline))


def set_datatoken(state: State, ctx: Context, job_id: JobId, token: str) -> Job:
    """Keep the token with which the job's clients reach its data; only holders of its work ever see it.

    Raises JobNotFound, BadRequest.
    """
    if not token or len(token) > MAX_TOKEN_CHARS:
        raise BadRequest("no token received" if not token else "the token is too long")
    job = _find(state, job_id)
    job.datatoken = token
    return _set_info(state, ctx, job_id, None, auth=True)


def set_expiration(state: State, ctx: Context, job_id: JobId, text: str) -> Job:
    """Have the job removed a while after now, once it has ended: `<n>M`, `<n>H` or `<n>D`.

    Raises JobNotFound, BadRequest.
    """
    job = _find(state, job_id)
    seconds = expiration_s(text)
    if seconds is None:
        raise BadRequest(f"expiration format '{text[:100]}' is invalid")
    job.expiration = ctx.wall_s + seconds
    job.updatetime = ctx.wall_s
    state.touch_job(job)
    return job


def _find(state: State, job_id: JobId) -> Job:
    job = state.jobs.get(job_id)
    if job is None:
        raise JobNotFound(job_id=job_id[:MAX_NAME_CHARS])
    return job


def _restartable(state: State, job_id: JobId) -> Job:
    job = _find(state, job_id)
    if job.state in ACTIVE_JOBS:
        raise Conflict(f"job {job.id} is already active", job_id=job.id, state=job.state.value)
    if job.state not in (JobState.COMPLETED, JobState.SUSPEND):
        text = f"job {job.id} is not in 'completed' or 'suspend' status"
        raise Conflict(text, job_id=job.id, state=job.state.value)
    return job


def _text(name: str, value: str) -> str:
    if len(value) > MAX_TEXT_CHARS:
        raise BadRequest(f"{name} is longer than {MAX_TEXT_CHARS} characters")
    return value


def _set_info(
    state: State, ctx: Context, job_id: JobId, then: Callable[[State, Job], None] | None, **values: Any
) -> Job:
    job = _find(state, job_id)
    job.info = {**job.info, **values}
    job.updatetime = ctx.wall_s
    state.touch_job(job)
    if then is not None:
        then(state, job)
    return job


def _remove(state: State, ctx: Context, job: Job) -> None:
    """Take a deleted job and everything of it out of memory and store."""
    state.forget_job(job.id)
    changes = state.changes
    changes.jobs.pop(job.id, None)
    changes.tasks = {id: task for id, task in changes.tasks.items() if task.job is not job}
    changes.workunits = {id: unit for id, unit in changes.workunits.items() if unit.task.job is not job}
    _remove_documents(state, ctx, job.id, kept_here(job.tasks))
    state.delete_places(ctx, [place for task in job.tasks for place in stage_places(task)], job.id)


def _remove_documents(state: State, ctx: Context, job_id: JobId, node_ids: Sequence[str]) -> None:
    """The job's own goes now; its parts, and what else is there for it, once that is durable (effect)."""
    state.changes.removals.append(Removal("jobs", "id", job_id))
    state.delete_nodes(ctx, node_ids)
    state.emit(DeleteNodes(ctx.new_token(), (), job=job_id))
    state.record("JR", jobid=job_id)
