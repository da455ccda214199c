"""Subsets: a node's file made of some units of another one's, as a list says."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from anyio import to_thread

from awe_server.data.blobs import BUFFER_BYTES
from awe_server.data.indexes import locate_size
from awe_server.data.node_indexes import NodeIndexes
from awe_server.data.ports import CannotJoin
from shared_models.errors import BadRange

_MAX_LINE_BYTES = 100
#: (offset, length) of a part such as `3-4`.
_Locate = Callable[[str], tuple[int, int]]


class NodeSubsets(NodeIndexes):
    """Reads units."""

    async def subset(self, parent_id: str, kind: str, list_id: str) -> AsyncIterator[bytes]:
        """The units of a node's file whose numbers are the lines of another node's file.

        The index is built if it is not there. Raises what `build_index` does, and CannotJoin for a list that
        is not one of rising numbers of units.
        """
        fact = await self.build_index(parent_id, kind)
        document = await self.get(parent_id)
        await self.ready(document, kind)
        size = document["file"]["size"]
        blob = self._blob_path(document)

        def locate(part: str) -> tuple[int, int]:
            return locate_size(size, part) if kind == "size" else self._index_files.locate(blob, kind, part)

        listed = self._blob_path(await self.get(list_id))
        pieces = _pieces(blob, _runs(listed, fact.total_units), locate)
        while piece := await to_thread.run_sync(next, pieces, b""):
            yield piece


def _runs(path: Path, units: int) -> Iterator[tuple[int, int]]:
    """First and last of the numbers that follow one another. Raises CannotJoin."""
    first = last = 0
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_MAX_LINE_BYTES):
            number += 1
            for word in line.split():
                unit = int(word) if word.isdigit() else 0
                if not 1 <= unit <= units:
                    what = word[:20].decode("ascii", "replace")
                    raise CannotJoin(f"line {number}, '{what}', is not the number of a unit (1 to {units})")
                if unit <= last:
                    raise CannotJoin(f"line {number}: {unit} comes after {last}; the numbers must rise")
                if unit == last + 1 and first:
                    last = unit
                    continue
                if first:
                    yield first, last
                first = last = unit
    if first:
        yield first, last


def _pieces(blob: Path, runs: Iterator[tuple[int, int]], locate: _Locate) -> Iterator[bytes]:
    descriptor = os.open(blob, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for first, last in runs:
            try:
                offset, left = locate(f"{first}-{last}")
            except (BadRange, FileNotFoundError) as exc:
                raise CannotJoin(f"units {first} to {last} are not there any more") from exc
            while left:
                data = os.pread(descriptor, min(left, BUFFER_BYTES), offset)
                if not data:
                    raise CannotJoin("the parent's file is shorter than its index says")
                yield data
                offset += len(data)
                left -= len(data)
    finally:
        os.close(descriptor)
