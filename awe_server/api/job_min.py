"""The short rows of `GET /job?verbosity=minimal`: made of sums, so a job of any size is one small row.

Source: AWE lib/core/job.go GetJobMin; differs: a job without tasks is a row too, a job that is at very many
tasks names the first of them, and `jid`, `user`, `job_state`, `totalwork`, `remainwork` are there, so that a
list for people needs nothing else.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from awe_server.api.views import seconds
from awe_server.runtime.engine import Engine
from awe_server.scheduler.state import Job
from awe_server.store.base import Document, Match
from shared_models.ids import JobId, make_task_id
from shared_models.states import JobState, TaskState
from shared_models.times import ZERO_TIME

MAX_NAMED_TASKS = 1_000  #: tasks that a row names, of those that its job is at
SLICE_TASKS = 20_000  #: tasks that are added up without a pause

_AT_WORK = (TaskState.QUEUED, TaskState.IN_PROGRESS)
_TO_COME = (TaskState.PENDING, TaskState.INIT)
_OVER = (JobState.COMPLETED, JobState.DELETED)
_STOPPED = (JobState.SUSPEND, JobState.FAILED_PERMANENT)


@dataclass(slots=True)
class Sums:
    """What a row says of a job's tasks."""

    size: int = 0  #: bytes of the first task's inputs
    computetime: float = 0.0
    totalwork: int = 0
    remainwork: int = 0
    at: list[tuple[int, str]] = field(default_factory=list)  #: index and state of the tasks it is at
    omitted: int = 0  #: more tasks it is at


async def short_rows(engine: Engine, jobs: Sequence[Document]) -> list[Document]:
    """A row for each job document, in order."""
    sums = await _live_sums(engine, [JobId(job["id"]) for job in jobs])
    sums |= await _stored_sums(engine, [job for job in jobs if job["id"] not in sums])
    return [_row(job, sums[job["id"]]) for job in jobs]


async def _live_sums(engine: Engine, ids: Sequence[JobId]) -> dict[str, Sums]:
    found: dict[str, Sums] = {}
    added = 0
    for id in ids:
        job = engine.state.jobs.get(id)
        if job is not None:
            found[id] = _sums(job)
            added += len(job.tasks)
            if added > SLICE_TASKS:
                added = 0
                await asyncio.sleep(0)
    await engine.settled()
    return found


def _sums(job: Job) -> Sums:
    sums = Sums()
    for task in job.tasks:
        sums.computetime += task.computetime
        sums.totalwork += task.totalwork
        sums.remainwork += task.remainwork
    if job.tasks:
        sums.size = _size(job.tasks[0].inputs)
    if job.state in _STOPPED:
        failed = _failed(job.error)
        sums.at = [(task.index, task.state) for task in job.tasks if task.id == failed]
    elif job.state not in _OVER:
        at = [task for task in job.tasks if task.state in _AT_WORK]
        at = at or list(islice((task for task in job.tasks if task.state in _TO_COME), 1))
        sums.at = [(task.index, task.state) for task in at[:MAX_NAMED_TASKS]]
        sums.omitted = max(0, len(at) - MAX_NAMED_TASKS)
    return sums


async def _stored_sums(engine: Engine, jobs: Sequence[Document]) -> dict[str, Sums]:
    """Of jobs that are not in memory: they have ended, or could not be read and are shown as they are."""
    if not jobs:
        return {}
    of_these = [Match("jobid", tuple(job["id"] for job in jobs))]
    times, totals, remains = [
        await engine.sum_by("tasks", field, "jobid", of_these)
        for field in ("computetime", "totalwork", "remainwork")
    ]
    first = {job["id"]: make_task_id(job["id"], job["task_names"][0]) for job in jobs if job["task_names"]}
    failed = {job["id"]: id for job in jobs if job["state"] in _STOPPED and (id := _failed(job["error"]))}
    tasks = await engine.get_many("tasks", [*first.values(), *failed.values()])
    found: dict[str, Sums] = {}
    for id in (job["id"] for job in jobs):
        sums = found[id] = Sums(
            computetime=times.get(id, 0.0),
            totalwork=int(totals.get(id, 0)),
            remainwork=int(remains.get(id, 0)),
        )
        if task := tasks.get(first.get(id, "")):
            sums.size = _size(task["inputs"])
        if task := tasks.get(failed.get(id, "")):
            sums.at = [(task["index"], task["state"])]
    return found


def _failed(error: Document | None) -> str:
    return str((error or {}).get("taskfailed") or "")


def _size(inputs: Sequence[Document]) -> int:
    return sum(int(io.get("size") or 0) for io in inputs)


def _row(job: Document, sums: Sums) -> Document:
    state, info = str(job["state"]), job["info"]
    row = {
        "id": job["id"],
        "name": info.get("name", ""),
        "size": sums.size,
        "submittime": info.get("submittime", ZERO_TIME),
        "completedtime": info.get("completedtime", ZERO_TIME),
        "computetime": seconds(sums.computetime),
        "task": [index for index, _ in sums.at],
        "state": [state] if state in (*_OVER, *_STOPPED) else [name for _, name in sums.at],
        "userattr": info.get("userattr") or {},
        "jid": job["jid"],
        "user": info.get("user", ""),
        "job_state": state,
        "totalwork": sums.totalwork,
        "remainwork": sums.remainwork,
    }
    return {**row, "tasks_omitted": sums.omitted} if sums.omitted else row
