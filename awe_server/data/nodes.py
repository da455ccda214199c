"""The node store: documents that name files, and the files.

A node's content is a blob that is never changed: an upload or an assembly writes a new blob, then the
document that names it, then removes the old one. So a reader sees one content or the other, and whatever a
crash leaves behind is a file that no document names (`collect_orphans`).
"""

import contextlib
from collections.abc import AsyncIterable, Callable, Iterable, Sequence, Set
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from anyio import to_thread

from awe_server.data import documents as docs
from awe_server.data.downloads import Download, open_reader, pick_seek, try_file
from awe_server.data.files import clean_temporary, file_clock, free_bytes, make_folder
from awe_server.data.node_base import TRIES, lost
from awe_server.data.node_contents import NodeContents, Received
from awe_server.data.node_deliveries import NodeDeliveries
from awe_server.data.node_parts import NodeParts
from awe_server.data.node_subsets import NodeSubsets
from awe_server.data.orphans import collect
from awe_server.data.ports import Unreadable
from awe_server.store.base import Delete, Document, Page, Put, Query
from shared_models.errors import AweError, NotConfirmed


@dataclass(slots=True, frozen=True)
class Usage:
    """How full a node store is; a quota of 0 is none."""

    used_bytes: int
    quota_bytes: int
    free_bytes: int


class NodeStore(NodeParts, NodeContents, NodeSubsets, NodeDeliveries):
    """See the module; all methods refuse before they change anything."""

    async def start(self) -> None:
        """Remove what uploads of a dead process left behind, and count what there is."""
        with contextlib.suppress(OSError):  # nothing is there, or nothing can be removed
            self._started_s = await to_thread.run_sync(file_clock, self._root)
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

    async def require_room(self, size: int) -> None:
        """Raise NoSpace, QuotaExceeded or TooLarge if an upload of so many bytes would be refused."""
        if size > 0:
            await to_thread.run_sync(self._blobs.require, size)

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
            await self._remove_blob(None if old is None or docs.problem_of(old) else old["_blob"])
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

    async def let_go(self, node_id: str) -> None:
        """Let a node be of no job any more, and go by its expiration once nobody uses it."""
        async with self._lock(node_id):
            now_s = self._wall()
            free = {"job": None, "task": None, "expiration": docs.expires_at("0M", now_s)}
            document = docs.changed(await self.get(node_id), now_s, **free)
            await self._documents.put(Put("nodes", document))

    async def delete(self, node_id: str, check: Callable[[Document], object] | None = None) -> None:
        """Remove a node, its file and its parts; downloads that run go on to their end.

        When `check` of the present document raises, nothing is changed. What file is that of a node whose
        document makes no sense is not known: the collection of orphans finds it once the document is gone.
        """
        async with self._lock(node_id):
            document = await self._any(node_id)
            if check is not None:
                check(document)
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
        if not docs.problem_of(document):
            await self._remove_blob(document["_blob"])
        await to_thread.run_sync(self._parts.drop_all, document["id"])

    async def collect_orphans(self, min_age_s: float = 3600.0) -> int:
        """Remove blobs, indexes and parts that no document names and that are older than `min_age_s`."""
        now_s = await to_thread.run_sync(file_clock, self._root)
        return await collect(self._blobs, self._parts, self._documents, now_s - min_age_s)

    async def collect_left(self) -> int:
        """Remove those that were there before the start: what is written or linked since may be named yet."""
        return await collect(self._blobs, self._parts, self._documents, self._started_s)

    # ---- content

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
