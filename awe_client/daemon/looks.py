"""Looks at shared files that a work directory has links to: before the command, and after it.

A file that cannot be looked at need not have changed: the machine may be short of descriptors, or the file
system away for a moment. So a look is taken again, and in the end another client may see more.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from awe_client.daemon.attempt import Link
from awe_client.daemon.outcome import Failure
from awe_client.daemon.servers import Patience
from awe_client.daemon.shared_files import error_of
from awe_client.daemon.transfer import FOREIGN_ATTEMPTS, StepError
from awe_client.sdk.threads import file_work
from shared_models.states import FailureKind
from shared_models.versions import file_version

T = TypeVar("T")

#: The looks of an attempt that take longer will not end.
LOOK_S = 60.0
#: Before the second look; doubled before each further one.
LOOK_PAUSE_S = 0.5
#: Under its name, all links followed, there is no file any more, or only a link.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


async def version_before(path: Path) -> str:
    """The version of a shared file that was just linked. Raises StepError."""
    version = await _look(lambda: _version_of(path))
    if not version:
        raise _unseen(f"the shared file {path} was there a moment ago")
    return version


async def changed(links: Iterable[Link]) -> Failure | None:
    """Say which shared file is not any more what it was, or that it cannot be told; None if all are."""
    shared = [link for link in links if link.entry is None]
    if not shared:
        return None
    try:
        return await _look(lambda: _changed(shared))
    except StepError as exc:
        return exc.failure


async def _look(look: Callable[[], T]) -> T:
    """Look in a thread, again if that fails. Raises StepError, of this client and no input."""
    patience = Patience(base_s=LOOK_PAUSE_S)
    try:
        async with asyncio.timeout(LOOK_S):
            while True:
                try:
                    return await file_work(look)
                except OSError as exc:
                    error = error_of(exc)
                    if patience.failures + 1 >= FOREIGN_ATTEMPTS:
                        raise _unseen(f"the shared file {exc.filename} cannot be read: {error}") from exc
                await patience.wait(error)
    except TimeoutError as exc:
        raise _unseen(
            f"the shared file system does not answer: no look at a linked file within {LOOK_S:g} s"
        ) from exc


def _unseen(message: str) -> StepError:
    return StepError(FailureKind.NODE, message, out_of_reach=True)


def _changed(links: Iterable[Link]) -> Failure | None:
    """Raises OSError for a file of which it cannot be told."""
    for link in links:
        if _version_of(link.path) != link.version:
            what = f"{link.name}: the shared file {link.path} was changed or removed while the command ran"
            return Failure(FailureKind.INPUT, what)
    return None


def _version_of(path: Path) -> str:
    """The version of a shared file; "" if it is gone. Raises OSError, with its name, if it cannot be read.

    Opened, so that a network file system looks.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return file_version(os.fstat(descriptor))
        finally:
            os.close(descriptor)
    except OSError as exc:
        if exc.errno in _GONE:
            return ""
        exc.filename = str(path)
        raise
