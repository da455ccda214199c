"""Who holds a writer's lease, and whether that process is still there."""

import contextlib
import os
import socket
import uuid
from pathlib import Path
from typing import Any

#: What `/proc/<pid>/stat` counts after the command's closing bracket until the start time.
_START_TIME_FIELD = 19


def this_process() -> dict[str, Any]:
    """Name this process so that nobody, not even a later process with its pid, is taken for it."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "place": _place(),
        "started": _started(os.getpid()),
        "nonce": uuid.uuid4().hex,
    }


def describe(owner: dict[str, Any]) -> str:
    """An owner for people."""
    return f"{owner.get('host', '?')} (pid {owner.get('pid', '?')})"


def is_gone(owner: dict[str, Any]) -> bool | None:
    """Whether the owner has ended; None if it cannot be seen from here (other machine, other container)."""
    if not owner.get("place") or owner["place"] != _place():
        return None
    return _started(int(owner["pid"])) != str(owner["started"])


def _place() -> str:
    """The set of processes whose pids we can look up: this boot of this machine, this pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return stat.rpartition(")")[2].split()[_START_TIME_FIELD]
    return ""
