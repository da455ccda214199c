"""What has ended and left memory: looked up in the store, or brought back for a verb.

A finished job leaves memory once it is durable. A verb such as recompute brings it back for a while; it
leaves again when that is over and nothing of it is still to be written.
"""

import asyncio
from collections.abc import Mapping, Sequence
from weakref import WeakValueDictionary

from awe_server.runtime import recovery
from awe_server.runtime.clock import Clock
from awe_server.runtime.documents import StoredDocuments
from awe_server.scheduler import views
from awe_server.scheduler.state import Changes, Context, State
from awe_server.store.base import Document, Store
from awe_server.store.errors import no_answer
from shared_models.errors import JobNotFound
from shared_models.ids import JobId, WorkunitId

VISIT_S = 60.0  #: how long a finished job stays that was brought back for a verb


class Ended(StoredDocuments):
    """The part of the engine that knows what is not in memory any more."""

    def __init__(self, store: Store, clock: Clock, live: State, wait_s: float) -> None:
        super().__init__(store)
        self.clock = clock
        self._wait_s = wait_s  #: for the look-up of what a client reports
        self._live = live
        self._flying: list[Changes] = []  #: taken, not durable yet
        self._visitors: dict[JobId, float] = {}  #: finished jobs in memory, and when they may leave
        self._coming: WeakValueDictionary[JobId, asyncio.Lock] = WeakValueDictionary()

    @property
    def state(self) -> State:
        """The live state, to look at."""
        raise NotImplementedError

    def context(self) -> Context:
        """Now, and a source of tokens, for one transition."""
        raise NotImplementedError

    async def finished(self, workunit_ids: Sequence[WorkunitId]) -> Mapping[WorkunitId, Document]:
        """Documents of workunits that are not live any more, for `report` and `exchange`.

        Complete at the moment it returns: a workunit that left memory during the look-up is looked up as
        well. Raises StoreUnavailable, also when the store does not answer in the time that requests wait.
        """
        found: dict[WorkunitId, Document] = {}
        asked: set[WorkunitId] = set()
        while True:
            live = self.state.workunits
            missing: list[WorkunitId] = []
            for id in workunit_ids:
                if id in found or id in live:
                    continue
                document = self._not_durable_yet(id)
                if document is not None:
                    found[id] = document
                elif id not in asked:
                    missing.append(id)
            if not missing:
                return found
            asked.update(missing)
            try:
                async with asyncio.timeout(self._wait_s):
                    stored = await self._store.get_many("workunits", missing)
            except TimeoutError as exc:
                raise no_answer(f"no answer within {self._wait_s:g} s") from exc
            found.update((WorkunitId(id), document) for id, document in stored.items())

    def _not_durable_yet(self, id: WorkunitId) -> Document | None:
        for changes in (self._live.changes, *reversed(self._flying)):
            if id in changes.workunits:
                return views.unit_document(changes.workunits[id])
        return None

    async def ensure_job(self, job_id: JobId) -> None:
        """Bring a finished job back into the live state, so that a verb can act on it.

        One reader at a time: of two, the slower one would bring back a job that the faster one has changed,
        and that has left again. Raises JobNotFound, UnreadableJob if its documents make no sense.
        """
        if job_id in self.state.jobs:
            return
        coming = self._coming.setdefault(job_id, asyncio.Lock())
        async with coming:
            if job_id in self.state.jobs:
                return
            await self._readable()
            documents = await recovery.read_job(self._store, job_id)
            if documents is None:
                raise JobNotFound(job_id=job_id[:100])
            recovery.revive(self.state, self.context(), documents)
            self._visitors[job_id] = self.clock.monotonic() + VISIT_S

    def see_off(self) -> None:
        """Let finished jobs leave memory whose time is over and that have nothing to be written."""
        now_s = self.clock.monotonic()
        for job_id in [id for id, until_s in self._visitors.items() if until_s <= now_s]:
            job = self._live.jobs.get(job_id)
            if job is None or not self._is_dirty(job_id):
                del self._visitors[job_id]
                self._live.forget_job(job_id)

    def retire(self, job_id: JobId) -> bool:
        """Make sure that a job is not in memory; False if it is not finished or still to be written, or if
        somebody is just bringing it back."""
        coming = self._coming.get(job_id)
        if coming is not None and coming.locked():
            return False
        job = self.state.jobs.get(job_id)
        if job is None:
            return True
        return not self._is_dirty(job_id) and self._live.forget_job(job_id)

    def _is_dirty(self, job_id: JobId) -> bool:
        job = self._live.jobs[job_id]
        return any(
            job_id in changes.jobs or any(task.id in changes.tasks for task in job.tasks)
            for changes in (self._live.changes, *self._flying)
        )
