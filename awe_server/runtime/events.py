"""What happened lately, in order: a bounded ring that readers follow.

Numbers start at the wall clock's microseconds when a server begins to lead, so that after a restart or a
takeover every new event is newer than what a reader saw before (a million events a second would break that);
they say nothing else. After a restart with a clock that was set back they are older: a reader who names a
number that was never given is told all there is.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Any

from awe_server.runtime.clock import Clock
from awe_server.scheduler.changes import Event as Fact
from shared_models.times import rfc3339

log = logging.getLogger(__name__)

Event = dict[str, Any]

RING = 10_000
HEARTBEAT_S = 15.0  #: a follower hears something at least this often


class EventLog:
    """The last events, each `{seq, time, code, ...}`; seq grows by one."""

    def __init__(self, clock: Clock, size: int = RING) -> None:
        self._clock = clock
        self._size = size
        #: of each batch its first number, its time and its facts: made into events only for who asks
        self._ring: deque[tuple[int, str, list[Fact]]] = deque()
        self._followers: set[asyncio.Future[None]] = set()
        self._closed = False
        self.last = 0  #: number of the newest event
        self.begin()

    def begin(self) -> None:
        """Number what comes from now on, unless there is something already: a server begins to lead."""
        if not self._ring:
            self.last = max(self.last, int(self._clock.wall() * 1e6))

    def publish(self, facts: Iterable[Fact]) -> None:
        """Add facts that are durable and wake those who follow."""
        new = list(facts)
        if not new:
            return
        self._ring.append((self.last + 1, rfc3339(self._clock.wall()), new))
        self.last += len(new)
        while _last_of(self._ring[0]) <= self.last - self._size:
            self._ring.popleft()
        self._wake()

    def _wake(self) -> None:
        for follower in self._followers:
            if not follower.done():
                follower.set_result(None)
        self._followers.clear()

    def close(self) -> None:
        """End every wait and every follower: the server stops."""
        self._closed = True
        self._wake()

    def _known(self, seq: int) -> int:
        """The number up to which a reader knows all: 0 if it names one that was never given."""
        return seq if seq <= self.last else 0

    def since(self, seq: int, *, job_id: str = "", limit: int = 1000) -> list[Event]:
        """Events newer than seq, oldest first."""
        known = max(self._known(seq), self.last - self._size)
        wanted = (
            {"seq": seq, "time": time, "code": fact.code, **fact.fields}
            for batch in self._ring
            if _last_of(batch) > known
            for first, time, facts in (batch,)
            for seq, fact in enumerate(facts, first)
            if seq > known and (not job_id or fact.fields.get("jobid") == job_id)
        )
        return list(islice(wanted, limit))

    async def wait(self, seq: int, timeout_s: float) -> bool:
        """Wait until an event newer than seq exists; False when the time is over."""
        if self.last > self._known(seq):
            return True
        if timeout_s <= 0 or self._closed:
            return False
        follower = asyncio.get_running_loop().create_future()
        self._followers.add(follower)
        try:
            async with asyncio.timeout(timeout_s):
                await follower
        except TimeoutError:
            return False
        finally:
            self._followers.discard(follower)
        return True

    async def follow(self, seq: int, *, job_id: str = "") -> AsyncIterator[Event | None]:
        """Events newer than seq and then each new one; None now and then, as a sign of life."""
        while True:
            newest = self.last
            for event in self.since(seq, job_id=job_id, limit=RING):
                yield event
            seq = newest
            if self.last > seq:
                continue
            if self._closed:
                return
            if not await self.wait(seq, HEARTBEAT_S) and not self._closed:
                yield None


def _last_of(batch: tuple[int, str, list[Fact]]) -> int:
    """The number of the last fact of a batch."""
    return batch[0] + len(batch[2]) - 1


#: Facts worth a line in the log; those of single workunits would drown the rest.
LOGGED = {
    "JQ": "job_submitted",
    "JD": "job_completed",
    "JP": "job_suspended",
    "JU": "job_resumed",
    "JC": "job_done_again",
    "JF": "job_failed",
    "JL": "job_deleted",
    "JR": "job_removed",
    "CR": "client_up",
    "CO": "client_resumed",
    "CS": "client_suspended",
    "CU": "client_gone",
    "QS": "queue_suspended",
    "QR": "queue_resumed",
}


def log_fact(code: str, fields: Event) -> None:
    """Write one line for a fact that an operator may look for: one of LOGGED."""
    extra = {"called" if key == "name" else key: value for key, value in fields.items()}
    log.info(LOGGED[code], extra=extra)
