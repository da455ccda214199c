"""The content of nodes: what comes in for one, goes on where it was cut, and takes the place of the old."""

import errno
from collections.abc import AsyncIterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anyio import to_thread

from awe_server.data import documents as docs
from awe_server.data.downloads import open_reader
from awe_server.data.files import make_folder
from awe_server.data.node_base import TRIES, lost
from awe_server.data.node_sharing import NodeSharing
from awe_server.data.ports import FileFact
from awe_server.data.unfinished import Key
from awe_server.store.base import Document
from shared_models.errors import AweError


@dataclass(slots=True, frozen=True)
class Received:
    """A whole file that no node names yet, for `add` or `replace`; `discard` it when it is not wanted."""

    node_id: str
    blob: str
    fact: FileFact
    name: str = ""  #: of the node it was copied from
    indexes: dict[str, Any] = field(default_factory=dict)  #: that are there already, with their files


class NodeContents(NodeSharing):
    """Takes files in, and gives them to nodes."""

    async def upload(
        self,
        node_id: str,
        stream: AsyncIterable[bytes],
        name: str = "",
        expected_bytes: int = 0,
        *,
        dedup: bool = False,
        offset: int | None = None,
    ) -> Document:
        """Give a node new content; of several uploads at once the one that ends last is kept.

        `offset`: where the stream begins in the file, if what comes of it is to be kept when it is cut; it
        must be what `unfinished_content` says, or 0: anew. Raises Conflict if it is not.
        """
        docs.clean_name(name)
        await self.get(node_id)
        if offset is None:
            content = await self.receive(stream, node_id, expected_bytes)
        else:
            content = await self._receive_rest(stream, node_id, expected_bytes, offset)
        return await self.replace(content, name, dedup=dedup)

    async def unfinished_content(self, node_id: str) -> int:
        """How many bytes are here of a node's new content; a request that still feeds it is ended."""
        return await self._unfinished.offset(_content_key(node_id))

    async def _receive_rest(
        self, stream: AsyncIterable[bytes], node_id: str, expected_bytes: int, offset: int
    ) -> Received:
        key, blob = _content_key(node_id), self._blobs.new_name(node_id)
        if offset == 0:  # room for what begins anew
            await self._unfinished.drop(key)
        await to_thread.run_sync(self._blobs.require, expected_bytes)

        def place(_: FileFact) -> Path:
            target = self._blobs.path(blob)
            make_folder(target.parent)
            return target

        writer = self._blobs.writer(blob)
        fact = await self._unfinished.receive(key, offset, stream, writer, place, None)
        return await self._received(node_id, blob, fact)

    async def copy_data(self, node_id: str, source_id: str, *, indexes: bool = False) -> Document:
        """Give a node the content of another one, and its indexes if asked, without copying bytes."""
        await self.get(node_id)
        content = await self.receive_copy(source_id, node_id, indexes=indexes)
        return await self.replace(content, content.name)

    async def receive(
        self, stream: AsyncIterable[bytes], node_id: str = "", expected_bytes: int = 0
    ) -> Received:
        """Take in a file for a node, or for a new one; no node changes."""
        node_id = node_id or self._new_id()
        await to_thread.run_sync(self._blobs.require, expected_bytes)
        return await self._received(node_id, *await self._blobs.add(stream, node_id))

    async def _received(self, node_id: str, blob: str, fact: FileFact) -> Received:
        """A file, with the index that it is given at once, if it is."""
        index = await self._builder.build_ahead(self._blobs.path(blob), fact.size)
        known = {} if index is None else {index.kind: docs.index_entry(index, fact.size, self._wall())}
        return Received(node_id, blob, fact, indexes=known)

    async def receive_copy(self, source_id: str, node_id: str = "", *, indexes: bool = False) -> Received:
        """Take the content of a node for another or a new one. Raises NodeNotFound, NoFile."""
        node_id = node_id or self._new_id()
        for _ in range(TRIES):
            source = await self.get(source_id)
            path = self._blob_path(source)
            try:
                blob = await to_thread.run_sync(self._blobs.add_link, path, node_id)
            except FileNotFoundError:
                continue
            except OSError as exc:
                if exc.errno != errno.EMLINK:
                    raise
                chunks = await to_thread.run_sync(open_reader, path, 0, source["file"]["size"])
                return replace(await self.receive(chunks, node_id), name=source["file"]["name"])
            kinds = source["indexes"] if indexes else ()
            linked = await to_thread.run_sync(self._blobs.link_indexes, path, blob, tuple(kinds))
            known = {kind: source["indexes"][kind] for kind in linked}
            return Received(node_id, blob, docs.file_fact(source), source["file"]["name"], known)
        raise lost(source_id)

    async def replace(self, content: Received, name: str = "", *, dedup: bool = False) -> Document:
        """Give a node what was received for it; its old content goes.

        Raises Conflict while work reads the old content and the new one is another.
        """
        node_id = content.node_id
        async with self._lock(node_id):
            try:
                name = docs.clean_name(name)
                old = await self.get(node_id)
                self._check_replaceable(old, content.fact)
            except AweError:
                await self.discard(content)
                raise
            document = docs.with_file(
                old, self._wall(), content.blob, content.fact, name=name, indexes=content.indexes
            )
            # When this fails, it may still be applied later: both blobs stay and the collector decides.
            await self._put_with_file(document, dedup=dedup)
            await self._remove_blob(old["_blob"])
            return document

    async def discard(self, content: Received | None) -> None:
        """Let go of what was received and not given to a node."""
        if content is not None:
            await self._remove_blob(content.blob)


def _content_key(node_id: str) -> Key:
    """Of a node's own content: attempts count from 1."""
    return node_id, 0, 0
