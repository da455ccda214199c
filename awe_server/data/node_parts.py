"""Parts of the node store: files of ranks and attempts, staged until they are put together."""

from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from typing import Any

from anyio import to_thread

from awe_server.data import documents as docs
from awe_server.data.merge import merge
from awe_server.data.merge_archives import merge_archives
from awe_server.data.node_sharing import NodeSharing
from awe_server.data.parts import Part
from awe_server.data.ports import FileFact
from awe_server.store.base import Document, Put
from shared_models.archives import ARCHIVE_TAG
from shared_models.errors import AweError, BadRequest, Conflict, MissingPart

#: Staged parts whose facts are kept in memory, the last ones.
MAX_REMEMBERED = 20_000

#: node, rank, attempt
PartKey = tuple[str, int, int]


class NodeParts(NodeSharing):
    """Stages parts of nodes' files, and joins them."""

    async def put_part(
        self,
        node_id: str,
        rank: int,
        attempt: int,
        stream: AsyncIterable[bytes],
        expected_bytes: int = 0,
        check: Callable[[], object] | None = None,
        offset: int | None = None,
    ) -> FileFact:
        """Stage one rank's file of one attempt: durable, and invisible until it is assembled.

        `check` runs on the event loop when the file takes its place; when it raises, nothing is kept, unless
        it cannot tell yet (Starting, LeadInDoubt): then what came is kept as that of a cut.
        `offset`: where the stream begins in the file, if what comes of it is to be kept when it is cut; it
        must be what `unfinished` says, or 0: anew. Raises Conflict if it is not.
        Attempt 0 is Shock's own way (no attempts): the node must have declared its parts, and the last one
        that comes in puts the file together.
        """
        _check_part(await self.get(node_id), rank, attempt)
        key = (node_id, rank, attempt)
        if offset == 0:  # room for what begins anew
            await self._unfinished.drop(key)
        elif offset and (whole := await self._staged_alone(key)) is not None and whole.size == offset:
            async for _ in stream:
                raise Conflict(
                    f"offset {offset}: the upload has ended there; begin anew to send another file"
                )
            return whole
        await to_thread.run_sync(self._blobs.require, expected_bytes)
        fact = await self._parts.add(node_id, rank, attempt, stream, check, offset)
        if attempt == 0:
            await self._count_in(node_id, rank)
        else:
            self._remember(node_id, rank, attempt, fact)
        return fact

    async def unfinished(self, node_id: str, rank: int, attempt: int) -> int:
        """How many bytes are here of what an attempt uploads; a request that still feeds it is ended.

        All of them, if only the answer was lost: then nothing is left to be sent.
        """
        key = (node_id, rank, attempt)
        staged = await self._staged_alone(key)
        return staged.size if staged else await self._unfinished.offset(key)

    async def _staged_alone(self, key: PartKey) -> FileFact | None:
        """An attempt's part that is whole, unless it is being sent again."""
        if await self._unfinished.offset(key):
            return None
        return (await self.staged([key])).get(key)

    async def drop_unfinished(self) -> int:
        """Let go of uploads that were cut a while ago, or whose attempt is held no more; how many."""
        return await self._unfinished.sweep()

    async def put_attributes(
        self,
        node_id: str,
        rank: int,
        attempt: int,
        attributes: dict[str, Any] | None,
        check: Callable[[], object] | None = None,
    ) -> None:
        """Stage what an attempt says of its output, until its part is taken; `check` as for `put_part`.

        Of a split only rank 1 describes the whole; what others say is not kept.
        Source: AWE lib/shock/shock.go PutOrPostFile (attrfile, rank < 2).
        """
        attributes = docs.check_attributes(attributes)
        if rank <= 1:
            await self.get(node_id)
            await self._parts.add_attributes(node_id, rank, attempt, attributes, check)

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

    async def staged(self, wanted: Iterable[PartKey]) -> dict[PartKey, FileFact]:
        """What is staged of these attempts; one look into each node's folder that memory does not know."""
        found: dict[PartKey, FileFact] = {}
        forgotten: dict[str, list[PartKey]] = {}
        for key in wanted:
            fact = self._staged.get(key)
            if fact is None:
                forgotten.setdefault(key[0], []).append(key)
            else:
                found[key] = fact
        for node_id, keys in forgotten.items():
            present = await to_thread.run_sync(self._parts.present, node_id)
            found.update((key, present[key[1:]].fact) for key in keys if key[1:] in present)
        return found

    async def missing_parts(
        self, node_id: str, parts: Sequence[tuple[int, int]], header_lines: int = 0
    ) -> list[tuple[int, int]]:
        """Those of the (rank, attempt) parts that `assemble` would miss. Raises NodeNotFound."""
        document = await self.get(node_id)
        if not parts or document["_assembled"] == docs.assembly_key(sorted(parts), header_lines):
            return []
        present = await to_thread.run_sync(self._parts.present, node_id)
        return [part for part in sorted(parts) if part not in present]

    def _remember(self, node_id: str, rank: int, attempt: int, fact: FileFact) -> None:
        key = (node_id, rank, attempt)
        self._staged.pop(key, None)
        self._staged[key] = fact
        if len(self._staged) > MAX_REMEMBERED:
            del self._staged[next(iter(self._staged))]

    async def assemble(
        self, node_id: str, parts: Sequence[tuple[int, int]], header_lines: int = 0
    ) -> FileFact:
        """Make the accepted (rank, attempt) parts the node's file, in rank order; repeating changes nothing.

        Attributes that the first of them brought become the node's.
        Raises MissingPart, CannotJoin, NoSpace; then the parts are all still there.
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
        blob, fact = await to_thread.run_sync(self._join, document, chosen, header_lines)
        described = await to_thread.run_sync(self._parts.attributes, node_id, parts[:1])
        if key is None:
            try:
                self._check_replaceable(document, fact)
            except AweError:
                await self._remove_blob(blob)
                raise
        changed = {**docs.with_file(document, self._wall(), blob, fact, assembled=key), **described}
        await self._put_with_file(changed)
        await self._remove_blob(document["_blob"])
        await to_thread.run_sync(self._parts.drop, node_id, parts)
        return fact

    def _join(self, document: Document, parts: Sequence[Part], header_lines: int) -> tuple[str, FileFact]:
        node_id = document["id"]
        if len(parts) == 1:
            return self._blobs.add_link(parts[0].path, node_id), parts[0].fact
        self._blobs.require_free(sum(part.fact.size for part in parts))
        name = self._blobs.new_name(node_id)
        writer, target = self._blobs.writer(name, is_admitted=True), self._blobs.path(name)
        if ARCHIVE_TAG in document["tags"]:
            return name, merge_archives(parts, writer, target)
        return name, merge([part.path for part in parts], header_lines, writer, target)

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


def _whole(part: Part | None, node_id: str, wanted: tuple[int, int]) -> Part:
    if part is None:
        raise MissingPart(node_id=node_id, rank=wanted[0], attempt=wanted[1])
    return part


def _check_part(document: Document, rank: int, attempt: int) -> None:
    """Raises BadRequest if a node cannot have such a part."""
    if rank < 0 or attempt < 0:
        raise BadRequest(f"part {rank} of attempt {attempt}: neither may be negative")
    count = (document["parts"] or {"count": 0})["count"]
    if attempt == 0 and not 1 <= rank <= count:
        raise BadRequest(f"part {rank}: the node waits for parts 1 to {count}")
