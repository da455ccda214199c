"""Sends the logs of running attempts while somebody reads them."""

import asyncio
import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from awe_client.daemon.attempt import Attempt, AttemptKey
from awe_client.daemon.leavings import open_log
from awe_client.daemon.servers import Servers
from awe_client.sdk.threads import file_work
from awe_client.sdk.work import LogName
from shared_models.errors import AweError
from shared_models.limits import MAX_LOG_BYTES

_PIECE_BYTES = 1024 * 1024  #: sent at once


@dataclass(slots=True)
class _Follower:
    """What was sent of one attempt's logs, and the task that sends more, if it is wanted at the moment."""

    attempt: Attempt
    sent: dict[LogName, int] = field(default_factory=dict)
    unwanted: asyncio.Event = field(default_factory=asyncio.Event)  #: set = stop
    task: asyncio.Task[None] | None = None


class LiveLogs:
    """One follower for each attempt that was ever asked for, until its command has ended."""

    def __init__(self, servers: Servers, *, pause_s: float = 1.0) -> None:
        self._servers = servers
        self._pause_s = pause_s
        self._followers: dict[AttemptKey, _Follower] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def follow(self, attempts: list[Attempt]) -> None:
        """Send these, and no others, from now on."""
        wanted = {attempt.key: attempt for attempt in attempts}
        for key, follower in self._followers.items():
            if key not in wanted:
                follower.unwanted.set()
        for key, attempt in wanted.items():
            follower = self._followers.setdefault(key, _Follower(attempt))
            follower.unwanted.clear()
            if follower.task is None or follower.task.done():
                follower.task = asyncio.ensure_future(self._send(follower))

    def has_sent(self, key: AttemptKey) -> bool:
        """Whether a beginning of this attempt's logs may be at the server: then the whole has to follow."""
        return key in self._followers

    async def end(self, key: AttemptKey) -> None:
        """The command has ended: send no more.

        Returns when no piece is under way any more: it would cut off what is sent after it.
        """
        follower = self._followers.pop(key, None)
        if follower is not None and follower.task is not None:
            follower.unwanted.set()
            await asyncio.wait({follower.task})

    def drop(self, key: AttemptKey) -> None:
        """The attempt is over and nothing of its logs matters any more."""
        follower = self._followers.pop(key, None)
        if follower is not None and follower.task is not None:
            self._leaving.add(follower.task)
            follower.task.add_done_callback(self._leaving.discard)
            follower.task.cancel()

    def close(self) -> None:
        """Stop at once."""
        for key in list(self._followers):
            self.drop(key)

    async def _send(self, follower: _Follower) -> None:
        task = follower.attempt.task
        names: dict[LogName, str] = {"stdout": task.stdout, "stderr": task.stderr}
        while not follower.unwanted.is_set():
            for kind, name in names.items():
                # A piece that could not be sent goes with the next, or with the whole log at the end.
                with contextlib.suppress(AweError, OSError):
                    await self._send_more(follower, kind, name)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s):
                    await follower.unwanted.wait()

    async def _send_more(self, follower: _Follower, kind: LogName, name: str) -> None:
        attempt, is_more = follower.attempt, True
        while is_more:
            offset = follower.sent.get(kind, 0)
            length = min(_PIECE_BYTES, MAX_LOG_BYTES - offset)
            piece = await file_work(_read, attempt.directory, name, offset, length)
            if piece:
                await self._servers.current.write_log(
                    attempt.id, kind, piece, attempt=attempt.number, token=attempt.token, offset=offset
                )
                follower.sent[kind] = offset + len(piece)
            is_more = len(piece) == _PIECE_BYTES and not follower.unwanted.is_set()


def _read(directory: Path, name: str, offset: int, length: int) -> bytes:
    """A piece of a log. Raises OSError."""
    log = open_log(os.fsencode(directory), os.fsencode(name))
    try:
        return os.pread(log, length, offset)
    finally:
        os.close(log)
