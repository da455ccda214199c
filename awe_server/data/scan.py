"""Read a whole file as a stream and say where its records begin; find the first record that is broken. Pure.

A scanner is fed blocks and answers with the starts they brought to light, the first record's left out: its
unit begins at 0 with whatever stands before it.
"""

from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate, count
from operator import add
from typing import Protocol

from awe_server.data.records import CHUNK_BYTES, Source
from shared_models.limits import MIB

BLOCK_BYTES = MIB


class Malformed(Exception):
    """A record is not what the format says."""

    def __init__(self, record: int, line: int, problem: str) -> None:
        super().__init__(record, line, problem)
        self.record = record
        self.line = line
        self.problem = problem


class Scanner(Protocol):
    """Finds the starts of a stream's units, but for the first one."""

    @property
    def records(self) -> int | None:
        """How many records began by now; None if its units are not records."""

    def feed(self, block: bytes) -> "array[int]":
        """Take the next bytes; starts found by now. Raises Malformed."""

    def finish(self) -> "array[int]":
        """The stream is over; starts found last. Raises Malformed."""


def starts(*found: Iterable[int]) -> "array[int]":
    """An array of offsets."""
    result = array("Q")
    for some in found:
        result.extend(some)
    return result


def scan(source: Source, scanner: Scanner) -> Iterator["array[int]"]:
    """All unit starts of a source, in pieces; the first one is 0. Raises Malformed."""
    yield starts((0,))
    offset = 0
    while block := source.read_at(offset, BLOCK_BYTES):
        yield scanner.feed(block)
        offset += len(block)
    yield scanner.finish()


def grouped(
    pieces: Iterable["array[int]"], size: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator["array[int]"]:
    """Group records to units as records.chunk_starts does, from the starts of all records."""
    unit = previous = 0
    for piece in pieces:
        found = array("Q")
        if previous == unit == 0 and piece and piece[0] == 0:
            found.append(piece.pop(0))
        for start in piece:
            while start - unit > chunk_bytes:
                unit = previous if previous > unit else start
                found.append(unit)
            previous = start
        yield found
    if size - unit > chunk_bytes and previous > unit:
        yield starts((previous,))


def line_starts(block: bytes, base: int) -> Iterator[int]:
    """Where the lines after each line end of a block begin."""
    lines = block.split(b"\n")
    lines.pop()
    return map(add, accumulate(map(len, lines)), count(base + 1))
