"""Threads that one part of the daemon has for itself."""

import asyncio
import errno
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from awe_client.sdk.threads import promise

_T = TypeVar("_T")


class OwnThreads:
    """Those that all parts share may all wait for a disk that hangs. One of these that does so does not hold
    up the end of the process, as those of `concurrent.futures` do.
    """

    def __init__(self, count: int, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}_{i}", daemon=True) for i in range(count)
        ]

    def start_all(self) -> None:
        """Start them: later this machine may start no more. Raises OSError if that is so already."""
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as exc:
            self.shutdown()
            raise OSError(errno.EAGAIN, "this machine starts no more threads") from exc

    def begin(self, work: Callable[..., _T], *args: Any) -> "asyncio.Future[_T]":
        """Call something that blocks; when the future is cancelled, what has begun goes on."""
        future, fulfil = promise(partial(work, *args))
        self._calls.put(lambda: future.cancelled() or fulfil())
        return future

    async def run(self, work: Callable[..., _T], *args: Any) -> _T:
        """The same, and wait for it."""
        return await self.begin(work, *args)

    def shutdown(self, wait: bool = True) -> None:
        """End them after what they were asked to do, and wait for that if told so."""
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            if wait and thread.is_alive():
                thread.join()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
