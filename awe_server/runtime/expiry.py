"""Remove finished jobs whose time has come, with their tasks, workunits, output nodes and logs.

Source: AWE lib/core/jobmgr.go UpdateJobExpire (every 60 minutes; completed or deleted jobs with an
expiration in the past); differs: also jobs that failed for good, which no verb brings on any more, so that
the one who named the time meant that end, too. An expired job leaves nothing behind but nodes that another
job still needs (node_removal.py), and whatever a crash left of jobs that no longer exist goes as well, looked
for at the start and then once an hour.
"""

import asyncio
import logging
from pathlib import Path

from awe_server.data.files import clean_temporary
from awe_server.data.logs import Logs
from awe_server.runtime.engine import Engine
from awe_server.runtime.node_removal import NodeRemover
from awe_server.runtime.parts_removal import PartsRemover
from awe_server.runtime.sweep import sweep_every
from awe_server.scheduler.changes import Event
from awe_server.scheduler.places import stage_places_of
from awe_server.scheduler.state import ENDED_JOBS, State
from awe_server.scheduler.views import job_document
from awe_server.store.base import Delete, Document, Match, Query
from awe_server.store.errors import StoreCorrupt
from shared_models.errors import AweError, UnreadableJob
from shared_models.ids import JobId
from shared_models.states import TaskState
from shared_models.times import rfc3339

log = logging.getLogger(__name__)

PAGE = 200  #: jobs removed between two looks at the store
LEFTOVERS_EVERY_S = 3600.0
EXPIRING = tuple(sorted(state.value for state in ENDED_JOBS))


class Expiry:
    """The sweep."""

    def __init__(
        self, engine: Engine, remover: NodeRemover, parts: PartsRemover, logs_dir: Path, every_s: float
    ) -> None:
        self._engine = engine
        self._remover = remover
        self._parts = parts
        self._logs_dir = logs_dir
        self._every_s = every_s
        self._leftovers_s = 0.0  #: monotonic; when to look for leftovers next

    async def run(self) -> None:
        """Sweep until cancelled."""
        await sweep_every(self._every_s, self.once)

    async def once(self) -> int:
        """Remove what has expired by now; how many jobs that were."""
        now = rfc3339(self._engine.clock.wall())
        expired = (
            Match("state", EXPIRING),
            Match("expiration", (EARLIEST,), "ge"),
            Match("expiration", (now,), "lt"),
        )
        removed = kept = 0
        while True:
            query = Query(where=expired, limit=PAGE, order="expiration", offset=kept)
            page = await self._engine.find("jobs", query)
            if not page.documents:
                break
            gone = [job for job in page.documents if await self._remove_if_sound(JobId(job["id"]), now)]
            removed += len(gone)
            kept += len(page.documents) - len(gone)
        now_s = self._engine.clock.monotonic()
        if now_s >= self._leftovers_s:
            await self._sweep_leftovers()
            self._leftovers_s = now_s + LEFTOVERS_EVERY_S
        return removed

    async def _remove_if_sound(self, job_id: JobId, now: str) -> bool:
        """As `_remove`; a job of which documents make no sense stays, and holds up no other."""
        try:
            return await self._remove(job_id, now)
        except (UnreadableJob, StoreCorrupt) as exc:
            _say_skipped(job_id, exc)
            return False

    async def _remove(self, job_id: JobId, now: str) -> bool:
        """Remove it, unless somebody has changed it since the look, or does something with it right now."""
        places = await self._staged(job_id)
        job = await self._engine.get("jobs", job_id)
        # Nothing may come between this look and the batch that `do_with` or `put` begins with.
        live = self._engine.state.jobs.get(job_id)
        if live is not None:
            job = job_document(live)
        if job is None or not _has_expired(job, now) or not self._engine.retire(job_id):
            return False
        gone = Delete("jobs", job_id)
        if places:
            await self._engine.do_with([gone], State.delete_places, places, job_id)
        else:
            await self._engine.put(gone)
        self._engine.events.publish([Event("JE", {"jobid": job_id})])
        log.info("job_expired", extra={"jobid": job_id})
        await self._parts.remove_all_of(job_id)
        await self._remove_files(job_id)
        return True

    async def _staged(self, job_id: JobId) -> list[str]:
        """Where attempts of tasks that were never completed may have left files beside their targets.

        Raises UnreadableJob.
        """
        found: list[str] = []
        async for task in self._engine.scan("tasks", [Match("jobid", (job_id,))]):
            try:
                if task["_is_cut"] and task["state"] != TaskState.COMPLETED:
                    found += stage_places_of(task["id"], task["generation"], task["outputs"])
            except Exception as exc:
                problem = f"task {task['id']}: {type(exc).__name__}: {exc}"
                raise UnreadableJob(job_id=job_id, problem=problem) from exc
        return found

    async def _sweep_leftovers(self) -> None:
        """What is left of jobs that are gone: a crash may have come between a job and the rest of it, or,
        on a store without transactions, between the rest of it and a new job. And logs that are not whole."""
        named = await self._engine.distinct("nodes", "job")
        owners = {owner for owner in named if isinstance(owner, str)}
        owners.update(await asyncio.to_thread(_names, self._logs_dir))
        owners.update(await self._engine.count_by("tasks", "jobid"))
        owners.update(id.partition("_")[0] for id in await self._engine.count_by("workunits", "taskid"))
        ids = [JobId(id) for id in sorted(owners) if id]
        for start in range(0, len(ids), PAGE):
            some = ids[start : start + PAGE]
            known = await self._engine.get_many("jobs", some)
            live = self._engine.state.jobs
            gone = [job_id for job_id in some if job_id not in known and job_id not in live]
            for job_id in gone:
                try:
                    await self._parts.remove_all_of(job_id)
                    await self._remove_files(job_id)
                except StoreCorrupt as exc:
                    _say_skipped(job_id, exc)
        young_s = self._engine.clock.wall() - LEFTOVERS_EVERY_S
        await asyncio.to_thread(clean_temporary, self._logs_dir, young_s)

    async def _remove_files(self, job_id: JobId) -> None:
        await self._remover.remove_all_of(job_id)
        await Logs(self._logs_dir).remove(job_id)


#: Times before this one mean "never".
EARLIEST = rfc3339(1.0)


def _has_expired(job: Document, now: str) -> bool:
    expiration = job["expiration"]
    return job["state"] in EXPIRING and isinstance(expiration, str) and EARLIEST <= expiration < now


def _say_skipped(job_id: JobId, exc: AweError) -> None:
    log.error("document_skipped", extra={"collection": "jobs", "id": job_id, "error": exc.message})


def _names(folder: Path) -> list[str]:
    """Those in a folder that can be ids of jobs."""
    return [entry.name for entry in folder.iterdir() if entry.name.isascii()] if folder.is_dir() else []
