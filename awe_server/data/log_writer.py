"""Bytes on their way into a log, which is as it was before or has all of them.

What is added to the end of a log is written there, and cut off again if not all of it could be: a repeat at
the same offset is right then. All else is written beside the log, and takes its place when it is whole.
"""

import fcntl
import os
import secrets
from pathlib import Path

from awe_server.data.files import TEMPORARY_PREFIX, no_space_mapped
from shared_models.errors import Conflict

_COPY_BYTES = 1024 * 1024
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class LogWriter:
    """Puts bytes at an offset of a log and cuts what was behind them. From one thread at a time; blocking."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        self._offset = offset
        self._descriptor = -1
        self._temporary: Path | None = None  #: written beside the log

    def write(self, data: bytes) -> None:
        """Go on with these bytes. Raises NoSpace, Conflict if some are missing before the offset."""
        with no_space_mapped():
            self._open()
            _write(self._descriptor, data)

    def finish(self) -> None:
        """That was all of it: it is the log now. Raises as `write`."""
        with no_space_mapped():
            self._open()
            # A disk in the network may tell only when a file is closed that it is full.
            os.close(os.dup(self._descriptor))
            if self._temporary is not None:
                self._temporary.replace(self._path)
        self._close()

    def abort(self) -> None:
        """Leave the log as it was. Nothing happens after `finish`."""
        if self._descriptor < 0:
            return
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
        else:
            os.ftruncate(self._descriptor, self._offset)
        self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def _open(self) -> None:
        """Not before the first byte: a sender that has none yet must not cut off those of its successor."""
        if self._descriptor >= 0:
            return
        if not self._offset:
            self._open_beside()
            return
        old = _opened(self._path)
        try:
            # A sender that gave up and came again does not write into the same file as before.
            is_alone = old >= 0 and _lock(old)
            size = os.fstat(old).st_size if old >= 0 else 0
            if size < self._offset:
                raise Conflict(f"the log has {size} bytes, so offset {self._offset} leaves a hole")
            if is_alone and size == self._offset:
                os.lseek(old, self._offset, os.SEEK_SET)
                self._descriptor, old = old, -1
            else:
                self._open_beside()
                _copy(old, self._descriptor, self._offset)
        finally:
            if old >= 0:
                os.close(old)

    def _open_beside(self) -> None:
        temporary = self._path.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")
        try:
            self._descriptor = os.open(temporary, _NEW, 0o666)
        except FileNotFoundError:
            temporary.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(temporary, _NEW, 0o666)
        self._temporary = temporary
        _lock(self._descriptor)  # see files.clean_temporary


def put_whole(path: Path, text: bytes) -> None:
    """Make a text the whole of a log. Raises NoSpace, or another OSError; the log is as it was then."""
    writer = LogWriter(path, 0)
    try:
        writer.write(text)
        writer.finish()
    except BaseException:
        writer.abort()
        raise


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1


def _lock(descriptor: int) -> bool:
    """Whether nobody else writes into it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _copy(source: int, target: int, size: int) -> None:
    done = 0
    while done < size:
        data = os.pread(source, min(_COPY_BYTES, size - done), done)
        if not data:
            raise Conflict(f"the log was cut to {done} bytes meanwhile, so offset {size} leaves a hole")
        _write(target, data)
        done += len(data)
