"""The commands of an executor, and which processes are theirs. Standard library only.

How a command's processes are held together:

* It leads its own session and process group; standard input is /dev/null unless it names a file.
* The executor is a "child subreaper": a descendant that lost its parent (double fork, setsid, nohup) becomes
  its child instead of init's. It is told apart by session, by AWE_WORK_ID and AWE_ATTEMPT in its
  environment, by a working directory inside the command's, or by standard output or error in a file there.
  Whoever hides all of that is killed when the executor has no command left.
* Once the main process has ended, whatever is left of the command is killed, and only then is its end told:
  nobody writes to an output any more. Nobody has to look for that while the executor has no child at all:
  whatever descends from it is below some child of its.
"""

import os
import signal
import time
from typing import Any

from awe_client.daemon.frames import CommandSpec, Size
from awe_client.daemon.proc import (
    children,
    cwd_of,
    descendants,
    environ_of,
    group_members,
    is_below,
    mark_of,
    parent_of,
    parents,
    signal_group,
    signal_process,
    streams_of,
)


class Command:
    """One running command, or what is left of it."""

    __slots__ = (
        "began",
        "end",
        "ended_at",
        "key",
        "oom",
        "pid",
        "reason",
        "size",
        "spec",
        "started_at",
        "strays",
        "used",
    )

    def __init__(self, key: int, spec: CommandSpec, size: Size, pid: int, began: float) -> None:
        self.key = key
        self.spec = spec
        self.size = size
        self.pid = pid
        self.began = began  # no write of it came before
        self.started_at = time.monotonic()
        self.ended_at = 0.0
        self.end: tuple[int, Any] | None = None  # status and usage of the main process, when it has ended
        self.reason = ""  # "killed", "timeout" or "memory" once we have signalled it
        self.oom = False
        self.strays = 0
        self.used = 0  # bytes, when it was above its memory limit

    @property
    def did_well(self) -> bool:
        """Whether its main process has ended, with exit code 0."""
        return self.end is not None and self.end[0] == 0

    def facts(self, peak_bytes: int) -> tuple[Any, ...]:
        """How the main process ended: the first fields of outcome.CommandEnd."""
        assert self.end is not None
        status, usage = self.end
        signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        return (
            os.WEXITSTATUS(status) if signalled is None else None,
            signalled,
            self.reason,
            self.oom,
            self.ended_at - self.started_at,
            usage.ru_utime,
            usage.ru_stime,
            # The kernel counts in what we ourselves held at the moment of the start: a floor of a few MB.
            max(usage.ru_maxrss * 1024, peak_bytes),
        )


class Running:
    """All commands of which some process may live."""

    def __init__(self) -> None:
        self.by_key: dict[int, Command] = {}
        self.by_pid: dict[int, Command] = {}  #: whose main process has not ended
        self.ending: dict[int, Command] = {}  #: by key, all others

    def add(self, command: Command) -> None:
        """It has just been started."""
        self.by_pid[command.pid] = self.by_key[command.key] = command

    def sweep(self) -> list[Command]:
        """Kill what is left of commands whose main process has ended; take out those that are gone."""
        adopted = [pid for pid in children() if pid not in self.by_pid]
        owned: dict[int, int] = {}
        for pid in adopted:
            owner = self._owner(pid)
            if owner is not None:
                owned[owner.key] = owned.get(owner.key, 0) + 1
                if owner.end is not None:
                    owner.strays += 1
                    signal_process(pid, signal.SIGKILL)
            elif not self.by_pid:
                signal_process(pid, signal.SIGKILL)
        return self._take([c for c in self.ending.values() if not owned.get(c.key) and _end_group(c)])

    def take_ended(self) -> list[Command]:
        """Take out all whose main process has ended: nothing is left of them."""
        return self._take(list(self.ending.values()))

    def _take(self, commands: list[Command]) -> list[Command]:
        for command in commands:
            del self.ending[command.key], self.by_key[command.key]
        return commands

    def owner_key(self, pid: int) -> int | None:
        """The key of the command that a child of ours belongs to."""
        owner = self._owner(pid)
        return owner.key if owner is not None else None

    def _owner(self, pid: int) -> Command | None:
        try:
            session = os.getsid(pid)
        except ProcessLookupError:
            return None
        command = self.by_pid.get(session)
        if command is None:
            command = next((c for c in self.ending.values() if c.pid == session), None)
        if command is not None:
            return command
        environ, cwd, written = environ_of(pid), cwd_of(pid), streams_of(pid)
        for command in self.by_key.values():
            home = command.spec.cwd
            if mark_of(command.spec.env) <= environ or cwd == home or cwd.startswith(home + b"/"):
                return command
            if any(name.startswith(home + b"/") for name in written):
                return command
        return None

    def signal_tree(self, command: Command, number: int) -> None:
        """Signal all processes of a command."""
        parent_of = parents()
        tree = descendants(command.pid, parent_of)
        for pid in children():
            if pid not in self.by_pid and self._owner(pid) is command:
                tree += [pid, *descendants(pid, parent_of)]
        signal_group(command.pid, number)
        for pid in tree:
            signal_process(pid, number)
        # A stopped process takes no TERM until it is continued.
        signal_group(command.pid, signal.SIGCONT)


def _end_group(command: Command) -> bool:
    """Kill what is left in a command's group, and whoever does not reap what has ended in it; whether
    nothing is left. The parent of a process of the command is of the command, however it hides.
    """
    if not signal_group(command.pid, signal.SIGKILL):
        return True
    members, me, killed = group_members(command.pid), os.getpid(), False
    for parent in {parent_of(pid) for pid in members} - set(members) - {me, None}:
        if parent and is_below(parent, me) and signal_process(parent, signal.SIGKILL):
            command.strays += 1
            killed = True
    return not killed and not any(members.values())
