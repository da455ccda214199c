"""Run index scans beside the server: the event loop goes on, and a scan that is killed takes nothing with it.

Each scan of a larger file is a process of its own, unless windows of it are enough: that is over before one
has started. A pool would save the start (0.1 s), but the pool of the standard library can wait for ever when
one worker is killed while another one starts.
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from awe_server.data.build import SCANNED_KINDS, build_ahead, build_index
from awe_server.data.indexes import unfinished
from awe_server.data.ports import IndexFact, Unreadable
from awe_server.data.records import Unclear
from awe_server.data.sources.facts import Place
from awe_server.data.worker import read_answer
from shared_models.errors import BadRequest
from shared_models.limits import MIB

log = logging.getLogger(__name__)

INLINE_BYTES = MIB // 2  #: smaller files are scanned in a thread: that is over before a process has started
#: So much is cut in a thread where windows of it are enough: a hundredth of a second of CPU per gigabyte.
WINDOWED_BYTES = 8192 * MIB
#: Reads of so much are cut when they come: little beside that, and nobody who wants parts waits for it.
AHEAD_BYTES = 128 * MIB
PROCESSES = 2
THREADS = 4  #: that scan or cut; the other threads of the server are there for what is over at once
FOREIGN_PROCESSES = 8  #: they wait for other hosts most of the time
END_S = 2.0  #: how long a scan may take to end by itself, and again when it was killed
_PACKAGES = str(Path(__file__).parents[2])


class ScanKilled(Unreadable):
    """{file} cannot be read: {reason}"""


class IndexBuilder:
    """Builds index files."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(PROCESSES)
        self._free_foreign = asyncio.Semaphore(FOREIGN_PROCESSES)
        self._running: set[Process] = set()
        self._threads = anyio.CapacityLimiter(THREADS)

    async def build(self, blob: Path, kind: str, name: str) -> IndexFact:
        """Build one index (`size` needs none); `name` is what errors call the file.

        A scan whose process is killed is tried once more: the system may have been short of memory.
        Raises BadRequest (unknown kind), NotCuttable, InvalidData, NoSpace, Unreadable, FileNotFoundError.
        """
        if kind not in SCANNED_KINDS:
            raise BadRequest(f"Unknown index '{kind[:60]}': expected size, {', '.join(SCANNED_KINDS)}.")
        size = (await to_thread.run_sync(blob.stat)).st_size
        if size <= INLINE_BYTES:
            return await to_thread.run_sync(build_index, blob, kind, name, limiter=self._threads)
        if kind == "chunkrecord" and size <= WINDOWED_BYTES:
            with contextlib.suppress(Unclear):
                windows = partial(build_index, blob, kind, name, may_scan=False)
                return await to_thread.run_sync(windows, limiter=self._threads)
        async with self._free:
            return await self._insist(blob, kind, name)

    async def build_ahead(self, blob: Path, size: int) -> IndexFact | None:
        """The index that a file just received is most likely asked for; None = there is none for now."""
        if size < AHEAD_BYTES:
            return None
        return await to_thread.run_sync(build_ahead, blob, limiter=self._threads)

    async def build_foreign(self, blob: Path, kind: str, name: str, place: Place) -> IndexFact:
        """Build the index of what is at another place, as if it lay in `blob`; always in a process.

        Hosts that are slow hold up scans of each other, never those of our own files.
        Raises as `build`, and the errors of sources/facts.py.
        """
        async with self._free_foreign:
            return await self._insist(blob, kind, name, place)

    async def close(self) -> None:
        """End the scans that run; safe to call twice."""
        await asyncio.gather(*map(_end, self._running))

    async def _insist(self, blob: Path, kind: str, name: str, place: Place | None = None) -> IndexFact:
        try:
            return await self._in_process(blob, kind, name, place)
        except ScanKilled:
            return await self._in_process(blob, kind, name, place)

    async def _in_process(self, blob: Path, kind: str, name: str, place: Place | None = None) -> IndexFact:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "awe_server.data.worker",
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, "PYTHONPATH": _PACKAGES},
            start_new_session=True,  # Ctrl-C is for the server
        )
        self._running.add(process)
        try:
            request = {"blob": str(blob), "kind": kind, "name": name, "place": place and asdict(place)}
            line = await _ask(process, request)
        finally:
            self._running.discard(process)
            with anyio.CancelScope(shield=True):
                await _end(process)
                if process.returncode:
                    await _clear(unfinished(blob, kind, process.pid))
        try:
            return read_answer(line)
        except ValueError as exc:
            reason = f"the scan for index '{kind}' ended with {process.returncode} (out of memory?)"
            was_killed = (process.returncode or 0) < 0
            raise (ScanKilled if was_killed else Unreadable)(file=name, reason=reason) from exc


async def _ask(process: Process, request: dict[str, Any]) -> bytes:
    """Send the request, wait for the end of the answer; stdin stays open meanwhile."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    return await process.stdout.read()


async def _end(process: Process) -> None:
    """Closing stdin ends it, if its end was not the reason to come here; one that is stuck is killed.

    What even then does not end waits for a file system that hangs: it is left to the system.
    """
    assert process.stdin is not None
    process.stdin.close()
    if await _has_ended(process):
        return
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if not await _has_ended(process):
        log.warning("scan_left", extra={"pid": process.pid})


async def _clear(path: Path) -> None:
    """Remove what a scan began to write, which nothing else does, but an hour later. A disk that hangs holds
    nobody up.
    """
    with anyio.move_on_after(END_S) as waiting:
        await to_thread.run_sync(_remove, path, abandon_on_cancel=True)
    if waiting.cancelled_caught:
        log.warning("scan_file_left", extra={"file": str(path), "reason": f"no answer within {END_S:g} s"})


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as exc:
        log.warning("scan_file_left", extra={"file": str(path), "reason": exc.strerror})


async def _has_ended(process: Process) -> bool:
    try:
        await asyncio.wait_for(process.wait(), END_S)
    except TimeoutError:
        return False
    return True
