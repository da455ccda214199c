"""The directories of attempts.

Fresh for each, removed after it, and nothing is ever touched outside of them.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from awe_client.daemon.disk import BeforeRemoval, DiskWatch
from shared_models.paths import check_relative_path

log = logging.getLogger(__name__)

MAX_KEPT = 100
LISTED_NAMES = 30
#: So many names of a work directory are read to tell what is in it; there may be millions.
MAX_LISTED = 10 * LISTED_NAMES
#: Threads of their own: however much there is to remove, it holds up nobody who wants to write or to report.
REMOVERS = 2
#: A disk on which no removal ends for so long holds up the end no longer.
CLOSE_S = 5.0
#: A tree deeper than this is made flatter before it is removed: its paths stay short enough for the kernel.
_FLAT = 12
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 20


class NotInside(Exception):
    """A name that leads out of the attempt's directory."""


class WorkDirs:
    """Removes directories below `root`, which holds nothing else, at once or after a while, in threads."""

    def __init__(self, root: Path, keep_failed_s: float, disk: DiskWatch | None = None) -> None:
        """`disk` hears of removals, and that there is no room; by default nobody else needs to know."""
        self._root = root
        self._disk = disk or DiskWatch(root)
        self._keep_failed_s = keep_failed_s
        self._kept: deque[tuple[float, Path]] = deque()
        self._removals: set[asyncio.Future[None]] = set()
        self._full: set[Path] = set()
        self._work: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._removers: list[threading.Thread] = []

    def was_full(self, directory: Path) -> None:
        """An attempt could not write: until its directory is removed, the room there is comes and goes."""
        self._full.add(directory)

    @property
    def has_no_room(self) -> bool:
        """Whether not a byte could be written, and what filled the disk is not removed yet."""
        return bool(self._full)

    async def remove_old(self, fresh: Path) -> None:
        """Remove what an earlier incarnation left, and the empty directories it kept in `fresh`."""
        await asyncio.to_thread(self._remove_all, self._root, fresh)

    def _remove_all(self, *folders: Path) -> None:
        for folder in folders:
            for entry in folder.glob("*"):
                remove_tree(entry)

    def clean(self, directory: Path, *, keep: bool) -> None:
        """Remove a directory in the background, or let it stay for a person to look at."""
        if keep and self._keep_failed_s > 0:
            self._full.discard(directory)
            self._kept.append((time.monotonic(), directory))
            if len(self._kept) <= MAX_KEPT:
                return
            directory = self._kept.popleft()[1]
        self._in_background(directory)

    def make_room(self) -> None:
        """The disk is short: remove what was only kept to be looked at."""
        while self._kept:
            self._in_background(self._kept.popleft()[1])

    def sweep(self) -> None:
        """Remove the kept directories whose time is over, and empty prefixes."""
        horizon = time.monotonic() - self._keep_failed_s
        while self._kept and self._kept[0][0] <= horizon:
            self._in_background(self._kept.popleft()[1])
        self._in_thread(self._remove_empty)

    def _remove_empty(self) -> None:
        """Remove prefixes that hold no attempt; one that is just being used is not empty, or made again."""
        for first in self._root.glob("*"):
            for folder in [*first.glob("*/*"), *first.glob("*"), first]:
                with contextlib.suppress(OSError):
                    folder.rmdir()

    async def close(self) -> None:
        """Wait for removals as long as one after the other ends; the next start removes what is left."""
        while self._removals:
            count = len(self._removals)
            ended, _ = await asyncio.wait(
                self._removals, timeout=CLOSE_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not ended:
                log.error("removals_do_not_end", extra={"within_s": CLOSE_S, "removals": count})
                break
        for _ in self._removers:
            self._work.put(None)
        self._removers = []

    def _in_background(self, directory: Path) -> None:
        self._in_thread(self._remove, directory)

    def _in_thread(self, function: Callable[..., None], *args: Path) -> None:
        loop = asyncio.get_running_loop()
        removal: asyncio.Future[None] = loop.create_future()
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

        def work() -> None:
            try:
                function(*args)
            finally:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(removal.set_result, None)

        self._work.put(work)
        self._start_removers()

    def _start_removers(self) -> None:
        """Threads for whose end that of the program does not wait. Without any, the next removal tries."""
        while len(self._removers) < REMOVERS:
            remover = threading.Thread(target=self._serve, name="remove", daemon=True)
            try:
                remover.start()
            except RuntimeError as exc:
                log.warning("remover_not_started", extra={"error": str(exc)})
                return
            self._removers.append(remover)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception:
                log.exception("removal_failed")

    def _remove(self, directory: Path) -> None:
        try:
            remove_tree(directory, self._disk.before_removal)
        finally:
            self._full.discard(directory)
        parent = directory.parent
        while parent != self._root and parent.is_relative_to(self._root):
            try:
                parent.rmdir()
            except OSError:
                return
            parent = parent.parent


def make_directory(directory: Path) -> None:
    """Make an attempt's directory. Raises FileExistsError: no attempt may find another's files."""
    for _ in range(_TRIES):
        # A prefix that is empty may be removed between the two, when the last attempt in it is over.
        with contextlib.suppress(FileNotFoundError):
            directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.mkdir(mode=0o700)
            return
    directory.mkdir(mode=0o700)


def remove_tree(directory: Path, before_removal: BeforeRemoval = lambda: None) -> None:
    """Remove a tree without following links, also where a command took away permissions, however deep.

    `before_removal` is called before each file that is no deeper than usual, and before all others.
    """

    def open_up(function: Any, path: str, info: Any) -> None:
        if isinstance(info[1], FileNotFoundError):
            return
        for place in (os.path.dirname(path), path):
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(os.lstat(place).st_mode):
                    os.chmod(place, 0o700)
        with contextlib.suppress(OSError):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)

    if directory.is_symlink():
        with contextlib.suppress(OSError):
            directory.unlink()
        return
    _thin_out(str(directory), before_removal)
    before_removal()
    if directory.exists():
        with contextlib.suppress(RecursionError):
            shutil.rmtree(directory, onerror=open_up)
    if directory.exists():
        _flatten(directory)
        shutil.rmtree(directory, onerror=open_up)
    if directory.exists():
        log.warning("directory_not_removed", extra={"path": str(directory)})


def _thin_out(folder: str, before_removal: BeforeRemoval, parent: int | None = None, depth: int = 0) -> None:
    """Remove what can be removed at once, while it is read: rmtree holds all names of a folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(
            folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent
        )
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if not entry.is_dir(follow_symlinks=False):
                            before_removal()
                            os.unlink(entry.name, dir_fd=descriptor)
                        elif depth < _FLAT:
                            _thin_out(entry.name, before_removal, descriptor, depth + 1)
                            os.rmdir(entry.name, dir_fd=descriptor)
        finally:
            os.close(descriptor)


def _flatten(directory: Path) -> None:
    """Bring what lies deep up to the top: neither recursion nor paths are then too long to remove it."""
    lifted = 0
    pending = [(str(directory), 0)]
    while pending:
        folder, depth = pending.pop()
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
            with os.scandir(folder) as entries:
                below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            for path in below:
                if depth < _FLAT:
                    pending.append((path, depth + 1))
                    continue
                lifted += 1
                top = f"{directory}/{secrets.token_hex(4)}.{lifted}"
                os.chmod(path, 0o700)
                os.rename(path, top)
                pending.append((top, 1))


def place(directory: Path, name: str) -> Path:
    """Where a file of this name belongs, with its sub-directories made. Raises NotInside."""
    reason = check_relative_path(name)
    if reason:
        raise NotInside(f"file name '{name[:200]}' {reason}")
    folder = directory
    for part in name.split("/")[:-1]:
        folder = folder / part
        # Looked at before anything is made in it: it may be a link that an input brought.
        folder.mkdir(exist_ok=True)
        require_inside(directory, folder, name)
    return directory / name


def write_new(directory: Path, name: str, text: str) -> None:
    """Write a small file; what was there under its name (a link to shared data, perhaps) is replaced."""
    target = place(directory, name)
    target.unlink(missing_ok=True)
    with target.open("x", encoding="utf-8") as file:
        file.write(text)


def find(directory: Path, name: str, sub_directory: str = "") -> Path:
    """Where a file that a command left is, links resolved. Raises NotInside or OSError."""
    full = f"{sub_directory}/{name}" if sub_directory else name
    reason = check_relative_path(full)
    if reason:
        raise NotInside(f"file name '{full[:200]}' {reason}")
    found = Path(os.path.realpath(directory / full))
    require_inside(directory, found, full)
    found.stat()
    return found


def require_inside(directory: Path, path: Path, name: str) -> None:
    """Refuse a path that, with links resolved, lies outside. Raises NotInside."""
    if directory.is_symlink():
        raise NotInside("the work directory was replaced by a link")
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory)):
        raise NotInside(f"'{name[:200]}' leaves the work directory through a link")


def listing(directory: Path) -> str:
    """What is in a directory, for a message to a person: names, sorted, not too many."""
    names: list[str] = []
    pending = [""]
    while pending and len(names) <= MAX_LISTED:
        below = pending.pop()
        with contextlib.suppress(OSError), os.scandir(directory / below) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                names.append(f"{below}{entry.name}{'/' if is_folder else ''}")
                if is_folder:
                    pending.append(names[-1])
                if len(names) > MAX_LISTED:
                    break
    names.sort()
    shown = ", ".join(repr(name)[1:-1] for name in names[:LISTED_NAMES])
    more = len(names) - LISTED_NAMES
    at_least = "at least " if len(names) > MAX_LISTED else ""
    return (shown or "nothing") + (f" and {at_least}{more} more" if more > 0 else "")
