"""The daemon's side of its executor processes: send commands, hear of their ends."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from awe_client.daemon.begun import NEXT, RUN, Begun
from awe_client.daemon.cgroup import ControlGroup
from awe_client.daemon.frames import CommandSpec, Size, frame_of, take_messages
from awe_client.daemon.identity import WorkRoot
from awe_client.daemon.outcome import CommandEnd, SpawnRefusal
from awe_client.daemon.own_threads import OwnThreads
from awe_client.daemon.proc import (
    descendants,
    environ_of,
    parents,
    signal_process,
    state_of,
)

log = logging.getLogger(__name__)

_PR_SET_CHILD_SUBREAPER = 36
#: What a helper needs from our environment to be able to start at all. Nothing secret may be among it.
_HELPER_ENV = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

#: Isolated and without site, a helper starts fast and imports nothing but the standard library and ours.
BOOT = "import sys; sys.path.append(sys.argv[1]); from awe_client.daemon.executor_main import main; main()"
_ROOT = Path(__file__).resolve().parents[2]

#: So often somebody looks whether an executor was stopped (SIGSTOP), as each of its commands can do.
LOOK_S = 1.0
#: One that is found stopped again is let go on so often in a row, and then killed.
MAX_CONTINUED = 3
#: An executor that was told to end has so long, its commands included.
END_S = 8.0
#: A killed process is gone after so long, unless a disk that hangs keeps it.
_GONE_S = 2.0
#: The group is ended, and its note removed, after so long, unless the work disk hangs.
GROUP_END_S = 10.0
_POLL_S = 0.02
#: As many commands are lined up in an executor as end there in so long,
LINE_S = 0.025
#: by their number in the last so many seconds: none behind commands that take longer.
_RATE_WINDOW_S = 0.1

OnEnd = Callable[[CommandEnd | SpawnRefusal], None]
ONE_CORE: Size = (1, 0)


class Told(Protocol):
    """Who hears of a command that is lined up."""

    def begins(self) -> None:
        """It starts now: either this, and then `ended`,"""

    def returned(self) -> None:
        """or it comes back, and has not begun."""

    def ended(self, what: CommandEnd | SpawnRefusal) -> None:
        """It is over, or cannot be started."""


class _AtOnce:
    """Who hears of a command that begins when it is handed over."""

    __slots__ = ("ended",)

    def __init__(self, ended: OnEnd) -> None:
        self.ended = ended

    def begins(self) -> None:
        pass

    def returned(self) -> None:
        pass


class _Handed(NamedTuple):
    """A command that an executor has."""

    told: Told
    size: Size
    order: int


class ExecutorPool:
    """A few executor processes; a command goes to the one with the least to do, of those not found stopped.

    A helper that dies is replaced.
    """

    def __init__(self, count: int, root: WorkRoot) -> None:
        """Prepare for `count` helpers.

        They keep directories for later use in `fresh`; those of all commands are below `attempts`.
        """
        self._count = count
        self._root = root
        self._folders = (str(root.fresh), str(root.attempts))
        self._group: ControlGroup | None = None
        self._group_in_use = False
        self._helpers: list[_Helper] = []
        self._pids: set[int] = set()  # of all helpers from their birth until they are reaped
        self._thread = OwnThreads(1, "executors")
        self._key = 0
        self._of_key: dict[int, _Helper] = {}
        self._roomiest: _Helper | None = None  #: as the last question for room has found
        self._stopping = False
        self._was_refused = False  #: by this machine, the last time a helper was to be started
        self._restarts: set[asyncio.Task[None]] = set()
        self._next_look: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Start the processes. Raises OSError."""
        _become_subreaper()
        self._thread.start_all()
        make = ControlGroup.make
        self._group = await self._thread.run(make, self._root.incarnation, self._root.group_note)
        for _ in range(self._count):
            await self._start_helper()
        self._look_later()

    @property
    def is_there(self) -> bool:
        """Whether there is any helper, or will be at once: this machine may refuse to start another."""
        return bool(self._helpers) or not self._was_refused

    def run(self, spec: CommandSpec, on_end: OnEnd, size: Size = ONE_CORE) -> int:
        """Start a command; `on_end` is called once. Returns the key for `kill`."""
        self._key += 1
        if not self._helpers:
            refusal = SpawnRefusal("executor", errno.EAGAIN, b"")
            asyncio.get_running_loop().call_soon(on_end, refusal)
            return self._key
        helper = min(self._helpers, key=lambda h: (h.was_stopped, len(h.commands)))
        self._of_key[self._key] = helper
        helper.run(self._key, spec, _Handed(_AtOnce(on_end), size, RUN))
        return self._key

    def can_line_up(self, size: Size) -> bool:
        """Whether commands of this size, and no others, run in some executor and end fast."""
        most, now, self._roomiest = 0, time.monotonic(), None
        for helper in self._helpers:
            room = helper.room_for(size, now)
            if room > most:
                self._roomiest, most = helper, room
        return most > 0

    def line_up(self, spec: CommandSpec, told: Told, size: Size) -> int:
        """Hand over a command for which there is room: it starts in the place of the next one that ends.

        Either `begins` is called and later `ended`, or `returned` and nothing else. Returns the key.
        """
        helper, self._roomiest = self._roomiest or self._helpers[0], None
        self._key += 1
        self._of_key[self._key] = helper
        helper.line_up(self._key, spec, _Handed(told, size, NEXT))
        return self._key

    def recall(self, key: int) -> None:
        """Ask for a command that was lined up; nothing if it has begun."""
        helper = self._of_key.get(key)
        if helper is not None:
            helper.send(("recall", key))

    def kill(self, key: int) -> None:
        """End a command: TERM to all its processes, grace, KILL. Nothing if it has ended.

        One that was lined up and has not begun is returned.
        """
        helper = self._of_key.get(key)
        if helper is not None:
            helper.send(("kill", key))

    async def stop(self) -> None:
        """End the processes and everything they run; some seconds at most, whatever state they are in."""
        self._stopping = True
        await asyncio.gather(*self._restarts, return_exceptions=True)
        if self._next_look is not None:
            self._next_look.cancel()
        for helper in self._helpers:
            helper.close()
        await asyncio.gather(*(self._reap(helper) for helper in self._helpers))
        self._helpers = []
        await self._end_orphans()
        if self._group is not None:
            await self._end_group(self._group)
        self._thread.shutdown(wait=False)

    async def _end_group(self, group: ControlGroup) -> None:
        """It removes a note from the work disk, which may hang."""
        try:
            await asyncio.wait_for(self._thread.run(group.end), GROUP_END_S)
        except TimeoutError:
            log.warning("control_group_not_ended", extra={"after_s": GROUP_END_S})

    async def _start_helper(self) -> None:
        """Raises OSError: then there is none."""
        helper = _Helper.start(self._folders, self._ended, self._lost)
        self._pids.add(helper.pid)
        try:
            await helper.connect()
            if self._group is not None:
                await self._join(self._group, helper.pid)
        except BaseException:
            helper.close()
            await self._reap(helper)
            raise
        self._helpers.append(helper)
        if helper.is_gone:
            self._lost(helper)

    async def _join(self, group: ControlGroup, pid: int) -> None:
        """Put a helper into the group before it runs anything. One that takes nobody is given up.

        Later a refusal (no memory, say) costs no more than that what this helper's commands hide is found by
        what it shows: the group holds commands of others.
        """
        added = await self._thread.run(group.add, pid)
        if added == "in":
            self._group_in_use = True
        elif added == "refused" and self._group_in_use:
            log.warning("executor_not_in_group", extra={"pid": pid})
        elif added == "refused":
            self._group = None
            await self._end_group(group)

    def _look_later(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Let helpers go on that were stopped; start those that could not be started when they were lost."""
        for helper in self._helpers:
            helper.let_go_on()
        if len(self._helpers) + len(self._restarts) < self._count and not self._stopping:
            self._in_background(self._start_another())
        self._look_later()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    def _ended(self, key: int) -> None:
        self._of_key.pop(key, None)

    def _lost(self, helper: "_Helper") -> None:
        """A helper is gone. Its commands became our children: end them, tell, and start another helper."""
        if self._stopping or helper not in self._helpers:
            return
        log.error("executor_lost", extra={"pid": helper.pid, "commands": len(helper.commands)})
        self._helpers.remove(helper)
        self._in_background(self._replace(helper))

    async def _replace(self, helper: "_Helper") -> None:
        try:
            await self._reap(helper)
            await self._end_orphans()
        finally:
            helper.give_up()
        if not self._stopping:
            await self._start_another()

    async def _reap(self, helper: "_Helper") -> None:
        """Wait for its end. One that does not end even when killed is from now on an orphan like others."""
        try:
            await helper.wait()
        finally:
            self._pids.discard(helper.pid)

    async def _start_another(self) -> None:
        """Start a helper in the place of one that was lost; `_look` does it if this machine cannot now."""
        try:
            await self._start_helper()
            self._was_refused = False
        except (OSError, RuntimeError) as exc:  # no process, no thread
            self._was_refused = True
            log.warning("executor_not_started", extra={"error": str(exc), "left": len(self._helpers)})

    async def _end_orphans(self) -> None:
        """End commands that fell to us; their children fall to us when they die, so it takes some turns."""
        try:
            for _ in range(50):
                if not _kill_orphans(self._pids, self._group):
                    break
                await asyncio.sleep(0.02)
        except OSError as exc:
            log.error("orphans_not_ended", extra={"error": str(exc)})


class _Helper(asyncio.Protocol):
    """One executor process and the frames between us."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        begun: Begun,
        ours: socket.socket,
        ended: Callable[[int], None],
        lost: Callable[["_Helper"], None],
    ) -> None:
        self.commands: dict[int, _Handed] = {}  #: that run, as far as is known
        self._lined: dict[int, _Handed] = {}  # that wait for the end of one of them, in order
        self._sizes: Counter[Size] = Counter()  # of both
        self._ends: deque[float] = deque()
        self.is_gone = False
        self._process = process
        self._begun = begun
        self._ours = ours
        self._ended = ended
        self._lost = lost
        self._transport: asyncio.WriteTransport | None = None
        self._incoming = bytearray()
        self._outgoing: list[tuple[Any, ...]] = []
        self._continued = 0  # so often in a row

    @classmethod
    def start(
        cls,
        folders: tuple[str, str],
        ended: Callable[[int], None],
        lost: Callable[["_Helper"], None],
    ) -> "_Helper":
        """Start a process. Raises OSError: then there is none."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with contextlib.ExitStack() as unless_started, theirs, contextlib.ExitStack() as always:
            unless_started.enter_context(ours)
            begun_fd = Begun.new_file()
            always.callback(os.close, begun_fd)
            begun = Begun(begun_fd)
            process = subprocess.Popen(
                executor_command(folders, begun_fd),
                pass_fds=(begun_fd,),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={name: os.environ[name] for name in _HELPER_ENV if name in os.environ},
                cwd="/",
            )
            unless_started.pop_all()
        return cls(process, begun, ours, ended, lost)

    async def connect(self) -> None:
        """Begin to hear from it."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=self._ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def was_stopped(self) -> bool:
        """Whether the last look found it stopped: it may soon be so again, and at last be killed."""
        return self._continued > 0

    def room_for(self, size: Size, now: float) -> int:
        """How many more of this size may be lined up here."""
        if not self.commands or len(self._sizes) != 1 or size not in self._sizes:
            return 0
        if self.is_gone or self.was_stopped:
            return 0
        ends, horizon = self._ends, now - _RATE_WINDOW_S
        while ends and ends[0] < horizon:
            ends.popleft()
        return int(len(ends) * (LINE_S / _RATE_WINDOW_S)) - len(self._lined)

    def run(self, key: int, spec: CommandSpec, handed: _Handed) -> None:
        self.commands[key] = handed
        self._sizes[handed.size] += 1
        self.send(("run", key, tuple(spec), handed.size))

    def line_up(self, key: int, spec: CommandSpec, handed: _Handed) -> None:
        self._lined[key] = handed
        self._sizes[handed.size] += 1
        self.send(("next", key, tuple(spec), handed.size))

    def send(self, message: tuple[Any, ...]) -> None:
        """Queue a message; those of one turn of the loop leave as one frame."""
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(message)

    def _flush(self) -> None:
        frame, self._outgoing = frame_of(self._outgoing), []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's are no subclasses

    def data_received(self, data: bytes) -> None:
        self._incoming += data
        for kind, key, facts, next_key in take_messages(self._incoming):
            if next_key in self._lined:
                self._begins(next_key)
            if kind == "returned":
                self._returned(key)
            elif key in self.commands:
                self._over(key, CommandEnd(*facts) if kind == "ended" else SpawnRefusal(*facts))

    def _begins(self, key: int) -> None:
        """Before the end of the one in whose place it is: nobody else may be given that."""
        handed = self.commands[key] = self._lined.pop(key)
        handed.told.begins()

    def _returned(self, key: int) -> None:
        if key in self._lined:
            handed = self._lined.pop(key)
            self._forget(key, handed)
            handed.told.returned()

    def _over(self, key: int, end: CommandEnd | SpawnRefusal) -> None:
        handed = self.commands.pop(key)
        self._ends.append(time.monotonic())
        self._forget(key, handed)
        handed.told.ended(end)

    def _forget(self, key: int, handed: _Handed) -> None:
        self._ended(key)
        self._sizes[handed.size] -= 1
        if not self._sizes[handed.size]:
            del self._sizes[handed.size]

    def give_up(self) -> None:
        """It is gone: tell the ends of what it ran, and return what it had not begun."""
        for key in list(self._lined):
            if self._begun.has(NEXT, key):
                self._begins(key)
        for key, handed in list(self.commands.items()):
            # One that it never took up is nobody's end.
            has_begun = self._begun.has(handed.order, key)
            self._over(key, SpawnRefusal("executor", errno.EIO if has_begun else errno.EPIPE, b""))
        for key in reversed(list(self._lined)):
            self._returned(key)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_gone = True
        self._lost(self)

    def let_go_on(self) -> None:
        """If somebody has stopped it, let it go on; kill one that does not stay so: no limit of its commands
        holds while it stands, and nothing is heard of their ends.

        Only one that is stopped: another that takes long may wait for a disk, and its commands run well.
        """
        if self._process.returncode is not None or state_of(self.pid) != "T":
            self._continued = 0
            return
        may_go_on = self._continued < MAX_CONTINUED
        facts = {"pid": self.pid, "commands": len(self.commands)}
        log.warning("executor_stopped", extra={**facts, "done": "continued" if may_go_on else "killed"})
        self._continued += 1
        signal_process(self.pid, signal.SIGCONT if may_go_on else signal.SIGKILL)

    def close(self) -> None:
        """Close the socket: the process kills what it runs and ends."""
        if self._transport is not None:
            self._transport.close()
        else:
            self._ours.close()
        if self._process.returncode is None:
            signal_process(self.pid, signal.SIGCONT)  # one that is stopped sees no end of a socket

    async def wait(self) -> None:
        """Wait until the process has ended, at last by a kill; at most some seconds."""
        if not await self._ends_within(END_S):
            self._process.kill()
            await self._ends_within(_GONE_S)

    async def _ends_within(self, within_s: float) -> bool:
        until = time.monotonic() + within_s
        while self._process.poll() is None:
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(_POLL_S)
        return True


def executor_command(folders: tuple[str, str], begun_fd: int) -> list[str]:
    """How an executor is started. One folder is for directories not in use, the other one for all others."""
    return [sys.executable, "-I", "-S", "-c", BOOT, str(_ROOT), *folders, str(begun_fd)]


def _become_subreaper() -> None:
    """Let the commands of an executor that is killed fall to us, so that we can end them."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _kill_orphans(helpers: set[int], group: ControlGroup | None) -> int:
    """Kill and reap commands that fell to us. Returns how many there still were."""
    me, found = os.getpid(), 0
    parent_of = parents()
    started = group.pids() if group is not None else set()
    for pid, parent in parent_of.items():
        if parent == me and pid not in helpers and (pid in started or _is_command(pid)):
            found += 1
            for victim in [pid, *descendants(pid, parent_of)]:
                signal_process(victim, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return found


def _is_command(pid: int) -> bool:
    """Whether a child of ours is an attempt's process. A zombie shows no environment: it has to be reaped."""
    environ = environ_of(pid)
    if not environ:
        return state_of(pid) == "Z"
    return any(entry.startswith(b"AWE_WORK_ID=") for entry in environ)
