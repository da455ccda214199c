"""Results that the server has not acknowledged yet, on disk, so that a restarted daemon still delivers them.

One append-only file with a line per fact: {"r": report} or {"a": [workunit, attempt]}. Reports of one moment
are written together and cost one fsync; only then may they be sent. They are written soon also if nobody is
there to send them to. Acknowledgements are written with them, or soon, and not fsynced: a report that is
delivered twice is answered `duplicate`. A torn last line is what a crash leaves; it is cut off at the next
start. When nothing is open the file is emptied, and when it has grown large it is written anew. Lines that
cannot be read are moved to a file beside it, `reports.unread`, for people to look at; while that file does
not take them they stay in this one, which is not emptied then.

The lines hold lease tokens: the file is private to its user.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from awe_client.daemon.attempt import AttemptKey
from awe_client.daemon.disk import BeforeRemoval
from awe_client.daemon.own_threads import OwnThreads
from awe_client.daemon.unread_lines import UnreadLines, open_plain, write_all
from shared_models.errors import InvalidDocument
from shared_models.ids import WorkunitId
from shared_models.messages import ReportMessage, check_report

log = logging.getLogger(__name__)

#: A line is written so soon if no exchange wants it before that, as while no server answers.
WRITE_AFTER_S = 0.2
#: What the disk refused is written again so often, while it is open.
WRITE_AGAIN_S = 2.0
#: At the end of the program a disk has so long to take what is left.
END_S = 30.0
REWRITE_BYTES = 32 * 1024 * 1024


class Spool:
    """Open reports by attempt, and the file that outlives us."""

    def __init__(self, folder: Path, before_removal: BeforeRemoval = lambda: None) -> None:
        """`before_removal` is called before the file gives room back to the disk."""
        self._before_removal = before_removal
        self._path = folder / "reports.log"
        self._unread = UnreadLines(folder / "reports.unread")
        self._fd = -1
        self._size = 0
        self._lines: list[bytes] = []
        self._fresh: dict[AttemptKey, ReportMessage] = {}
        self._flying: dict[AttemptKey, ReportMessage] = {}  #: being written
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when it goes off
        self._thread = OwnThreads(1, "spool")
        self._durable: dict[AttemptKey, ReportMessage] = {}
        self._is_abandoned = False
        self._refused: list[AttemptKey] = []  #: of these, what the disk did not take

    def open(self) -> list[AttemptKey]:
        """Read what the last incarnation left; returns the attempts whose reports are still open.

        Raises WorkRootUnusable if something else lies in the file's place, and OSError.
        """
        self._fd = open_plain(self._path)
        unread: list[bytes] = []
        with open(self._fd, "rb", closefd=False) as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if not self._recall(line):
                    unread.append(line)
                self._size += len(line)
        os.ftruncate(self._fd, self._size)
        self._unread.lines = b"".join(unread)
        # In a file of our own: a daemon that has lost this folder to us, and does not know yet, may still
        # write into the one it has open.
        self._rewrite(self._open_lines())
        self._thread.start_all()
        return list(self._durable)

    def _recall(self, line: bytes) -> bool:
        """Pass over what is no line of ours, and say so: nothing that a server would refuse may hold up the
        others.
        """
        try:
            match orjson.loads(line):
                case {"r": report}:
                    check_report(report)
                    self._durable[report["work"], report["attempt"]] = report
                case {"a": [str(work), int(attempt)]}:
                    self._durable.pop((WorkunitId(work), attempt), None)
                case _:
                    raise InvalidDocument("is no line of a spool")
        except (orjson.JSONDecodeError, InvalidDocument) as exc:
            where = {"path": str(self._path), "offset": self._size}
            log.warning("spool_line_unreadable", extra={**where, "error": str(exc)})
            return False
        return True

    def add(self, report: ReportMessage) -> None:
        """Take a report; it is ready to be sent after the next flush, and soon on disk in any case."""
        self._fresh[report["work"], report["attempt"]] = report
        self._lines.append(_line_of(report))
        self._write_soon()

    def _write_soon(self, after_s: float = WRITE_AFTER_S) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + after_s
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due, self._timer = due, loop.call_at(due, self._write_now)

    def _write_now(self) -> None:
        self._timer = None
        if not (self._lines or self._refused):
            return
        if self._writing is not None and not self._writing.done():
            self._write_soon()
        else:
            self._writing = asyncio.ensure_future(self._write_lines())

    def acknowledge(self, key: AttemptKey) -> None:
        """The server has answered this report, or nobody wants it any more."""
        known = [open_.pop(key, None) for open_ in (self._durable, self._flying, self._fresh)]
        if any(known):
            self._lines.append(orjson.dumps({"a": key}) + b"\n")
            self._write_soon()

    def postpone(self, key: AttemptKey) -> None:
        """Let the other reports go before this one."""
        if key in self._durable:
            self._durable[key] = self._durable.pop(key)

    async def flush(self, within_s: float | None = None) -> bool:
        """Make everything added so far durable; False if the disk takes longer than that, and goes on.

        If the disk refuses, the reports are sent all the same (a result is worth more than its copy), the log
        says that they would not survive a crash, and those that are still open are written again later.
        """
        until = None if within_s is None else time.monotonic() + within_s
        while self._writing is not None or self._lines:
            if self._writing is None:
                self._writing = asyncio.ensure_future(self._write_lines())
            writing = self._writing
            left_s = None if until is None else max(until - time.monotonic(), 0.0)
            await asyncio.wait((writing,), timeout=left_s)
            if not writing.done():
                return False
            if self._writing is writing:
                self._writing = None
            writing.result()
        return True

    def when_written(self, tell: Callable[[], None]) -> None:
        """Call this once the disk has taken what it is busy with; at once if it is not."""
        if self._writing is None:
            tell()
        else:
            self._writing.add_done_callback(lambda _: tell())

    async def _write_lines(self) -> None:
        lines, self._lines = self._lines, []
        self._flying, self._fresh = self._fresh, {}
        again = [key for key in self._refused if key in self._durable]
        data = b"".join([*(_line_of(self._durable[key]) for key in again), *lines])
        is_over = not (self._durable or self._flying)
        try:
            await self._thread.run(self._write, data, bool(self._flying or again), is_over)
            self._refused = []
        except OSError as exc:
            if not again:
                log.error("spool_not_written", extra={"path": str(self._path), "error": str(exc)})
            self._refused = [*again, *self._flying]
        self._durable.update(self._flying)
        self._flying = {}
        if self._refused:
            self._write_soon(WRITE_AGAIN_S)
        if self._size > REWRITE_BYTES:
            await self._thread.run(self._rewrite, self._open_lines())

    def ready(self) -> list[ReportMessage]:
        """The reports that may be sent, oldest first."""
        return list(self._durable.values())

    @property
    def is_empty(self) -> bool:
        """Whether every report was acknowledged."""
        return not (self._durable or self._flying or self._fresh)

    @property
    def unwritten(self) -> list[AttemptKey]:
        """The attempts whose reports may not be sent yet."""
        return [*self._flying, *self._fresh]

    @property
    def has_fresh(self) -> bool:
        """Whether reports wait for a flush."""
        return bool(self._fresh)

    def abandon(self) -> None:
        """Write nothing more: the folder is another daemon's now."""
        self._is_abandoned = True

    async def end(self) -> None:
        """Write down what is left, and close the file; a disk that takes longer than END_S is left behind."""
        try:
            async with asyncio.timeout(END_S):
                await self.flush()
                if self._refused:
                    await self._write_lines()
                await self._thread.run(self._close_file)
        except TimeoutError:
            log.error("spool_does_not_end", extra={"path": str(self._path), "within_s": END_S})
        self._stop(wait=False)

    def close(self) -> None:
        """Close the file; what was acknowledged last may not be written, see above."""
        self._stop(wait=True)
        self._close_file()

    def _stop(self, *, wait: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._thread.shutdown(wait)

    def _close_file(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._write(b"".join(self._lines), False, self.is_empty)
            os.close(self._fd)
            self._fd = -1

    def _write(self, data: bytes, sync: bool, nothing_open: bool) -> None:
        if self._is_abandoned:
            return
        if nothing_open and self._empty():
            return
        try:
            write_all(self._fd, data, self._size)
            if sync:
                os.fdatasync(self._fd)
        except OSError:
            self._before_removal()
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def _empty(self) -> bool:
        """Whether nothing had to stay."""
        with self._unread.moved() as staying:
            if staying:
                return False
            self._before_removal()
            os.ftruncate(self._fd, 0)
            self._size = 0
        return True

    def _open_lines(self) -> bytes:
        return b"".join(_line_of(report) for report in self._durable.values())

    def _rewrite(self, reports: bytes) -> None:
        """Write only what is open into a new file, and put it in the place of the old one."""
        if self._is_abandoned:
            return
        try:
            with self._unread.moved() as staying:
                self._replace(staying + reports)
        except OSError as exc:
            log.error("spool_not_rewritten", extra={"path": str(self._path), "error": str(exc)})

    def _replace(self, data: bytes) -> None:
        temporary = self._path.with_suffix(".part")
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, data, 0)
            os.fsync(fd)
            self._before_removal()
            os.rename(temporary, self._path)
        except OSError:
            os.close(fd)
            self._before_removal()
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        # From now on the old file has no name: nothing that is written there would be found again.
        old, self._fd, self._size = self._fd, fd, len(data)
        with contextlib.suppress(OSError):
            os.close(old)
        self._sync_folder()

    def _sync_folder(self) -> None:
        """Some file systems cannot; then a power cut may bring the old file back, and the log says so."""
        try:
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as exc:
            log.warning("spool_folder_not_synced", extra={"path": str(self._path), "error": str(exc)})


def _line_of(report: ReportMessage) -> bytes:
    return orjson.dumps({"r": report}) + b"\n"
