"""Full logs of attempts: plain files `<logs>/<job>/<workunit>.<attempt>.<stream>`, removed with their job.

A log is side data: losing the last lines of one with the machine's power breaks no promise, so no fsync; and
what a report says goes before what its command printed, so a log that cannot be kept refuses no report. It is
not there then, rather than empty or cut, and the notes of the workunit say why.
"""

import hashlib
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import anyio
from anyio import to_thread

from awe_server.data.log_writer import LogWriter, put_whole
from shared_models.errors import NoSpace, TooLarge
from shared_models.ids import JobId, WorkunitId, split_task_id, split_workunit_id
from shared_models.limits import MAX_LOG_BYTES

Stream = Literal["stdout", "stderr", "worknotes"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr", "worknotes")

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

        Raises Conflict if bytes before the offset are missing, TooLarge past MAX_LOG_BYTES, NoSpace, and what
        `chunks` raises; the log is as it was then.
        """
        writer = LogWriter(self.path(log), offset)
        try:
            async for chunk in chunks:
                if offset + len(chunk) > MAX_LOG_BYTES:
                    raise TooLarge(f"a log is kept up to {MAX_LOG_BYTES} bytes")
                await to_thread.run_sync(writer.write, chunk)
                offset += len(chunk)
            await to_thread.run_sync(writer.finish)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(writer.abort)
            raise
        return offset

    async def keep(self, tails: Sequence[tuple[Log, bytes]]) -> dict[Log, str]:
        """Store short logs in one go; why those are missing that could not be kept.

        A log that is there already stays, unless it is shorter.
        """
        return await to_thread.run_sync(self._keep, tails) if tails else {}

    def _keep(self, tails: Sequence[tuple[Log, bytes]]) -> dict[Log, str]:
        lost: dict[Log, str] = {}
        for log, text in tails:
            path = self.path(log)
            try:
                if not _has(path, text):
                    put_whole(path, text)
            except NoSpace:
                lost[log] = "no space left on the server's disk"
            except OSError as exc:
                lost[log] = f"the server cannot write it ({exc.strerror or exc})"
        return lost

    async def remove(self, job_id: JobId) -> None:
        """Remove all logs of a job. One that is being written may stay; the sweep finds it (expiry.py)."""
        folder = self._root / quote(job_id, safe="")
        await to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))

    async def tail(self, log: Log, most_bytes: int = MAX_LOG_BYTES) -> str:
        """The end of a log as text, "" if there is none."""
        return (await to_thread.run_sync(_tail, self.path(log), most_bytes)).decode("utf-8", "replace")

    async def size(self, log: Log) -> int | None:
        """How many bytes there are; None if there is no such log."""
        return await to_thread.run_sync(_size, self.path(log))


def _has(path: Path, text: bytes) -> bool:
    """Whether a log with no fewer characters is there; in the text nothing is left that is no UTF-8."""
    size = _size(path)
    if size is None or size >= len(text):
        return size is not None
    return len(path.read_bytes().decode("utf-8", "replace")) >= len(text.decode("utf-8", "replace"))


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
