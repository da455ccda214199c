"""Copies of files, made by the kernel where it can: shared blocks, else copied inside it, else by us."""

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, Concatenate, ParamSpec, TypeVar

from awe_client.daemon.disk import BeforeRemoval
from awe_client.sdk.download import check_replaceable, part_of
from awe_client.sdk.threads import or_told

P = ParamSpec("P")
T = TypeVar("T")

IsStopped = Callable[[], bool]

#: ioctl of btrfs, XFS and others: the copy shares the blocks of its source until one of the two is written.
_FICLONE = 0x40049409
_STEP_BYTES = 16 * 1024 * 1024  #: copied between two looks at whether to go on
#: File systems that cannot copy inside the kernel say one of these.
_NO_COPYING = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EIO})


class Stopped(Exception):
    """A copy was not finished, because nobody wants it any more."""


async def in_thread(work: Callable[Concatenate[IsStopped, P], T], *args: P.args, **keys: P.kwargs) -> T:
    """Do blocking work in a thread; when this is cancelled, stop it and wait until it writes no more."""
    stop = threading.Event()
    return await or_told(partial(work, stop.is_set, *args, **keys), stop.set)


def copy_file(is_stopped: IsStopped, source: Path, target: Path, before_removal: BeforeRemoval) -> None:
    """Make `target` a file of its own with the content of `source`; it is there whole or not at all.

    Raises Stopped, OSError, and BadRequest if the target is there and no plain file.
    """
    check_replaceable(target)
    part = part_of(target)
    try:
        with source.open("rb") as original, part.open("xb", buffering=0) as copy:
            if not _share_blocks(original, copy):
                _copy_all(is_stopped, original, copy)
        part.rename(target)
    except BaseException:
        before_removal()
        part.unlink(missing_ok=True)
        raise


def link_file(source: Path, target: Path) -> None:
    """Make `target` a link to `source`. Raises OSError, and BadRequest as `copy_file`."""
    check_replaceable(target)
    part = part_of(target)
    part.symlink_to(source)
    part.rename(target)


def remove_file(path: Path, before_removal: BeforeRemoval) -> None:
    """Remove a file, if it is there."""
    before_removal()
    path.unlink(missing_ok=True)


def copy_some(source: int, sink: int, offset: int, length: int) -> int:
    """Copy some bytes to the end of the file `sink`; returns how many, 0 at the source's end."""
    try:
        return os.copy_file_range(source, sink, length, offset)
    except OSError as exc:
        if exc.errno not in _NO_COPYING:
            raise
    return os.sendfile(sink, source, offset, length)


def _share_blocks(original: BinaryIO, copy: BinaryIO) -> bool:
    try:
        fcntl.ioctl(copy.fileno(), _FICLONE, original.fileno())
    except OSError:
        return False  # whatever keeps it from that: copying says if it is a real trouble
    return True


def _copy_all(is_stopped: IsStopped, original: BinaryIO, copy: BinaryIO) -> None:
    done = 0
    while not is_stopped():
        copied = copy_some(original.fileno(), copy.fileno(), done, _STEP_BYTES)
        if not copied:
            return
        done += copied
    raise Stopped
