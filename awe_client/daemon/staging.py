"""Outputs on a shared file system: put beside the file that the server will make of them.

A file that the command left on the same file system, and that has no other name, is only given one more;
everything else is copied. Directories are held open, so a link that is changed meanwhile leads nowhere.
"""

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from awe_client.daemon.attempt import Attempt
from awe_client.daemon.outputs import Found
from awe_client.daemon.roots import open_folder_of
from awe_client.daemon.shared_files import OutOfReach
from awe_client.sdk.bodies import CountedBody, Progress
from shared_models.errors import AweError, Forbidden
from shared_models.file_urls import path_of
from shared_models.ids import TaskId
from shared_models.staging import stage_folder, stage_name

#: What may be otherwise a little later: a full disk, a network file system that has its moments.
_PASSING = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EAGAIN,
})  # fmt: skip


class TargetBusy(AweError):
    """The shared file system takes nothing now."""

    code = "target_busy"
    retryable = True


class TargetRefused(AweError):
    """The shared file system does not take it."""

    code = "target_refused"


class Stager:
    """Stages outputs below some roots. Raises OutOfReach, TargetBusy, TargetRefused."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots

    async def stage(self, attempt: Attempt, url: str, found: Found, on_progress: Progress) -> tuple[int, str]:
        """Stage one output of an attempt; its size and MD5, "" if nobody read it. May be repeated."""
        target = path_of(url)
        try:
            with contextlib.ExitStack() as open_folders:
                stage = await asyncio.to_thread(self._open, attempt, target, open_folders)
                name = stage_name(attempt.rank, attempt.number)
                if found.path is not None:
                    size = await asyncio.to_thread(_link, found.path, stage, name)
                    if size is not None:
                        on_progress(size, size)
                        return size, ""
                body = await asyncio.to_thread(found.body)
                await _copy(body, stage, name, on_progress)
                return body.size, body.md5
        except Forbidden as exc:
            raise OutOfReach(exc.message) from exc
        except OSError as exc:
            error = TargetBusy if exc.errno in _PASSING else TargetRefused
            raise error(f"{target}: {(exc.strerror or str(exc)).lower()}") from exc

    def _open(self, attempt: Attempt, target: str, open_folders: contextlib.ExitStack) -> int:
        """The task's stage folder, made if it is not there. Raises Forbidden, OSError."""
        folder = open_folder_of(target, self._roots, make=True)
        open_folders.callback(os.close, folder)
        task = attempt.task.message
        name = os.path.basename(stage_folder(target, TaskId(task["id"]), task["generation"]))
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
            os.fsync(folder)
        stage = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        open_folders.callback(os.close, stage)
        return stage


def _link(path: Path, stage: int, name: str) -> int | None:
    """Give a file one more name; its size, or None if that cannot be, or would be no file of its own."""
    about = path.lstat()
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=stage)
        try:
            os.link(path, name, dst_dir_fd=stage, follow_symlinks=False)
        except OSError:  # another file system, or one without such names
            return None
        os.fsync(stage)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


async def _copy(body: CountedBody, stage: int, name: str, on_progress: Progress) -> None:
    temporary = f".{name}"
    with _new(stage, temporary) as descriptor:
        done = 0
        async for chunk in body:
            await asyncio.to_thread(_write, descriptor, chunk)
            done += len(chunk)
            on_progress(done, body.size)
        if done != body.size:
            raise OSError(errno.EIO, f"only {done} of {body.size} bytes could be read")
        await asyncio.to_thread(_place, descriptor, stage, temporary, name)


@contextlib.contextmanager
def _new(stage: int, name: str) -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=stage)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o666, dir_fd=stage)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=stage)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _place(descriptor: int, stage: int, temporary: str, name: str) -> None:
    os.fsync(descriptor)
    os.rename(temporary, name, src_dir_fd=stage, dst_dir_fd=stage)
    os.fsync(stage)
