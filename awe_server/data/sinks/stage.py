"""A stage folder, held open.

Others write in it, so nothing is taken for granted that a name says: a file is what its descriptor is, links
are not followed and pipes not waited for. Blocking: for a worker thread.
"""

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from awe_server.data.files import fsync_folder
from awe_server.data.sinks.base import SinkBusy

_MARK = "placed"
_MAX_MARK_BYTES = 4096
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Stage:
    """What is staged of one output."""

    def __init__(self, descriptor: int, sizes: Mapping[str, int]) -> None:
        self.path = Path(f"/proc/self/fd/{descriptor}")
        self._descriptor = descriptor
        self._sizes = sizes  #: by name, as reported
        self._opened: dict[str, list[int]] = {}  #: which file a name meant when it was first opened

    def present(self) -> set[str]:
        """The names of those files that are there, each as large as it was reported."""
        # A listing is fresh where the look at a single name may be remembered.
        return {name for name in os.listdir(self.path) if self._is_there(name)}

    def open(self, path: Path) -> BinaryIO:
        """Open one of the files, by the name of the path; each time the same one.

        Raises SinkBusy if something else has that name now, FileNotFoundError, OSError.
        """
        descriptor = self._open(path.name)
        if descriptor is not None:
            about = os.fstat(descriptor)
            version = version_of(about)
            if (
                self._sizes.get(path.name, about.st_size) == about.st_size
                and self._opened.setdefault(path.name, version) == version
            ):
                return os.fdopen(descriptor, "rb")
            os.close(descriptor)
        raise SinkBusy(f"what was staged as {path.name} was replaced by something else")

    def mark(self, what: dict[str, Any]) -> None:
        """Keep a note among the files, durably."""
        temporary = self.path / f"{_MARK}.new"
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, _WRITE, 0o644), "w") as file:
            json.dump(what, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / _MARK)
        fsync_folder(self.path)

    def marked(self) -> dict[str, Any]:
        """The note; {} if there is none, or none that makes sense."""
        try:
            descriptor = self._open(_MARK)
        except FileNotFoundError:
            return {}
        if descriptor is None:
            return {}
        with os.fdopen(descriptor, "rb") as file:
            try:
                found = json.loads(file.read(_MAX_MARK_BYTES))
            except ValueError:
                return {}
        return found if isinstance(found, dict) else {}

    def _is_there(self, name: str) -> bool:
        try:
            about = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(about.st_mode) and self._sizes.get(name, about.st_size) == about.st_size

    def _open(self, name: str) -> int | None:
        """A descriptor of a plain file; None for anything else that has this name."""
        try:
            descriptor = os.open(name, _READ, dir_fd=self._descriptor)
        except OSError as exc:
            if exc.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
                return None
            raise
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        return None


def version_of(about: os.stat_result) -> list[int]:
    """What tells a file from any other, and from what it was before somebody wrote to it."""
    return [about.st_ino, about.st_size, about.st_mtime_ns]
