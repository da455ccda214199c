"""Scan FASTQ: whole blocks of 4-line records at once, everything else line by line.

Grammar: a header line '@…'; sequence lines up to a line '+…'; quality lines of the same length in all (one
line if the sequence was one line; none for an empty sequence). Blank lines between records belong to the
record before. So a quality line may begin with anything, and a wrapped record is read for what it is.
"""

from array import array
from enum import Enum
from itertools import accumulate, count
from operator import add

from awe_server.data.scan import Malformed
from shared_models.limits import MIB

CARRY_BYTES = MIB  #: a record cut by a block's end is read again with the next block, unless it is longer
_NO_SYMBOL = -1  #: the first symbol of an empty line
_AT, _PLUS = b"@+"


class _Awaits(Enum):
    HEADER = "a header line that begins with '@'"
    SEQUENCE = "a sequence line or the '+' line"
    QUALITY = "a quality line"


class _Grammar:
    """Reads lines by their first symbol and length; knows where in a record it is."""

    def __init__(self) -> None:
        self.records = 0
        self.lines = 0
        self.awaits = _Awaits.HEADER
        self._sequence = 0
        self._sequence_lines = 0
        self._quality = 0

    def take(self, first: int, length: int) -> bool:
        """Read one line (length without its end); True if a record begins with it. Raises Malformed."""
        self.lines += 1
        if self.awaits is _Awaits.HEADER:
            return self._header(first)
        if self.awaits is _Awaits.SEQUENCE:
            self._sequence_line(first, length)
        else:
            self._quality_line(length)
        return False

    def finish(self) -> None:
        """The file is over. Raises Malformed inside a record."""
        if self.awaits is _Awaits.SEQUENCE:
            where = "after the header line" if not self._sequence_lines else "after the sequence"
            raise self._malformed(f"the file ends {where}; expected {self.awaits.value}")
        if self.awaits is _Awaits.QUALITY:
            seen = f"{self._quality} of {self._sequence} quality symbols"
            raise self._malformed(f"the file ends after {seen}")

    def _header(self, first: int) -> bool:
        if first == _NO_SYMBOL:
            return False
        self.records += 1
        if first != _AT:
            raise self._malformed(f"expected {self.awaits.value}")
        self.awaits = _Awaits.SEQUENCE
        self._sequence = self._sequence_lines = self._quality = 0
        return True

    def _sequence_line(self, first: int, length: int) -> None:
        if first == _AT:
            raise self._malformed("a header line, but the record before has no '+' line yet")
        if first == _PLUS:
            self.awaits = _Awaits.QUALITY if self._sequence else _Awaits.HEADER
            return
        self._sequence += length
        self._sequence_lines += 1

    def _quality_line(self, length: int) -> None:
        self._quality += length
        missing = self._sequence - self._quality
        if missing < 0 or length == 0 or (missing and self._sequence_lines == 1):
            raise self._malformed(
                f"the quality has {self._quality} symbols, the sequence has {self._sequence}"
            )
        if not missing:
            self.awaits = _Awaits.HEADER

    def _malformed(self, problem: str) -> Malformed:
        return Malformed(self.records, self.lines, problem)


class FastqScanner:
    """One unit for each record."""

    def __init__(self) -> None:
        self._grammar = _Grammar()
        self._base = 0  #: offset of the first byte of the carry
        self._carry = b""
        self._open: _OpenLine | None = None

    @property
    def records(self) -> int:
        """How many records began by now."""
        return self._grammar.records

    def feed(self, block: bytes) -> "array[int]":
        """Take the next bytes."""
        found: array[int] = array("Q")
        if self._open is not None:
            block = self._close_line(self._open, block, found)
        data = self._carry + block
        lines = data.split(b"\n")
        rest = lines.pop()
        offsets = list(map(add, accumulate(map(len, lines), initial=0), count()))
        at = 0
        if self._grammar.awaits is _Awaits.HEADER:
            at = self._take_4_line_records(data, lines, offsets, found)
        begun_at = self._take_lines(lines, offsets, at, found)
        if begun_at is not None and len(data) - offsets[begun_at] <= CARRY_BYTES:
            self._unread(len(lines) - begun_at, found)
            self._keep(data, offsets[begun_at])
        elif len(rest) > CARRY_BYTES:
            self._open = _OpenLine(self._base + offsets[-1])
            self._open.extend(rest)
            self._keep(data, len(data))
        else:
            self._keep(data, offsets[-1])
        return found

    def finish(self) -> "array[int]":
        """The last line may lack its end."""
        found: array[int] = array("Q")
        if self._open is not None:
            self._take_line(self._open.first, self._open.length, self._open.offset, found)
        lines = self._carry.split(b"\n")
        if not lines[-1]:
            lines.pop()
        offsets = list(map(add, accumulate(map(len, lines), initial=0), count()))
        self._take_lines(lines, offsets, 0, found)
        self._grammar.finish()
        return found

    def _take_4_line_records(
        self, data: bytes, lines: list[bytes], offsets: list[int], found: "array[int]"
    ) -> int:
        """Read the lines as 4-line records if every four of them are one; how many lines that were, or 0."""
        records = len(lines) // 4
        read = records * 4
        first = bytes(map(data.__getitem__, offsets[:read]))
        if first[0::4].count(b"@") != records or first[2::4].count(b"+") != records:
            return 0
        if b"@" in first[1::4] or b"+" in first[1::4]:
            return 0
        if list(map(len, lines[1:read:4])) != list(map(len, lines[3:read:4])):
            return 0
        if b"\r" in data and _returns(lines[1:read:4]) != _returns(lines[3:read:4]):
            return 0
        found.extend(map(self._base.__add__, offsets[0:read:4]))
        if records and not self._grammar.records:
            found.pop(0)
        self._grammar.records += records
        self._grammar.lines += read
        return read

    def _take_lines(self, lines: list[bytes], offsets: list[int], at: int, found: "array[int]") -> int | None:
        """Read lines from number `at` on one by one; on which line the record begins that is not over yet."""
        begun_at = None
        for number in range(at, len(lines)):
            line = lines[number]
            if self._grammar.awaits is _Awaits.HEADER:
                begun_at = number
            length = len(line) - line.endswith(b"\r")
            self._take_line(line[0] if length else _NO_SYMBOL, length, self._base + offsets[number], found)
        return None if self._grammar.awaits is _Awaits.HEADER else begun_at

    def _take_line(self, first: int, length: int, offset: int, found: "array[int]") -> None:
        if self._grammar.take(first, length) and self._grammar.records > 1:
            found.append(offset)

    def _unread(self, lines: int, found: "array[int]") -> None:
        """Forget the record that was begun; its lines come again with the next block."""
        if self._grammar.records > 1:
            found.pop()
        self._grammar.records -= 1
        self._grammar.lines -= lines
        self._grammar.awaits = _Awaits.HEADER

    def _keep(self, data: bytes, start: int) -> None:
        self._carry = data[start:]
        self._base += start

    def _close_line(self, line: "_OpenLine", block: bytes, found: "array[int]") -> bytes:
        """Read on in a line that is longer than what is carried; what follows it in the block."""
        end = block.find(b"\n")
        if end < 0:
            line.extend(block)
            self._base += len(block)
            return b""
        line.extend(block[:end])
        self._take_line(line.first, line.length, line.offset, found)
        self._open = None
        self._base += end + 1
        return block[end + 1 :]


class _OpenLine:
    """A line too long to be carried along: only what the grammar needs of it."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._first = _NO_SYMBOL
        self._bytes = 0
        self._ends_with_return = False

    @property
    def first(self) -> int:
        """Its first symbol."""
        return self._first if self.length else _NO_SYMBOL

    @property
    def length(self) -> int:
        """Its length without a carriage return at its end."""
        return self._bytes - self._ends_with_return

    def extend(self, data: bytes) -> None:
        """The line goes on."""
        if data:
            if not self._bytes:
                self._first = data[0]
            self._bytes += len(data)
            self._ends_with_return = data.endswith(b"\r")


def _returns(lines: list[bytes]) -> list[bool]:
    return [line.endswith(b"\r") for line in lines]
