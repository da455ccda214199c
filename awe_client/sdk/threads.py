"""File work that may take long, in threads of its own.

A disk that is slow, or a shared file system that hangs, holds up only what waits for it. asyncio's own
threads are few, and others need them at once: to write a report down, to look up a server's address. Here
each work has a thread of its own; what bounds them are the bounds of transfers. The end of the program waits
for none.

A descriptor is a number, and means another file once it was closed. So whoever closes what a thread uses
waits for the thread (`to_its_end`), or leaves the closing to it (`ThreadFile`).
"""

import asyncio
import contextlib
import errno
import threading
from collections.abc import Callable
from functools import partial
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

import anyio

#: After refused starts of a thread.
_PAUSES_S = (0.1, 0.3, 1.0, 3.0)

P = ParamSpec("P")
T = TypeVar("T")


async def file_work(work: Callable[P, T], *args: P.args, **keys: P.kwargs) -> T:
    """Do blocking work in a thread; when this is cancelled, the thread goes on alone.

    For work that closes what it opens, and does no harm when it comes late. Raises OSError (EAGAIN), as all
    here, if the machine starts no more threads.
    """
    return await (await _begin(partial(work, *args, **keys)))


async def to_its_end(work: Callable[P, T], *args: P.args, **keys: P.kwargs) -> T:
    """Do blocking work in a thread; when this is cancelled, it is over only when the thread is done."""
    return await or_told(partial(work, *args, **keys), lambda: None)


async def or_told(work: Callable[[], T], cancelled: Callable[[], object]) -> T:
    """As `to_its_end`, but `cancelled` is called first: it may tell the work to end sooner."""
    working = await _begin(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        cancelled()
        # A scope of anyio that is cancelled would wake us in each turn of the loop.
        with anyio.CancelScope(shield=True):
            while not working.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait((working,))
        if not working.cancelled():
            working.exception()  # looked at: what ends this is that we were cancelled
        raise


async def _begin(work: Callable[[], T]) -> "asyncio.Future[T]":
    answer, run = promise(work)
    await _start(run)
    return answer


def promise(work: Callable[[], T]) -> "tuple[asyncio.Future[T], Callable[[], None]]":
    """An answer of this loop, and what a thread has to call to do the work and to give it."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            tell = partial(answer.set_result, work())
        except BaseException as exc:  # noqa: BLE001 - the caller's
            tell = partial(answer.set_exception, exc)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: answer.done() or tell())

    return answer, run


async def _start(run: Callable[[], None]) -> None:
    """Start a thread, a little later if there are too many processes and threads for the moment."""
    for pause_s in (*_PAUSES_S, None):
        try:
            threading.Thread(target=run, name="file work", daemon=True).start()
        except RuntimeError as exc:
            if pause_s is None:
                raise OSError(errno.EAGAIN, "this machine starts no more threads (ulimit -u)") from exc
            await asyncio.sleep(pause_s)
        else:
            return


class Closable(Protocol):
    """What has to be closed."""

    def close(self) -> None:
        """Close it."""


F = TypeVar("F", bound=Closable)


class ThreadFile(Generic[F]):
    """A file that is opened and used in threads, one use after the other. Closing it waits for nobody.

    Its first use opens it. A use that is under way when it is closed goes on, and closes it afterwards.
    """

    def __init__(self, open_file: Callable[[], F]) -> None:
        self._open = open_file
        self._file: F | None = None
        self._is_over = False
        self._in_use = threading.Lock()

    async def use(self, work: Callable[Concatenate[F, P], T], *args: P.args, **keys: P.kwargs) -> T:
        """Do `work(file, …)` in a thread; when this is cancelled, the thread goes on alone."""
        return await file_work(self._use, lambda file: work(file, *args, **keys))

    def _use(self, work: Callable[[F], T]) -> T:
        try:
            with self._in_use:
                if self._is_over:
                    raise ValueError("the file is closed")
                if self._file is None:
                    self._file = self._open()
                return work(self._file)
        finally:
            self._tidy()

    def close(self) -> None:
        """Use it no more."""
        self._is_over = True
        self._tidy()

    def _tidy(self) -> None:
        """Close the file, if it is over and nobody uses it. Who does looks again when done."""
        if self._is_over and self._in_use.acquire(blocking=False):
            file, self._file = self._file, None
            self._in_use.release()
            if file is not None:
                file.close()
