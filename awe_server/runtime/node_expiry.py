"""Remove nodes whose time has come, but nothing that an unfinished job uses."""

import logging

from awe_server.data.documents import EARLIEST
from awe_server.data.nodes import NodeStore
from awe_server.runtime.engine import Engine
from awe_server.runtime.sweep import sweep_every
from awe_server.scheduler.readers import made_by, read_by
from awe_server.scheduler.state import ENDED_JOBS, State
from awe_server.store.base import Match, Query
from shared_models.times import rfc3339

log = logging.getLogger(__name__)

PAGE = 500  #: nodes that are looked at, and removed, together


class NodeExpiry:
    """The sweep."""

    def __init__(self, engine: Engine, nodes: NodeStore, every_s: float) -> None:
        self._engine = engine
        self._nodes = nodes
        self._every_s = every_s

    async def run(self) -> None:
        """Sweep until cancelled."""
        await sweep_every(self._every_s, self.once)

    async def once(self) -> int:
        """Remove what has expired by now; how many nodes that were."""
        now = rfc3339(self._engine.clock.wall())
        expired = (Match("expiration", (EARLIEST,), "ge"), Match("expiration", (now,), "lt"))
        used = in_use(self._engine.state)
        removed = kept = 0
        while True:
            page = await self._engine.find("nodes", Query(expired, "expiration", limit=PAGE, offset=kept))
            if not page.documents:
                return removed
            ids = {node["id"] for node in page.documents}
            # What was in use a moment ago costs no second look at all tasks; what was not, may be so now.
            gone = await self._nodes.expire(ids - used, lambda ids: ids & in_use(self._engine.state))
            for node_id in gone:
                log.info("node_expired", extra={"node": node_id})
            removed += len(gone)
            kept += len(ids) - len(gone)


def in_use(state: State) -> set[str]:
    """The nodes of jobs that have not ended, suspended ones included."""
    found: set[str] = set()
    for task in state.tasks.values():
        if task.job.state not in ENDED_JOBS:
            found.update(made_by(task), read_by(task))
    return found
