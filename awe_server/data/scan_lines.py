"""Scanners for what a line's end and the bytes around it decide: lines, text, FASTA, SAM."""

import re
from array import array
from collections.abc import Iterable
from itertools import accumulate, compress, count
from operator import add, methodcaller

from awe_server.data.formats import SAM_FIELDS
from awe_server.data.scan import Malformed, line_starts, starts


class LineScanner:
    """One unit for each line, also for an empty one."""

    records = None

    def __init__(self) -> None:
        self._base = 0
        self._at_line_end = False

    def feed(self, block: bytes) -> "array[int]":
        """Take the next bytes."""
        found = starts((self._base,)) if self._at_line_end else array("Q")
        found.extend(line_starts(block, self._base))
        self._at_line_end = block.endswith(b"\n")
        if self._at_line_end:
            found.pop()
        self._base += len(block)
        return found

    def finish(self) -> "array[int]":
        """Nothing is open at the end."""
        return array("Q")


class _AfterLineEnd:
    """Shared by FASTA and text: a record begins where a line end is followed by something."""

    def __init__(self) -> None:
        self._base = -1  #: the file is thought to be preceded by a line end
        self._held = b"\n"
        self.records = 0

    def feed(self, block: bytes) -> "array[int]":
        """Take the next bytes."""
        found = starts(self._find(self._held + block, self._base))
        self._base += len(self._held) + len(block) - 1
        self._held = block[-1:]
        is_first = found and not self.records
        self.records += len(found)
        if is_first:
            found.pop(0)
        return found

    def finish(self) -> "array[int]":
        """Nothing is open at the end."""
        return array("Q")

    def _find(self, data: bytes, base: int) -> Iterable[int]:
        raise NotImplementedError


class FastaScanner(_AfterLineEnd):
    """One unit for each '>' in column 1."""

    def _find(self, data: bytes, base: int) -> Iterable[int]:
        between = data.split(b"\n>")
        between.pop()
        return map(add, accumulate(map(len, between)), count(base + 1, 2))


class TextScanner(_AfterLineEnd):
    """One unit for each line that is not empty; empty ones belong to the line before."""

    _START = re.compile(rb"\n(?=[^\r\n])")

    def _find(self, data: bytes, base: int) -> Iterable[int]:
        if b"\n\n" in data or b"\n\r" in data:
            return (base + match.end() for match in self._START.finditer(data))
        found = starts(line_starts(data, base))
        if data.endswith(b"\n"):
            found.pop()
        return found


class SamScanner:
    """One unit for each alignment line; the header belongs to the first one."""

    def __init__(self) -> None:
        self._base = 0
        self._carry = b""
        self._lines = 0
        self.records = 0

    def feed(self, block: bytes) -> "array[int]":
        """Take the next bytes."""
        data = self._carry + block
        lines = data.split(b"\n")
        self._carry = lines.pop()
        return self._take(lines)

    def finish(self) -> "array[int]":
        """The last line may lack its end."""
        return self._take([self._carry] if self._carry else [])

    def _take(self, lines: list[bytes]) -> "array[int]":
        offsets = starts(map(add, accumulate(map(len, lines), initial=self._base), count()))
        self._base = offsets.pop()
        if self.records and _are_alignments(lines):
            self.records += len(lines)
        else:
            later = [
                self._is_later_record(line, number) for number, line in enumerate(lines, self._lines + 1)
            ]
            offsets = starts(compress(offsets, later))
        self._lines += len(lines)
        return offsets

    def _is_later_record(self, line: bytes, number: int) -> bool:
        if line in (b"", b"\r"):
            return False
        if line.startswith(b"@"):
            if self.records:
                raise Malformed(self.records + 1, number, "a header line after the first record")
            return False
        self.records += 1
        fields = line.count(b"\t") + 1
        if fields < SAM_FIELDS:
            raise Malformed(self.records, number, f"{fields} fields; a SAM line has at least {SAM_FIELDS}")
        return self.records > 1


def _are_alignments(lines: list[bytes]) -> bool:
    fewest_tabs = min(map(methodcaller("count", b"\t"), lines), default=0)
    return fewest_tabs >= SAM_FIELDS - 1 and not any(map(methodcaller("startswith", b"@"), lines))
