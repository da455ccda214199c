"""Durable handling of names and space on a POSIX file system."""

import contextlib
import errno
import os
from collections.abc import Iterator
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
