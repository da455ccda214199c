"""Outputs of type copy, subset and update: made of nodes that are there. Repeating any of it changes nothing.

Source: AWE lib/shock/shock.go PutOrPostFile, lib/core/io.go; differs: the server makes them, not the client.
"""

from collections.abc import AsyncIterator

from awe_server.data.nodes import NodeStore
from awe_server.data.ports import FileFact
from awe_server.runtime.output_nodes import parent
from awe_server.scheduler.facts import OutputFact
from awe_server.scheduler.state import Task
from awe_server.store.base import Document


class OutputTypes:
    """Makes them. Raises AweErrors that say what is not as it must be."""

    def __init__(self, nodes: NodeStore) -> None:
        self._nodes = nodes

    async def copy(self, task: Task, io: Document, part: tuple[int, int]) -> OutputFact:
        """Give the output's node the content of its parent, and the attributes that `part` brought."""
        node, indexes = io["node"], bool(io["formoptions"].get("copy_indexes"))
        document = await self._nodes.copy_data(node, parent(task, io), indexes=indexes)
        if found := await self._nodes.staged_attributes(node, part):
            await self._nodes.set_attributes(node, found["attributes"])
            await self._nodes.drop_staged(node, part)
        file = document["file"]
        return OutputFact(io["filename"], node, file["size"], file["checksum"]["md5"])

    async def update(self, io: Document, part: tuple[int, int]) -> OutputFact:
        """Replace the attributes of a node by those that `part` brought, else by the document's."""
        node, staging = io["node"], io.get("_staging")
        found = await self._nodes.staged_attributes(staging, part) if staging else {}
        attributes = found.get("attributes") or io["nodeattr"]
        if attributes:
            await self._nodes.set_attributes(node, attributes)
        file = (await self._nodes.get(node))["file"] or {"size": 0}
        return OutputFact(io["filename"], node, file["size"])

    async def subset(self, task: Task, io: Document, listed: FileFact) -> OutputFact:
        """Give the output's node those units of its parent that the uploaded list names.

        An empty list is an empty file. Raises CannotJoin for what is no list of units.
        """
        node, staging = io["node"], io["_staging"]
        kind = io["formoptions"]["parent_index"]
        units = self._nodes.subset(parent(task, io), kind, staging) if listed.size else _nothing()
        document = await self._nodes.upload(node, units)
        attributes = (await self._nodes.get(staging))["attributes"]
        if attributes is not None and attributes != document["attributes"]:
            await self._nodes.set_attributes(node, attributes)
        file = document["file"]
        return OutputFact(io["filename"], node, file["size"], file["checksum"]["md5"])


async def _nothing() -> AsyncIterator[bytes]:
    yield b""
