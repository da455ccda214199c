"""The small process that starts commands and sees to it that nothing of them is left. Standard library only.

A daemon runs one or two of these (see executor.py; a socket is their standard input), because
starting a process is the dearest thing a client does, and because a parent that holds little memory and no
threads does it best. Both directions carry frames of messages (frames.py):

    in   ("run", key, frames.CommandSpec, size) · ("next", key, frames.CommandSpec, size)
         ("kill", key) · ("recall", key)
    out  ("refused", key, outcome.SpawnRefusal, next) · ("ended", key, outcome.CommandEnd, next)    as tuples
         ("returned", key, (), 0)

"next" lines a command up: it starts here at once when one of the same size is over, in whose place it is then
(`next` names it, or is 0). So nobody waits for a round trip between two short commands, and the ends of those
that had one lined up behind them may travel together. "returned" has not begun: it was called back, or
nothing more can start now. What begins is noted in shared memory (begun.py) before it can do anything: if
this process is killed, it may have been by that one.

* running.py says how a command's processes are held together.
* kill and time limit: TERM to all descendants, grace, KILL. Above its memory limit: KILL at once, since in a
  grace it would only take more (memory.py watches).
* If the daemon goes away, in whatever way, the socket ends (and the kernel signals us, by SIGCONT: a command
  may have stopped us): everything is killed.

One wait serves everything that can happen: SIGCHLD for commands and adopted orphans, SIGIO for the socket.
They are blocked and taken by sigtimedwait, so none costs a handler, nor a second wait for what it wakes. A
pidfd for each command would cost a descriptor and four system calls more, and would not tell of orphans.
"""

import contextlib
import errno
import fcntl
import gc
import heapq
import math
import os
import signal
import socket
import sys
import time
from typing import Any

from awe_client.daemon.begun import NEXT, RUN, Begun
from awe_client.daemon.disk import DiskWatch
from awe_client.daemon.frames import CommandSpec, Size, frame_of, take_messages
from awe_client.daemon.homes import Homes
from awe_client.daemon.memory import MemoryWatch
from awe_client.daemon.proc import descendants, oom_kills, signal_process
from awe_client.daemon.running import Command, Running
from awe_client.daemon.spawn import EXHAUSTED, IGNORED, Refused, Spawner

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_CLEANUP_S = 10.0
#: Read from the socket at once; more would be a mapping of its own each time.
_PIECE_BYTES = 64 * 1024
#: Ends of so long travel together, as long as each of them had another command lined up behind it.
GATHER_S = 0.01
_WOKEN_BY = (signal.SIGCHLD, signal.SIGIO, signal.SIGCONT)
#: The socket is looked at at least every so many turns, however many processes end.
_TURNS = 16


class Executor:
    """Owns the socket, the commands and the timers."""

    def __init__(self, connection: socket.socket, homes: Homes, disk: DiskWatch, begun: Begun) -> None:
        self._connection = connection
        self._begun = begun
        self._homes = homes
        self._disk = disk
        self._incoming = bytearray()
        self._outgoing: list[tuple[Any, ...]] = []
        self._is_urgent = False  # somebody waits for what goes out
        self._send_at = 0.0  # else it goes then
        self._lined: dict[int, tuple[CommandSpec, Size]] = {}  # in the order in which they start
        self._running = Running()
        self._timers: list[tuple[float, int, int]] = []  # (when, key, signal)
        self._oom_kills = oom_kills()
        self._spawner = Spawner()
        self._memory = MemoryWatch(self._running.owner_key)
        self._daemon = os.getppid()

    def serve(self) -> None:
        """Run until the daemon is gone."""
        turns = 0
        is_there = self._receive()  # what came before anybody told us
        while is_there:
            self._reap()
            self._fire()
            self._send()
            pause_s = self._pause_s()
            woken = (
                signal.sigtimedwait(_WOKEN_BY, pause_s)
                if pause_s < math.inf
                else signal.sigwaitinfo(_WOKEN_BY)
            )
            number, turns = woken.si_signo if woken else 0, turns + 1
            # It may also be the daemon that let us go on.
            is_there = number != signal.SIGCONT or os.getppid() == self._daemon
            if is_there and (number == signal.SIGIO or turns % _TURNS == 0):
                is_there = self._receive()

    def end(self) -> None:
        """Kill everything, adopted processes too, until we have no child left (or 5 s are over).

        Then remove what lives elsewhere: nobody else is left who could.
        """
        outlives = [command.spec for command in self._running.by_key.values() if command.spec.cleanup]
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
        """Do what the daemon says; whether it is there."""
        data = b""
        while True:
            try:
                data = self._connection.recv(_PIECE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            if not data:
                return False
            self._incoming += data
            for message in take_messages(self._incoming):
                self._obey(*message)
            if len(data) < _PIECE_BYTES:
                return True

    def _obey(self, kind: str, key: int, spec: tuple[Any, ...] = (), size: Size = (0, 0)) -> None:
        if kind == "run":
            self._run(key, CommandSpec._make(spec), size)
        elif kind == "next" and self._running.by_key:
            self._lined[key] = (CommandSpec._make(spec), size)
        elif kind == "next" or self._lined.pop(key, None) is not None:
            self._tell("returned", key, ())
        elif kind == "kill" and key in self._running.by_key:
            self._stop(self._running.by_key[key], "killed")

    def _tell(self, kind: str, key: int, facts: tuple[Any, ...], next_key: int = 0) -> None:
        if not self._outgoing:
            self._send_at = time.monotonic() + GATHER_S
        self._is_urgent = self._is_urgent or not next_key or kind == "refused"
        self._outgoing.append((kind, key, facts, next_key))

    def _send(self) -> None:
        if self._outgoing and (self._is_urgent or time.monotonic() >= self._send_at):
            frame, self._outgoing, self._is_urgent = frame_of(self._outgoing), [], False
            with contextlib.suppress(ConnectionError):
                self._connection.sendall(frame)

    # --- starting --------------------------------------------------------------------------------

    def _run(self, key: int, spec: CommandSpec, size: Size) -> None:
        refusal = self._start(RUN, key, spec, size)
        if refusal is not None:
            self._start_next(self._refuse(key, refusal, size), size)

    def _start_next(self, key: int, size: Size) -> None:
        """Start one that was lined up, or the one behind it if it cannot be started, and so on; 0 = none."""
        while key:
            refusal = self._start(NEXT, key, self._lined.pop(key)[0], size)
            key = self._refuse(key, refusal, size) if refusal is not None else 0

    def _refuse(self, key: int, refusal: Refused, size: Size) -> int:
        """Tell that a command cannot be started; who may start in its place."""
        if refusal.stage == "disk" or refusal.errno in EXHAUSTED:
            self._give_back()
        next_key = self._next(size)
        self._tell("refused", key, refusal.facts, next_key)
        return next_key

    def _give_back(self) -> None:
        """Nothing more can start now."""
        for key in reversed(self._lined):
            self._tell("returned", key, ())
        self._lined.clear()

    def _next(self, size: Size) -> int:
        """Who may start in the place of a command of this size; 0 = nobody."""
        for key, (_, its_size) in self._lined.items():
            return key if its_size == size else 0
        return 0

    def _start(self, order: int, key: int, spec: CommandSpec, size: Size) -> Refused | None:
        """Start a command; why it cannot be."""
        began = time.monotonic()
        try:
            if self._disk.is_full():
                # A command that starts on a full disk may end on one with room, and nobody would know that
                # its output is cut off.
                raise Refused("disk", errno.ENOSPC, b"")
            self._homes.enter(spec)
            pid = self._begin(order, key, spec)
        except Refused as exc:
            if spec.make_dir:
                self._disk.before_removal()
                self._homes.give_up(spec)
            return exc
        command = Command(key, spec, size, pid, began)
        self._running.add(command)
        if spec.time_limit_s > 0:
            heapq.heappush(self._timers, (command.started_at + spec.time_limit_s, key, signal.SIGTERM))
        if spec.memory_limit_bytes > 0:
            self._memory.add(key, spec.memory_limit_bytes)
        return None

    def _begin(self, order: int, key: int, spec: CommandSpec) -> int:
        """Note that it begins, and start it; the pid. Raises Refused, and then it has not begun."""
        if self._is_urgent:  # earlier ones may be among these that will never begin
            self._send()
        before = self._begun.last(order)
        self._begun.note(order, key)
        try:
            return self._spawner.spawn(spec)
        except Refused:
            self._begun.note(order, before)
            raise

    # --- ending ----------------------------------------------------------------------------------

    def _reap(self) -> None:
        running, has_reaped, is_alone = self._running, False, False
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                has_reaped = True
                command = running.by_pid.pop(pid, None)
                if command is not None:
                    self._main_ended(command, status, usage)
        except ChildProcessError:
            is_alone = True
        if is_alone:
            over = running.take_ended()
        elif running.ending or (has_reaped and not running.by_pid):
            # While no command runs, who died may have been hidden, and have left us another that is.
            over = running.sweep()
        else:
            return
        for command in over:
            self._end(command, is_alone)

    def _main_ended(self, command: Command, status: int, usage: Any) -> None:
        command.ended_at = time.monotonic()
        command.end = status, usage
        if status:
            killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            command.oom = killed and not command.reason and self._new_oom_kill()
        self._running.ending[command.key] = command

    def _end(self, command: Command, is_alone: bool) -> None:
        """Nothing is left of a command: start the next one in its place, and tell.

        `is_alone`: we have no child, so nobody who hides has anything of it open.
        """
        spec, size, homes = command.spec, command.size, self._homes
        logs, are_as_made = homes.look(spec)
        is_full, was_full = self._disk.is_full(), self._disk.was_full_since(command.began)
        if is_full:
            self._give_back()
        next_key = self._next(size)
        tidied = False
        if spec.tidy and command.did_well and not was_full and max(logs[:2]) <= spec.tail_bytes:
            following = self._lined[next_key][0] if next_key else None
            tidied = homes.take_back(spec, is_alone and are_as_made, following)
        peak = self._memory.remove(command.key) if spec.memory_limit_bytes else 0
        facts = (
            *command.facts(peak),
            *logs,
            command.strays,
            is_full,
            tidied,
            command.used,
            spec.memory_limit_bytes,
            was_full,
        )
        self._tell("ended", command.key, facts, next_key)
        self._start_next(next_key, size)

    def _new_oom_kill(self) -> bool:
        """Whether the kernel killed somebody for memory since we last looked: evidence, not proof."""
        before, self._oom_kills = self._oom_kills, oom_kills()
        return self._oom_kills > before

    # --- stopping --------------------------------------------------------------------------------

    def _stop(self, command: Command, reason: str) -> None:
        if command.reason or command.end is not None:
            return
        command.reason = reason
        self._running.signal_tree(command, signal.SIGTERM)
        heapq.heappush(self._timers, (time.monotonic() + command.spec.grace_s, command.key, signal.SIGKILL))

    def _pause_s(self) -> float:
        """How long nothing is to be done by itself; inf = until we are told something."""
        at = self._timers[0][0] if self._timers else math.inf
        if self._memory.next_at is not None:
            at = min(at, self._memory.next_at)
        if self._running.by_key:
            at = min(at, self._disk.next_at)
        if self._outgoing:
            at = min(at, self._send_at)
        return max(at - time.monotonic(), 0.0)

    def _fire(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, key, number = heapq.heappop(self._timers)
            command = self._running.by_key.get(key)
            if command is None or command.end is not None:
                continue
            if number == signal.SIGTERM:
                self._stop(command, "timeout")
            else:
                self._running.signal_tree(command, signal.SIGKILL)
        if self._memory.next_at is not None and self._memory.next_at <= now:
            self._enforce_memory()
        if self._running.by_key and self._disk.next_at <= now:
            self._disk.look()

    def _enforce_memory(self) -> None:
        for key, used in self._memory.look():
            command = self._running.by_key[key]
            if not command.reason:
                command.reason, command.used = "memory", used
            self._running.signal_tree(command, signal.SIGKILL)


def _clean_up(specs: list[CommandSpec]) -> None:
    """Run what removes that which outlives a command's processes, all at once, for a limited time."""
    if not specs:
        return
    import subprocess

    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WOKEN_BY)
    running = []
    for spec in specs:
        with contextlib.suppress(OSError):
            null = subprocess.DEVNULL
            running.append(
                subprocess.Popen(spec.cleanup, env=spec.env, cwd="/", stdin=null, stdout=null, stderr=null)
            )
    deadline = time.monotonic() + _CLEANUP_S
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(deadline - time.monotonic(), 0.0))


def _prepare_process() -> None:
    """Die with the daemon, adopt orphans, and do not let the terminal's Ctrl-C end us before our commands.

    Commands of the same user may not read our memory: it holds the private variables of others. Their own
    processes become readable with their exec.
    """
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WOKEN_BY)
    prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
    os.umask(0o022)


def main() -> None:
    """Take the socket from standard input and serve.

    The arguments, after one for `BOOT`: a folder for directories not in use, one above all that are, and the
    descriptor of the memory in which is noted what begins.
    """
    begun_fd = int(sys.argv[4])
    begun = Begun(begun_fd)
    os.close(begun_fd)
    connection = socket.socket(fileno=os.dup(0))
    connection.setblocking(True)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    homes, disk = Homes(os.fsencode(sys.argv[2])), DiskWatch(sys.argv[3])
    executor = Executor(connection, homes, disk, begun)
    _prepare_process()
    _signal_what_comes(connection)
    # What was made until here stays; hardly anything that is made for a command is part of a cycle.
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    try:
        executor.serve()
    finally:
        executor.end()


def _signal_what_comes(connection: socket.socket) -> None:
    """SIGIO to us whenever there is something to read, also the end."""
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
