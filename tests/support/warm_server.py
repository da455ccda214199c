"""Servers without their start-up: a process that has imported `awe-server` already forks for each start.

What a server does, prints and ends with is the same; the second of imports is paid once, so that a test can
afford to kill it a hundred times. Tests of the start itself run the program.

    with WarmServers() as warm:
        env.server.spawn = warm.spawn
"""

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.env import Process

_ROOT = Path(__file__).parents[2]


class WarmServers:
    """Starts servers, in one test or in several of them at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], cwd=_ROOT,
            )  # fmt: skip
        self._answers = self._socket.makefile("r")

    def spawn(self, argv: Sequence[str], log: Path, env: dict[str, str], name: str, point: str) -> Process:
        """As `Process` with these arguments, for `awe-server` only."""
        return _WarmProcess(self, argv, log, env, name, point)

    def ask(self, *words: Any) -> int:
        """Have a server started (its pid), or ask how one that has ended did (its code)."""
        with self._lock:
            self._socket.sendall(json.dumps(words).encode() + b"\n")
            return int(self._answers.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answers.close()
        self._socket.close()
        self._process.wait(10)


class _WarmProcess(Process):
    def __init__(self, warm: WarmServers, *about: Any) -> None:
        self._warm = warm
        super().__init__(*about)

    def _start(self, argv: Sequence[str], env: dict[str, str]) -> Any:
        words = ["awe-server", *argv[1:]]
        self.stdout.touch()  # whoever waits for a word in them finds them from the start
        self.stderr.touch()
        return _Child(self._warm, self._warm.ask("start", words, env, str(self.stdout), str(self.stderr)))


class _Child:
    """What `Process` needs of a Popen, of a grandchild. Its pid is its own until its code was asked for."""

    def __init__(self, warm: WarmServers, pid: int) -> None:
        self._warm, self.pid = warm, pid
        self._fd = os.pidfd_open(pid)
        self._code: int | None = None
        self._lock = threading.Lock()

    def poll(self, within_s: float = 0.0) -> int | None:
        if self._code is None and select.select([self._fd], [], [], within_s)[0]:
            with self._lock:
                if self._code is None:
                    self._code = self._warm.ask("code", self.pid)
        return self._code

    def wait(self, within_s: float) -> int:
        code = self.poll(within_s)
        if code is None:
            raise subprocess.TimeoutExpired("awe-server", within_s)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self._fd)


def _forks(channel: socket.socket) -> None:
    """Fork for each start until the caller is gone; returns in the child, which then is like a new one."""
    with channel, channel.makefile("r") as questions:
        for line in questions:
            match json.loads(line):
                case ["code", pid]:
                    answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                case ["start", argv, env, out, err]:
                    if not (answer := os.fork()):
                        _become(argv, env, out, err)
                        return
            channel.sendall(b"%d\n" % answer)
    sys.exit()


def _become(argv: list[str], env: dict[str, str], out: str, err: str) -> None:
    os.environ.clear()
    os.environ.update(env)
    for fd, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, _APPEND), (2, err, _APPEND)):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, fd)
        os.close(opened)
    sys.argv = argv


_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND

if __name__ == "__main__":
    from awe_server import app  # noqa: F401 - the part that takes a second
    from awe_server.cli import main

    gc.freeze()
    _forks(socket.socket(fileno=int(sys.argv[1])))
    main()
