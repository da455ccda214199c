"""Build one index of one file: the work of a worker process, importing nothing that is slow to import."""

import os
from array import array
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from awe_server.data.files import no_space_mapped
from awe_server.data.formats import HEAD_BYTES, Format, Uncuttable, detect, refuse_packed
from awe_server.data.indexes import UnitsDoNotCover, write_index
from awe_server.data.ports import IndexFact, Unreadable
from awe_server.data.records import Source, Unclear, chunk_starts
from awe_server.data.scan import Malformed, Scanner, grouped, scan, starts
from awe_server.data.scan_fastq import FastqScanner
from awe_server.data.scan_lines import FastaScanner, LineScanner, SamScanner, TextScanner
from awe_server.data.sources.facts import Place
from shared_models.errors import AweError, InvalidData, NotCuttable

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


def build_index(
    blob: Path, kind: str, name: str, place: Place | None = None, *, may_scan: bool = True
) -> IndexFact:
    """Write the index file of a blob, or of what is at another place, as if that lay in `blob`.

    `name` is what errors call it. Raises NotCuttable, InvalidData, NoSpace, Unreadable, FileNotFoundError,
    and the errors of sources/facts.py; Unclear if all of it would have to be read and `may_scan` is not set.
    """
    try:
        with _opened(blob, place) as source, no_space_mapped():
            form, pieces, reader = _units(source, kind, may_scan)
            units = write_index(blob, kind, pieces, source.size)
            return IndexFact(kind, units, form, reader.records if reader else None)
    except Uncuttable as exc:
        raise NotCuttable(file=name, reason=str(exc)) from exc
    except Malformed as exc:
        raise InvalidData(file=name, record=exc.record, line=exc.line, problem=exc.problem) from exc
    except FileNotFoundError:
        raise
    except (OSError, MemoryError, UnitsDoNotCover) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise Unreadable(file=name, reason=reason or "not enough memory to index it") from exc


def build_ahead(blob: Path) -> IndexFact | None:
    """The index `chunkrecord` of reads, if windows are enough; else None: who asks for it hears why."""
    try:
        with FileSource(blob) as source:
            if detect(source.read_at(0, HEAD_BYTES)) is not Format.FASTQ:  # others may need very wide windows
                return None
        return build_index(blob, "chunkrecord", blob.name, may_scan=False)
    except (Unclear, Uncuttable, AweError, OSError):
        return None


def _opened(blob: Path, place: Place | None) -> AbstractContextManager[Source]:
    if place is None:
        return FileSource(blob)
    from awe_server.data.sources.reading import open_source  # slow to import

    return open_source(place)


def _units(source: Source, kind: str, may_scan: bool) -> "tuple[str, Iterator[array[int]], Scanner | None]":
    """The format, and what `record_units` gives. Raises Uncuttable, Malformed, Unclear."""
    head = source.read_at(0, HEAD_BYTES)
    if kind == "line":
        refuse_packed(head)
        lines = LineScanner()
        return kind, scan(source, lines), lines
    form = detect(head)
    return form.value, *record_units(source, form, kind, may_scan=may_scan)


def record_units(
    source: Source, form: Format, kind: str, *, may_scan: bool = True
) -> "tuple[Iterator[array[int]], Scanner | None]":
    """Unit starts of `record` or `chunkrecord`, and who reads all of the file for them, if anybody does.

    Raises Malformed, here or while the starts are taken; Unclear if that would be needed and may not be.
    """
    scanner = _SCANNERS[form]()
    if kind == "record":
        return scan(source, scanner), scanner
    try:
        return iter((starts(chunk_starts(source, form)),)), None
    except Unclear:
        if not may_scan:
            raise
        return grouped(scan(source, scanner), source.size), scanner
