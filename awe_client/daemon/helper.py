"""The daemon's side of one executor process: start it, send it commands, hear of their ends."""

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
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from awe_client.daemon.begun import NEXT, Begun
from awe_client.daemon.frames import CommandSpec, Size, frame_of, take_messages
from awe_client.daemon.outcome import CommandEnd, SpawnRefusal
from awe_client.daemon.proc import signal_process, state_of

log = logging.getLogger(__name__)

#: What a helper needs from our environment to be able to start at all. Nothing secret may be among it.
_HELPER_ENV = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

#: Isolated and without site, a helper starts fast and imports nothing but the standard library and ours.
BOOT = "import sys; sys.path.append(sys.argv[1]); from awe_client.daemon.executor_main import main; main()"
_ROOT = Path(__file__).resolve().parents[2]

#: One that is found stopped again is let go on so often in a row, and then killed.
MAX_CONTINUED = 3
#: An executor that was told to end has so long, its commands included.
END_S = 8.0
#: A killed process is gone after so long, unless a disk that hangs keeps it.
_GONE_S = 2.0
_POLL_S = 0.02
#: As many commands are lined up in an executor as end there in so long,
LINE_S = 0.025
#: by their number in the last so many seconds: none behind commands that take longer.
RATE_WINDOW_S = 0.1


OnEnd = Callable[[CommandEnd | SpawnRefusal], None]


class Told(Protocol):
    """Who hears of a command that is lined up."""

    def begins(self) -> None:
        """It starts now: either this, and then `ended`,"""

    def returned(self) -> None:
        """or it comes back, and has not begun."""

    def ended(self, what: CommandEnd | SpawnRefusal) -> None:
        """It is over, or cannot be started."""


class AtOnce:
    """Who hears of a command that begins when it is handed over."""

    __slots__ = ("ended",)

    def __init__(self, ended: OnEnd) -> None:
        self.ended = ended

    def begins(self) -> None:
        pass

    def returned(self) -> None:
        pass


class Handed(NamedTuple):
    """A command that an executor has."""

    told: Told
    size: Size
    order: int


class Helper(asyncio.Protocol):
    """One executor process and the frames between us."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        begun: Begun,
        ours: socket.socket,
        ended: Callable[[int], None],
        lost: Callable[["Helper"], None],
    ) -> None:
        self.commands: dict[int, Handed] = {}  #: that run, as far as is known
        self._lined: dict[int, Handed] = {}  # that wait for the end of one of them, in order
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
        lost: Callable[["Helper"], None],
    ) -> "Helper":
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
        ends, horizon = self._ends, now - RATE_WINDOW_S
        while ends and ends[0] < horizon:
            ends.popleft()
        return int(len(ends) * (LINE_S / RATE_WINDOW_S)) - len(self._lined)

    def hand(self, key: int, spec: CommandSpec, handed: Handed) -> None:
        """Have it start a command: at once, or in the place of another, as its order says."""
        kind, those = ("next", self._lined) if handed.order == NEXT else ("run", self.commands)
        those[key] = handed
        self._sizes[handed.size] += 1
        self.send((kind, key, tuple(spec), handed.size))

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

    def _forget(self, key: int, handed: Handed) -> None:
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
