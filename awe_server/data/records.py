"""Cut a file between records by looking at windows of it, not at the whole: O(parts), not O(bytes). Pure.

A cut is looked for backwards from the wanted offset, so a unit is never longer than asked for unless a single
record is. FASTA, SAM and text have a mark that decides alone: a line's end and what follows it. FASTQ has
none: '@' and '+' open quality lines, too. There a line is a header only if the four lines from it on fit
together (header, sequence of sequence symbols, '+', quality of the same length) and all records after it up
to the window's end, at least three, fit too. In 4-line FASTQ only the true phase can fit: a sequence line
does not begin with '@', nor does a '+' line, and what follows a quality line is a header, no sequence.
Whatever does not fit (wrapped FASTQ, broken records) raises Unclear: then only reading it all decides.
"""

import re
from collections.abc import Iterator
from itertools import accumulate, count
from operator import add
from typing import Protocol

from awe_server.data.formats import SAM_FIELDS, Format, is_sequence
from shared_models.limits import MIB

CHUNK_BYTES = MIB  #: what a unit of the index `chunkrecord` holds at most, unless one record is larger
#: To begin with, then as the records seen so far need: what does not show there is looked for in wider ones.
WINDOW_BYTES = 2 * 1024
MAX_WINDOW_BYTES = 2 * MIB  #: larger records are left to a scan, whose memory is flat
VERIFIED_RECORDS = 3


_MARKS = {
    Format.FASTA: re.compile(rb"\n(?=>)"),
    Format.SAM: re.compile(rb"\n(?=[^\r\n@])"),
    Format.TEXT: re.compile(rb"\n(?=[^\r\n])"),
}


class Source(Protocol):
    """Bytes that can be read anywhere."""

    @property
    def size(self) -> int:
        """How many bytes there are."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes from `offset` on: `length` of them, or fewer only at the end."""


class Unclear(Exception):
    """A window does not show where records begin; scan the file instead."""


class Cutter(Protocol):
    """Finds record starts of one format. The first record's start is not one: its unit begins at 0."""

    def last_start(self, low: int, high: int) -> int | None:
        """The last record start in (low, high], or None."""

    def next_start(self, offset: int) -> int:
        """The first record start at or after `offset`, or the size."""

    def check(self, unit_start: int) -> None:
        """Raise Unclear unless the last unit, which begins there, consists of whole records."""


def cutter(source: Source, form: Format) -> Cutter:
    """The cutter of a format. Raises Unclear if the beginning already does not show records."""
    return FastqCutter(source) if form is Format.FASTQ else MarkCutter(source, form)


def chunk_starts(source: Source, form: Format, chunk_bytes: int = CHUNK_BYTES) -> Iterator[int]:
    """Starts of units of whole records, of at most `chunk_bytes` each unless one record is larger.

    Shape: begins with 0; the units cover [0, size) with no gap or overlap; empty input is one empty unit.
    Raises Unclear.
    """
    yield 0
    if not source.size:
        return
    cuts = cutter(source, form)
    start = 0
    while source.size - start > chunk_bytes:
        cut = cuts.last_start(start, start + chunk_bytes)
        if cut is None:
            cut = cuts.next_start(start + chunk_bytes + 1)
        if cut >= source.size:
            break
        yield cut
        start = cut
    cuts.check(start)


class MarkCutter:
    """FASTA, SAM, text: a line's end and what follows it decide."""

    def __init__(self, source: Source, form: Format) -> None:
        self._source = source
        self._form = form
        self._mark = _MARKS[form]
        self._first = -1
        self._first = self.next_start(0)
        self._check_sam_line(self._first)

    def next_start(self, offset: int) -> int:
        """The first record start at or after `offset` (and after the first record's), or the size."""
        at, window = max(offset, self._first + 1), WINDOW_BYTES
        while at < self._source.size:
            data = self._window(at, window)
            if match := self._mark.search(data):
                return self._checked(at - 1 + match.end())
            at += len(data) - 1
            window = min(window * 4, CHUNK_BYTES)
        return self._source.size

    def last_start(self, low: int, high: int) -> int | None:
        """The last record start in (low, high], or None."""
        low = max(low, self._first)
        window = WINDOW_BYTES
        end = high
        while end > low:
            begin = max(low + 1, end - window + 1)
            ends = [match.end() for match in self._mark.finditer(self._window(begin, end - begin + 1))]
            if ends:
                return self._checked(begin - 1 + ends[-1])
            end = begin - 1
            window = min(window * 4, CHUNK_BYTES)
        return None

    def check(self, unit_start: int) -> None:
        """A SAM file must not end inside a line; the other formats cannot tell."""
        if self._form is Format.SAM and unit_start < self._source.size:
            self._check_sam_line(
                self.last_start(unit_start, self._source.size - 1) or unit_start or self._first
            )

    def _window(self, at: int, length: int) -> bytes:
        """The byte before `at` (a line's end before the file) and `length` bytes from there."""
        if at == 0:
            return b"\n" + self._source.read_at(0, length)
        return self._source.read_at(at - 1, length + 1)

    def _checked(self, start: int) -> int:
        if self._first >= 0:
            self._check_sam_line(start)
        return start

    def _check_sam_line(self, start: int) -> None:
        if self._form is not Format.SAM or start >= self._source.size:
            return
        tabs, ended = 0, False
        while tabs < SAM_FIELDS - 1 and not ended:
            data = self._source.read_at(start, WINDOW_BYTES)
            line, newline, _ = data.partition(b"\n")
            tabs += line.count(b"\t")
            ended = bool(newline) or not data
            start += len(data)
        if tabs < SAM_FIELDS - 1:
            raise Unclear


class FastqCutter:
    """4-line FASTQ: a start is what is verified over several records."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._before = self._after = WINDOW_BYTES  #: of a cut, to look at
        self._first = self._chain(0, 0)[0]
        if self._source.read_at(0, self._first).strip(b"\r\n"):
            raise Unclear

    def next_start(self, offset: int) -> int:
        """The first record start at or after `offset` (and after the first record's), or the size."""
        offset = max(offset, self._first + 1)
        return self._chain(offset, offset)[0]

    def last_start(self, low: int, high: int) -> int | None:
        """The last record start in (low, high], or None."""
        low = max(low, self._first)
        window = self._before
        while low < high:
            begin = max(low + 1, high - window + 1)
            starts = [start for start in self._chain(begin, high) if start <= high]
            if starts:
                return starts[-1]
            if begin == low + 1:
                break
            window *= 4
        return None

    def check(self, unit_start: int) -> None:
        """Verify every record of the last unit, to the last byte."""
        self._chain(unit_start, self._source.size)

    def _learn(self, starts: list[int]) -> None:
        """The next records are as long as these, mostly."""
        if records := len(starts) - 1:
            length = (starts[-1] - starts[0]) // records
            self._before, self._after = 2 * length, 5 * length // 2

    def _chain(self, begin: int, until: int) -> list[int]:
        """Verified starts from the first one at or after `begin` to the first one past `until`."""
        window = self._after + until - begin
        lead = 1 if begin else 0
        while True:
            data = self._source.read_at(begin - lead, window)
            starts = _verified(data, begin - lead, lead, until, self._source.size)
            if starts is not None:
                self._learn(starts)
                return starts
            if window > MAX_WINDOW_BYTES:
                raise Unclear
            window *= 4


def _verified(data: bytes, base: int, skip: int, until: int, size: int) -> list[int] | None:
    """Starts of the records in `data`, which begins at `base`; None if more of the file has to be seen.

    `skip`: the first line is the rest of one that began earlier. Raises Unclear.
    """
    lines = data.split(b"\n")
    offsets = list(map(add, accumulate(map(len, lines), initial=base), count()))
    complete = base + len(data) >= size
    if not complete or not lines[-1]:
        lines.pop()
    at = _first_start(lines, skip, complete)
    if at is None:
        return None
    starts: list[int] = []
    while True:
        while at < len(lines) and lines[at] in (b"", b"\r"):
            at += 1
        if at >= len(lines):
            return [*starts, size] if complete else None
        fits = _fits(lines, at)
        if fits is None and not complete:
            return None
        if not fits:
            raise Unclear
        starts.append(offsets[at])
        if len(starts) >= VERIFIED_RECORDS and starts[-1] > until:
            return starts
        at += 4


def _first_start(lines: list[bytes], at: int, complete: bool) -> int | None:
    """Which line is the first header; len(lines) if none follows, None if more has to be seen.

    A record has four lines, so one of any four lines with something in them is a header. Raises Unclear.
    """
    seen = 0
    while at < len(lines) and seen < 4:
        line = lines[at]
        if line.startswith(b"@"):
            fits = _fits(lines, at)
            if fits:
                return at
            if fits is None and not complete:
                return None
        seen += line not in (b"", b"\r")
        at += 1
    if seen >= 4:
        raise Unclear
    return at if complete else None


def _fits(lines: list[bytes], at: int) -> bool | None:
    """Whether the four lines from `at` on are a record; None if they are not all there to tell."""
    record = [line.removesuffix(b"\r") for line in lines[at : at + 4]]
    if not record[0].startswith(b"@"):
        return False
    if len(record) > 1 and not is_sequence(record[1]):
        return False
    if len(record) > 2 and not record[2].startswith(b"+"):
        return False
    return len(record[1]) == len(record[3]) if len(record) == 4 else None
