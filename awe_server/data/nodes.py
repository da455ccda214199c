"""The node store: documents that name files, and the files.

A node's content is a blob that is never changed: an upload or an assembly writes a new blob, then the
document that names it, then removes the old one. So a reader sees one content or the other, and whatever a
crash leaves behind is a file that no document names (`collect_orphans`).
"""

import asyncio
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from anyio import to_thread

from awe_server.data import documents as docs
from awe_server.data.blobs import BlobStore
from awe_server.data.builder import IndexBuilder
from awe_server.data.downloads import Download, open_reader, pick_range, pick_seek
from awe_server.data.files import clean_temporary
from awe_server.data.indexes import IndexFiles, locate_size, sidecar
from awe_server.data.merge import merge
from awe_server.data.orphans import collect
from awe_server.data.parts import Part, PartStore
from awe_server.data.ports import DocumentPort, FileFact, IndexFact
from awe_server.store.base import Delete, Document, Page, Put, Query
from shared_models.errors import AweError, BadRequest, Conflict, MissingPart, NodeNotFound, NoFile, NoIndex

_TRIES = 3  #: how often to begin again when the content was replaced meanwhile


@dataclass(slots=True, frozen=True)
class Received:
    """A whole file that no node names yet, for `add` or `replace`; `discard` it when it is not wanted."""

    node_id: str
    blob: str
    fact: FileFact
    name: str = ""  #: of the node it was copied from


class NodeStore:
    """See the module; all methods refuse before they change anything."""

    def __init__(
        self,
        root: Path,
        documents: DocumentPort,
        new_id: Callable[[], str],
        wall: Callable[[], float],
        free_floor_bytes: int,
    ) -> None:
        self._root = root
        self._documents = documents
        self._new_id = new_id
        self._wall = wall
        self._blobs = BlobStore(root / "blobs", free_floor_bytes)
        self._parts = PartStore(root / "parts", free_floor_bytes)
        self._index_files = IndexFiles()
        self._builder = IndexBuilder()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: ranks that came in of a node with declared parts; known once the first one did
        self._came_in: dict[str, set[int]] = {}

    async def start(self) -> None:
        """Remove what uploads of a dead process left behind."""
        await to_thread.run_sync(clean_temporary, self._root)

    async def stop(self) -> None:
        """Let go of worker processes and open files; safe to call twice."""
        await self._builder.close()
        self._index_files.close()

    # ---- documents

    async def get(self, node_id: str) -> Document:
        """A node's document. Raises NodeNotFound."""
        document = await self._documents.get("nodes", node_id) if docs.is_node_id(node_id) else None
        if document is None:
            raise NodeNotFound(node_id=node_id[:100])
        return document

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
    ) -> Document:
        """Make a node, with content if there is a stream; `expected_bytes`: a full disk refuses at once."""
        about: dict[str, Any] = {"name": name, "attributes": attributes, "owner": owner, "parts": parts}
        docs.new_document("", self._wall(), **about)  # refuse before anything is received
        content = None if stream is None else await self.receive(stream, expected_bytes=expected_bytes)
        return await self.add(content, **about)

    async def add(
        self,
        content: Received | None,
        *,
        name: str = "",
        attributes: dict[str, Any] | None = None,
        owner: str = "",
        parts: int = 0,
    ) -> Document:
        """Make a node with what was received for it, or an empty one."""
        try:
            document = docs.new_document(
                content.node_id if content else self._new_id(),
                self._wall(),
                name=name,
                attributes=attributes,
                owner=owner,
                parts=parts,
            )
        except AweError:
            await self.discard(content)
            raise
        if content is not None:
            document = docs.with_file(document, self._wall(), content.blob, content.fact)
        await self._documents.put(Put("nodes", document))
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

    async def delete(self, node_id: str) -> None:
        """Remove a node, its file and its parts; downloads that run go on to their end."""
        async with self._lock(node_id):
            document = await self.get(node_id)
            await self._documents.put(Delete("nodes", node_id))
            self._came_in.pop(node_id, None)
            await self._remove_blob(document["_blob"])
            await to_thread.run_sync(self._parts.drop_all, node_id)

    async def collect_orphans(self, min_age_s: float = 3600.0) -> int:
        """Remove blobs, indexes and parts that no document names and that are older than `min_age_s`."""
        return await collect(self._blobs, self._parts, self._documents, self._wall() - min_age_s)

    # ---- content

    async def upload(
        self, node_id: str, stream: AsyncIterable[bytes], name: str = "", expected_bytes: int = 0
    ) -> Document:
        """Give a node new content; of several uploads at once the one that ends last is kept."""
        docs.clean_name(name)
        await self.get(node_id)
        return await self.replace(await self.receive(stream, node_id, expected_bytes), name)

    async def copy_data(self, node_id: str, source_id: str) -> Document:
        """Give a node the content of another one, without copying bytes."""
        await self.get(node_id)
        content = await self.receive_copy(source_id, node_id)
        return await self.replace(content, content.name)

    async def receive(
        self, stream: AsyncIterable[bytes], node_id: str = "", expected_bytes: int = 0
    ) -> Received:
        """Take in a file for a node, or for a new one; no node changes."""
        node_id = node_id or self._new_id()
        self._blobs.require(expected_bytes)
        return Received(node_id, *await self._blobs.add(stream, node_id))

    async def receive_copy(self, source_id: str, node_id: str = "") -> Received:
        """Take the content of a node for another or a new one. Raises NodeNotFound, NoFile."""
        node_id = node_id or self._new_id()
        for _ in range(_TRIES):
            source = await self.get(source_id)
            path = self._blob_path(source)
            try:
                blob = await to_thread.run_sync(self._blobs.add_link, path, node_id)
            except FileNotFoundError:
                continue
            return Received(node_id, blob, docs.file_fact(source), source["file"]["name"])
        raise _lost(source_id)

    async def replace(self, content: Received, name: str = "") -> Document:
        """Give a node what was received for it; its old content goes."""
        node_id = content.node_id
        async with self._lock(node_id):
            try:
                name = docs.clean_name(name)
                old = await self.get(node_id)
            except AweError:
                await self.discard(content)
                raise
            document = docs.with_file(old, self._wall(), content.blob, content.fact, name=name)
            # When this fails, it may still be applied later: both blobs stay and the collector decides.
            await self._documents.put(Put("nodes", document))
            await self._remove_blob(old["_blob"])
            return document

    async def discard(self, content: Received | None) -> None:
        """Let go of what was received and not given to a node."""
        if content is not None:
            await self._remove_blob(content.blob)

    async def open_range(
        self,
        node_id: str,
        *,
        range_header: str = "",
        index: str = "",
        part: str = "",
        seek: int | None = None,
        length: int | None = None,
    ) -> Download:
        """Open a node's file, a part by index, or a window by seek and length; a Range header then cuts that.

        Raises NoFile, NoIndex, BadRange (field `total` or `units`).
        """
        for _ in range(_TRIES):
            document = await self.get(node_id)
            path = self._blob_path(document)
            size = document["file"]["size"]
            if index or part:
                start, total = await self._locate(document, index, part)
            elif seek is not None or length is not None:
                start, total = pick_seek(seek, length, size)
            else:
                start, total = 0, size
            wanted = pick_range(range_header, total)
            offset, count = wanted or (0, total)
            try:
                chunks = await to_thread.run_sync(open_reader, path, start + offset, count)
            except FileNotFoundError:
                continue
            return Download(
                name=document["file"]["name"],
                size=count,
                offset=offset,
                total=total,
                partial=wanted is not None,
                md5=document["file"]["checksum"]["md5"],
                chunks=chunks,
            )
        raise _lost(node_id)

    # ---- parts

    async def put_part(
        self,
        node_id: str,
        rank: int,
        attempt: int,
        stream: AsyncIterable[bytes],
        expected_bytes: int = 0,
        check: Callable[[], object] | None = None,
    ) -> FileFact:
        """Stage one rank's file of one attempt: durable, and invisible until it is assembled.

        `check` runs on the event loop when the file takes its place; when it raises, nothing is kept.
        Attempt 0 is Shock's own way (no attempts): the node must have declared its parts, and the last one
        that comes in puts the file together.
        """
        document = await self.get(node_id)
        if rank < 0 or attempt < 0:
            raise BadRequest(f"part {rank} of attempt {attempt}: neither may be negative")
        if attempt == 0:
            count = (document["parts"] or {"count": 0})["count"]
            if not 1 <= rank <= count:
                raise BadRequest(f"part {rank}: the node waits for parts 1 to {count}")
        self._blobs.require(expected_bytes)
        fact = await self._parts.add(node_id, rank, attempt, stream, check)
        if attempt == 0:
            await self._count_in(node_id, rank)
        return fact

    async def declare_parts(self, node_id: str, count: int, name: str = "") -> Document:
        """Say how many parts (1..count, of attempt 0) make this node's file."""
        name = docs.clean_name(name)
        parts = docs.check_parts(count)
        if parts is None:
            raise BadRequest("parts: expected at least 1")
        async with self._lock(node_id):
            document = await self.get(node_id)
            document = docs.changed(document, self._wall(), parts=parts, _name=name or document["_name"])
            await self._documents.put(Put("nodes", document))
            self._came_in.pop(node_id, None)
            if await self._merge_if_complete(document):
                document = await self.get(node_id)
        return document

    async def staged_parts(self, node_id: str) -> Sequence[Part]:
        """The parts that wait to be assembled, by rank and attempt."""
        present = await to_thread.run_sync(self._parts.present, node_id)
        return [present[key] for key in sorted(present)]

    async def assemble(
        self, node_id: str, parts: Sequence[tuple[int, int]], header_lines: int = 0
    ) -> FileFact:
        """Make the accepted (rank, attempt) parts the node's file, in rank order; repeating changes nothing.

        Raises MissingPart, NoSpace; then the parts are all still there.
        """
        if not parts:
            raise BadRequest("at least one part is needed")
        parts = sorted(parts)
        key = docs.assembly_key(parts, header_lines)
        async with self._lock(node_id):
            document = await self.get(node_id)
            if document["_assembled"] == key:
                await to_thread.run_sync(self._parts.drop, node_id, parts)
                return docs.file_fact(document)
            return await self._assemble(document, parts, header_lines, key)

    async def _assemble(
        self, document: Document, parts: Sequence[tuple[int, int]], header_lines: int, key: str | None
    ) -> FileFact:
        node_id = document["id"]
        present = await to_thread.run_sync(self._parts.present, node_id)
        chosen = [_whole(present.get(part), node_id, part) for part in parts]
        blob, fact = await to_thread.run_sync(self._join, node_id, chosen, header_lines)
        changed = docs.with_file(document, self._wall(), blob, fact, assembled=key)
        await self._documents.put(Put("nodes", changed))
        await self._remove_blob(document["_blob"])
        await to_thread.run_sync(self._parts.drop, node_id, parts)
        return fact

    def _join(self, node_id: str, parts: Sequence[Part], header_lines: int) -> tuple[str, FileFact]:
        if len(parts) == 1:
            return self._blobs.add_link(parts[0].path, node_id), parts[0].fact
        self._blobs.require(sum(part.fact.size for part in parts))
        name = self._blobs.new_name(node_id)
        paths = [part.path for part in parts]
        return name, merge(paths, header_lines, self._blobs.writer(name), self._blobs.path(name))

    async def _count_in(self, node_id: str, rank: int) -> None:
        async with self._lock(node_id):
            document = await self.get(node_id)
            if node_id in self._came_in and rank <= document["parts"]["count"]:
                self._came_in[node_id].add(rank)
            await self._merge_if_complete(document)

    async def _merge_if_complete(self, document: Document) -> bool:
        node_id, count = document["id"], document["parts"]["count"]
        if node_id not in self._came_in:
            present = await to_thread.run_sync(self._parts.present, node_id)
            self._came_in[node_id] = {rank for rank, attempt in present if attempt == 0 and 0 < rank <= count}
        if len(self._came_in[node_id]) < count:
            return False
        parts = [(rank, 0) for rank in range(1, count + 1)]
        await self._assemble(document, parts, document["header_lines"], None)
        del self._came_in[node_id]
        return True

    # ---- indexes

    async def build_index(self, node_id: str, kind: str) -> IndexFact:
        """Index a node's file (`size`, `line`, `record`, `chunkrecord`); at once if that was done before.

        Raises NoFile, NotCuttable, InvalidData (file, record, line, problem), NoSpace.
        """
        async with self._lock(f"{node_id}/{kind}"):
            for _ in range(_TRIES):
                document = await self.get(node_id)
                path = self._blob_path(document)
                known = document["indexes"].get(kind)
                if known and (kind == "size" or sidecar(path, kind).exists()):
                    return IndexFact(kind, known["total_units"], known["format"])
                self._blobs.require(0)
                try:
                    fact = await self._builder.build(path, kind, document["file"]["name"] or node_id)
                except FileNotFoundError:
                    continue
                if await self._add_index(document, fact):
                    return fact
        raise Conflict(f"The content of node {node_id} changes too fast to be indexed.")

    def locate(self, document: Document, kind: str, part: str) -> tuple[int, int]:
        """(offset, length) of a part such as `3-4` or `5`. Raises NoFile, NoIndex, BadRange."""
        path = self._blob_path(document)
        if kind == "size":
            return locate_size(document["file"]["size"], part)
        if kind not in document["indexes"]:
            raise NoIndex(node_id=document["id"], kind=kind[:60])
        try:
            return self._index_files.locate(path, kind, part)
        except FileNotFoundError as exc:
            raise NoIndex(node_id=document["id"], kind=kind[:60]) from exc

    async def _locate(self, document: Document, kind: str, part: str) -> tuple[int, int]:
        if not (kind and part):
            raise BadRequest("index and part belong together")
        try:
            return self.locate(document, kind, part)
        except NoIndex:
            if kind not in document["indexes"]:
                raise
            await self.build_index(document["id"], kind)  # its file was lost
            return self.locate(document, kind, part)

    async def _add_index(self, seen: Document, fact: IndexFact) -> bool:
        async with self._lock(seen["id"]):
            document = await self.get(seen["id"])
            if document["_blob"] != seen["_blob"]:
                return False
            await self._documents.put(Put("nodes", docs.with_index(document, self._wall(), fact)))
            return True

    # ---- inside

    async def _remove_blob(self, blob: str | None) -> None:
        if blob is not None:
            await to_thread.run_sync(self._blobs.remove, blob)

    def _blob_path(self, document: Document) -> Path:
        if document["_blob"] is None:
            raise NoFile(node_id=document["id"])
        return self._blobs.path(document["_blob"])

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())


def _whole(part: Part | None, node_id: str, wanted: tuple[int, int]) -> Part:
    if part is None:
        raise MissingPart(node_id=node_id, rank=wanted[0], attempt=wanted[1])
    return part


def _lost(node_id: str) -> AweError:
    return AweError(f"The file of node {node_id} is missing on the server's disk.", node_id=node_id)
