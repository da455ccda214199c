"""Run index scans in worker processes, so that neither the event loop nor another request waits for them."""

import asyncio
import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from pathlib import Path

from anyio import to_thread

from awe_server.data.build import SCANNED_KINDS, build_index
from awe_server.data.indexes import size_units
from awe_server.data.ports import IndexFact
from shared_models.errors import AweError, BadRequest
from shared_models.limits import MIB

INLINE_BYTES = MIB // 4  #: smaller files are scanned in a thread: that is over before a process has started
WORKERS = 2


class IndexBuilder:
    """Builds index files; the worker processes are started with the first large one."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def build(self, blob: Path, kind: str, name: str) -> IndexFact:
        """Build one index; `name` is what errors call the file.

        Raises BadRequest (unknown kind), NotCuttable, InvalidData, NoSpace, FileNotFoundError.
        """
        size = (await to_thread.run_sync(blob.stat)).st_size
        if kind == "size":
            return IndexFact("size", size_units(size), "size")
        if kind not in SCANNED_KINDS:
            raise BadRequest(f"Unknown index '{kind[:60]}': expected size, {', '.join(SCANNED_KINDS)}.")
        if size <= INLINE_BYTES:
            units, form = await to_thread.run_sync(build_index, blob, kind, name)
        else:
            units, form = await self._in_process(blob, kind, name)
        return IndexFact(kind, units, form)

    async def close(self) -> None:
        """Stop the worker processes after what they are doing; safe to call twice."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await to_thread.run_sync(lambda: pool.shutdown(cancel_futures=True))

    async def _in_process(self, blob: Path, kind: str, name: str) -> tuple[int, str]:
        """Try twice: a worker that is killed takes the scans beside it down, too."""
        for _ in range(2):
            pool = self._pool = self._pool or _new_pool()
            try:
                return await asyncio.get_running_loop().run_in_executor(pool, build_index, blob, kind, name)
            except BrokenProcessPool:
                if self._pool is pool:
                    self._pool = None
                await to_thread.run_sync(pool.shutdown)
        raise AweError(
            f"The index '{kind}' of {name} was not built: its process was killed (out of memory?)."
        )


def _new_pool() -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(WORKERS, mp_context=context, initializer=_start_worker)


def _start_worker() -> None:
    """Leave Ctrl-C to the server, let its work go first, and end when it ends, however it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)
    server = multiprocessing.parent_process()
    if server is not None:
        threading.Thread(target=_end_with, args=(server,), daemon=True).start()


def _end_with(server: BaseProcess) -> None:
    server.join()
    os._exit(1)
