"""A thread that does one thing after the other for event loops.

An executor with one thread does the same at several times the cost, and every commit pays it.
"""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]
_Jobs = SimpleQueue[_Job | None]


class WorkThread:
    """Ends when nobody has it any more, or with the process: who needs what was asked for waits for it."""

    def __init__(self, name: str) -> None:
        self._jobs: _Jobs = SimpleQueue()
        threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True).start()
        self._end = weakref.finalize(self, self._jobs.put, None)

    async def run(self, work: Callable[[], T]) -> T:
        """Do it after all that was asked for before; not if nobody waits any more when its turn comes.

        Raises RuntimeError after `end`.
        """
        if not self._end.alive:
            raise RuntimeError("the thread was told to end")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put((loop, future, work))
        return await future

    def end(self) -> None:
        """Stop once all that was asked for is done."""
        self._end()


def _work(jobs: _Jobs) -> None:
    while (job := jobs.get()) is not None:
        _do(*job)
        del job  # what it holds goes now, not with the next one


def _do(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", work: Callable[[], Any]) -> None:
    if future.cancelled():
        return
    tell: Callable[..., None]
    try:
        tell, told = _return, work()
    except BaseException as exc:  # noqa: BLE001 - whoever waits gets it
        tell, told = _raise, exc
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(tell, future, told)


def _return(future: "asyncio.Future[Any]", result: object) -> None:
    if not future.done():
        future.set_result(result)


def _raise(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if future.done():
        return
    try:
        future.set_exception(error)
    except TypeError:  # a future takes no StopIteration: it would end who waits as if all were well
        ended = RuntimeError("StopIteration")
        ended.__cause__ = error
        future.set_exception(ended)
