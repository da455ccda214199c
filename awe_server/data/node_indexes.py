"""Indexes of the node store: built once for a content, kept beside it, asked where a part lies."""

import contextlib

from anyio import to_thread

from awe_server.data import documents as docs
from awe_server.data.indexes import SizeUnits, Units, locate_in, sidecar
from awe_server.data.node_base import TRIES, NodeBase, lost
from awe_server.data.ports import IndexFact
from awe_server.store.base import Document, Put
from shared_models.errors import BadRequest, Conflict, NoIndex


class NodeIndexes(NodeBase):
    """Indexes nodes' files."""

    async def build_index(self, node_id: str, kind: str) -> IndexFact:
        """Index a node's file (`size`, `line`, `record`, `chunkrecord`); at once if that was done before.

        Raises NoFile, NotCuttable, InvalidData (file, record, line, problem), NoSpace, Unreadable.
        """
        missing = ""
        async with self._lock(f"{node_id}/{kind}"):
            for _ in range(TRIES):
                document = await self.get(node_id)
                path = self._blob_path(document)
                if document["_blob"] == missing:
                    raise lost(node_id)
                known = document["indexes"].get(kind)
                if known and (kind == "size" or await to_thread.run_sync(sidecar(path, kind).exists)):
                    return IndexFact(kind, known["total_units"], known["format"], known.get("records"))
                await to_thread.run_sync(self._blobs.require, 0)
                try:
                    fact = await self._builder.build(path, kind, document["file"]["name"] or node_id)
                except FileNotFoundError:
                    missing = document["_blob"]
                    continue
                if await self._add_index(document, fact):
                    return fact
        raise Conflict(f"The content of node {node_id} changes too fast to be indexed.")

    async def ready(self, document: Document, kind: str) -> Units:
        """The units of a node's file, to be held by whoever finds parts in them on the event loop.

        Raises NoFile, NoIndex.
        """
        path = self._blob_path(document)
        if kind == "size":
            return SizeUnits(document["file"]["size"])
        if kind in document["indexes"]:
            with contextlib.suppress(FileNotFoundError):
                return await self._index_files.ready(path, kind)
        raise NoIndex(node_id=document["id"], kind=kind[:60])

    async def _locate(self, document: Document, kind: str, part: str) -> tuple[int, int]:
        if not (kind and part):
            raise BadRequest("index and part belong together")
        try:
            units = await self.ready(document, kind)
        except NoIndex:
            if kind not in document["indexes"]:
                raise
            await self.build_index(document["id"], kind)  # its file was lost
            units = await self.ready(document, kind)
        return locate_in(units, part)

    async def _add_index(self, seen: Document, fact: IndexFact) -> bool:
        async with self._lock(seen["id"]):
            document = await self.get(seen["id"])
            if document["_blob"] != seen["_blob"]:
                return False
            await self._documents.put(Put("nodes", docs.with_index(document, self._wall(), fact)))
            return True
