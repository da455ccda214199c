"""Index files: where the units of a blob begin, as one sorted array beside the blob.

Form: 8 bytes of magic, the number of units, the CRC-32 of what follows, one offset per unit, the end; numbers
are little-endian uint64. What is read is compared with the CRC when it is opened: one wrong offset would tear
a record, and nothing else could tell. Parts are named as AWE does: `3-4` or `5`, counted from 1.
"""

import fcntl
import logging
import mmap
import os
import re
import struct
import sys
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from operator import ge
from pathlib import Path
from typing import BinaryIO, Protocol

from anyio import to_thread

from awe_server.data.files import TEMPORARY_PREFIX, fsync_folder
from shared_models.errors import BadRange
from shared_models.limits import MIB

log = logging.getLogger(__name__)

SIDECAR_SUFFIX = ".idx"
SIZE_UNIT_BYTES = MIB  #: one unit of the virtual index `size`

_FAMILY = b"AWEIDX"
MAGIC = _FAMILY + b"02"  #: with the version, in two digits
OUTDATED = "is an index of another version of this server"  #: no damage: it is built again when needed
_HEADER = struct.Struct("<8sQQ")
_OFFSET = struct.Struct("<Q")
_PART = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?", re.ASCII)
_CACHED = 256  #: index files kept open


class UnitsDoNotCover(Exception):
    """Some byte of the file would be in no unit, or in two; the text says where."""


def covering(starts: Iterable["array[int]"], size: int) -> Iterator["array[int]"]:
    """Pass unit starts on, and see to it that the units are the bytes [0, size), each once, none empty.

    An empty file is one empty unit. Pure. Raises UnitsDoNotCover.
    """
    last = -1
    for piece in starts:
        if not piece:
            continue
        if last < 0 and piece[0] != 0:
            raise UnitsDoNotCover(f"its first unit begins at byte {piece[0]}")
        if piece[0] <= last or any(map(ge, piece, piece[1:])):
            raise UnitsDoNotCover(f"its units after byte {last} are not in order")
        last = piece[-1]
        yield piece
    if last < 0 or last >= max(size, 1):
        raise UnitsDoNotCover(f"its last unit begins at byte {last} of {size}")


def sidecar(blob: Path, kind: str) -> Path:
    """Where the index of a blob lies."""
    return blob.with_name(f"{blob.name}.{kind}{SIDECAR_SUFFIX}")


def unfinished(blob: Path, kind: str, pid: int) -> Path:
    """Where a process writes the index of a blob until it is whole."""
    target = sidecar(blob, kind)
    return target.with_name(f"{TEMPORARY_PREFIX}{target.name}.{pid}")


def write_index(blob: Path, kind: str, starts: Iterable["array[int]"], size: int) -> int:
    """Write the index of a blob from pieces of unit starts, whole or not at all; says how many units.

    Raises UnitsDoNotCover.
    """
    target = sidecar(blob, kind)
    temporary = unfinished(blob, kind, os.getpid())
    units = checksum = 0
    end = _OFFSET.pack(size)
    try:
        with temporary.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # see files.clean_temporary
            file.write(bytes(_HEADER.size))
            for piece in covering(starts, size):
                units += len(piece)
                if sys.byteorder == "big":
                    piece.byteswap()
                checksum = zlib.crc32(piece, checksum)
                piece.tofile(file)
            file.write(end)
            file.seek(0)
            file.write(_HEADER.pack(MAGIC, units, zlib.crc32(end, checksum)))
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(target.parent)
    return units


def size_units(size: int) -> int:
    """Units of the index `size`; an empty file has one, too."""
    return max(1, -(-size // SIZE_UNIT_BYTES))


def parse_part(part: str, units: int) -> tuple[int, int]:
    """First and last unit of a part, counted from 1. Raises BadRange."""
    match = _PART.fullmatch(part)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last <= units:
        raise BadRange(
            f"'{part[:60]}' is not a part of 1-{units}: expected such as '3-4' or '5'.", units=units
        )
    return first, last


class Units(Protocol):
    """Where the units of a file are."""

    @property
    def units(self) -> int:
        """How many there are."""

    def span(self, first: int, last: int) -> tuple[int, int]:
        """(offset, length) of the units from `first` to `last`, counted from 1, which are there."""


def locate_in(units: Units, part: str) -> tuple[int, int]:
    """(offset, length) of a part. Raises BadRange."""
    return units.span(*parse_part(part, units.units))


class SizeUnits:
    """The virtual index `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.units = size_units(size)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """(offset, length) of the units from `first` to `last`, counted from 1, which are there."""
        offset = (first - 1) * SIZE_UNIT_BYTES
        return offset, min(last * SIZE_UNIT_BYTES, self._size) - offset

    def close(self) -> None:
        """Nothing is open."""


class IndexFile:
    """An open index file; not to be closed by one thread while another one reads it."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.units: int = _HEADER.unpack_from(data)[1]

    def span(self, first: int, last: int) -> tuple[int, int]:
        """(offset, length) of the units from `first` to `last`, counted from 1, which are there."""
        offset: int = _OFFSET.unpack_from(self._data, _HEADER.size + 8 * (first - 1))[0]
        end: int = _OFFSET.unpack_from(self._data, _HEADER.size + 8 * last)[0]
        return offset, end - offset

    def close(self) -> None:
        """Let go of it."""
        self._data.close()


class IndexFiles:
    """Open index files, the most recently used ones. Of the event loop: no other thread may use them.

    One that is used no more is let go of here, and closed when whoever `ready` gave it to has done with it.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[Path, IndexFile] = OrderedDict()

    async def ready(self, blob: Path, kind: str, size: int | None = None) -> IndexFile:
        """An index file, opened beside the event loop: to find parts in it needs no disk while it is held.

        `size` is that of what is indexed, if it is not the blob. Raises FileNotFoundError if there is no such
        file.
        """
        path = sidecar(blob, kind)
        known = self._open.get(path)
        if known is None:
            found = await to_thread.run_sync(open_index, blob, kind, size)
            known = self._open.get(path) or found  # of several at once the first one stays
        self._keep(path, known)
        return known

    def close(self) -> None:
        """Close all."""
        while self._open:
            self._open.popitem()[1].close()

    def _keep(self, path: Path, found: IndexFile) -> None:
        self._open[path] = found
        self._open.move_to_end(path)
        if len(self._open) > _CACHED:
            self._open.popitem(last=False)


def open_index(blob: Path, kind: str, size: int | None = None) -> IndexFile:
    """Open the index of a blob, or of what has `size` bytes; a damaged one goes, to be built again.

    Reads all of it, once. Raises FileNotFoundError.
    """
    path = sidecar(blob, kind)
    about = blob.stat().st_size if size is None else size
    with path.open("rb") as file:
        try:
            problem = _problem(file, about)
        except OSError as exc:
            problem = exc.strerror or str(exc)
        if not problem:
            return IndexFile(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    if problem == OUTDATED:
        log.info("index_outdated", extra={"file": str(path)})
    else:
        log.warning("index_damaged", extra={"file": str(path), "reason": problem})
    path.unlink(missing_ok=True)
    raise FileNotFoundError(path)


def index_problem(path: Path, size: int | None = None) -> str:
    """What is wrong with an index file, "" if nothing is; OUTDATED. `size`: of what it is about, if known.

    Raises OSError.
    """
    with path.open("rb") as file:
        return _problem(file, size)


def _problem(file: BinaryIO, size: int | None) -> str:
    head = file.read(_HEADER.size)
    family, version = head[: len(_FAMILY)], head[len(_FAMILY) : len(MAGIC)]
    if family == _FAMILY and version.isdigit() and head[: len(MAGIC)] != MAGIC:
        return OUTDATED
    if len(head) < _HEADER.size or head[: len(MAGIC)] != MAGIC:
        return "is no index"
    _, units, wanted = _HEADER.unpack(head)
    if os.fstat(file.fileno()).st_size != _HEADER.size + (units + 1) * _OFFSET.size or not units:
        return f"is not as long as an index of {units} units"
    checksum, end = 0, b""
    while data := file.read(MIB):
        checksum, end = zlib.crc32(data, checksum), data[-_OFFSET.size :]
    if checksum != wanted:
        return "its offsets are not those that were written"
    if size is not None and end != _OFFSET.pack(size):
        return f"is about {_OFFSET.unpack(end)[0]} bytes, not about {size}"
    return ""
