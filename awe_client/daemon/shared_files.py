"""`file:` sources: files of a shared file system, linked when they are wanted whole, else copied.

Whole files are not copied: the work directory gets a link to the file that all share, and what a command does
to it, it does to that file. A piece is copied inside the kernel where the file systems can, and what is to be
unpacked goes the way of every download. Before and after its bytes are read, the file must be the same.
"""

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from awe_client.daemon.copies import IsStopped, copy_some, in_thread, link_file
from awe_client.daemon.roots import open_allowed
from awe_client.sdk.bodies import Progress
from awe_client.sdk.download import Asked, Downloaded, Opener, Reply, Wanted, check_replaceable, part_of
from awe_client.sdk.download_errors import SourceBusy, SourceChanged
from shared_models.errors import AweError, BadRange, BadRequest, Forbidden
from shared_models.file_urls import path_of
from shared_models.versions import file_version

_BLOCK_BYTES = 1024 * 1024
_STEP_BYTES = 16 * 1024 * 1024  #: copied between two looks at whether to go on
#: A file that the server has seen may not be here yet: what a network file system remembers is a little old.
_PASSING = frozenset({errno.ENOENT, errno.ESTALE, errno.EIO, errno.EAGAIN, errno.ETIMEDOUT})


class OutOfReach(AweError):
    """This client may not use a file, or does not see it; another one may."""

    code = "out_of_reach"


class SharedFiles:
    """The files below some roots. Every method raises OutOfReach and other AweErrors of the source."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots

    async def link(self, url: str, target: Path, wanted: Wanted) -> Path:
        """Make `target` a link to the file; returns the file's own path."""
        return await asyncio.to_thread(self._link, url, target, wanted)

    def _link(self, url: str, target: Path, wanted: Wanted) -> Path:
        with self._open(url, wanted) as file:
            path = Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))
        link_file(path, target)
        return path

    async def copy(
        self, url: str, target: Path, wanted: Wanted, on_progress: Progress | None = None
    ) -> Downloaded:
        """Copy a piece of the file, or all of it, as it is. Raises OSError if it cannot be written."""
        return await in_thread(self._copy, url, target, wanted, on_progress)

    def _copy(
        self, is_stopped: IsStopped, url: str, target: Path, wanted: Wanted, on_progress: Progress | None
    ) -> Downloaded:
        with self._open(url, wanted) as source:
            version, length = _version(source), _length(source, wanted)
            check_replaceable(target)
            part = part_of(target)
            try:
                with part.open("xb", buffering=0) as sink:
                    done = 0
                    while done < length and not is_stopped():
                        step = min(_STEP_BYTES, length - done)
                        copied = copy_some(source.fileno(), sink.fileno(), wanted.offset + done, step)
                        if not copied:
                            raise SourceChanged
                        done += copied
                        if on_progress is not None:
                            on_progress(done, length)
                _check_version(source, version)
                part.rename(target)
            finally:
                with suppress(FileNotFoundError):
                    part.unlink()
        return Downloaded(length, "")

    def opener(self, url: str) -> Opener:
        """The file as a source of downloads."""

        @asynccontextmanager
        async def open_once(asked: Asked) -> AsyncIterator[Reply]:
            opening = asyncio.ensure_future(
                asyncio.to_thread(self._open, url, Wanted(etag="" if asked.or_all else asked.etag))
            )
            try:
                file = await asyncio.shield(opening)
            except asyncio.CancelledError:
                opening.add_done_callback(_close)
                raise
            with file:
                version, size = _version(file), os.fstat(file.fileno()).st_size
                offset = asked.offset if asked.etag in ("", version) else 0
                left = max(size - offset, 0)
                left = left if asked.length < 0 else min(asked.length, left)
                file.seek(offset)
                yield Reply(_blocks(file, left, version), offset, left, version)

        return open_once

    def _open(self, url: str, wanted: Wanted) -> BinaryIO:
        """Open a file that is below a root, also after all links, and what is wanted."""
        try:
            file = os.fdopen(open_allowed(path_of(url), self._roots), "rb")
        except Forbidden as exc:
            raise OutOfReach(exc.message) from exc
        except OSError as exc:
            raise error_of(exc) from exc
        try:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise BadRequest("it is not a plain file")
            _check_version(file, wanted.etag)
            if 0 <= wanted.size != about.st_size:
                raise SourceChanged(f"it has {about.st_size} bytes, {wanted.size} were expected")
        except BaseException:
            file.close()
            raise
        return file


def error_of(exc: OSError) -> AweError:
    """What it means that a shared file cannot be read."""
    text = (exc.strerror or str(exc)).lower()
    if exc.errno in _PASSING:
        return SourceBusy(text)
    return Forbidden(text) if exc.errno in (errno.EACCES, errno.EPERM) else OutOfReach(text)


def _version(file: BinaryIO) -> str:
    return file_version(os.fstat(file.fileno()))


def _check_version(file: BinaryIO, expected: str) -> None:
    if expected and _version(file) != expected:
        raise SourceChanged


def _length(file: BinaryIO, wanted: Wanted) -> int:
    size = os.fstat(file.fileno()).st_size
    length = wanted.length if wanted.length >= 0 else size - wanted.offset
    if wanted.offset + length > size or length < 0:
        raise BadRange(f"it has {size} bytes; bytes {wanted.offset} to {wanted.offset + length} were wanted")
    return length


async def _blocks(file: BinaryIO, left: int, version: str) -> AsyncIterator[bytes]:
    while left > 0:
        try:
            block = await asyncio.to_thread(file.read, min(_BLOCK_BYTES, left))
        except OSError as exc:
            raise error_of(exc) from exc
        if not block:
            break
        left -= len(block)
        yield block
    _check_version(file, version)


def _close(opening: "asyncio.Future[BinaryIO]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
