"""What a daemon finds at its start of commands and executors of one that was killed with them."""

import os
import signal
from pathlib import Path

from awe_client.daemon.cgroup import ControlGroup
from awe_client.daemon.helper import BOOT
from awe_client.daemon.proc import (
    command_line_of,
    cwd_of,
    descendants,
    environ_of,
    parents,
    signal_process,
    state_of,
    streams_of,
)
from shared_models.variables import TEMPORARY


def kill_leftovers(attempts: Path, note: Path) -> int:
    """Kill commands of an earlier daemon below this folder; returns how many processes there were.

    There are some only if daemon and executors were killed in the same moment. The caller holds the work
    directory's lock, so none of them belongs to a living daemon. All of them are found if that daemon had a
    control group (`note` names it); if not, those that show whose they are. We are spared, should one of them
    have started us.
    """
    found = sum(group.end() for group in ControlGroup.left(note))
    inside = os.fsencode(attempts) + b"/"
    me, parent_of = os.getpid(), parents()
    for pid in parent_of:
        if pid != me and (_shows_it_is_of(pid, inside) or _is_stopped_executor(pid, attempts)):
            for victim in {pid, *descendants(pid, parent_of)} - {me}:
                found += 1
                signal_process(victim, signal.SIGKILL)
    return found


def _is_stopped_executor(pid: int, attempts: Path) -> bool:
    """Whether a process is an executor of this folder that stands still: any other ends by itself."""
    words = [os.fsencode(word) for word in ("-c", BOOT)]
    given = command_line_of(pid)
    is_executor = given[3:5] == words and given[-2:-1] == [os.fsencode(attempts)]
    return is_executor and state_of(pid) == "T"


def _shows_it_is_of(pid: int, inside: bytes) -> bool:
    """Whether a process was started by an attempt below a folder: it writes its log there, or has an
    attempt's environment and works there. Somebody who only looks around there has neither.
    """
    if any(name.startswith(inside) for name in streams_of(pid)):
        return True
    environ = environ_of(pid)
    if not any(entry.startswith(b"AWE_WORK_ID=") for entry in environ):
        return False
    temporary = TEMPORARY.encode() + b"=" + inside
    return cwd_of(pid).startswith(inside) or any(entry.startswith(temporary) for entry in environ)
