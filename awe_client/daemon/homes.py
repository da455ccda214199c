"""The directories in which commands run: made or used again, and what is found there after the end.

Standard library only: executors use it.

Removing a directory is dear on a journalling file system that others keep busy (measured: 3 ms on ext4,
against 0.03 ms for a rename), so an empty one is renamed for the next attempt, at once if it is known, or put
aside until then; provided that nothing of the last one clings to it: no file, no other mode or owner, no
extended attribute or ACL. Making and removing two log files is dear too: those into which nothing was
written stay if nobody can have them open any more and nothing clings to them either; the next command opens
them as it would make them.

Names are looked up from the working directory, as long as that is the command's: a directory that is used
again is not even entered again.
"""

import contextlib
import os
import stat

from awe_client.daemon.frames import CommandSpec
from awe_client.daemon.leavings import tail_of
from awe_client.daemon.spawn import refused

_MAX_FREE = 64
_TRIES = 20
#: What `enter` makes, and what a command's new process makes of its logs (umask 022).
_FOLDER_MODE = stat.S_IFDIR | 0o700
_LOG_MODE = stat.S_IFREG | 0o644


class Homes:
    """Gives empty directories and takes them back."""

    def __init__(self, folder: bytes) -> None:
        """`folder` is for those that are put aside."""
        self._folder = folder
        self._free: list[tuple[bytes, frozenset[bytes]]] = []  # and the logs in each
        self._aside = 0
        self._us = os.geteuid()
        self._mark = b"/%d." % os.getpid()
        self._made = b""  # the one given last, or to be given next
        self._here = b""  # where we are, if that is one given by us,
        self._here_is = (0, 0)  # and which one, whatever lies under its name

    # --- before ----------------------------------------------------------------------------------

    def enter(self, spec: CommandSpec) -> None:
        """Make the command's directory, if it is not there yet, and go there. Raises Refused."""
        path = spec.cwd
        try:
            if spec.make_dir and path != self._made:
                self._make(spec)
            if path != self._here:
                self._here = b""
                os.chdir(path)
                if spec.tidy:
                    self._here, self._here_is = path, _identity(os.stat(b"."))
        except (OSError, ValueError) as exc:
            raise refused("directory", path, exc) from exc

    def _make(self, spec: CommandSpec) -> None:
        """Make a directory that does not exist yet, with its parents."""
        for _ in range(_TRIES):
            # The daemon removes parents that are empty, and so may be quicker than the attempt.
            with contextlib.suppress(FileNotFoundError):
                self._try_to_make(spec)
                return
            with contextlib.suppress(FileNotFoundError):
                os.makedirs(os.path.dirname(spec.cwd), 0o700, exist_ok=True)
        self._try_to_make(spec)

    def _try_to_make(self, spec: CommandSpec) -> None:
        while self._free:
            aside, logs = self._free.pop()
            try:
                if logs and logs != _logs_of(spec):
                    _remove(aside + b"/", logs)
                self._move(aside, spec.cwd)
            except FileNotFoundError:
                if os.path.isdir(aside):
                    self._free.append((aside, logs))
                    raise
                # Somebody has cleaned up here.
            else:
                self._made = spec.cwd
                return
        os.mkdir(spec.cwd, 0o700)
        self._made = spec.cwd

    def _move(self, path: bytes, to: bytes) -> None:
        os.rename(path, to)
        if path == self._here:
            self._here = to

    # --- after -----------------------------------------------------------------------------------

    def look(self, spec: CommandSpec) -> tuple[tuple[int, int, bytes, bytes], bool]:
        """Sizes and tails of what a command said; whether its logs are as one finds them that begins.

        When both are one file, standard error has none.
        """
        out_size, out_tail, are_as_made = self._look_at(spec, spec.stdout)
        if spec.stderr == spec.stdout:
            return (out_size, 0, out_tail, b""), are_as_made
        err_size, err_tail, is_as_made = self._look_at(spec, spec.stderr)
        return (out_size, err_size, out_tail, err_tail), are_as_made and is_as_made

    def _look_at(self, spec: CommandSpec, name: bytes) -> tuple[int, bytes, bool]:
        try:
            info = os.lstat(name if spec.cwd == self._here else spec.cwd + b"/" + name)
        except OSError:
            return 0, b"", False  # a command that removed it has none
        if info.st_size:
            return *tail_of(spec.cwd, name, spec.tail_bytes), False
        is_plain = info.st_mode == _LOG_MODE and info.st_uid == self._us
        return 0, b"", is_plain and info.st_nlink == 1 and not info.st_blocks

    def take_back(self, spec: CommandSpec, keep_logs: bool, following: CommandSpec | None) -> bool:
        """Take a directory that holds nothing but logs; False leaves any other to the daemon.

        `keep_logs`: they are as a command finds them that begins, and nobody has them open. The command that
        follows gets it, if it needs one.
        """
        path, logs = spec.cwd, _logs_of(spec)
        self._made = b""
        try:
            info = os.lstat(path)
            is_here = path == self._here
            if is_here and _identity(info) != self._here_is:
                return self._leave()  # the command has put another one in its place
            folder, below = (b".", b"") if is_here else (path, path + b"/")
            if keep_logs and following is not None:
                keep_logs = (following.stdout, following.stderr) == (spec.stdout, spec.stderr)
            if not keep_logs or os.listxattr(below + spec.stdout) or os.listxattr(below + spec.stderr):
                _remove(below, logs)
                logs = frozenset()
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name not in logs:
                        return self._leave()
            if info.st_mode != _FOLDER_MODE or info.st_uid != self._us or os.listxattr(folder):
                _remove(below, logs)
                os.rmdir(path)
                self._leave()
                return True
            return self._pass_on(path, logs, following)
        except OSError:
            return self._leave()

    def give_up(self, spec: CommandSpec) -> None:
        """The command that it was made for cannot be started."""
        if self._made == spec.cwd:
            self.take_back(spec, False, None)

    def _pass_on(self, path: bytes, logs: frozenset[bytes], following: CommandSpec | None) -> bool:
        if following is not None and following.make_dir:
            try:
                self._move(path, following.cwd)
            except OSError:
                pass  # its parents have to be made first, perhaps
            else:
                self._made = following.cwd
                return True
        if len(self._free) >= _MAX_FREE:
            _remove(path + b"/", logs)
            os.rmdir(path)
            self._leave()
            return True
        self._aside += 1
        aside = self._folder + self._mark + b"%d" % self._aside
        try:
            self._move(path, aside)
        except OSError:
            with contextlib.suppress(OSError):
                os.makedirs(self._folder, 0o700, exist_ok=True)
            raise
        self._free.append((aside, logs))
        return True

    def _leave(self) -> bool:
        """The daemon will remove it, or it is gone."""
        self._here = b""
        os.chdir(b"/")
        return False


def _logs_of(spec: CommandSpec) -> frozenset[bytes]:
    return frozenset((spec.stdout, spec.stderr))


def _remove(below: bytes, logs: frozenset[bytes]) -> None:
    for name in logs:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(below + name)


def _identity(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino
