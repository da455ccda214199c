"""Lines of a spool that cannot be read, in a file beside it for people to look at."""

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from awe_client.daemon.identity import WorkRootUnusable

log = logging.getLogger(__name__)

#: The file takes no more than this; further lines are dropped, and the log says so.
UNREAD_BYTES = 64 * 1024 * 1024
#: What the system says of a directory, a link, a socket.
_NOT_PLAIN = (errno.EISDIR, errno.ELOOP, errno.ENXIO)


class UnreadLines:
    """Those that only the spool holds so far."""

    def __init__(self, path: Path) -> None:
        """`path` is the file beside it."""
        self._path = path
        self.lines = b""
        self._is_said = False

    @contextlib.contextmanager
    def moved(self) -> Iterator[bytes]:
        """Append them to the file while they are removed from the spool in this context.

        Gives what has to stay in the spool: all of them while the file does not take them. If the removal
        raises OSError, the file is as it was.
        """
        if not self.lines:
            yield b""
            return
        with contextlib.ExitStack() as opened:
            try:
                fd = open_plain(self._path)
                opened.callback(os.close, fd)
                length = os.fstat(fd).st_size
                self._append(fd, length)
            except (OSError, WorkRootUnusable) as exc:
                if not self._is_said:  # it may be tried with each report
                    log.error("unread_lines_not_moved", extra={"path": str(self._path), "error": str(exc)})
                self._is_said = True
                yield self.lines
                return
            try:
                yield b""
            except OSError:
                os.ftruncate(fd, length)
                raise
            self.lines = b""

    def _append(self, fd: int, length: int) -> None:
        """As many whole lines as there may be, or none. Raises OSError."""
        fit = self.lines[: self.lines.rfind(b"\n", 0, max(UNREAD_BYTES - length, 0)) + 1]
        if dropped := len(self.lines) - len(fit):
            log.error("unread_lines_dropped", extra={"path": str(self._path), "bytes": dropped})
        try:
            write_all(fd, fit, length)
            os.fsync(fd)
        except OSError:
            os.ftruncate(fd, length)
            raise


def open_plain(path: Path) -> int:
    """Open a file for reading and writing, or make it; no link is followed, and nobody waited for.

    Raises OSError, and WorkRootUnusable if something else lies in its place.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    except OSError as exc:
        if exc.errno not in _NOT_PLAIN:
            raise
    raise WorkRootUnusable(f"{path}: is no regular file; remove it")


def write_all(fd: int, data: bytes, offset: int) -> None:
    """Write all of it, however the system splits it. Raises OSError: then a part may be there."""
    written = 0
    while written < len(data):
        written += os.pwrite(fd, data[written:], offset + written)
