"""How much room there is, and when there was none. Standard library only: executors use it.

A command whose write found no room may hide that, end with exit code 0 and leave a file that is cut off. All
that can be known of it from outside is that the disk was full while it ran, at a moment when somebody looked.
So the disk is looked at when a command ends, while it runs (the less room, the oftener), and right before
anything of ours is removed, since that makes room again; not again before it can have become full. Not seen:
a full disk on which somebody else makes room between two looks, and a quota that the file system does not
tell of.
"""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

#: No disk fills faster, in bytes and in files a second.
_FASTEST_BYTES_S = 10 * 2**30
_FASTEST_FILES_S = 1_000_000
#: Looks follow each other after at most, and at least, so long,
EVERY_S = 0.25
LEAST_S = 0.01
#: and after so many times as long as a look takes: that of a file system far away is dear.
_REST = 20

#: Is called right before something is removed.
BeforeRemoval = Callable[[], object]


def free_disk(path: "str | os.PathLike[str]") -> int:
    """Bytes that may still be written below a path; 0 if it cannot be told."""
    try:
        place = os.statvfs(path)
    except OSError:
        return 0
    return place.f_bavail * place.f_frsize


def lacks_inodes(path: Path) -> bool:
    """Whether no file can be made below a path, or where it would lie, however many bytes are free."""
    while True:
        try:
            place = os.statvfs(path)
        except FileNotFoundError:
            path = path.parent
        except OSError:
            return False
        else:
            return place.f_files > 0 and place.f_favail == 0


class DiskWatch:
    """Remembers when a disk was last seen full. Any thread may call it."""

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        self._path = path
        self._full_at = -math.inf  #: on the monotonic clock, as all times here
        self._soonest_full_at = 0.0
        self.next_at = 0.0  #: when somebody whose commands run should look again

    def look(self) -> bool:
        """Whether at this moment nothing more can be written."""
        began = time.monotonic()
        left_s = _seconds_left(self._path)
        now = time.monotonic()
        if left_s <= 0:
            self._full_at = now
        self._soonest_full_at = began + min(left_s, EVERY_S)
        self.next_at = max(self._soonest_full_at, now + max(LEAST_S, _REST * (now - began)))
        return left_s <= 0

    def is_full(self) -> bool:
        """As `look`, but without one if the disk cannot have become full since the last."""
        return time.monotonic() >= self._soonest_full_at and self.look()

    def before_removal(self) -> None:
        """Look, unless the disk cannot have become full since the last look."""
        self.is_full()

    def was_full(self) -> None:
        """Somebody has just been told that there is no room, or no more for him."""
        self._full_at = time.monotonic()

    def was_full_since(self, moment: float) -> bool:
        """Whether it was seen full at that moment or later."""
        return self._full_at >= moment


def _seconds_left(path: "str | os.PathLike[str]") -> float:
    """So long it takes at least until the disk is full; 0 = it is. What cannot be looked at is not."""
    try:
        place = os.statvfs(path)
    except OSError:
        return math.inf
    if not place.f_blocks:
        return math.inf
    left_s = place.f_bavail * place.f_frsize / _FASTEST_BYTES_S
    return min(left_s, place.f_favail / _FASTEST_FILES_S) if place.f_files else left_s
