"""A control group that holds whatever our executors start, where this machine lets us have one.

A process can leave its session, its environment and its directory, but not the control group it was born in.
So after daemon and executors were killed at once, the next daemon finds all that their commands left there.

Asked for is a group of version 2 below the one in which we run, without controllers: it limits nothing, and
costs a command nothing. root may make it, others where it was given to them (`Delegate=yes` of systemd).
Where it cannot be made, processes are told by what they show (`leftovers.py`).
"""

import contextlib
import logging
import os
import signal
import time
from pathlib import Path
from typing import Literal, Self

log = logging.getLogger(__name__)

_PREFIX = "awe-client-"
#: Killed processes are gone after so long, unless a disk that hangs keeps them.
_GONE_S = 5.0
#: A group that is empty so long after it was made is nobody's.
_STALE_S = 3600.0

Added = Literal["in", "refused", "ended"]


class ControlGroup:
    """One group. `note` is a file of the work directory that names it to the next daemon, on a line beside
    those that could not be removed.
    """

    def __init__(self, path: Path, note: Path) -> None:
        self._path = path
        self._note = note

    @classmethod
    def make(cls, name: str, note: Path) -> Self | None:
        """Make a group; None if this machine lets us have none."""
        own = _own_group()
        if own is None:
            return None
        path = own / f"{_PREFIX}{name}"
        _remove_empty(own)
        try:
            # The note goes first: there is no moment at which nobody knows of the group.
            _write_note(note, [*(group._path for group in cls.left(note)), path])
            path.mkdir()
        except OSError as exc:
            log.debug("no_control_group", extra={"path": str(path), "error": str(exc)})
            with contextlib.suppress(OSError):
                _forget(note, path)
            return None
        return cls(path, note)

    @classmethod
    def left(cls, note: Path) -> list[Self]:
        """The groups of the daemons before us; none if they had none, or ended them."""
        return [
            cls(path, note)
            for path in _noted(note)
            if path.name.startswith(_PREFIX) and (path / "cgroup.procs").is_file()
        ]

    def add(self, pid: int) -> Added:
        """Put a process into it, and whatever it starts from now on.

        That one has ended says nothing of the group. The kernel takes it until it is reaped, without effect.
        """
        try:
            _write(self._path / "cgroup.procs", str(pid))
        except ProcessLookupError:
            return "ended"
        except OSError as exc:
            log.debug("not_in_control_group", extra={"path": str(self._path), "error": str(exc)})
            return "refused"
        return "in" if pid in self.pids() else "ended"

    def pids(self) -> set[int]:
        """The processes in it and in groups that they made below it."""
        found: set[int] = set()
        for folder, _, _ in os.walk(self._path):
            with contextlib.suppress(OSError):
                found.update(int(pid) for pid in Path(folder, "cgroup.procs").read_text().split())
        return found - {0}  # 0 stands for one that lies outside of our name space of processes

    def end(self) -> int:
        """Kill what is in it, but not ourselves, and remove it; how many processes there were.

        Blocking, some seconds at most.
        """
        me = {os.getpid()}
        found = len(self.pids() - me)
        deadline = time.monotonic() + _GONE_S
        while self.pids() - me and time.monotonic() < deadline:
            self._kill()
            time.sleep(0.01)
        try:
            for folder, _, _ in os.walk(self._path, topdown=False):
                os.rmdir(folder)
            _forget(self._note, self._path)
        except OSError as exc:
            log.warning("control_group_stays", extra={"path": str(self._path), "error": str(exc)})
        return found

    def _kill(self) -> None:
        pids, me = self.pids(), os.getpid()
        if me not in pids:
            with contextlib.suppress(OSError):  # before Linux 5.14
                _write(self._path / "cgroup.kill", "1")
                return
        for pid in pids - {me}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _noted(note: Path) -> list[Path]:
    try:
        return [Path(os.fsdecode(line)) for line in note.read_bytes().splitlines()]
    except OSError:
        return []


def _write_note(note: Path, paths: list[Path]) -> None:
    """Whole or not at all. Raises OSError."""
    temporary = note.with_suffix(".part")
    temporary.write_bytes(b"".join(os.fsencode(path) + b"\n" for path in paths))
    temporary.rename(note)


def _forget(note: Path, path: Path) -> None:
    """The group is no more. Raises OSError."""
    if left := [known for known in _noted(note) if known != path]:
        _write_note(note, left)
    else:
        note.unlink(missing_ok=True)


def _remove_empty(own: Path) -> None:
    """Remove old groups of daemons that were killed, and whose work directory nobody has used since."""
    with contextlib.suppress(OSError):
        for path in own.glob(f"{_PREFIX}*"):
            if time.time() - path.stat().st_mtime > _STALE_S:
                with contextlib.suppress(OSError):  # somebody is in it
                    path.rmdir()


def _write(path: Path, text: str) -> None:
    """Into a file that is there: in a directory that is no control group none may appear."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _own_group() -> Path | None:
    """The directory of the group of version 2 in which we run; None if there is none in sight."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return None
    ours = next((line[3:] for line in lines if line.startswith("0::/")), None)
    mounted = next((mount for mount in mounts if mount[mount.index("-") + 1] == "cgroup2"), None)
    if ours is None or mounted is None or ours.startswith("/.."):
        return None
    root, where = mounted[3], Path(mounted[4])
    below = os.path.relpath(ours, root)
    return None if below.startswith("..") else where / below
