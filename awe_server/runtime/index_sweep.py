"""Remove the indexes of files elsewhere that no unfinished task needs."""

import logging

from awe_server.data.source_indexes import SourceIndexes
from awe_server.runtime.engine import Engine
from awe_server.runtime.sweep import sweep_every
from awe_server.scheduler.state import DONE_TASKS, State

log = logging.getLogger(__name__)


class IndexSweep:
    """The sweep."""

    def __init__(self, engine: Engine, indexes: SourceIndexes, every_s: float) -> None:
        self._engine = engine
        self._indexes = indexes
        self._every_s = every_s

    async def run(self) -> None:
        """Sweep until cancelled."""
        await sweep_every(self._every_s, self.once)

    async def once(self) -> int:
        """Remove what is not needed; how many files that were."""
        lead = self._engine.require_lead
        removed = await self._indexes.collect(needed(self._engine.state), require_lead=lead)
        if removed:
            log.info("indexes_removed", extra={"files": removed})
        return removed


def needed(state: State) -> set[str]:
    """The keys of the indexes by which tasks are cut that may still hand out parts."""
    tasks = (task for task in state.tasks.values() if task.state not in DONE_TASKS)
    return {key for task in tasks for io in task.inputs if (key := io.get("_index"))}
