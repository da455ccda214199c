"""Subsets: a node's file made of some units of another one's, as a list says."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from anyio import to_thread

from awe_server.data.blobs import BUFFER_BYTES
from awe_server.data.indexes import IndexFile, SizeUnits, open_index
from awe_server.data.node_base import TRIES
from awe_server.data.node_indexes import NodeIndexes
from awe_server.data.ports import CannotJoin
from shared_models.errors import Conflict

_MAX_LINE_BYTES = 100
#: (offset, length) of the units from the first to the last.
_Span = Callable[[int, int], tuple[int, int]]


class NodeSubsets(NodeIndexes):
    """Reads units."""

    async def subset(self, parent_id: str, kind: str, list_id: str) -> AsyncIterator[bytes]:
        """The units of a node's file whose numbers are the lines of another node's file.

        The index is built if it is not there. Raises what `build_index` does, and CannotJoin for a list that
        is not one of rising numbers of units.
        """
        listed = self._blob_path(await self.get(list_id))
        blob, index = await self._indexed(parent_id, kind)
        try:
            pieces = _pieces(blob, _runs(listed, index.units), index.span)
            while piece := await to_thread.run_sync(next, pieces, b""):
                yield piece
        finally:
            index.close()

    async def _indexed(self, node_id: str, kind: str) -> tuple[Path, IndexFile | SizeUnits]:
        """A node's blob, and its index, opened for one reader alone: it is read by other threads."""
        for _ in range(TRIES):
            await self.build_index(node_id, kind)
            document = await self.get(node_id)
            blob = self._blob_path(document)
            if kind == "size":
                return blob, SizeUnits(document["file"]["size"])
            try:
                return blob, await to_thread.run_sync(open_index, blob, kind)
            except FileNotFoundError:  # it was damaged, or the content was replaced meanwhile
                continue
        raise Conflict(f"The content of node {node_id} changes too fast to be indexed.")


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


def _pieces(blob: Path, runs: Iterator[tuple[int, int]], span: _Span) -> Iterator[bytes]:
    """The bytes of the runs, joined to pieces that are worth a call of a thread."""
    held = bytearray()
    descriptor = os.open(blob, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for first, last in runs:
            offset, left = span(first, last)
            while left:
                data = os.pread(descriptor, min(left, BUFFER_BYTES - len(held)), offset)
                if not data:
                    raise CannotJoin("the parent's file is shorter than its index says")
                held += data
                offset += len(data)
                left -= len(data)
                if len(held) == BUFFER_BYTES:
                    yield bytes(held)
                    held.clear()
        if held:
            yield bytes(held)
    finally:
        os.close(descriptor)
