"""Start a command's main process. Standard library only: this runs in the executor."""

import errno
import os
import signal
from typing import Any

from awe_client.daemon.frames import CommandSpec

#: The executor ignores these: whoever sends them to it must not end it before its commands.
IGNORED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGIO,
)
#: Python ignores SIGPIPE and SIGXFSZ; a command starts with none of that.
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, *IGNORED)
_OPEN_LOG = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW


#: The machine has run out of something for the moment: nothing is wrong with the workunit.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})


class Refused(Exception):
    """A command cannot be started: at which stage, the system's error number, and whose name it was."""

    def __init__(self, stage: str, number: int, name: bytes) -> None:
        super().__init__(stage, number, name)
        self.stage = stage
        self.errno = number
        self.facts = (stage, number, name)  #: as outcome.SpawnRefusal has them


def refused(stage: str, name: bytes, exc: OSError | ValueError) -> Refused:
    """What failed at a stage, as Refused. ValueError: a NUL byte in an argument or a variable."""
    return Refused(stage, (exc.errno or 0) if isinstance(exc, OSError) else errno.EINVAL, name)


class Spawner:
    """Starts commands in the present working directory."""

    def __init__(self) -> None:
        self._programs: dict[tuple[bytes, bytes], bytes] = {}
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._no_input = (os.POSIX_SPAWN_DUP2, null, 0)

    def spawn(self, spec: CommandSpec) -> int:
        """Start it in a session of its own, its streams in place; the process id. Raises Refused."""
        name, path = spec.argv[0], spec.env.get(b"PATH", b"")
        known = self._programs.get((name, path))
        if known is not None:
            try:
                return self._start(known, spec)
            except (OSError, ValueError):
                del self._programs[name, path]  # it may have been moved
        try:
            program = self._find(name, path)
        except (OSError, ValueError) as exc:
            raise refused("program", name, exc) from exc
        try:
            return self._start(program, spec)
        except (OSError, ValueError) as exc:
            _require_streams(spec)
            raise refused("spawn", name, exc) from exc

    def _start(self, program: bytes, spec: CommandSpec) -> int:
        return os.posix_spawn(
            program,
            spec.argv,
            spec.env,
            # Opened by the new process itself: that costs this one nothing.
            file_actions=self._streams(spec),
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULT_SIGNALS,
        )

    def _streams(self, spec: CommandSpec) -> list[tuple[Any, ...]]:
        stdin, stdout, stderr = spec.stdin, spec.stdout, spec.stderr
        return [
            self._no_input if stdin is None else (os.POSIX_SPAWN_OPEN, 0, stdin, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, stdout, _OPEN_LOG, 0o666),
            (os.POSIX_SPAWN_DUP2, 1, 2)
            if stderr == stdout
            else (os.POSIX_SPAWN_OPEN, 2, stderr, _OPEN_LOG, 0o666),
        ]

    def _find(self, name: bytes, path: bytes) -> bytes:
        """Look a program up on the command's PATH; a name with a slash is taken as it is."""
        if b"/" in name:
            return name
        refusal = errno.ENOENT
        for folder in path.split(b":"):
            candidate = (folder or b".") + b"/" + name
            if os.path.isfile(candidate):
                if os.access(candidate, os.X_OK):
                    self._programs[name, path] = candidate
                    return candidate
                refusal = errno.EACCES
        raise OSError(refusal, os.strerror(refusal), name)


def _require_streams(spec: CommandSpec) -> None:
    """A process that could not be started does not say why: open its streams here. Raises Refused."""
    streams = (
        ("stdin", spec.stdin, os.O_RDONLY),
        ("stdout", spec.stdout, _OPEN_LOG),
        ("stderr", spec.stderr, _OPEN_LOG),
    )
    for stream, name, flags in streams:
        if name is not None:
            try:
                os.close(os.open(name, flags | os.O_CLOEXEC, 0o666))
            except (OSError, ValueError) as exc:
                raise refused(stream, spec.argv[0], exc) from exc
