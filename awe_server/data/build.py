"""Build one index of one file: the work of a worker process, importing nothing that is slow to import."""

import os
from array import array
from collections.abc import Iterator
from pathlib import Path

from awe_server.data.files import no_space_mapped
from awe_server.data.formats import HEAD_BYTES, Format, Uncuttable, detect, refuse_packed
from awe_server.data.indexes import write_index
from awe_server.data.records import Source, Unclear, chunk_starts
from awe_server.data.scan import Malformed, Scanner, grouped, scan, starts
from awe_server.data.scan_fastq import FastqScanner
from awe_server.data.scan_lines import FastaScanner, LineScanner, SamScanner, TextScanner
from shared_models.errors import InvalidData, NotCuttable

SCANNED_KINDS = ("line", "record", "chunkrecord")

_SCANNERS: dict[Format, type[Scanner]] = {
    Format.FASTA: FastaScanner,
    Format.FASTQ: FastqScanner,
    Format.SAM: SamScanner,
    Format.TEXT: TextScanner,
}


class FileSource:
    """An open file to read anywhere in."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def __enter__(self) -> "FileSource":
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._descriptor)

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes from `offset` on: `length` of them, or fewer only at the end."""
        data = os.pread(self._descriptor, length, offset)
        while len(data) < length and (
            more := os.pread(self._descriptor, length - len(data), offset + len(data))
        ):
            data += more
        return data


def build_index(blob: Path, kind: str, name: str) -> tuple[int, str]:
    """Write the index file of a blob; how many units it has and their format. `name` is for errors.

    Raises NotCuttable, InvalidData, NoSpace, FileNotFoundError.
    """
    try:
        with FileSource(blob) as source, no_space_mapped():
            head = source.read_at(0, HEAD_BYTES)
            if kind == "line":
                refuse_packed(head)
                form, pieces = "line", scan(source, LineScanner())
            else:
                form = detect(head)
                pieces = record_units(source, form, kind)
            return write_index(blob, kind, pieces, source.size), str(form)
    except Uncuttable as exc:
        raise NotCuttable(file=name, reason=str(exc)) from exc
    except Malformed as exc:
        raise InvalidData(file=name, record=exc.record, line=exc.line, problem=exc.problem) from exc


def record_units(source: Source, form: Format, kind: str) -> Iterator["array[int]"]:
    """Unit starts of `record` or `chunkrecord`. Raises Malformed."""
    if kind == "chunkrecord":
        try:
            return iter((starts(chunk_starts(source, form)),))
        except Unclear:
            return grouped(scan(source, _SCANNERS[form]()), source.size)
    return scan(source, _SCANNERS[form]())
