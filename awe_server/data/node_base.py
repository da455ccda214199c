"""What all parts of the node store share: where things lie, a node's document, a lock for each node."""

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from weakref import WeakValueDictionary

from anyio import to_thread

from awe_server.data import documents as docs
from awe_server.data.blobs import BlobStore
from awe_server.data.builder import IndexBuilder
from awe_server.data.indexes import IndexFiles
from awe_server.data.parts import PartStore
from awe_server.data.ports import DocumentPort, FileFact, Unreadable
from awe_server.data.quota import Quota
from awe_server.data.unfinished import Unfinished
from awe_server.store.base import Document
from shared_models.errors import NodeNotFound, NoFile, UnreadableNode

TRIES = 3  #: how often to begin again when the content was replaced meanwhile


class NodeBase:
    """Documents that name files, and the files that they name."""

    def __init__(
        self,
        root: Path,
        documents: DocumentPort,
        new_id: Callable[[], str],
        wall: Callable[[], float],
        free_floor_bytes: int,
        quota_bytes: int = 0,
        dedup: bool = False,
    ) -> None:
        self._root = root
        self._documents = documents
        self._new_id = new_id
        self._wall = wall
        self._started_s = -math.inf  #: by the clock of the files; before the start nothing is old
        self._quota = Quota(quota_bytes)
        self._blobs = BlobStore(root / "blobs", free_floor_bytes, self._quota)
        self._unfinished = Unfinished()
        self._parts = PartStore(root / "parts", free_floor_bytes, self._quota, self._unfinished)
        self._dedup = dedup  #: always, not only when asked
        self._index_files = IndexFiles()
        self._builder = IndexBuilder()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: ranks that came in of a node with declared parts; known once the first one did
        self._came_in: dict[str, set[int]] = {}
        #: what came in of late, by node, rank, attempt: spares a listing when it is asked for
        self._staged: dict[tuple[str, int, int], FileFact] = {}
        self._check_unread: Callable[[str], object] = lambda node_id: None

    def protect(self, check_unread: Callable[[str], object]) -> None:
        """Have this asked before other content takes a file's place; when it raises, the file stays."""
        self._check_unread = check_unread

    def _check_replaceable(self, old: Document, fact: FileFact) -> None:
        """Nothing may come between this and the change. The same content is nobody's loss."""
        file = old["file"]
        if file is not None and file["checksum"]["sha256"] != fact.sha256:
            self._check_unread(old["id"])

    async def get(self, node_id: str) -> Document:
        """A node's document. Raises NodeNotFound, UnreadableNode."""
        document = await self._any(node_id)
        if problem := docs.problem_of(document):
            raise UnreadableNode(node_id=node_id, problem=problem)
        return document

    async def _any(self, node_id: str) -> Document:
        """A node's document, also one that makes no sense. Raises NodeNotFound."""
        document = await self._documents.get("nodes", node_id) if docs.is_node_id(node_id) else None
        if document is None:
            raise NodeNotFound(node_id=node_id[:100])
        return document

    async def _remove_blob(self, blob: str | None) -> None:
        if blob is not None:
            await to_thread.run_sync(self._blobs.remove, blob)

    def _blob_path(self, document: Document) -> Path:
        if document["_blob"] is None:
            raise NoFile(node_id=document["id"])
        return self._blobs.path(document["_blob"])

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())


def lost(node_id: str) -> Unreadable:
    """The error of a file that should be there and is not."""
    return Unreadable(f"The file of node {node_id} is missing on the server's disk.")
