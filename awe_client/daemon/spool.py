"""Results that the server has not acknowledged yet, on disk, so that a restarted daemon still delivers them.

One append-only file with a line per fact: {"r": report} or {"a": [workunit, attempt]}. Reports of one moment
are written together and cost one fsync. They are written while they are told: a copy is for the case that the
server does not answer. They are written soon also if nobody is there to tell them to. Acknowledgements are
written with them, or soon, and not fsynced: a report that is delivered twice is answered `duplicate`. A torn
last line is what a crash leaves; it is cut off at the next start. When nothing is open the file is emptied,
and when it has grown large it is written anew. Lines that cannot be read are moved to a file beside it,
`reports.unread`, for people to look at; while that file does not take them they stay in this one, which is
not emptied then.

The lines hold lease tokens: the file is private to its user.
"""

import asyncio
import contextlib
import logging
import os
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
        self._lines: list[bytes] = []  # not on their way to the disk
        self._open: dict[AttemptKey, ReportMessage] = {}  #: not acknowledged, oldest first
        self._fresh: set[AttemptKey] = set()  #: whose lines are among those
        self._refused: list[AttemptKey] = []  #: what the disk did not take
        self._writing: asyncio.Task[None] | None = None
        self._is_wanted = False  #: another write, once the disk is ready
        self._busy_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when it goes off
        self._thread = OwnThreads(1, "spool")
        self._is_abandoned = False

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
        return list(self._open)

    def _recall(self, line: bytes) -> bool:
        """Pass over what is no line of ours, and say so: nothing that a server would refuse may hold up the
        others.
        """
        try:
            match orjson.loads(line):
                case {"r": report}:
                    check_report(report)
                    self._open[report["work"], report["attempt"]] = report
                case {"a": [str(work), int(attempt)]}:
                    self._open.pop((WorkunitId(work), attempt), None)
                case _:
                    raise InvalidDocument("is no line of a spool")
        except (orjson.JSONDecodeError, InvalidDocument) as exc:
            where = {"path": str(self._path), "offset": self._size}
            log.warning("spool_line_unreadable", extra={**where, "error": str(exc)})
            return False
        return True

    def add(self, report: ReportMessage) -> None:
        """Take a report; it is soon on disk."""
        key = report["work"], report["attempt"]
        self._open[key] = report
        self._fresh.add(key)
        self._lines.append(_line_of(report))
        self._write_soon()

    def acknowledge(self, key: AttemptKey) -> None:
        """The server has answered this report, or nobody wants it any more."""
        if self._open.pop(key, None):
            self._fresh.discard(key)
            self._lines.append(orjson.dumps({"a": key}) + b"\n")
            self._write_soon()

    def postpone(self, key: AttemptKey) -> None:
        """Let the other reports go before this one."""
        if key in self._open:
            self._open[key] = self._open.pop(key)

    def reports(self) -> list[ReportMessage]:
        """All that are open, oldest first."""
        return list(self._open.values())

    @property
    def keys(self) -> list[AttemptKey]:
        """Their attempts."""
        return list(self._open)

    @property
    def is_empty(self) -> bool:
        """Whether every report was acknowledged."""
        return not self._open

    @property
    def has_fresh(self) -> bool:
        """Whether there are reports that nobody has begun to write."""
        return bool(self._fresh)

    # --- writing ---------------------------------------------------------------------------------

    def write(self) -> None:
        """Begin to write the reports that were added. While the disk is busy they follow what it has.

        If the disk refuses, the log says that the reports would not survive a crash, and those that are still
        open are written again later.
        """
        if self._is_busy:
            self._is_wanted = True
        elif self._fresh:
            self._begin()

    async def flush(self) -> None:
        """Write everything added so far, however long the disk takes."""
        while self._is_busy or self._lines:
            writing = self._writing if self._is_busy else self._begin()
            assert writing is not None
            await asyncio.wait((writing,))
            writing.result()

    @property
    def busy_s(self) -> float:
        """How long the disk has been at what it was given to write."""
        return asyncio.get_running_loop().time() - self._busy_since if self._is_busy else 0.0

    @property
    def _is_busy(self) -> bool:
        return self._writing is not None and not self._writing.done()

    def _begin(self) -> asyncio.Task[None]:
        self._writing = asyncio.ensure_future(self._write_all())
        return self._writing

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
        if self._is_busy:
            self._write_soon()
        elif self._lines or self._refused:
            self._begin()

    async def _write_all(self) -> None:
        while True:
            self._is_wanted = False
            self._busy_since = asyncio.get_running_loop().time()
            await self._write_lines()
            if not (self._is_wanted and self._fresh):
                return

    async def _write_lines(self) -> None:
        lines, self._lines = self._lines, []
        flying, self._fresh = self._fresh, set()
        again = [key for key in self._refused if key in self._open and key not in flying]
        data = b"".join([*(_line_of(self._open[key]) for key in again), *lines])
        try:
            await self._thread.run(self._write, data, bool(flying or again), self.is_empty)
            self._refused = []
        except OSError as exc:
            if not again:
                log.error("spool_not_written", extra={"path": str(self._path), "error": str(exc)})
            self._refused = [*again, *flying]
        if self._refused:
            self._write_soon(WRITE_AGAIN_S)
        if self._size > REWRITE_BYTES:
            await self._thread.run(self._rewrite, self._open_lines())

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
        return b"".join(_line_of(report) for key, report in self._open.items() if key not in self._fresh)

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
