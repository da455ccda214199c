"""The other faces of a job: waiting for it, why it waits, its place in the queue, its logs, its times."""

from typing import Any

import anyio
from anyio import to_thread

from awe_server.api import views
from awe_server.api.transfers import Transfers, in_words
from awe_server.data.logs import STREAMS, Log, Logs
from awe_server.runtime.engine import Engine
from awe_server.runtime.services import Services
from awe_server.scheduler.state import ACTIVE_JOBS, Context, Job, State
from awe_server.scheduler.why import MAX_WORKUNIT_ROWS, Reason, why_ended, why_job, why_workunit
from awe_server.store.base import Document, Match, Query
from shared_models.errors import BadRequest, NotFound, TooLarge
from shared_models.ids import JobId, TaskId, WorkunitId, make_workunit_id
from shared_models.limits import MAX_PAGE, MAX_WAIT_S
from shared_models.states import JobState, WorkunitState

ENDED = frozenset({JobState.COMPLETED, JobState.SUSPEND, JobState.FAILED_PERMANENT, JobState.DELETED})
#: All logs of one report together; with many workunits each gets only its end.
MAX_REPORT_BYTES = 16 * 1024 * 1024

MIN_PAUSE_S = 0.02
PAUSE_PER_TASK_S = 0.0002
MAX_PAUSE_S = 5.0


async def wait(engine: Engine, job_id: JobId, wait_s: float, revision: int | None) -> Job | None:
    """Return as soon as the job ended, or differs from `revision`, or the time is over. Raises JobNotFound.

    A job that changes all the time is shown once for many changes, see `_pause_s`. No document is built here:
    one that was completed meanwhile is given as it left memory, for `Engine.job_documents`.
    """
    until = anyio.current_time() + min(wait_s, MAX_WAIT_S)
    seen, job = engine.state, None
    while True:
        job = _still(engine, job_id, job if engine.state is seen else None)
        seen = engine.state
        state, present, tasks = await _mark(engine, job_id, job)
        left_s = until - anyio.current_time()
        if left_s <= 0 or (state in ENDED and revision != present):
            return job
        if revision is None:
            await engine.waiters.job_end(job_id, left_s)
        elif revision == present:
            await engine.waiters.job(job_id, present, left_s)
        else:
            await engine.waiters.job_end(job_id, min(left_s, _pause_s(tasks)))
            return _still(engine, job_id, job if engine.state is seen else None)


def _still(engine: Engine, job_id: JobId, before: Job | None) -> Job | None:
    """The job in memory, or as it was there `before`, if completed: it was durable when it left."""
    is_over = before is not None and before.state is JobState.COMPLETED
    return engine.state.jobs.get(job_id) or (before if is_over else None)


async def _mark(engine: Engine, job_id: JobId, job: Job | None) -> tuple[str, int, int]:
    """State, revision and number of tasks at this moment, of the job as it is in memory or was until now."""
    if job is not None:
        return job.state, job.revision, len(job.tasks)
    stored = await engine.job_head(job_id)
    return stored["state"], stored["revision"], len(stored["task_names"])


def _pause_s(tasks: int) -> float:
    """How long changes of a job of so many tasks are gathered for somebody who wants to see each.

    A reply costs all the job's tasks: so one reader costs a few hundredths of a core, however much changes.
    """
    return min(MAX_PAUSE_S, MIN_PAUSE_S + tasks * PAUSE_PER_TASK_S)


async def why(services: Services, job: Document, transfers: Transfers) -> list[Reason]:
    """What the job and its unfinished parts wait for, some running ones too; once over, why it failed."""
    engine = services.engine
    if job["id"] not in engine.state.jobs:
        return why_ended(job["id"], JobState(job["state"]), job["notes"])
    rows = await engine.look(_why, engine.context(), JobId(job["id"]), transfers)
    for row in rows:
        if trouble := engine.troubles.get(row["id"]):
            row["reason"] = f"{row['reason']}; {trouble}"
    return rows


def _why(state: State, ctx: Context, job_id: JobId, transfers: Transfers) -> list[Reason]:
    rows = why_job(state, ctx, job_id)
    for work, progress in transfers.of_job(state, job_id, MAX_WORKUNIT_ROWS):
        [row] = why_workunit(state, ctx, work)
        rows.append({**row, "reason": f"{row['reason']}, {in_words(progress)}"})
    return rows


async def position(services: Services, job: Document) -> dict[str, int]:
    """How many jobs are served before it. Raises BadRequest with AWE's text if it does not wait."""
    if JobState(job["state"]) not in ACTIVE_JOBS:
        raise BadRequest(f"job is not queued or in-progress, job state:{job['state']}")
    return {"position": 1 + await services.engine.look(_before, JobId(job["id"]))}


def _before(state: State, job_id: JobId) -> int:
    """Count jobs that go first and want some of the same client groups.

    Source: AWE lib/controller/jobController.go; differs: groups are compared whole, not as patterns.
    """
    job = state.jobs[job_id]
    groups = _groups(job.info)
    count = 0
    for other in state.jobs.values():
        if other is not job and other.state in ACTIVE_JOBS and _goes_first(other, job):
            theirs = _groups(other.info)
            count += not groups or not theirs or not groups.isdisjoint(theirs)
    return count


def _goes_first(one: Any, other: Any) -> bool:
    return (-one.priority, one.jid) < (-other.priority, other.jid)


def _groups(info: Document) -> set[str]:
    return {name for name in str(info.get("clientgroups") or "").split(",") if name}


async def report(services: Services, job: Document) -> Document:
    """What a job's commands printed. Raises TooLarge if it has too many workunits for one reply."""
    job, tasks = await services.engine.job_documents(JobId(job["id"]))
    count = sum(task["totalwork"] for task in tasks)
    if count > MAX_PAGE:
        raise TooLarge(
            f"the job has {count} workunits, a report shows {MAX_PAGE}: "
            f"read single logs, GET /work/ID/log/stdout (GET /work?jobid={job['id']} lists them)"
        )
    most = MAX_REPORT_BYTES // max(1, count * len(STREAMS))
    units = await _units(services.engine, job["id"])
    logs = Logs(services.logs_dir)
    return {
        **{key: job[key] for key in ("id", "state", "updatetime", "notes", "lastfailed", "error", "resumed")},
        "tasks": [
            {
                **{key: task[key] for key in ("taskid", "state", "totalwork", "completeddate")},
                "workunits": [
                    await _unit_report(logs, make_workunit_id(TaskId(task["id"]), rank), rank, units, most)
                    for rank in _ranks(task["totalwork"])
                ],
            }
            for task in tasks
        ],
    }


def _ranks(totalwork: int) -> range:
    return range(1) if totalwork == 1 else range(1, totalwork + 1)


async def _unit_report(
    logs: Logs, work: WorkunitId, rank: int, units: dict[str, Document], most_bytes: int
) -> Document:
    unit = units.get(work, {})
    attempt = unit.get("attempt", 0)
    texts = {}
    for stream in STREAMS:
        texts[stream] = await logs.tail(Log(work, attempt, stream), most_bytes) if attempt else ""
    # While it runs they are of the attempt before.
    notes = unit["notes"] if unit and unit["state"] != WorkunitState.CHECKOUT else ""
    return {"wuid": work, "rank": rank, "logs": texts, "notes": notes}


async def _units(engine: Engine, job_id: str) -> dict[str, Document]:
    page = await engine.find("workunits", Query(where=(Match("jobid", (job_id,)),)))
    return {unit["id"]: unit for unit in page.documents}


async def perf(services: Services, job: Document) -> Document:
    """AWE's performance document. Raises NotFound before the job has ended, as AWE does; TooLarge."""
    job, tasks = await services.engine.job_documents(JobId(job["id"]))
    if JobState(job["state"]) not in ENDED:
        raise NotFound(f"no performance document yet: job {job['id']} is {job['state']}")
    count = sum(task["totalwork"] for task in tasks)
    if count > 100 * MAX_PAGE:
        raise TooLarge(f"the job has {count} workunits, too many for one performance document")
    units = await _units(services.engine, job["id"])
    done = [unit for unit in units.values() if unit["state"] == "completed"]
    return await to_thread.run_sync(views.perf_view, job, tasks, done)  # up to 100,000 rows
