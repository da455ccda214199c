"""Full logs of attempts: plain files `<logs>/<job>/<workunit>.<attempt>.<stream>`, removed with their job.

A log is side data: losing the last lines of one with the machine's power breaks no promise, so no fsync; and
what a report says goes before what its command printed, so a log that cannot be kept refuses no report.
"""

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import anyio.to_thread

from awe_server.runtime.services import Services
from awe_server.scheduler.holder import may_report
from awe_server.scheduler.state import State
from shared_models.errors import BadRequest, Conflict, TooLarge
from shared_models.ids import ClientId, JobId, WorkunitId, split_task_id, split_workunit_id
from shared_models.limits import MAX_LOG_BYTES
from shared_models.messages import Report

_log = logging.getLogger(__name__)

Stream = Literal["stdout", "stderr", "worknotes"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr", "worknotes")
Texts = Iterable[tuple[Stream, bytes]]

_PLAIN_CHARS = 180  #: longer names are hashed: a file name ends at 255 bytes


@dataclass(slots=True, frozen=True)
class Log:
    """Which log: of which attempt of which workunit."""

    work: WorkunitId
    attempt: int
    stream: Stream


class Logs:
    """The folder of logs."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, log: Log) -> Path:
        """Where a log is kept; a task's name never becomes a path."""
        job_id, _ = split_task_id(split_workunit_id(log.work)[0])
        name = quote(log.work, safe="")
        if len(name) > _PLAIN_CHARS:
            name = hashlib.sha256(log.work.encode()).hexdigest()
        return self._root / quote(job_id, safe="") / f"{name}.{log.attempt}.{log.stream}"

    async def write(self, log: Log, offset: int, chunks: AsyncIterator[bytes]) -> int:
        """Put bytes at an offset and cut what was behind them; gives the new size. Safe to repeat.

        Raises Conflict if bytes before the offset are missing, TooLarge past MAX_LOG_BYTES.
        """
        path = self.path(log)
        size = await anyio.to_thread.run_sync(_prepare, path, offset)
        if size < offset:
            raise Conflict(f"the log has {size} bytes, so offset {offset} leaves a hole")
        async for chunk in chunks:
            if offset + len(chunk) > MAX_LOG_BYTES:
                raise TooLarge(f"a log is kept up to {MAX_LOG_BYTES} bytes")
            await anyio.to_thread.run_sync(_append, path, chunk)
            offset += len(chunk)
        return offset

    async def keep(self, tails: Sequence[tuple[Log, bytes]]) -> None:
        """Store short logs in one go. A log that is there already stays, unless it is shorter."""
        if tails:
            await anyio.to_thread.run_sync(self._keep, tails)

    def _keep(self, tails: Sequence[tuple[Log, bytes]]) -> None:
        for log, text in tails:
            path = self.path(log)
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with path.open("xb") as file:
                    file.write(text)
            except FileExistsError:
                if _is_shorter(path, text):
                    _replace(path, text)

    async def remove(self, job_id: JobId) -> None:
        """Remove all logs of a job. One that is being written may stay; the sweep finds it (expiry.py)."""
        folder = self._root / quote(job_id, safe="")
        await anyio.to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))

    async def tail(self, log: Log, most_bytes: int = MAX_LOG_BYTES) -> str:
        """The end of a log as text, "" if there is none."""
        return (await anyio.to_thread.run_sync(_tail, self.path(log), most_bytes)).decode("utf-8", "replace")

    async def size(self, log: Log) -> int | None:
        """How many bytes there are; None if there is no such log."""
        return await anyio.to_thread.run_sync(_size, self.path(log))


def printed(state: State, client_id: ClientId, r: Report, texts: Texts) -> list[tuple[Log, bytes]]:
    """What a report says that its command printed, if its sender may report the attempt."""
    unit = state.workunits.get(r.work)
    if unit is None or not may_report(state, unit, client_id, r.attempt, r.token):
        return []
    return [(Log(r.work, unit.attempt, name), text) for name, text in texts if text]


async def keep_printed(services: Services, found: Sequence[tuple[Log, bytes]]) -> None:
    """Store it before the report is settled: whoever learns that the work has ended finds its log."""
    try:
        await Logs(services.logs_dir).keep(found)
    except OSError as exc:
        _log.warning("logs_not_kept", extra={"reason": str(exc), "count": len(found)})


def _prepare(path: Path, offset: int) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        size = file.tell()
        if offset <= size:
            file.truncate(offset)
    return size


def _is_shorter(path: Path, text: bytes) -> bool:
    """Whether a log has fewer characters than a text, in which nothing is left that is no UTF-8."""
    if path.stat().st_size >= len(text):
        return False
    return len(path.read_bytes().decode("utf-8", "replace")) < len(text.decode("utf-8", "replace"))


def _replace(path: Path, text: bytes) -> None:
    """In one step: somebody may be reading it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(text)
    os.replace(temporary, path)


def _append(path: Path, chunk: bytes) -> None:
    with path.open("ab") as file:
        file.write(chunk)


def _tail(path: Path, most_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - most_bytes))
            return file.read(most_bytes)
    except FileNotFoundError:
        return b""


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def stream_name(text: str) -> Stream:
    """Check the name of a log. Raises BadRequest with AWE's text."""
    for name in STREAMS:
        if text == name:
            return name
    raise BadRequest(f"log type '{text[:100]}' not found")
