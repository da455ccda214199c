"""`file:` sources: files of a shared file system, linked when they are wanted whole, else copied.

Whole files are not copied: the work directory gets a link to the file that all share, and what a command does
to it, it does to that file. A piece is copied inside the kernel where the file systems can, and what is to be
unpacked goes the way of every download. Before and after its bytes are read, the file must be the same.

A file system that hangs is touched in threads only. Whoever is told to stop does not wait for them, and who
waits does not wait for ever (answers.py).
"""

import errno
import os
import stat
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from awe_client.daemon.answers import Answers
from awe_client.daemon.copies import IsStopped, Stopped, copy_some, link_file
from awe_client.daemon.disk import BeforeRemoval
from awe_client.daemon.roots import open_allowed
from awe_client.sdk.bodies import Progress
from awe_client.sdk.download import Asked, Downloaded, Opener, Reply, Wanted, check_replaceable, part_of
from awe_client.sdk.download_errors import NotSeen, OutOfReach, SourceChanged
from awe_client.sdk.threads import ThreadFile, file_work
from shared_models.errors import AweError, BadRange, BadRequest, Forbidden
from shared_models.file_urls import path_of
from shared_models.versions import file_version

_BLOCK_BYTES = 1024 * 1024
_STEP_BYTES = 16 * 1024 * 1024  #: copied between two looks at whether to go on
#: A file that the server has seen may not be here yet: what a network file system remembers is a little old.
_PASSING = frozenset({errno.ENOENT, errno.ESTALE, errno.EIO, errno.EAGAIN, errno.ETIMEDOUT})
#: A copy that fails with one of these failed to write.
_OF_THE_TARGET = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})


class SharedFiles:
    """The files below some roots. Every method raises OutOfReach and other AweErrors of the source."""

    def __init__(self, roots: Sequence[str], before_removal: BeforeRemoval = lambda: None) -> None:
        """`before_removal` is called before a copy that was not finished is removed."""
        self._before_removal = before_removal
        self._roots = roots
        self._answers = Answers(roots)

    async def link(self, url: str, target: Path, wanted: Wanted) -> Path:
        """Make `target` a link to the file; returns the file's own path."""
        stop = threading.Event()
        try:
            return await self._answers.of(
                path_of(url), partial(file_work, self._link, stop.is_set, url, target, wanted)
            )
        finally:
            stop.set()

    def _link(self, is_stopped: IsStopped, url: str, target: Path, wanted: Wanted) -> Path:
        with self._open(url, wanted) as file:
            path = Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))
        if is_stopped():
            raise Stopped
        link_file(path, target)
        return path

    async def copy(
        self, url: str, target: Path, wanted: Wanted, on_progress: Progress | None = None
    ) -> Downloaded:
        """Copy a piece of the file, or all of it, as it is. Raises OSError if it cannot be written."""
        stop, moved = threading.Event(), 0

        def progress(done: int, length: int) -> None:
            nonlocal moved
            moved = done
            if on_progress is not None:
                on_progress(done, length)

        try:
            work = partial(file_work, self._copy, stop.is_set, url, target, wanted, progress)
            return await self._answers.of(path_of(url), work, moved=lambda: moved)
        finally:
            stop.set()

    def _copy(
        self, is_stopped: IsStopped, url: str, target: Path, wanted: Wanted, on_progress: Progress
    ) -> Downloaded:
        with self._open(url, wanted) as source:
            with _reading():
                version, length = _version(source), _length(source, wanted)
            check_replaceable(target)
            part = part_of(target)
            try:
                with part.open("xb", buffering=0) as sink:
                    done = 0
                    while done < length:
                        if is_stopped():
                            raise Stopped
                        copied = _copy_some(source, sink, wanted.offset + done, length - done)
                        if not copied:
                            raise SourceChanged
                        done += copied
                        on_progress(done, length)
                with _reading():
                    _check_version(source, version)
                if is_stopped():  # what hung above was given up, and nobody counts what comes now
                    raise Stopped
                part.rename(target)
            except BaseException:
                self._before_removal()
                part.unlink(missing_ok=True)
                raise
        return Downloaded(length, "")

    def opener(self, url: str) -> Opener:
        """The file as a source of downloads."""

        @asynccontextmanager
        async def open_once(asked: Asked) -> AsyncIterator[Reply]:
            wanted = Wanted(etag="" if asked.or_all else asked.etag)
            file = ThreadFile(lambda: self._open(url, wanted))
            ask = partial(self._answers.of, path_of(url))
            try:
                version, size = await ask(partial(file.use, _about))
                offset = asked.offset if asked.etag in ("", version) else 0
                left = max(size - offset, 0)
                left = left if asked.length < 0 else min(asked.length, left)
                yield Reply(_blocks(file, ask, offset, left, version), offset, left, version)
            finally:
                file.close()

        return open_once

    def _open(self, url: str, wanted: Wanted) -> BinaryIO:
        """Open a file that is below a root, also after all links, and what is wanted."""
        try:
            file = os.fdopen(open_allowed(path_of(url), self._roots), "rb", buffering=0)
        except Forbidden as exc:
            raise OutOfReach(exc.message) from exc
        except OSError as exc:
            raise error_of(exc) from exc
        try:
            with _reading():
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
    """What it means that a shared file cannot be read: the server saw it, so another client may, too."""
    text = (exc.strerror or str(exc)).lower()
    return NotSeen(text) if exc.errno in _PASSING else OutOfReach(text)


@contextmanager
def _reading() -> Iterator[None]:
    """What fails in here is the shared file system."""
    try:
        yield
    except OSError as exc:
        raise error_of(exc) from exc


def _about(file: BinaryIO) -> tuple[str, int]:
    with _reading():
        return _version(file), os.fstat(file.fileno()).st_size


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


def _copy_some(source: BinaryIO, sink: BinaryIO, offset: int, length: int) -> int:
    """As `copy_some`; AweError if the shared file cannot be read, OSError if the copy cannot be written."""
    length = min(_STEP_BYTES, length)
    try:
        return copy_some(source.fileno(), sink.fileno(), offset, length)
    except OSError as exc:
        if exc.errno in _OF_THE_TARGET or (exc.errno == errno.EIO and _is_readable(source, offset, length)):
            raise
        raise error_of(exc) from exc


def _is_readable(file: BinaryIO, offset: int, length: int) -> bool:
    """Whether it is not this file that has an EIO there."""
    try:
        for at in range(offset, offset + length, _BLOCK_BYTES):
            os.pread(file.fileno(), min(_BLOCK_BYTES, offset + length - at), at)
    except OSError:
        return False
    return True


async def _blocks(
    file: ThreadFile[BinaryIO], ask: Callable[..., Awaitable[Any]], offset: int, left: int, version: str
) -> AsyncIterator[bytes]:
    while left > 0:
        block = await ask(partial(file.use, _read, offset, min(_BLOCK_BYTES, left)))
        if not block:
            break
        offset, left = offset + len(block), left - len(block)
        yield block
    await ask(partial(file.use, _check, version))


def _read(file: BinaryIO, offset: int, length: int) -> bytes:
    with _reading():
        file.seek(offset)
        return file.read(length)


def _check(file: BinaryIO, version: str) -> None:
    with _reading():
        _check_version(file, version)
