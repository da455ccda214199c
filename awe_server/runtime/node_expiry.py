"""Remove nodes whose time has come, but nothing that an unfinished job uses."""

import logging
from collections.abc import Iterator

from awe_server.data.documents import EARLIEST
from awe_server.data.nodes import NodeStore
from awe_server.runtime.engine import Engine
from awe_server.runtime.sweep import sweep_every
from awe_server.scheduler.state import ENDED_JOBS, State, Task
from awe_server.store.base import Document, Match, Query
from shared_models.times import rfc3339

log = logging.getLogger(__name__)

PAGE = 50  #: nodes that are looked at, and removed, together


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
        removed = kept = 0
        while True:
            page = await self._engine.find("nodes", Query(expired, "expiration", limit=PAGE, offset=kept))
            if not page.documents:
                return removed
            ids = [node["id"] for node in page.documents]
            gone = await self._nodes.expire(ids, lambda ids: needed(self._engine.state, ids))
            for node_id in gone:
                log.info("node_expired", extra={"node": node_id})
            removed += len(gone)
            kept += len(ids) - len(gone)


def needed(state: State, node_ids: frozenset[str]) -> set[str]:
    """Those of the nodes that a job uses which has not ended, suspended ones included."""
    found: set[str] = set()
    for task in state.tasks.values():
        if task.job.state not in ENDED_JOBS:
            found.update(node_ids.intersection(_nodes_of(task)))
    return found


def _nodes_of(task: Task) -> Iterator[str]:
    for io in (*task.inputs, *task.outputs, *task.predata):
        yield from _nodes_in(io)


def _nodes_in(io: Document) -> Iterator[str]:
    """Where it is, where it waits to be delivered, and what it is made from."""
    yield io["node"]
    yield io.get("_staging") or ""
    yield (io.get("formoptions") or {}).get("parent_node") or ""
