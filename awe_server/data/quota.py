"""How many bytes the node store's files take, and the limit for them.

Every inode counts once, however many names it has: copies and shared contents cost nothing. Files on their
way count as they are written, so uploads that run at once cannot pass the limit together. Index files do not
count: they can be made again.
"""

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from awe_server.data.files import TEMPORARY_PREFIX, walk
from awe_server.data.indexes import SIDECAR_SUFFIX
from shared_models.errors import QuotaExceeded, TooLarge


class Quota:
    """Counts; used from many threads. A limit of 0 is none."""

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self._used_bytes = 0
        self._counting = threading.Lock()
        self._naming = threading.Lock()  #: how many names a file has must not change while it is looked at

    @property
    def used_bytes(self) -> int:
        """What is taken now."""
        return self._used_bytes

    def measure(self, roots: Iterable[Path]) -> None:
        """Begin with what is there: blocking, before anything else is done."""
        seen: set[tuple[int, int]] = set()
        total = 0
        for root in roots:
            for entry in walk(root):
                if not _counts(entry.name):
                    continue
                about = entry.stat(follow_symlinks=False)
                key = (about.st_dev, about.st_ino)
                if about.st_nlink > 1 and key in seen:
                    continue
                if about.st_nlink > 1:
                    seen.add(key)
                total += about.st_size
        with self._counting:
            self._used_bytes = total

    def require(self, size: int) -> None:
        """Raise QuotaExceeded unless that many bytes fit now, TooLarge if they never can."""
        if 0 < self.limit_bytes < size:
            raise TooLarge(f"it has {size} bytes: the node store's whole quota is {self.limit_bytes}")
        with self._counting:
            self._check(size)

    def take(self, size: int, *, is_admitted: bool = False) -> None:
        """Count bytes about to be written. Raises QuotaExceeded, unless they were admitted once before."""
        with self._counting:
            if not is_admitted:
                self._check(size)
            self._used_bytes += size

    def give(self, size: int) -> None:
        """Bytes that are gone."""
        with self._counting:
            self._used_bytes -= size

    def _check(self, size: int) -> None:
        if self.limit_bytes and size > 0 and self._used_bytes + size > self.limit_bytes:
            raise QuotaExceeded(wanted_bytes=size, used_bytes=self._used_bytes, limit_bytes=self.limit_bytes)

    # ---- names

    def link(self, source: Path, target: Path) -> None:
        """Give a file one more name."""
        with self._naming:
            os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file to its place; what was there is gone."""
        self.replace(target, lambda: source.rename(target))

    def replace(self, target: Path, put: Callable[[], object]) -> None:
        """Have `put` move a file to its place. It may wait for the event loop, which waits for no name."""
        self._change(target, put)

    def remove(self, path: Path) -> None:
        """Take a file's name away; fine if it has gone already."""
        self._change(path, lambda: path.unlink(missing_ok=True))

    def _change(self, path: Path, action: Callable[[], object]) -> None:
        """Do what takes a name from a file. The bytes go when the lock is free again: that takes time."""
        descriptor = None
        try:
            with self._naming:
                descriptor = _hold(path)
                action()
                freed = _freed(descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)
        self.give(freed)


def _hold(path: Path) -> int | None:
    """Keep a file that counts from going; None if there is none."""
    if not _counts(path.name):
        return None
    try:
        return os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _counts(name: str) -> bool:
    """Whether a file is counted once it is in its place; one on its way is its writer's."""
    return not name.startswith(TEMPORARY_PREFIX) and not name.endswith(SIDECAR_SUFFIX)


def _freed(descriptor: int | None) -> int:
    """How many bytes have no name any more."""
    if descriptor is None:
        return 0
    about = os.fstat(descriptor)
    return about.st_size if about.st_nlink == 0 else 0
