"""What the kernel tells of processes (/proc), and signals to them.

Standard library only: executors use it.
"""

import contextlib
import os


def signal_process(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False if it has no member left that we may signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def children() -> list[int]:
    """Our direct children: commands, and orphans that were given to us."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return [pid for pid, parent in parents().items() if parent == me]


def descendants(root: int, parent_of: dict[int, int] | None = None) -> list[int]:
    """Every process below `root`, nearest first."""
    children: dict[int, list[int]] = {}
    for pid, parent in (parent_of or parents()).items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def parents() -> dict[int, int]:
    """Every process of the machine and its parent."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The command's name, in parentheses, may hold anything.
                    found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue
    return found


def mark_of(env: dict[bytes, bytes]) -> set[bytes]:
    """The variables by which a process is known to belong to an attempt."""
    return {name + b"=" + env.get(name, b"") for name in (b"AWE_WORK_ID", b"AWE_ATTEMPT")}


def state_of(pid: int) -> str:
    """The kernel's letter for a process (R, S, Z, ...), or "" if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def environ_of(pid: int) -> set[bytes]:
    """The environment a process was started with; empty for a zombie or somebody else's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return set(file.read().split(b"\0"))
    except OSError:
        return set()


def cwd_of(pid: int) -> bytes:
    try:
        return os.readlink(f"/proc/{pid}/cwd".encode())
    except OSError:
        return b""


def oom_kills() -> int:
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0
