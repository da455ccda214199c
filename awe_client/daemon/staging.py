"""Outputs on a shared file system: put beside the file that the server will make of them.

A file that the command left on the same file system, and that has no other name, is only given one more;
everything else is copied. Directories are held open, so a link that is changed meanwhile leads nowhere; they
are closed only when no thread works in them any more. Nobody waits long for a file system that hangs, so each
step may come late, after others tried it again: none removes or replaces what is not as good.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from awe_client.daemon.answers import Answers
from awe_client.daemon.attempt import Attempt
from awe_client.daemon.outputs import Found
from awe_client.daemon.roots import open_folder_of
from awe_client.sdk.bodies import CountedBody, Progress
from awe_client.sdk.download_errors import NotSeen, OutOfReach
from awe_client.sdk.threads import ThreadFile, file_work
from shared_models.errors import AweError, Forbidden
from shared_models.file_urls import path_of
from shared_models.ids import TaskId
from shared_models.staging import stage_folder, stage_name

P = ParamSpec("P")
T = TypeVar("T")

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


class OutputUnreadable(AweError):
    """What the command wrote cannot be read."""

    code = "output_unreadable"


class Stager:
    """Stages outputs below some roots. Raises OutOfReach, TargetBusy, TargetRefused, OutputUnreadable."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots
        self._answers = Answers(roots)

    async def stage(self, attempt: Attempt, url: str, found: Found, on_progress: Progress) -> tuple[int, str]:
        """Stage one output of an attempt; its size and MD5, "" if nobody read it. May be repeated."""
        target = path_of(url)
        held: ThreadFile[contextlib.ExitStack] = ThreadFile(lambda: contextlib.ExitStack())
        ask = partial(self._answers.of, target)
        try:
            try:
                return await self._stage(attempt, target, found, on_progress, Folder(held, ask))
            finally:
                await ask(partial(file_work, held.close))
        except Forbidden as exc:
            raise OutOfReach(exc.message) from exc
        except NotSeen as exc:
            raise TargetBusy(f"{target}: {exc.message}") from exc
        except OSError as exc:
            error = TargetBusy if exc.errno in _PASSING else TargetRefused
            raise error(f"{target}: {(exc.strerror or str(exc)).lower()}") from exc

    async def _stage(
        self, attempt: Attempt, target: str, found: Found, on_progress: Progress, folder: "Folder"
    ) -> tuple[int, str]:
        stage = await folder.work(self._open, attempt, target)
        name = stage_name(attempt.rank, attempt.number)
        body = await file_work(_body, found)
        if found.path is not None:
            size = await folder.flush(body.size, _link, found.path, stage, name)
            if size is not None:
                on_progress(size, size)
                return size, ""
        await _copy(body, stage, name, on_progress, folder)
        return body.size, body.md5

    def _open(self, held: contextlib.ExitStack, attempt: Attempt, target: str) -> int:
        """The task's stage folder, made if it is not there. Raises Forbidden, OSError."""
        folder = open_folder_of(target, self._roots, make=True)
        held.callback(os.close, folder)
        task = attempt.task.message
        name = os.path.basename(stage_folder(target, TaskId(task["id"]), task["generation"]))
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
            os.fsync(folder)
        stage = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        held.callback(os.close, stage)
        return stage


class Folder:
    """What works in a folder: in threads, one after the other, and waited for only so long."""

    def __init__(self, held: ThreadFile[contextlib.ExitStack], ask: Callable[..., Awaitable[Any]]) -> None:
        self._held = held
        self._ask = ask

    async def work(
        self,
        work: Callable[Concatenate[contextlib.ExitStack, P], T],
        *args: P.args,
        **keys: P.kwargs,
    ) -> T:
        """Do it; it is given what to leave to be closed, or to go, in the end."""
        done: T = await self._ask(partial(self._held.use, work, *args, **keys))
        return done

    async def flush(
        self,
        size: int,
        work: Callable[Concatenate[contextlib.ExitStack, P], T],
        *args: P.args,
        **keys: P.kwargs,
    ) -> T:
        """Do what has so many bytes written to the disk first, and so may take longer."""
        done: T = await self._ask(partial(self._held.use, work, *args, **keys), flush_bytes=size)
        return done


def _link(held: contextlib.ExitStack, path: Path, stage: int, name: str) -> int | None:
    """Give a file one more name; its size, or None if that cannot be, or would be no file of its own."""
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as exc:
        raise _unreadable(exc) from exc
    try:
        os.fsync(descriptor)
        temporary = _temporary(name)
        try:
            os.link(path, temporary, dst_dir_fd=stage, follow_symlinks=False)
        except OSError:  # another file system, or one without such names
            return None
        held.callback(_remove, temporary, stage)
        os.rename(temporary, name, src_dir_fd=stage, dst_dir_fd=stage)
        os.fsync(stage)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _temporary(name: str) -> str:
    """Another one each time: who comes late must not take what is not whole for his own."""
    return f".{name}.{secrets.token_hex(4)}"


def _body(found: Found) -> CountedBody:
    try:
        return found.body()
    except OSError as exc:
        raise _unreadable(exc) from exc


async def _copy(body: CountedBody, stage: int, name: str, on_progress: Progress, folder: Folder) -> None:
    temporary = _temporary(name)
    descriptor = await folder.work(_create, stage, temporary)
    done = 0
    async for chunk in _chunks(body):
        await folder.work(_write, descriptor, chunk)
        done += len(chunk)
        on_progress(done, body.size)
    await folder.flush(body.size, _place, descriptor, stage, temporary, name)


async def _chunks(body: CountedBody) -> AsyncIterator[bytes]:
    try:
        async for chunk in body:
            yield chunk
    except OSError as exc:
        raise _unreadable(exc) from exc


def _unreadable(exc: OSError) -> OutputUnreadable:
    return OutputUnreadable(f"cannot read what the command wrote: {(exc.strerror or str(exc)).lower()}")


def _create(held: contextlib.ExitStack, stage: int, name: str) -> int:
    """A new file; its name goes in the end, if it still has it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o666, dir_fd=stage)
    held.callback(_remove, name, stage)
    held.callback(os.close, descriptor)
    return descriptor


def _remove(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _write(_: contextlib.ExitStack, descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _place(_: contextlib.ExitStack, descriptor: int, stage: int, temporary: str, name: str) -> None:
    os.fsync(descriptor)
    os.rename(temporary, name, src_dir_fd=stage, dst_dir_fd=stage)
    os.fsync(stage)
