"""The node store: documents that name files, and the files.

A node's content is a blob that is never changed: an upload or an assembly writes a new blob, then the
document that names it, then removes the old one. So a reader sees one content or the other, and whatever a
crash leaves behind is a file that no document names (`collect_orphans`).
"""

import errno
from collections.abc import AsyncIterable, Callable, Iterable, Sequence, Set
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread

from awe_server.data import documents as docs
from awe_server.data.downloads import Download, open_reader, pick_seek, try_file
from awe_server.data.files import clean_temporary, free_bytes, make_folder
from awe_server.data.node_base import TRIES, lost
from awe_server.data.node_deliveries import NodeDeliveries
from awe_server.data.node_parts import NodeParts
from awe_server.data.node_subsets import NodeSubsets
from awe_server.data.orphans import collect
from awe_server.data.ports import FileFact, Unreadable
from awe_server.data.unfinished import Key
from awe_server.store.base import Delete, Document, Page, Put, Query
from shared_models.errors import AweError, NotConfirmed


@dataclass(slots=True, frozen=True)
class Received:
    """A whole file that no node names yet, for `add` or `replace`; `discard` it when it is not wanted."""

    node_id: str
    blob: str
    fact: FileFact
    name: str = ""  #: of the node it was copied from
    indexes: dict[str, Any] = field(default_factory=dict)  #: that came along, with their files


@dataclass(slots=True, frozen=True)
class Usage:
    """How full a node store is; a quota of 0 is none."""

    used_bytes: int
    quota_bytes: int
    free_bytes: int


class NodeStore(NodeParts, NodeSubsets, NodeDeliveries):
    """See the module; all methods refuse before they change anything."""

    async def start(self) -> None:
        """Remove what uploads of a dead process left behind, and count what there is."""
        await to_thread.run_sync(clean_temporary, self._root)
        await to_thread.run_sync(self._quota.measure, (self._blobs.root, self._parts.root))

    async def stop(self) -> None:
        """Let go of worker processes, open files and what was cut; safe to call twice."""
        await self._unfinished.close()
        await self._builder.close()
        self._index_files.close()

    async def usage(self) -> Usage:
        """How full it is now."""
        return await to_thread.run_sync(self._usage)

    def _usage(self) -> Usage:
        make_folder(self._root)
        return Usage(self._quota.used_bytes, self._quota.limit_bytes, free_bytes(self._root))

    # ---- documents

    async def list(self, query: Query) -> Page:
        """A page of node documents."""
        return await self._documents.find("nodes", query)

    async def create(
        self,
        stream: AsyncIterable[bytes] | None,
        *,
        name: str = "",
        attributes: dict[str, Any] | None = None,
        owner: str = "",
        parts: int = 0,
        expected_bytes: int = 0,
        expiration: str = "",
        dedup: bool = False,
    ) -> Document:
        """Make a node, with content if there is a stream; `expected_bytes`: a full disk refuses at once."""
        about: dict[str, Any] = {
            "name": name, "attributes": attributes, "owner": owner, "parts": parts, "expiration": expiration,
        }  # fmt: skip
        docs.new_document("", self._wall(), **about)  # refuse before anything is received
        content = None if stream is None else await self.receive(stream, expected_bytes=expected_bytes)
        return await self.add(content, dedup=dedup, **about)

    async def add(
        self,
        content: Received | None,
        *,
        name: str = "",
        attributes: dict[str, Any] | None = None,
        owner: str = "",
        parts: int = 0,
        expiration: str = "",
        dedup: bool = False,
    ) -> Document:
        """Make a node with what was received for it, or an empty one.

        `expiration`: such as `3D`, then it goes. `dedup`: share the bytes of another node, if one has them.
        """
        try:
            document = docs.new_document(
                content.node_id if content else self._new_id(),
                self._wall(),
                name=name,
                attributes=attributes,
                owner=owner,
                parts=parts,
                expiration=expiration,
            )
        except AweError:
            await self.discard(content)
            raise
        try:
            if content is None:
                await self._documents.put(Put("nodes", document))
                return document
            document = docs.with_file(
                document, self._wall(), content.blob, content.fact, indexes=content.indexes
            )
            async with self._lock(content.node_id):
                await self._put_with_file(document, dedup=dedup)
        except NotConfirmed as exc:
            id, reason = document["id"], exc.fields["reason"]
            raise NotConfirmed(
                f"node {id} was accepted, but the store has not confirmed it ({reason}): it may still be "
                f"made. Look for it with GET /node/{id} before you send it again"
            ) from exc
        return document

    async def keep(
        self,
        content: Received,
        *,
        job: str,
        name: str,
        attributes: dict[str, Any],
        tags: Sequence[str],
        owner: str,
    ) -> Document:
        """Make the node that the content was received for; one that is there already gets this content."""
        node_id = content.node_id
        document = docs.new_document(
            node_id, self._wall(), name=name, attributes=attributes, owner=owner, job=job, tags=tags
        )
        document = docs.with_file(document, self._wall(), content.blob, content.fact)
        async with self._lock(node_id):
            old = await self._documents.get("nodes", node_id)
            await self._put_with_file(document)
            await self._remove_blob(old["_blob"] if old else None)
        return document

    def output_document(
        self,
        node_id: str,
        *,
        job: str,
        task: str,
        name: str,
        parts: int = 0,
        header_lines: int = 0,
        attributes: dict[str, Any] | None = None,
        owner: str = "",
        tags: Sequence[str] = (),
    ) -> Document:
        """The document of an empty node for a task's output; the caller stores it."""
        return docs.new_document(
            node_id,
            self._wall(),
            name=name,
            attributes=attributes,
            owner=owner,
            parts=parts,
            job=job,
            task=task,
            header_lines=header_lines,
            tags=tags,
        )

    async def set_attributes(
        self,
        node_id: str,
        attributes: dict[str, Any] | None,
        check: Callable[[Document], object] | None = None,
    ) -> Document:
        """Replace a node's attributes; when `check` of the present document raises, nothing is changed."""
        attributes = docs.check_attributes(attributes)
        async with self._lock(node_id):
            document = await self.get(node_id)
            if check is not None:
                check(document)
            document = docs.changed(document, self._wall(), attributes=attributes)
            await self._documents.put(Put("nodes", document))
        return document

    async def set_expiration(self, node_id: str, expiration: str) -> Document:
        """Let a node go a while after now, such as `3D`, or never (""). Raises BadRequest."""
        at = docs.expires_at(expiration, self._wall())
        async with self._lock(node_id):
            document = docs.changed(await self.get(node_id), self._wall(), expiration=at)
            await self._documents.put(Put("nodes", document))
        return document

    async def delete(self, node_id: str, check: Callable[[], object] | None = None) -> None:
        """Remove a node, its file and its parts; downloads that run go on to their end.

        When `check` raises, nothing is changed.
        """
        async with self._lock(node_id):
            document = await self.get(node_id)
            if check is not None:
                check()
            await self._documents.put(Delete("nodes", node_id))
            await self._remove_files(document)

    async def expire(
        self, node_ids: Iterable[str], in_use: Callable[[frozenset[str]], Set[str]]
    ) -> Sequence[str]:
        """Delete those nodes whose time has come, except what `in_use` says is needed at that very moment."""
        async with AsyncExitStack() as locks:
            documents: dict[str, Document] = {}
            for node_id in sorted(set(node_ids)):
                await locks.enter_async_context(self._lock(node_id))
                document = await self._documents.get("nodes", node_id)
                if document is not None and docs.has_expired(document, self._wall()):
                    documents[node_id] = document
            if not documents:
                return ()
            # Nothing may come between this look and the batch that `put` begins with.
            gone = sorted(documents.keys() - in_use(frozenset(documents)))
            await self._documents.put(*(Delete("nodes", node_id) for node_id in gone))
            for node_id in gone:
                await self._remove_files(documents[node_id])
        return gone

    async def _remove_files(self, document: Document) -> None:
        self._came_in.pop(document["id"], None)
        await self._unfinished.drop_node(document["id"])
        await self._remove_blob(document["_blob"])
        await to_thread.run_sync(self._parts.drop_all, document["id"])

    async def collect_orphans(self, min_age_s: float = 3600.0) -> int:
        """Remove blobs, indexes and parts that no document names and that are older than `min_age_s`."""
        return await collect(self._blobs, self._parts, self._documents, self._wall() - min_age_s)

    # ---- content

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
        return Received(
            node_id, blob, await self._unfinished.receive(key, offset, stream, writer, place, None)
        )

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
        return Received(node_id, *await self._blobs.add(stream, node_id))

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

    async def readable(self, node_id: str, *, is_gzip: bool = False) -> Document:
        """A node's document, once a look at its file showed that it is there, whole in length, and readable.

        Raises NodeNotFound, NoFile, Unreadable.
        """
        for _ in range(TRIES):
            document = await self.get(node_id)
            path = self._blob_path(document)
            try:
                look = partial(try_file, path, document["file"]["size"], is_gzip=is_gzip)
                problem = await to_thread.run_sync(look)
            except FileNotFoundError:
                continue
            if problem:
                raise Unreadable(file=document["file"]["name"] or node_id, reason=problem)
            return document
        raise lost(node_id)

    async def open_range(
        self,
        node_id: str,
        *,
        index: str = "",
        part: str = "",
        seek: int | None = None,
        length: int | None = None,
    ) -> Download:
        """Open a node's file, a part by index, or a window by seek and length.

        Raises NoFile, NoIndex, BadRange (field `total` or `units`).
        """
        for _ in range(TRIES):
            document = await self.get(node_id)
            path = self._blob_path(document)
            size = document["file"]["size"]
            if index or part:
                start, total = await self._locate(document, index, part)
            elif seek is not None or length is not None:
                start, total = pick_seek(seek, length, size)
            else:
                start, total = 0, size
            try:
                chunks = await to_thread.run_sync(open_reader, path, start, total)
            except FileNotFoundError:
                continue
            return Download(
                name=document["file"]["name"],
                size=total,
                offset=0,
                total=total,
                partial=False,
                md5=document["file"]["checksum"]["md5"],
                chunks=chunks,
            )
        raise lost(node_id)


def _content_key(node_id: str) -> Key:
    """Of a node's own content: attempts count from 1."""
    return node_id, 0, 0
