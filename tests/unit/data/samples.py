"""Bytes to cut, and the plainest possible answer to where they may be cut."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from awe_server.data.scan import Scanner
from awe_server.scheduler.split import part_bounds

READS = (Path(__file__).parents[2] / "data" / "emp_reads.fastq").read_bytes()


@dataclass(frozen=True)
class Bytes:
    """A Source in memory."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def read_at(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def four_line_starts(data: bytes) -> list[int]:
    """Where the records of a FASTQ file without blank or wrapped lines begin: every fourth line."""
    ends = [0, *accumulate(len(line) for line in data.splitlines(keepends=True))]
    return ends[:-1:4]


def flat(pieces: Iterable["array[int]"]) -> list[int]:
    return [start for piece in pieces for start in piece]


def scanned(data: bytes, scanner: Scanner, block: int) -> list[int]:
    """All unit starts, fed in blocks of a size."""
    found = [0]
    for at in range(0, len(data), block):
        found += scanner.feed(data[at : at + block])
    return found + list(scanner.finish())


def parts(data: bytes, starts: list[int], wanted: int) -> list[bytes]:
    """What each of `wanted` ranks gets of a file whose units begin there, by the scheduler's own formula."""
    edges = [*starts, len(data)]
    bounds = [part_bounds(rank, wanted, len(starts)) for rank in range(1, wanted + 1)]
    return [data[edges[first - 1] : edges[last]] for first, last in bounds]


def naive_cuts(data: bytes, wanted: int) -> list[int]:
    """Where a file would be cut by who takes the next line that begins with '@' for a header."""
    return [data.find(b"\n@", len(data) * rank // wanted) + 1 for rank in range(1, wanted)]


def assert_4_line_fastq(data: bytes) -> int:
    """Check a whole FASTQ file; how many records it has."""
    lines = data.split(b"\n")
    assert lines.pop() == b""
    assert len(lines) % 4 == 0
    for at in range(0, len(lines), 4):
        header, sequence, plus, quality = lines[at : at + 4]
        assert header.startswith(b"@")
        assert plus.startswith(b"+")
        assert set(sequence) <= set(b"ACGTN")
        assert len(sequence) == len(quality)
    return len(lines) // 4
