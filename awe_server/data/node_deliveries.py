"""Nodes whose file goes elsewhere: what is known of its delivery, noted in the node's document."""

from typing import Any

from anyio import to_thread

from awe_server.data import documents as docs
from awe_server.data.node_base import NodeBase
from awe_server.store.base import Put
from shared_models.errors import UnreadableNode


class NodeDeliveries(NodeBase):
    """Remembers deliveries, and what attempts staged besides bytes."""

    async def delivery(self, node_id: str) -> dict[str, Any]:
        """What was noted last of a delivery of the node's file; {} if nothing was.

        Raises NodeNotFound, UnreadableNode.
        """
        noted = (await self.get(node_id)).get("_delivery") or {}
        if not isinstance(noted, dict):
            raise UnreadableNode(node_id=node_id, problem="its _delivery is no object")
        return dict(noted)

    async def note_delivery(self, node_id: str, what: dict[str, Any]) -> None:
        """Note how far a delivery is; durable when this returns. Raises NodeNotFound."""
        async with self._lock(node_id):
            document = docs.changed(await self.get(node_id), self._wall(), _delivery=what)
            await self._documents.put(Put("nodes", document))

    async def staged_attributes(self, node_id: str, part: tuple[int, int]) -> dict[str, Any]:
        """`attributes` as the attempt (rank, attempt) set them; {} if it did not."""
        return await to_thread.run_sync(self._parts.attributes, node_id, [part])

    async def drop_staged(self, node_id: str, part: tuple[int, int]) -> None:
        """Remove what the accepted attempt (rank, attempt), and those before it, staged for a node."""
        await to_thread.run_sync(self._parts.drop, node_id, [part])
