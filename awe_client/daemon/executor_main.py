"""The small process that starts commands and sees to it that nothing of them is left. Standard library only.

A daemon runs one or two of these (see executor.py; a socket is their standard input), because
starting a process is the dearest thing a client does, and because a parent that holds little memory and no
threads does it best. Both directions carry frames of messages (frames.py):

    in   ("run", key, executor.CommandSpec, size) · ("next", key, executor.CommandSpec, size)
         ("kill", key) · ("recall", key)
    out  ("refused", key, outcome.SpawnRefusal, next) · ("ended", key, outcome.CommandEnd, next)      as dicts
         ("returned", key, {}, 0)

"next" lines a command up: it starts here at once when one of the same size is over, in whose place it is then
(`next` names it, or is 0). So nobody waits for a round trip between two short commands, and the ends of those
that had one lined up behind them may travel together. "returned" has not begun: it was called back, or
nothing more can start now. What begins is noted in shared memory (begun.py) before it can do anything: if
this process is killed, it may have been by that one.

How a command's processes are held together:

* It leads its own session and process group; standard input is /dev/null unless it names a file.
* This process is a "child subreaper": a descendant that lost its parent (double fork, setsid, nohup) becomes
  our child instead of init's. It is told apart by session, by AWE_WORK_ID and AWE_ATTEMPT in its
  environment, by a working directory inside the command's, or by standard output or error in a file there.
  Whoever hides all of that is killed when this process has no command left.
* Once the main process has ended, whatever is left of the command is killed, and only then is its end told:
  nobody writes to an output any more.
* kill and time limit: TERM to all descendants, grace, KILL. Above its memory limit: KILL at once, since in a
  grace it would only take more (memory.py watches).
* If the daemon goes away, in whatever way, the socket ends (and the kernel signals us, by SIGCONT: a command
  may have stopped us): everything is killed.

One SIGCHLD wake-up serves commands and adopted orphans alike. A pidfd for each command would cost a
descriptor and four system calls more, and would not tell of orphans.
"""

import contextlib
import errno
import gc
import heapq
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from awe_client.daemon.begun import NEXT, RUN, Begun
from awe_client.daemon.disk import DiskWatch
from awe_client.daemon.frames import Size, frame_of, take_messages
from awe_client.daemon.fresh import FreshDirectories
from awe_client.daemon.leavings import log_facts
from awe_client.daemon.memory import MemoryWatch
from awe_client.daemon.proc import (
    children,
    cwd_of,
    descendants,
    environ_of,
    group_members,
    is_below,
    mark_of,
    oom_kills,
    parent_of,
    parents,
    signal_group,
    signal_process,
    streams_of,
)
from awe_client.daemon.spawn import EXHAUSTED, IGNORED, Refused, Spawner, refused

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_CLEANUP_S = 10.0
#: Read from the socket at once; more would be a mapping of its own each time.
_PIECE_BYTES = 64 * 1024
#: Ends of so long travel together, as long as each of them had another command lined up behind it.
GATHER_S = 0.005


class _Command:
    """One running command, or what is left of it."""

    __slots__ = (
        "began",
        "ended_at",
        "facts",
        "key",
        "pid",
        "reason",
        "size",
        "spec",
        "started_at",
        "strays",
        "used",
    )

    def __init__(self, key: int, spec: dict[str, Any], size: Size, pid: int, began: float) -> None:
        self.key = key
        self.spec = spec
        self.size = size
        self.pid = pid
        self.began = began  # no write of it came before
        self.started_at = time.monotonic()
        self.ended_at = 0.0
        self.reason = ""  # "killed", "timeout" or "memory" once we have signalled it
        self.strays = 0
        self.used = 0  # bytes, when it was above its memory limit
        self.facts: dict[str, Any] | None = None  # set when the main process has ended


class Executor:
    """Owns the socket, the commands and the timers."""

    def __init__(
        self, connection: socket.socket, fresh: FreshDirectories, disk: DiskWatch, begun: Begun
    ) -> None:
        self._connection = connection
        self._begun = begun
        self._fresh = fresh
        self._disk = disk
        self._incoming = bytearray()
        self._outgoing: list[tuple[Any, ...]] = []
        self._is_urgent = False  # somebody waits for what goes out
        self._send_at = 0.0  # else it goes then
        self._lined: dict[int, tuple[dict[str, Any], Size]] = {}  # in the order in which they start
        self._by_pid: dict[int, _Command] = {}
        self._by_key: dict[int, _Command] = {}
        self._ending: dict[int, _Command] = {}
        self._timers: list[tuple[float, int, int]] = []  # (when, key, signal)
        self._oom_kills = oom_kills()
        self._spawner = Spawner()
        self._memory = MemoryWatch(self._owner_key)
        self._wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self.parent_died = False

    def serve(self) -> None:
        """Run until the daemon is gone."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while not self.parent_died:
            for fd, _ in poll.poll(self._pause_ms()):
                if fd == self._wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 4096)
                elif not self._receive():
                    return
            self._reap()
            self._fire()
            self._send()

    def end(self) -> None:
        """Kill everything, adopted processes too, until we have no child left (or 5 s are over).

        Then remove what lives elsewhere: nobody else is left who could.
        """
        outlives = [command.spec for command in self._by_key.values() if command.spec["cleanup"]]
        self._kill_all()
        _clean_up(outlives)

    def _kill_all(self) -> None:
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            for pid in descendants(os.getpid()):
                signal_process(pid, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.01)

    # --- the socket ------------------------------------------------------------------------------

    def _receive(self) -> bool:
        try:
            data = self._connection.recv(_PIECE_BYTES)
        except ConnectionError:
            return False
        if not data:
            return False
        self._incoming += data
        for kind, key, *command in take_messages(self._incoming):
            if kind == "run":
                self._run(key, *command)
            elif kind == "next" and self._by_key:
                self._lined[key] = (command[0], command[1])
            elif kind == "next" or self._lined.pop(key, None) is not None:
                self._tell("returned", key, {})
            elif kind == "kill" and key in self._by_key:
                self._stop(self._by_key[key], "killed")
        return True

    def _tell(self, kind: str, key: int, facts: dict[str, Any], next_key: int = 0) -> None:
        if not self._outgoing:
            self._send_at = time.monotonic() + GATHER_S
        self._is_urgent = self._is_urgent or not next_key
        self._outgoing.append((kind, key, facts, next_key))

    def _send(self) -> None:
        if self._outgoing and (self._is_urgent or time.monotonic() >= self._send_at):
            frame, self._outgoing, self._is_urgent = frame_of(self._outgoing), [], False
            with contextlib.suppress(ConnectionError):
                self._connection.sendall(frame)

    # --- starting --------------------------------------------------------------------------------

    def _run(self, key: int, spec: dict[str, Any], size: Size) -> None:
        refusal = self._start(RUN, key, spec, size)
        if refusal is not None:
            self._over("refused", key, refusal.facts, size)

    def _over(self, kind: str, key: int, facts: dict[str, Any], size: Size) -> None:
        """A command is over: start the next in its place, and tell."""
        while next_key := self._next(kind, facts, size):
            self._tell(kind, key, facts, next_key)
            spec, _ = self._lined.pop(next_key)
            refusal = self._start(NEXT, next_key, spec, size)
            if refusal is None:
                return
            kind, key, facts = "refused", next_key, refusal.facts
        self._tell(kind, key, facts)

    def _next(self, kind: str, facts: dict[str, Any], size: Size) -> int:
        """Who may start in the place of a command that is over; 0 = nobody."""
        if kind == "ended":
            may_start = not facts["disk_full"]
        else:
            may_start = facts["stage"] != "disk" and facts["errno"] not in EXHAUSTED
        if not may_start:
            for key in reversed(self._lined):
                self._tell("returned", key, {})
            self._lined.clear()
        key = next(iter(self._lined), 0)
        return key if key and self._lined[key][1] == size else 0

    def _start(self, order: int, key: int, spec: dict[str, Any], size: Size) -> Refused | None:
        """Start a command; why it cannot be."""
        made, began = False, time.monotonic()
        try:
            if self._disk.is_full():
                # A command that starts on a full disk may end on one with room, and nobody would know that
                # its output is cut off.
                raise Refused("disk", errno.ENOSPC, b"")
            try:
                if spec["make_dir"]:
                    self._fresh.make(spec["cwd"])
                    made = True
                os.chdir(spec["cwd"])
            except (OSError, ValueError) as exc:
                raise refused("directory", spec["cwd"], exc) from exc
            self._begun.note(order, key)
            pid = self._spawner.spawn(spec)
        except Refused as exc:
            if made:
                self._disk.before_removal()
                self._fresh.take_back(spec)
            return exc
        command = _Command(key, spec, size, pid, began)
        self._by_pid[pid] = self._by_key[key] = command
        if spec["time_limit_s"] > 0:
            heapq.heappush(self._timers, (command.started_at + spec["time_limit_s"], key, signal.SIGTERM))
        if spec["memory_limit_bytes"] > 0:
            self._memory.add(key, spec["memory_limit_bytes"])
        return None

    # --- ending ----------------------------------------------------------------------------------

    def _reap(self) -> None:
        has_reaped = False
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                has_reaped = True
                command = self._by_pid.pop(pid, None)
                if command is not None:
                    self._main_ended(command, status, usage)
        except ChildProcessError:
            pass
        # While no command runs, who died may have been hidden, and have left us another that is.
        if self._ending or (has_reaped and not self._by_pid):
            self._sweep()

    def _main_ended(self, command: _Command, status: int, usage: Any) -> None:
        command.ended_at = time.monotonic()
        signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        command.facts = {
            "exit_code": os.WEXITSTATUS(status) if signalled is None else None,
            "signal": signalled,
            "reason": command.reason,
            "oom": signalled == signal.SIGKILL and not command.reason and self._new_oom_kill(),
            "wall_s": command.ended_at - command.started_at,
            "user_s": usage.ru_utime,
            "system_s": usage.ru_stime,
            # The kernel counts in what we ourselves held at the moment of the start: a floor of a few MB.
            "peak_bytes": max(usage.ru_maxrss * 1024, self._memory.remove(command.key)),
            "used_bytes": command.used,
            "memory_limit_bytes": command.spec["memory_limit_bytes"],
        }
        self._ending[command.key] = command

    def _sweep(self) -> None:
        """Kill what is left of commands whose main process has ended; tell the end of those that are gone."""
        adopted = [pid for pid in children() if pid not in self._by_pid]
        owned: dict[int, int] = {}
        for pid in adopted:
            owner = self._owner(pid)
            if owner is not None:
                owned[owner.key] = owned.get(owner.key, 0) + 1
                if owner.facts is not None:
                    owner.strays += 1
                    signal_process(pid, signal.SIGKILL)
            elif not self._by_pid:
                signal_process(pid, signal.SIGKILL)
        for command in list(self._ending.values()):
            if not owned.get(command.key) and self._end_group(command):
                del self._ending[command.key]
                del self._by_key[command.key]
                self._tell_end(command)

    def _end_group(self, command: _Command) -> bool:
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

    def _owner(self, pid: int) -> _Command | None:
        try:
            session = os.getsid(pid)
        except ProcessLookupError:
            return None
        command = self._by_pid.get(session)
        if command is None:
            command = next((c for c in self._ending.values() if c.pid == session), None)
        if command is not None:
            return command
        environ, cwd, written = environ_of(pid), cwd_of(pid), streams_of(pid)
        for command in self._by_key.values():
            home = command.spec["cwd"]
            if mark_of(command.spec["env"]) <= environ or cwd == home or cwd.startswith(home + b"/"):
                return command
            if any(name.startswith(home + b"/") for name in written):
                return command
        return None

    def _owner_key(self, pid: int) -> int | None:
        owner = self._owner(pid)
        return owner.key if owner is not None else None

    def _tell_end(self, command: _Command) -> None:
        spec, facts = command.spec, command.facts
        assert facts is not None
        limit = spec["tail_bytes"]
        facts |= log_facts(spec)
        facts["strays"] = command.strays
        facts["disk_full"] = self._disk.is_full()
        facts["disk_was_full"] = self._disk.was_full_since(command.began)
        whole = facts["stdout_size"] <= limit and facts["stderr_size"] <= limit
        tidy = spec["tidy"] and whole and facts["exit_code"] == 0 and not facts["disk_was_full"]
        facts["tidied"] = tidy and self._fresh.take_back(spec)
        self._over("ended", command.key, facts, command.size)

    def _new_oom_kill(self) -> bool:
        """Whether the kernel killed somebody for memory since we last looked: evidence, not proof."""
        before, self._oom_kills = self._oom_kills, oom_kills()
        return self._oom_kills > before

    # --- stopping --------------------------------------------------------------------------------

    def _stop(self, command: _Command, reason: str) -> None:
        if command.reason or command.facts is not None:
            return
        command.reason = reason
        self._signal_tree(command, signal.SIGTERM)
        heapq.heappush(
            self._timers, (time.monotonic() + command.spec["grace_s"], command.key, signal.SIGKILL)
        )

    def _signal_tree(self, command: _Command, number: int) -> None:
        parent_of = parents()
        tree = descendants(command.pid, parent_of)
        for pid in children():
            if pid not in self._by_pid and self._owner(pid) is command:
                tree += [pid, *descendants(pid, parent_of)]
        signal_group(command.pid, number)
        for pid in tree:
            signal_process(pid, number)
        # A stopped process takes no TERM until it is continued.
        signal_group(command.pid, signal.SIGCONT)

    def _pause_ms(self) -> int | None:
        moments = [self._timers[0][0]] if self._timers else []
        if self._memory.next_at is not None:
            moments.append(self._memory.next_at)
        if self._by_key:
            moments.append(self._disk.next_at)
        if self._outgoing:
            moments.append(self._send_at)
        return max(int((min(moments) - time.monotonic()) * 1000) + 1, 0) if moments else None

    def _fire(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, key, number = heapq.heappop(self._timers)
            command = self._by_key.get(key)
            if command is None or command.facts is not None:
                continue
            if number == signal.SIGTERM:
                self._stop(command, "timeout")
            else:
                self._signal_tree(command, signal.SIGKILL)
        if self._memory.next_at is not None and self._memory.next_at <= now:
            self._enforce_memory()
        if self._by_key and self._disk.next_at <= now:
            self._disk.look()

    def _enforce_memory(self) -> None:
        for key, used in self._memory.look():
            command = self._by_key[key]
            if not command.reason:
                command.reason, command.used = "memory", used
            self._signal_tree(command, signal.SIGKILL)


def _clean_up(specs: list[dict[str, Any]]) -> None:
    """Run what removes that which outlives a command's processes, all at once, for a limited time."""
    if not specs:
        return
    import subprocess

    running = []
    for spec in specs:
        with contextlib.suppress(OSError):
            null = subprocess.DEVNULL
            running.append(
                subprocess.Popen(
                    spec["cleanup"], env=spec["env"], cwd="/", stdin=null, stdout=null, stderr=null
                )
            )
    deadline = time.monotonic() + _CLEANUP_S
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(deadline - time.monotonic(), 0.0))


def _prepare_process(executor: Executor) -> None:
    """Die with the daemon, adopt orphans, and do not let the terminal's Ctrl-C end us before our commands.

    Commands of the same user may not read our memory: it holds the private variables of others. Their own
    processes become readable with their exec.
    """
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

    daemon = os.getppid()

    def continued(*_: object) -> None:
        executor.parent_died = os.getppid() != daemon  # else it was the daemon that let us go on

    signal.signal(signal.SIGCONT, continued)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
    os.umask(0o022)


def main() -> None:
    """Take the socket from standard input and serve.

    The arguments, after one for `_BOOT`: a folder for directories not in use, one above all that are, and the
    descriptor of the memory in which is noted what begins.
    """
    begun_fd = int(sys.argv[4])
    begun = Begun(begun_fd)
    os.close(begun_fd)
    connection = socket.socket(fileno=os.dup(0))
    connection.setblocking(True)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    fresh, disk = FreshDirectories(os.fsencode(sys.argv[2])), DiskWatch(sys.argv[3])
    executor = Executor(connection, fresh, disk, begun)
    _prepare_process(executor)
    # What was made until here stays; hardly anything that is made for a command is part of a cycle.
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    try:
        executor.serve()
    finally:
        executor.end()
