"""Reading: which bytes a request asks for, and an iterator over them that outlives the file's name."""

import contextlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from anyio import to_thread

from awe_server.data.sockets import STEP_BYTES, Socket
from shared_models.errors import AweError, BadRange

CHUNK_BYTES = 512 * 1024
GZIP = b"\x1f\x8b"
_SINGLE_RANGE = re.compile(r"\s*bytes\s*=\s*(\d{0,19})\s*-\s*(\d{0,19})\s*", re.IGNORECASE | re.ASCII)


def pick_range(header: str, total: int) -> tuple[int, int] | None:
    """Which (offset, length) of `total` bytes an HTTP Range header asks for; None = all of them.

    A header that is not one single byte range is ignored, as RFC 9110 allows. Raises BadRange with `total`.
    """
    match = _SINGLE_RANGE.fullmatch(header)
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        length = min(int(last), total)
        offset = total - length
    else:
        if last and int(last) < int(first):
            return None
        offset = int(first)
        length = min(int(last) + 1 if last else total, total) - offset
    if length <= 0:
        raise BadRange(f"Range '{header[:100]}' lies outside of {total} bytes.", total=total)
    return offset, length


def pick_seek(seek: int | None, length: int | None, total: int) -> tuple[int, int]:
    """Shock's `seek` and `length`: the rest of the file if no length is given, and never past its end."""
    offset = seek or 0
    if offset < 0 or offset > total or (length is not None and length < 0):
        raise BadRange(f"seek {offset}, length {length} lie outside of {total} bytes.", total=total)
    rest = total - offset
    return offset, rest if length is None else min(length, rest)


class ByteReader:
    """Asynchronous iterator over a range of an open file. The bytes stay readable when the file is removed.

    The descriptor is closed at the end, on an error, by `aclose`, at the latest when the reader is forgotten.
    """

    def __init__(self, descriptor: int, offset: int, length: int) -> None:
        self._descriptor = descriptor
        self._offset = offset
        self._left = length

    def __aiter__(self) -> "ByteReader":
        return self

    async def __anext__(self) -> bytes:
        if self._left == 0 or self._descriptor < 0:
            self._close()
            raise StopAsyncIteration
        try:
            data = await to_thread.run_sync(self._read)
        except Exception:
            self._close()
            raise
        return data

    def _read(self) -> bytes:
        data = os.pread(self._descriptor, min(self._left, CHUNK_BYTES), self._offset)
        if not data:
            raise self._too_short()
        self._offset += len(data)
        self._left -= len(data)
        return data

    def _too_short(self) -> AweError:
        return AweError(f"A stored file ends {self._left} bytes too early.")

    @property
    def left(self) -> int:
        """How many bytes are still to be read."""
        return self._left

    def send_to(self, line: Socket) -> int:
        """Send the next bytes, without reading them: how many; 0 if the line takes none now.

        Blocking, in a thread. Raises OSError.
        """
        file = os.dup(self._descriptor)  # ours may be closed meanwhile, and its number be another file's
        try:
            sent = line.send_file(file, self._offset, min(self._left, STEP_BYTES))
        except EOFError as exc:
            raise self._too_short() from exc
        finally:
            os.close(file)
        self._offset += sent
        self._left -= sent
        return sent

    def narrow(self, skip: int, length: int) -> None:
        """Read only `length` bytes, after the first `skip` of those that are left."""
        self._offset += skip
        self._left = length

    async def aclose(self) -> None:
        """Stop reading."""
        self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self._close()


@dataclass(slots=True, frozen=True)
class Download:
    """What `open_range` found: bytes [offset, offset + size) of a representation of `total` bytes.

    The representation is the file, or the part or seek window asked for; `partial`: a Range header cut it.
    """

    name: str
    size: int
    offset: int
    total: int
    partial: bool
    md5: str  #: of the whole file: an ETag that changes exactly when the content does
    chunks: ByteReader

    def cut(self, range_header: str) -> "Download":
        """What a Range header asks for of a representation that is whole, read by the same reader.

        Raises BadRange (field `total`).
        """
        wanted = pick_range(range_header, self.total)
        if wanted is None:
            return self
        offset, size = wanted
        self.chunks.narrow(offset, size)
        return replace(self, offset=offset, size=size, partial=True)


def try_file(path: Path, size: int, *, is_gzip: bool = False) -> str:
    """Why a file of so many bytes cannot be read, as far as one look tells; "" if it can.

    Raises FileNotFoundError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor).st_size
            head = os.pread(descriptor, len(GZIP), 0)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as exc:
        return exc.strerror or str(exc)
    if found != size:
        return f"it has {found} bytes on the server's disk, of {size}"
    return "it is not packed with gzip" if is_gzip and head != GZIP else ""


def open_reader(path: Path, offset: int, length: int) -> ByteReader:
    """Open a file for reading a range. Raises FileNotFoundError."""
    return ByteReader(os.open(path, os.O_RDONLY | os.O_CLOEXEC), offset, length)
