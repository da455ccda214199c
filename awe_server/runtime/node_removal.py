"""Nodes go with what they were made for, but none that a job still needs.

Such a node is of no job any more and gets an expiration that has passed: it goes, by the sweep for expired
nodes (node_expiry.py), when the last of those who need it has ended. So its document says it, no crash
forgets it, and a person who wants to have it may take the expiration away.
"""

import contextlib
import logging
from collections.abc import Callable

from awe_server.data.documents import has_expired
from awe_server.data.nodes import NodeStore
from awe_server.data.ports import DocumentPort
from awe_server.faults import reach
from awe_server.scheduler.readers import users_of
from awe_server.scheduler.state import State
from awe_server.store.base import Document, Match, Query
from shared_models.errors import NodeNotFound, UnreadableNode
from shared_models.ids import JobId

log = logging.getLogger(__name__)

PAGE = 100


class _StillNeeded(Exception):
    def __init__(self, document: Document, job_id: JobId) -> None:
        super().__init__()
        self.document, self.job_id = document, job_id


class NodeRemover:
    """Removes nodes for the server itself; what a person asks for is refused instead (readers.py)."""

    def __init__(
        self,
        documents: DocumentPort,
        nodes: NodeStore,
        state: Callable[[], State],
        wall: Callable[[], float],
    ) -> None:
        self._documents = documents
        self._nodes = nodes
        self._state = state
        self._wall = wall

    async def remove(self, node_id: str) -> None:
        """Delete a node if it is there, or let it go once the jobs have ended that need it."""
        reach("before-delete")
        try:
            await self._nodes.delete(node_id, self._check_unneeded)
        except NodeNotFound:
            return
        except _StillNeeded as exc:
            if exc.document.get("job") or not has_expired(exc.document, self._wall()):
                log.info("node_still_needed", extra={"node": node_id, "jobid": exc.job_id})
                with contextlib.suppress(NodeNotFound, UnreadableNode):
                    await self._nodes.let_go(node_id)

    async def remove_all_of(self, job_id: str) -> None:
        """Remove what is there for a job: nobody else knows, say, what its failed attempts left."""
        last = ""
        while True:
            query = Query((Match("job", (job_id,)), Match("id", (last,), "ge")), limit=PAGE)
            found = [document["id"] for document in (await self._documents.find("nodes", query)).documents]
            new = [node_id for node_id in found if node_id != last]  # which is there if it cannot be removed
            if not new:
                return
            for node_id in new:
                await self.remove(node_id)
            last = new[-1]

    def _check_unneeded(self, document: Document) -> None:
        """Who asks for a removal names the node no more: whoever does needs it still."""
        for job_id in users_of(self._state(), document["id"]):
            raise _StillNeeded(document, job_id)
