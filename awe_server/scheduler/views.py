"""Documents of live entities, as the store keeps them. Keys that start with `_` are never shown to people."""

from functools import lru_cache

from awe_server.scheduler.state import Changes, Client, Document, Job, State, Task, Workunit
from shared_models.ids import TaskId, WorkunitId, make_workunit_id, split_workunit_id
from shared_models.states import JobState, TaskState, WorkunitState
from shared_models.times import ZERO_TIME, rfc3339

#: All workunits of one batch carry the same few times.
_time = lru_cache(maxsize=1024)(rfc3339)

_PRISTINE_STATE: dict[str, WorkunitState] = {
    TaskState.SUSPEND: WorkunitState.SUSPEND,
    TaskState.FAILED_PERMANENT: WorkunitState.FAILED_PERMANENT,
}


def job_document(job: Job) -> Document:
    """The job without its tasks (they are documents of their own)."""
    return {
        "id": job.id,
        "jid": str(job.jid),
        "info": job.info,
        "state": job.state.value,
        "registered": True,
        "remaintasks": job.open_tasks,
        "expiration": _time(job.expiration),
        "updatetime": _time(job.updatetime),
        "notes": job.notes,
        "lastfailed": job.lastfailed,
        "error": job.error,
        "resumed": job.resumed,
        "shockhost": job.shockhost,
        "acl": job.acl,
        "task_names": [task.name for task in job.tasks],
        "revision": job.revision,
        "_jid": job.jid,
        "_own_revision": job.own_revision,
        "_idempotency": job.idempotency,
        "_datatoken": job.datatoken,
    }


def task_document(task: Task) -> Document:
    """The task with what its workunits share."""
    return {
        "id": task.id,
        "jobid": task.job.id,
        "task_name": task.name,
        "taskid": task.id,
        "index": task.index,
        "state": task.state.value,
        "cmd": task.cmd,
        "_private_env": task.private_env,
        "dependsOn": list(task.depends_on),
        "inputs": task.inputs,
        "outputs": task.outputs,
        "predata": task.predata,
        "partinfo": task.partinfo,
        "_partinfo_wanted": task.partinfo_wanted,
        "maxworksize": task.maxworksize,
        "totalwork": task.totalwork,
        "_totalwork_wanted": task.totalwork_wanted,
        "remainwork": task.remainwork,
        "computetime": task.computetime,
        "createddate": _time(task.createddate),
        "starteddate": _time(task.starteddate),
        "completeddate": _time(task.completeddate),
        "userattr": task.userattr,
        "clientgroups": task.clientgroups,
        "resources": task.resources,
        "time_limit_s": task.time_limit_s,
        "max_failures": task.max_failures,
        "retry_delay_s": task.retry_delay_s,
        "notes": task.notes,
        "skip": task.skip,
        "keep_failed": task.keep_failed,
        "generation": task.generation,
        "fresh_rank": task.fresh_rank,
        "first_attempt": task.first_attempt,
        "max_attempt": task.max_attempt,
        "_is_cut": task.is_cut,
        "_blamed": task.blamed,
        "_revision": task.revision,
    }


def unit_document(unit: Workunit) -> Document:
    """A workunit that was handed out at least once."""
    task = unit.task
    return {
        "id": unit.id,
        "jobid": task.job.id,
        "taskid": task.id,
        "rank": unit.rank,
        "state": unit.state._value_,  # what `value` looks up, at a quarter of its cost
        "failed": unit.failed,
        "lost": unit.lost,
        "attempt": unit.attempt,
        "client": unit.client,
        "checkout_time": _time(unit.checkout_time),
        "computetime": unit.computetime,
        "done_time": _time(unit.done_time) if unit.done_time else ZERO_TIME,
        "notes": unit.notes,
        "exit": unit.exit,
        "perf": unit.perf,
        "outputs": unit.outputs,
        "kept": unit.kept,
        "_token": unit.token,
        "generation": unit.generation,
        "not_before": _time(unit.not_before) if unit.not_before else ZERO_TIME,
        "_input_failures": unit.input_failures,
        "_node_failures": unit.node_failures,
        "_given_back": unit.given_back,
        "_missed": unit.missed,
        "_blamed": unit.blamed,
    }


def pristine_document(task: Task, rank: int) -> Document:
    """What a rank that was never handed out looks like: no document of it is stored."""
    state = pristine_state(task.state, task.job.state)
    return _pristine(task.job.id, task.id, rank, state, task.generation)


def pristine_state(task_state: str, job_state: str) -> WorkunitState:
    """The state of a task's ranks that were never handed out."""
    if job_state == JobState.SUSPEND:
        return WorkunitState.SUSPEND
    return _PRISTINE_STATE.get(task_state, WorkunitState.QUEUED)


def stored_fresh_ranks(task: Document) -> range:
    """The ranks of a stored task that were never handed out."""
    return range(task["fresh_rank"], stored_ranks(task).stop) if task["_is_cut"] else range(0)


def stored_ranks(task: Document) -> range:
    """All ranks of a stored task; none before it was cut."""
    if not task["_is_cut"]:
        return range(0)
    return range(1) if task["totalwork"] == 1 else range(1, task["totalwork"] + 1)


def stored_pristine_document(job: Document, task: Document, rank: int) -> Document | None:
    """As `pristine_document`, of a job that has left memory; None for a rank that was handed out."""
    if rank not in stored_fresh_ranks(task):
        return None
    state = pristine_state(task["state"], job["state"])
    return _pristine(job["id"], task["id"], rank, state, task["generation"])


def _pristine(job_id: str, task_id: str, rank: int, state: WorkunitState, generation: int) -> Document:
    return {
        "id": make_workunit_id(TaskId(task_id), rank),
        "jobid": job_id,
        "taskid": task_id,
        "rank": rank,
        "state": state.value,
        "failed": 0,
        "lost": 0,
        "attempt": 0,
        "client": "",
        "checkout_time": ZERO_TIME,
        "computetime": 0.0,
        "done_time": ZERO_TIME,
        "notes": "",
        "exit": None,
        "perf": None,
        "outputs": None,
        "kept": "",
        "_token": "",
        "generation": generation,
        "not_before": ZERO_TIME,
        "_input_failures": 0,
        "_node_failures": 0,
        "_given_back": 0,
        "_missed": False,
        "_blamed": {},
    }


def workunit_document(state: State, workunit_id: WorkunitId) -> Document | None:
    """A workunit that is live or was never handed out; None for one that is completed or does not exist."""
    unit = state.workunits.get(workunit_id)
    if unit is not None:
        return unit_document(unit)
    task_id, rank = split_workunit_id(workunit_id)
    task = state.tasks.get(task_id)
    if task is None or not task.is_cut or not task.fresh_rank <= rank < task.end_rank:
        return None
    return pristine_document(task, rank)


def client_document(client: Client) -> Document:
    """The client; its live work (`current_work`) is joined by the API from `client.holds`."""
    return {
        **client.profile,
        "id": client.id,
        "name": client.name,
        "group": client.group,
        "cores": client.cores,
        "memory_bytes": client.memory_bytes,
        "disk_bytes": client.disk_bytes,
        "gpus": client.gpus,
        "apps": list(client.apps),
        "containers": list(client.containers),
        "file_roots": list(client.file_roots),
        "regtime": _time(client.regtime),
        "Status": client.status.value,
        "suspended": client.suspended,
        "suspend_reason": client.suspend_reason,
        "total_checkout": client.total_checkout,
        "total_completed": client.total_completed,
        "total_failed": client.total_failed,
        "skip_work": list(client.skip),
        "incarnation": client.incarnation,
        "native": client.native,
        "lastcompleted": _time(client.lastcompleted),
        "idle_since": _time(client.idle_since),
        "consecutive_failures": len(client.blamed),
        "_blamed": list(client.blamed),
    }


def counters_document(state: State) -> Document:
    """Numbers that are never handed out twice."""
    return {"id": "counters", "jid": state.last_jid}


def queue_document(state: State) -> Document:
    """The switch of the whole queue."""
    return {"id": "queue", "suspended": state.queue_suspended}


def documents(state: State, changes: Changes) -> list[tuple[str, Document]]:
    """Everything to store of a batch as (collection, document), jobs last (see Changes)."""
    found: list[tuple[str, Document]] = [("workunits", unit_document(u)) for u in changes.workunits.values()]
    found += [("tasks", task_document(task)) for task in changes.tasks.values()]
    found += [("clients", client_document(client)) for client in changes.clients.values()]
    if changes.counters:
        found.append(("meta", counters_document(state)))
    if changes.queue:
        found.append(("meta", queue_document(state)))
    found += [("jobs", job_document(job)) for job in changes.jobs.values()]
    return found
