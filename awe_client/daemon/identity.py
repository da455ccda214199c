"""Who this daemon is: its work root, which only one process may have, its stable id, and its incarnation."""

import contextlib
import fcntl
import os
import secrets
import uuid
from pathlib import Path

from shared_models.errors import AweError

MARK = "awe-client-work"
_MARK_TEXT = "This directory is awe-client's, which removes what is in it. Keep nothing of your own here.\n"
#: What may lie in a directory that is not marked yet: a start was cut short, or it is a file system's root.
_HARMLESS = {"lock", "lost+found"}


class WorkRootUnusable(AweError):
    """This directory cannot be a work directory."""

    code = "work_root_unusable"


class WorkRootBusy(WorkRootUnusable):
    """Another awe-client uses this work directory; give each its own --work."""

    code = "work_root_busy"


class WorkRootLost(WorkRootUnusable):
    """Another awe-client has taken this work directory: somebody removed its file `lock`."""

    code = "work_root_lost"


class WorkRoot:
    """The directory of one daemon: `lock`, `awe-client-work`, `client-id`, `alive`, `lease`, `control-group`,
    `spool/`, `cache/`, `images/`, `fresh/` and `attempts/`.

    Files are removed in it, so it must be ours: `awe-client-work` marks a directory that was empty when a
    daemon first used it, and any other that is not empty is refused.

    The lock is the kernel's (flock): it goes with the process, however that ends. If somebody removes its
    file, as those do who tidy /tmp, `is_ours` takes it anew, unless another daemon was faster.

    The incarnation is drawn anew for every start; by it the server tells a restarted client from one whose
    packets were late.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.incarnation = secrets.token_hex(16)
        self.client_id = ""
        self._lock_fd = -1

    def open(self) -> None:
        """Make the directories, take the lock, read or draw the id. Raises WorkRootBusy, WorkRootUnusable."""
        try:
            self._open()
        except OSError as exc:
            self.close()
            is_file = isinstance(exc, FileExistsError | NotADirectoryError)
            reason = "is not a directory" if is_file else exc.strerror
            where = f" ({exc.filename})" if exc.filename not in (None, str(self.path)) else ""
            raise WorkRootUnusable(f"--work {self.path}: {reason}{where}") from exc

    def _open(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._require_ours()
        try:
            self._lock_fd = self._take_lock()
        except BlockingIOError:
            raise WorkRootBusy(f"another awe-client uses {self.path}; give each its own --work") from None
        self._require_plain()
        (self.path / MARK).write_text(_MARK_TEXT, encoding="ascii")
        for folder in (self.spool, self.cache, self.images, self.fresh, self.attempts):
            folder.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.client_id = self._id_file.read_text(encoding="ascii", errors="replace").strip()
        if not _is_uuid(self.client_id):
            self.adopt(str(uuid.uuid4()))
        self.show_life()

    def _take_lock(self) -> int:
        """Raises BlockingIOError if another daemon has it; OSError."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _require_plain(self) -> None:
        """Whoever opens a FIFO waits for another one who does."""
        with os.scandir(self.path) as entries:
            for entry in entries:
                if not (entry.is_file() or entry.is_dir()):
                    raise WorkRootUnusable(
                        f"--work {self.path}: {entry.name} is neither a file nor a directory; remove it"
                    )

    def is_ours(self) -> bool:
        """Whether no other daemon has taken the directory meanwhile. What cannot be seen now may be later."""
        mine = os.fstat(self._lock_fd)
        try:
            there = os.stat(self.path / "lock")
            if (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino):
                return True
        except FileNotFoundError:
            pass
        except OSError:
            return True
        try:
            fresh = self._take_lock()
        except BlockingIOError:
            return False
        except OSError:
            return True
        old, self._lock_fd = self._lock_fd, fresh
        if old < 0:
            self.close()  # it was given back while the disk took its time
        else:
            os.close(old)
        return True

    def show_life(self) -> None:
        """Touch `alive`: by its age others see that we live. A disk that refuses makes it old."""
        with contextlib.suppress(OSError):
            # Somebody may have put a FIFO there.
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(self.path / "alive", flags, 0o666)
            try:
                os.utime(fd)
            finally:
                os.close(fd)

    def _require_ours(self) -> None:
        """Touch nothing in a directory in which we might remove what somebody else has put there."""
        names = set(os.listdir(self.path))
        # Looked at after the names were read: another daemon that starts at this moment marks it first.
        if (self.path / MARK).exists() or names <= _HARMLESS:
            return
        if {"client-id", "lock", "spool"} <= names and "attempts" not in names and self._has_reports:
            return  # made by a version that did not mark its directories
        raise WorkRootUnusable(
            f"--work {self.path}: is not empty, and not a work directory of awe-client; "
            "name a new or an empty one"
        )

    @property
    def _has_reports(self) -> bool:
        return (self.spool / "reports.log").is_file()

    def adopt(self, client_id: str) -> None:
        """Remember an id, the drawn one or one that the server gave."""
        if client_id == self.client_id:
            return
        self.client_id = client_id
        temporary = self._id_file.with_suffix(".part")
        with temporary.open("w", encoding="ascii") as file:
            file.write(client_id + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self._id_file)

    def recall_lease_s(self) -> float:
        """How long leases were when the server was last seen; 0 if that is not known."""
        try:
            return float(self._lease_file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0.0

    def remember_lease_s(self, lease_s: float) -> None:
        """For the next start. A disk that refuses forgets it."""
        temporary = self._lease_file.with_suffix(".part")
        with contextlib.suppress(OSError):
            temporary.write_text(f"{lease_s}\n", encoding="ascii")
            temporary.rename(self._lease_file)

    def close(self) -> None:
        """Give the lock back; safe to call twice."""
        fd, self._lock_fd = self._lock_fd, -1
        if fd >= 0:
            os.close(fd)

    @property
    def spool(self) -> Path:
        """Where finished results wait for the server."""
        return self.path / "spool"

    @property
    def cache(self) -> Path:
        """Where files are kept that several attempts need."""
        return self.path / "cache"

    @property
    def images(self) -> Path:
        """Where images of containers are kept that their engine does not keep."""
        return self.path / "images"

    @property
    def fresh(self) -> Path:
        """Empty directories that executors keep for later attempts."""
        return self.path / "fresh"

    @property
    def attempts(self) -> Path:
        """Where the directories of attempts are."""
        return self.path / "attempts"

    @property
    def group_note(self) -> Path:
        """Names the control group of our commands."""
        return self.path / "control-group"

    @property
    def _lease_file(self) -> Path:
        return self.path / "lease"

    @property
    def _id_file(self) -> Path:
        return self.path / "client-id"


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
