"""Threads that one part of the daemon has for itself."""

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


class OwnThreads(ThreadPoolExecutor):
    """Those that all parts share may all wait for a disk that hangs."""

    def __init__(self, count: int, name: str) -> None:
        super().__init__(count, thread_name_prefix=name)
        self._count = count

    def start_all(self) -> None:
        """Start them now: made on demand, one would be missing when this machine starts no more.

        Raises OSError if that is so already.
        """
        all_here = threading.Barrier(self._count)  # until then none is free for the next call
        try:
            for _ in range(self._count):
                self.submit(all_here.wait)
        except RuntimeError as exc:
            all_here.abort()
            raise OSError(errno.EAGAIN, "this machine starts no more threads") from exc

    async def run(self, work: Callable[..., _T], *args: Any) -> _T:
        """Call something that blocks."""
        return await asyncio.get_running_loop().run_in_executor(self, work, *args)
