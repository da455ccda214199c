"""Threads for work below the file roots: a file system of another machine may hang, and so does who asks it.

A client does such work in threads of its own (awe_client/sdk/threads.py), begun in the same way: the two
import nothing of each other, and shared_models does no work.

Nothing ends such a thread before its file system answers. So it is none of those that serve everybody else,
each root has only a few, those that were given up included, and the end of the server waits for none.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from shared_models.roots import root_of

MAX_PER_ROOT = 8
NAME = "file root"  #: of its threads, for whoever lists them

T = TypeVar("T")


class NoAnswer(Exception):
    """A file system did not answer in time; the text says which."""


class RootThreads:
    """Does blocking work below these roots. Used on one event loop."""

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = tuple(roots)
        self._free: dict[str, asyncio.Semaphore] = {}

    async def run(self, path: str, work: Callable[[], T], within_s: float | None = None) -> T:
        """The result of work on a path. Raises what it raises; NoAnswer after `within_s`, if given, of which
        the wait for a free thread is a part.

        Work whose caller goes away, or is told so, goes on to its end.
        """
        root = root_of(path, self.roots) or ""
        free = self._free.setdefault(root, asyncio.Semaphore(MAX_PER_ROOT))
        scope = asyncio.timeout(within_s)
        try:
            async with scope:
                await free.acquire()
                return await _start(work, free)
        except TimeoutError as exc:  # may be the work's own
            if not scope.expired():
                raise
            raise self.no_answer(path, within_s or 0.0) from exc

    def no_answer(self, path: str, within_s: float) -> NoAnswer:
        """What is raised when a path gave no answer in time."""
        return NoAnswer(
            f"the file system of {root_of(path, self.roots) or path} gives no answer in {within_s:g} s"
        )


def _start(work: Callable[[], T], free: asyncio.Semaphore) -> "asyncio.Future[T]":
    """Begin in a thread of its own, which gives its place back when it ends, whoever still waits for it."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            tell = partial(answer.set_result, work())
        except BaseException as exc:  # noqa: BLE001 - the caller's
            tell = partial(answer.set_exception, exc)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(over, tell)

    def over(tell: Callable[[], None]) -> None:
        free.release()
        if not answer.done():
            tell()

    try:
        # A daemon: the interpreter waits for all others at its end.
        threading.Thread(target=run, name=NAME, daemon=True).start()
    except BaseException:
        free.release()
        raise
    return answer
