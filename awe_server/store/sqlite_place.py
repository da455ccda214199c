"""Whether the names of an open database still mean its files: others are lost to the next start.

The lock file may be removed and made anew, and then be had twice; the database itself cannot. SQLite's
locks and this one (flock) do not know of each other.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from awe_server.store.errors import StoreCorrupt, StoreLocked
from shared_models.errors import StoreUnavailable

NODES_MARK = Path("nodes", "server")  #: there once a server has begun to keep files


def refuse_orphaned_files(path: Path) -> None:
    """Raises StoreCorrupt if files of a database are there that is not: an empty one would name none."""
    if (path.parent / NODES_MARK).is_file():
        raise StoreCorrupt(
            f"there is no database in {path.parent}, although files of one are in {path.parent / 'nodes'}: "
            f"put {path.name} back from a backup, or start with another --data; nothing was changed",
            path=path,
            detail="missing",
        )


class Place:
    """The database file and its WAL, from the time they are open."""

    def __init__(self, path: Path, wal: Path, hold: Callable[[int], object]) -> None:
        """Own the file. Raises StoreLocked, OSError. `hold` is given the descriptor that keeps the lock."""
        self._names = (path, wal)
        self._lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            os.close(self._lock)
            raise StoreLocked(
                f"{path.parent} is in use by another server, whose lock file was removed; stop it, or choose "
                "another --data",
                owner="unknown: its lock file was removed",
            ) from exc
        except OSError as exc:
            os.close(self._lock)
            exc.filename = str(path)  # the call knows only a number
            raise
        hold(self._lock)
        self._known = {path: _identity(os.fstat(self._lock))}

    def begin(self) -> None:
        """The WAL is there from now on."""
        _, wal = self._names
        with contextlib.suppress(FileNotFoundError):
            self._known[wal] = _identity(os.stat(wal))

    def check(self) -> None:
        """Raises StoreCorrupt if another file, or none, has one of the names.

        StoreUnavailable if they cannot be looked at.
        """
        for path, known in self._known.items():
            try:
                found = _identity(os.stat(path))
            except (FileNotFoundError, NotADirectoryError):
                found = (0, 0)
            except OSError as exc:
                problem = f"cannot see whether it is still the file that is open: {exc.strerror}"
                raise StoreUnavailable(f"{path}: {problem}", op="write") from exc
            if found != known:
                raise StoreCorrupt(
                    f"{path} was removed or replaced while this server used it: it stops, and confirms "
                    "nothing more. What the file holds that is there now is kept; else restore a backup, "
                    "into a new directory",
                    path=path,
                    detail="removed or replaced",
                )

    def close(self, drop: Callable[[int], object]) -> None:
        """Give the file back, after the connections: closing the descriptor (`drop`) frees their locks."""
        drop(self._lock)


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino
