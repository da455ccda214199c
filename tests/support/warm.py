"""The `awe` command without its start-up: a process that has imported it already forks for each call.

What a call does, prints and ends with is the same; the half second of imports, most of what a short command
costs, is paid once. Tests of the start itself run the program.
"""

import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

_MAX_BYTES = 2**20
_ROOT = Path(__file__).parents[2]


class WarmAwe:
    """Runs the command line; one call at a time."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], cwd=_ROOT,
            )  # fmt: skip

    def __call__(
        self, arguments: Sequence[str], env: Mapping[str, str], within_s: float
    ) -> "subprocess.CompletedProcess[str]":
        """As `subprocess.run` with its output captured."""
        call = json.dumps([["awe", *arguments], dict(env), os.getcwd()]).encode()
        assert len(call) < _MAX_BYTES
        with ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile("w+b")) for _ in range(2)]
            nothing = stack.enter_context(Path(os.devnull).open("rb"))
            socket.send_fds(
                self._socket, [b"%8d" % len(call)], [nothing.fileno(), *(f.fileno() for f in files)]
            )
            self._socket.sendall(call)
            self._socket.settimeout(within_s)
            code = int(self._socket.recv(8))
            for file in files:
                file.seek(0)
            stdout, stderr = (file.read().decode() for file in files)
        return subprocess.CompletedProcess(["awe", *arguments], code, stdout, stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._process.wait(10)


def _calls(channel: socket.socket) -> None:
    """Fork for each call until the caller is gone; returns in the child, which then is like a new one."""
    while True:
        head, fds, _, _ = socket.recv_fds(channel, 8, 3)
        if not head:
            sys.exit()
        arguments, env, cwd = json.loads(channel.recv(int(head), socket.MSG_WAITALL))
        if not (child := os.fork()):
            channel.close()
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
                os.close(fd)
            os.environ.clear()
            os.environ.update(env)
            os.chdir(cwd)
            sys.argv = arguments
            return
        for fd in fds:
            os.close(fd)
        _, status = os.waitpid(child, 0)
        channel.sendall(b"%8d" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    from awe_client.cli.main import main

    gc.freeze()
    _calls(socket.socket(fileno=int(sys.argv[1])))
    main()
