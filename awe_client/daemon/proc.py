"""What the kernel tells of processes (/proc), and signals to them.

Standard library only: executors use it.
"""

import os
from collections.abc import Callable
from functools import cache

#: The number of the system call that compares what two processes have, per machine; Python does not wrap it.
_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}
_KCMP_VM = 1


def signal_process(pid: int, number: int) -> bool:
    """Signal a process; False if it is gone, or not ours to signal."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False if it has no member left that we may signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def group_members(group: int) -> dict[int, bool]:
    """The processes of a group, and whether each lives: one that has ended is a member until it is reaped."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            facts = _stat_of(int(name))
            if facts and int(facts[2]) == group:
                # The main thread may have ended before others.
                found[int(name)] = facts[0] not in (b"Z", b"X") or int(facts[17]) > 1
    return found


def is_below(pid: int, root: int) -> bool:
    """Whether a process descends from another."""
    while pid != root:
        parent = parent_of(pid)
        if not parent:
            return False
        pid = parent
    return True


def children() -> list[int]:
    """Our direct children: commands, and orphans that were given to us."""
    me = os.getpid()
    try:
        # Without a file object: this is asked after each end of a command.
        fd = os.open(f"/proc/{me}/task/{me}/children", os.O_RDONLY | os.O_CLOEXEC)
        try:
            said = b"".join(iter(lambda: os.read(fd, 16384), b""))
        finally:
            os.close(fd)
        return [int(pid) for pid in said.split()]
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
    found = {int(name): parent_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return {pid: parent for pid, parent in found.items() if parent is not None}


def parent_of(pid: int) -> int | None:
    """The parent of a process; 0 for the first one, None for one that is gone."""
    facts = _stat_of(pid)
    return int(facts[1]) if facts else None


def _stat_of(pid: int) -> list[bytes]:
    """State, parent, group, and so on (proc(5), from the third field on); nothing of one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name, in parentheses, may hold anything.
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def share_memory(pid: int, other: int) -> bool:
    """Whether two processes have one address space: one is the other's child and has not run exec yet.

    False too where the kernel does not say.
    """
    number = _KCMP.get(os.uname().machine)
    return number is not None and _syscall()(number, pid, other, _KCMP_VM, 0, 0) == 0


@cache
def _syscall() -> Callable[..., int]:
    import ctypes

    call: Callable[..., int] = ctypes.CDLL(None, use_errno=True).syscall
    return call


def mark_of(env: dict[bytes, bytes]) -> set[bytes]:
    """The variables by which a process is known to belong to an attempt."""
    return {name + b"=" + env.get(name, b"") for name in (b"AWE_WORK_ID", b"AWE_ATTEMPT")}


def state_of(pid: int) -> str:
    """The kernel's letter for a process (R, S, Z, ...), or "" if there is none."""
    facts = _stat_of(pid)
    return facts[0].decode() if facts else ""


def environ_of(pid: int) -> set[bytes]:
    """The environment a process was started with; empty for a zombie or somebody else's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return set(file.read().split(b"\0"))
    except OSError:
        return set()


def command_line_of(pid: int) -> list[bytes]:
    """The words a process was started with; none for a zombie."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")[:-1]
    except OSError:
        return []


def cwd_of(pid: int) -> bytes:
    try:
        return os.readlink(f"/proc/{pid}/cwd".encode())
    except OSError:
        return b""


def streams_of(pid: int) -> list[bytes]:
    """The files to which a process's standard output and error go; of files it only reads, none."""
    found = []
    for fd in (1, 2):
        try:
            with open(f"/proc/{pid}/fdinfo/{fd}", "rb") as file:
                flags = next(int(line.split()[1], 8) for line in file if line.startswith(b"flags:"))
            if flags & os.O_ACCMODE != os.O_RDONLY:
                found.append(os.readlink(f"/proc/{pid}/fd/{fd}".encode()))
        except (OSError, StopIteration):
            continue
    return found


def oom_kills() -> int:
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0
