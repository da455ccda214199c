"""Threads that one part of the daemon has for itself."""

import asyncio
import concurrent.futures
import errno
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class OwnThreads:
    """Those that all parts share may all wait for a disk that hangs. One of these that does so does not hold
    up the end of the process, as those of `concurrent.futures` do.
    """

    def __init__(self, count: int, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
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

    async def run(self, work: Callable[..., _T], *args: Any) -> _T:
        """Call something that blocks; when this is cancelled, what has begun goes on."""
        future: concurrent.futures.Future[_T] = concurrent.futures.Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = work(*args)
            except BaseException as exc:  # noqa: BLE001 — raised in `run`
                future.set_exception(exc)
            else:
                future.set_result(result)

        self._calls.put(call)
        return await asyncio.wrap_future(future)

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
