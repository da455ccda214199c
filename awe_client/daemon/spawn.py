"""Start a command's main process. Standard library only: this runs in the executor."""

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: The executor ignores these: whoever sends them to it must not end it before its commands.
IGNORED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
#: Python ignores SIGPIPE and SIGXFSZ and the executor handles SIGCHLD; a command starts with none of that.
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, *IGNORED)
_OPEN_LOG = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(Exception):
    """A command cannot be started: at which stage, the system's error number, and whose name it was."""

    def __init__(self, stage: str, number: int, name: bytes) -> None:
        super().__init__(stage, number, name)
        self.facts = {"stage": stage, "errno": number, "name": name}


@contextmanager
def stage(what: str, name: bytes) -> Iterator[None]:
    """Turn what fails inside into Refused."""
    try:
        yield
    except (OSError, ValueError) as exc:
        # ValueError: a NUL byte in an argument or a variable.
        number = (exc.errno or 0) if isinstance(exc, OSError) else errno.EINVAL
        raise Refused(what, number, name) from exc


class Spawner:
    """Starts commands in the present working directory."""

    def __init__(self) -> None:
        self._programs: dict[tuple[bytes, bytes], bytes] = {}
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    def spawn(self, spec: dict[str, Any]) -> int:
        """Start it in a session of its own, its streams in place; the process id. Raises Refused."""
        name = spec["argv"][0]
        with stage("program", name):
            program = self._find(name, spec["env"].get(b"PATH", b""))
        opened: list[int] = []

        def open_for(stream: str, flags: int) -> int:
            with stage(stream, name):
                opened.append(os.open(spec[stream], flags | os.O_CLOEXEC, 0o666))
            return opened[-1]

        try:
            stdin = self._null if spec["stdin"] is None else open_for("stdin", os.O_RDONLY)
            stdout = open_for("stdout", _OPEN_LOG)
            stderr = stdout if spec["stderr"] == spec["stdout"] else open_for("stderr", _OPEN_LOG)
            with stage("spawn", name):
                return os.posix_spawn(
                    program,
                    spec["argv"],
                    spec["env"],
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, stdin, 0),
                        (os.POSIX_SPAWN_DUP2, stdout, 1),
                        (os.POSIX_SPAWN_DUP2, stderr, 2),
                    ],
                    setsid=True,
                    setsigmask=(),
                    setsigdef=_DEFAULT_SIGNALS,
                )
        finally:
            for fd in opened:
                os.close(fd)

    def _find(self, name: bytes, path: bytes) -> bytes:
        """Look a program up on the command's PATH; a name with a slash is taken as it is."""
        if b"/" in name:
            return name
        found = self._programs.get((name, path))
        if found is not None and os.access(found, os.X_OK):
            return found
        refusal = errno.ENOENT
        for folder in path.split(b":"):
            candidate = (folder or b".") + b"/" + name
            if os.path.isfile(candidate):
                if os.access(candidate, os.X_OK):
                    self._programs[name, path] = candidate
                    return candidate
                refusal = errno.EACCES
        raise OSError(refusal, os.strerror(refusal), name)
