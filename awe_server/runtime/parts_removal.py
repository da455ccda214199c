"""The workunits and tasks of a job that is gone leave the store: few at a time, so that no batch takes long.

A job may have a million of them, and a batch that outlasts the lease of the store ends the server. The job's
own document goes first, in a batch of its own: nobody sees what is left of it.
"""

from contextlib import aclosing
from typing import TYPE_CHECKING

from awe_server.store.base import Collection, Delete, Match
from shared_models.ids import JobId

if TYPE_CHECKING:
    from awe_server.runtime.engine import Engine

BATCH = 500  #: documents removed in one batch
READ_IDS = 10_000  #: documents named by one look, which ends before they are removed


class PartsRemover:
    """Removes them; what a crash leaves is removed by whoever asks again."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    async def remove_all_of(self, job_id: JobId) -> None:
        """Remove what is there. Raises StoreUnavailable, NotConfirmed, ShuttingDown: ask again for the rest.

        No look is open meanwhile: while somebody reads what was before, a store keeps all that is written.
        """
        kinds: tuple[Collection, ...] = ("workunits", "tasks")
        for collection in kinds:
            while ids := await self._some(collection, job_id):
                for start in range(0, len(ids), BATCH):
                    some = ids[start : start + BATCH]
                    await self._engine.put(*(Delete(collection, id) for id in some))

    async def _some(self, collection: Collection, job_id: JobId) -> list[str]:
        """Some of those that the store has; none if there are none any more."""
        ids: list[str] = []
        async with aclosing(self._engine.scan(collection, [Match("jobid", (job_id,))])) as documents:
            async for document in documents:
                ids.append(document["id"])
                if len(ids) == READ_IDS:
                    break
        return ids
