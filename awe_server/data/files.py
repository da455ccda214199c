"""Durable handling of names and space on a POSIX file system.

A file being written is held under an exclusive lock (flock), so a temporary file without a lock belongs to a
process that died, whatever its number was.
"""

import contextlib
import ctypes
import errno
import fcntl
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from shared_models.errors import NoSpace

TEMPORARY_PREFIX = ".tmp-"  #: a file that begins so is not there yet
_FULL = (errno.ENOSPC, errno.EDQUOT)


def fsync_folder(folder: Path) -> None:
    """Make names created, renamed or removed in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """The system's call, if it has one."""
    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


_START_WRITING = 2  #: SYNC_FILE_RANGE_WRITE
_sync_range = _sync_file_range()


def start_writing(descriptor: int, offset: int, size: int) -> None:
    """Let the disk begin with what was written there: promises nothing, but a later fsync has less to do.

    Else a gigabyte waits in memory for its fsync, and every other fsync of the file system behind it.
    """
    if _sync_range is not None:
        _sync_range(descriptor, offset, size, _START_WRITING)


def file_clock(folder: Path) -> float:
    """Seconds, by the clock that gives files below a folder their times: a file server's, or the kernel's
    coarse one, which is behind `time.time()`. Takes no room: the folder is touched."""
    os.utime(folder)
    return folder.stat().st_mtime


def make_folder(folder: Path) -> None:
    """Create a folder and its parents durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        fsync_folder(folder.parent)


def free_bytes(folder: Path) -> int:
    """What the file system still offers to an unprivileged writer."""
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize


@contextlib.contextmanager
def no_space_mapped() -> Iterator[None]:
    """Turn the system's "disk full" and "quota exceeded" into NoSpace."""
    try:
        yield
    except OSError as exc:
        if exc.errno in _FULL:
            raise NoSpace from exc
        raise


def walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Every file below a folder; nothing if there is no such folder."""
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from walk(Path(entry.path))
            else:
                yield entry


def clean_temporary(root: Path, older_than_s: float = math.inf) -> int:
    """Remove temporary files below `root`, written before a time, that no living process holds; how many."""
    removed = 0
    for entry in walk(root):
        if entry.name.startswith(TEMPORARY_PREFIX) and _is_abandoned(entry.path, older_than_s):
            Path(entry.path).unlink(missing_ok=True)
            removed += 1
    return removed


def _is_abandoned(path: str, older_than_s: float) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(descriptor).st_mtime < older_than_s
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
