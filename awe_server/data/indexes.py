"""Index files: where the units of a blob begin, as one sorted array beside the blob.

Form: 8 bytes of magic, the number of units, one offset per unit, the end; numbers are little-endian uint64.
Parts are named as AWE does: `3-4` or `5`, counted from 1.
"""

import fcntl
import mmap
import os
import re
import struct
import sys
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from operator import ge, gt
from pathlib import Path

from anyio import to_thread

from awe_server.data.files import TEMPORARY_PREFIX, fsync_folder
from shared_models.errors import BadRange
from shared_models.limits import MIB

SIDECAR_SUFFIX = ".idx"
SIZE_UNIT_BYTES = MIB  #: one unit of the virtual index `size`

MAGIC = b"AWEIDX01"
_HEADER = struct.Struct("<8sQ")
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


def write_index(blob: Path, kind: str, starts: Iterable["array[int]"], size: int) -> int:
    """Write the index of a blob from pieces of unit starts, whole or not at all; says how many units.

    Raises UnitsDoNotCover.
    """
    target = sidecar(blob, kind)
    temporary = target.with_name(f"{TEMPORARY_PREFIX}{target.name}.{os.getpid()}")
    units = 0
    try:
        with temporary.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # see files.clean_temporary
            file.write(_HEADER.pack(MAGIC, 0))
            for piece in covering(starts, size):
                units += len(piece)
                if sys.byteorder == "big":
                    piece.byteswap()
                piece.tofile(file)
            file.write(_OFFSET.pack(size))
            file.seek(0)
            file.write(_HEADER.pack(MAGIC, units))
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


def locate_size(size: int, part: str) -> tuple[int, int]:
    """(offset, length) of a part of the virtual index `size`."""
    first, last = parse_part(part, size_units(size))
    offset = (first - 1) * SIZE_UNIT_BYTES
    return offset, min(last * SIZE_UNIT_BYTES, size) - offset


class IndexFiles:
    """Open index files, the most recently used ones."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, mmap.mmap] = OrderedDict()

    async def ready(self, blob: Path, kind: str, size: int | None = None) -> None:
        """Open an index file beside the event loop, so that `locate` need not touch the disk for that.

        `size` is that of what is indexed, if it is not the blob. Raises FileNotFoundError if there is no such
        file.
        """
        path = sidecar(blob, kind)
        if path not in self._open:
            data = await to_thread.run_sync(_mapped, path, blob, size)
            if path in self._open:
                data.close()
            else:
                self._keep(path, data)

    def locate(self, blob: Path, kind: str, part: str, size: int | None = None) -> tuple[int, int]:
        """(offset, length) of a part. Raises BadRange; FileNotFoundError if there is no such index file."""
        path = sidecar(blob, kind)
        data = self._open.get(path)
        if data is None:
            data = _mapped(path, blob, size)
            self._keep(path, data)
        self._open.move_to_end(path)
        units = _HEADER.unpack_from(data)[1]
        first, last = parse_part(part, units)
        offset = _OFFSET.unpack_from(data, _HEADER.size + 8 * (first - 1))[0]
        end = _OFFSET.unpack_from(data, _HEADER.size + 8 * last)[0]
        return offset, end - offset

    def close(self) -> None:
        """Close all."""
        while self._open:
            self._open.popitem()[1].close()

    def _keep(self, path: Path, data: mmap.mmap) -> None:
        self._open[path] = data
        if len(self._open) > _CACHED:
            self._open.popitem(last=False)[1].close()


def _mapped(path: Path, blob: Path, size: int | None) -> mmap.mmap:
    """An index file that is about all of something, from first to last byte; else it goes, to be built again.

    Raises FileNotFoundError.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size >= _HEADER.size + 2 * _OFFSET.size:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if _describes(data, blob.stat().st_size if size is None else size):
                return data
            data.close()
    path.unlink(missing_ok=True)
    raise FileNotFoundError(path)


def index_problem(path: Path) -> str:
    """What is wrong with an index file, whatever it is about; "" if nothing is. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or head[: len(MAGIC)] != MAGIC:
            return "is no index"
        units = _HEADER.unpack(head)[1]
        if os.fstat(file.fileno()).st_size != _HEADER.size + (units + 1) * _OFFSET.size or not units:
            return f"is not as long as an index of {units} units"
        last = -1
        while data := file.read(MIB):
            offsets = array("Q", data)
            if sys.byteorder == "big":
                offsets.byteswap()
            if (last < 0 and offsets[0] != 0) or offsets[0] < last or any(map(gt, offsets, offsets[1:])):
                return f"its units after byte {max(last, 0)} are not in order"
            last = offsets[-1]
    return ""


def _describes(data: mmap.mmap, size: int) -> bool:
    magic, units = _HEADER.unpack_from(data)
    ends = _OFFSET.unpack_from(data, _HEADER.size)[0], _OFFSET.unpack_from(data, len(data) - _OFFSET.size)[0]
    whole = len(data) == _HEADER.size + (units + 1) * _OFFSET.size
    return whole and (magic, *ends) == (MAGIC, 0, size)
