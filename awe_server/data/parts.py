"""Staged parts: uploads that are whole and durable but not yet part of a node's file.

A part is `<root>/<node>/<rank>.<attempt>.<size>.<md5>.<sha256>`: what is known of it is in its name, so
nothing has to be remembered, and asking for all parts of a node is one directory listing. Attributes that an
attempt gives its output wait beside it, as `<rank>.<attempt>.attributes`.
"""

import contextlib
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from awe_server.data.blobs import Writer, write_stream
from awe_server.data.files import fsync_folder
from awe_server.data.ports import FileFact
from awe_server.data.quota import Quota
from awe_server.data.unfinished import Unfinished

_ATTRIBUTES = "attributes"


@dataclass(slots=True, frozen=True)
class Part:
    """One staged part and where it lies."""

    rank: int
    attempt: int
    fact: FileFact
    path: Path


class PartStore:
    """The staged parts of all nodes."""

    def __init__(
        self, root: Path, floor_bytes: int, quota: Quota | None = None, unfinished: Unfinished | None = None
    ) -> None:
        self.root = root
        self.quota = quota or Quota()
        self._floor_bytes = floor_bytes
        self._unfinished = unfinished or Unfinished()

    def folder(self, node_id: str) -> Path:
        """Where the parts of a node lie."""
        return self.root / node_id

    async def add(
        self,
        node_id: str,
        rank: int,
        attempt: int,
        stream: AsyncIterable[bytes],
        check: Callable[[], object] | None = None,
        offset: int | None = None,
    ) -> FileFact:
        """Stage one part. The same attempt may send it again; the upload that was completed last counts.

        `offset`: from where on it is sent, see `Unfinished.receive`; None: it is not kept when it is cut.
        """
        folder = self.folder(node_id)

        def place(fact: FileFact) -> Path:
            return folder / f"{rank}.{attempt}.{fact.size}.{fact.md5}.{fact.sha256}"

        writer = self._writer(folder)
        if offset is None:
            return await write_stream(writer, stream, place, check)
        key = (node_id, rank, attempt)
        return await self._unfinished.receive(key, offset, stream, writer, place, check)

    def _writer(self, folder: Path) -> Writer:
        return Writer(folder, self._floor_bytes, self.quota)

    async def add_attributes(
        self,
        node_id: str,
        rank: int,
        attempt: int,
        attributes: dict[str, Any] | None,
        check: Callable[[], object] | None = None,
    ) -> None:
        """Stage what an attempt says of its output; the last word counts."""
        folder = self.folder(node_id)

        async def text() -> AsyncIterator[bytes]:
            yield orjson.dumps(attributes)

        target = folder / f"{rank}.{attempt}.{_ATTRIBUTES}"
        await write_stream(self._writer(folder), text(), lambda _: target, check)

    def attributes(self, node_id: str, parts: Iterable[tuple[int, int]]) -> dict[str, Any]:
        """`attributes` as the given (rank, attempt) parts set them, the first that did; else nothing."""
        for rank, attempt in parts:
            with contextlib.suppress(FileNotFoundError):
                path = self.folder(node_id) / f"{rank}.{attempt}.{_ATTRIBUTES}"
                return {"attributes": orjson.loads(path.read_bytes())}
        return {}

    def present(self, node_id: str) -> dict[tuple[int, int], Part]:
        """All parts of a node by (rank, attempt)."""
        found: dict[tuple[int, int], Part] = {}
        for part in self._scan(node_id):
            key = (part.rank, part.attempt)
            other = found.get(key)
            if other is None or _completed_at(part) >= _completed_at(other):
                found[key] = part
        return found

    def drop(self, node_id: str, accepted: Iterable[tuple[int, int]]) -> None:
        """Remove what an assembly made useless: the accepted parts and everything older than them.

        A part of a later attempt than the accepted one stays: its task was started again meanwhile.
        """
        newest = dict(accepted)
        last = max(newest.values(), default=0)
        for rank, attempt, _, path in list(self._entries(node_id)):
            if attempt <= newest.get(rank, last):
                self.quota.remove(path)
        self._drop_folder(node_id)

    def drop_all(self, node_id: str) -> None:
        """Remove every part of a node."""
        for *_, path in list(self._entries(node_id)):
            self.quota.remove(path)
        self._drop_folder(node_id)

    def nodes(self) -> Iterator[os.DirEntry[str]]:
        """The folders of all nodes that have staged parts."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root) as entries:
            yield from entries

    def _drop_folder(self, node_id: str) -> None:
        try:
            self.folder(node_id).rmdir()
        except OSError:  # not empty: an upload is on its way, or later attempts are waiting
            return
        fsync_folder(self.root)

    def _scan(self, node_id: str) -> Iterator[Part]:
        for rank, attempt, facts, path in self._entries(node_id):
            if len(facts) == 3:
                size, md5, sha256 = facts
                yield Part(rank, attempt, FileFact(int(size), md5, sha256), path)

    def _entries(self, node_id: str) -> Iterator[tuple[int, int, list[str], Path]]:
        """Rank, attempt, the rest of the name, and the path of all that is staged for a node."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder(node_id)) as entries:
            for entry in entries:
                rank, *fields = entry.name.split(".")
                if rank:  # not a temporary file
                    yield int(rank), int(fields[0]), fields[1:], Path(entry.path)


def _completed_at(part: Part) -> int:
    return part.path.stat().st_mtime_ns
