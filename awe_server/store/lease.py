"""The writer's lease: of all servers that share a MongoDB database, one writes.

The lease is the document `lease` of `meta`: `{owner, domain, epoch, renewals, until}`. `epoch` grows with
every change of owner, and whatever the owner writes has to match it. `renewals` grows with every renewal.
A lease is free when its owner gave it back, has visibly ended, let it run out by the database server's clock,
or did not renew it for its whole length by our monotonic clock. A wrong wall clock can make a takeover late
or early, but never make two writers, because the older one no longer matches the epoch.

A holder that was stopped, or that the database does not answer, cannot know whether somebody took over. It is
`in_doubt` once its lease has not been renewed for nearly its length by its own clock, and asks before it says
or does anything more.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from awe_server.store.errors import LeaseGone, StoreLocked
from awe_server.store.owner import describe, is_gone
from awe_server.store.waiting import Waiting
from shared_models.times import ZERO_TIME, parse_rfc3339, rfc3339

LEASE_S = 15.0
POLL_S = 0.25
#: Part of its length for which a holder is sure of its lease; the database's clock is read over a network.
SURE = 0.9


def boot_clock() -> float:
    """Seconds that no step of the wall clock moves; they run on while the process or the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Busy(Exception):
    """A transaction failed because of another one; nothing was written, it may be repeated."""


class Renewal(NamedTuple):
    """A renewal that counts once it is durable."""

    began_s: float
    until: str

    @property
    def change(self) -> dict[str, Any]:
        """To be written to the lease, if it is still `Lease.ours`."""
        return {"$set": {"until": self.until}, "$inc": {"renewals": 1}}


class Server(Protocol):
    """What a lease needs of the database server beside its collection."""

    async def clock(self) -> float | None:
        """The server's wall clock in seconds, None if it does not tell."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Give a session in a transaction, or None where there are none. Raises Busy."""
        ...

    async def end_session(self, lsid: str) -> None:
        """Abort what that session left open, if the server lets us."""


class Lease:
    """A store's claim to be the writer. `meta` is a motor collection, `owner` names the store."""

    def __init__(
        self,
        meta: Any,
        server: Server,
        waiting: Waiting,
        *,
        owner: dict[str, Any],
        domain: str,
        length_s: float,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._meta = meta
        self._server = server
        self._waiting = waiting
        self._domain = domain
        self._owner = owner
        self._clock = clock
        self._offset_s = 0.0  #: server's wall clock minus ours
        self._renewed_at = 0.0
        self._epoch = 0
        self._until_known = ZERO_TIME  #: as of the last renewal
        self.length_s = length_s
        self.is_lost = False

    @property
    def shown(self) -> dict[str, Any]:
        """What people may want to know of it."""
        return {"epoch": self._epoch, "until": self._until_known}

    @property
    def in_doubt(self) -> bool:
        """Whether somebody else may own it by now, or does."""
        return self.is_lost or self._clock() - self._renewed_at > SURE * self.length_s

    async def take(self, *, wait: bool = False) -> None:
        """Become the writer.

        An owner that cannot be seen is watched for up to the lease's length. Raises StoreLocked once an owner
        is known to live, unless told to wait for as long as it takes.
        """
        first = await self._find()
        seen, since = first, self._clock()
        while True:
            now = await self.read_clock()
            unmoved_s = self._clock() - since
            if self._is_free(seen, now) or unmoved_s >= self.length_s:
                self._waiting.reason = "a transaction of the last writer still locks the lease"
                if await self._claim(seen):
                    return
            elif not wait and (is_gone(seen["owner"]) is False or seen["renewals"] != first["renewals"]):
                raise StoreLocked(owner=f"{describe(seen['owner'])}, until {seen['until']}")
            else:
                self._waiting.reason = f"{describe(seen['owner'])} owns it, until {seen['until']}"
            await asyncio.sleep(POLL_S)
            current = await self._find()
            if (current["epoch"], current["renewals"]) != (seen["epoch"], seen["renewals"]):
                since = self._clock()
            seen = current

    async def _find(self) -> dict[str, Any]:
        """The lease's document. It is written only if there is none: it may be locked."""
        while True:
            found: dict[str, Any] | None = await self._meta.find_one({"_id": "lease"})
            if found is not None:
                return found
            nobody = {"owner": {}, "domain": self._domain, "epoch": 0, "renewals": 0, "until": ZERO_TIME}
            await self._meta.update_one({"_id": "lease"}, {"$setOnInsert": nobody}, upsert=True)

    async def renew(self, session: Any = None) -> Renewal:
        """Renew, as part of a transaction if one is given; it counts once `renewed` hears that it is durable.

        Raises LeaseGone if somebody else took over.
        """
        renewal = self.renewal()
        result = await self._meta.update_one(self.ours, renewal.change, session=session)
        self.matched(bool(result.matched_count))
        return renewal

    @property
    def ours(self) -> dict[str, Any]:
        """Matches the lease as long as nobody else took over."""
        return {"_id": "lease", "epoch": self._epoch}

    def renewal(self) -> Renewal:
        """What `renew` writes, for who writes it together with other things."""
        return Renewal(self._clock(), self._until())

    def matched(self, found: bool) -> None:
        """Hear whether the lease that was to be renewed was found. Raises LeaseGone if not."""
        if not found:
            self.is_lost = True
        self.require()

    def renewed(self, renewal: Renewal) -> None:
        """It is durable: the lease is ours for its length from when it began."""
        self._renewed_at, self._until_known = renewal

    def require(self) -> None:
        """Raise LeaseGone once the lease was seen to be lost."""
        if self.is_lost:
            raise LeaseGone

    async def renew_if_due(self) -> None:
        """Renew unless writing did it within the last third of the length."""
        if self._clock() - self._renewed_at >= self.length_s / 3:
            async with self._server.transaction() as session:
                renewal = await self.renew(session)
            self.renewed(renewal)

    async def release(self) -> None:
        """Let the next server start at once; the epoch stays, so a new owner gets a new one."""
        change = {"$set": {"owner": {}, "until": ZERO_TIME}}
        async with self._server.transaction() as session:
            await self._meta.update_one(self.ours, change, session=session)
        self.is_lost = True

    async def _claim(self, seen: dict[str, Any]) -> bool:
        """Become the owner, if nothing happened since it was seen and no transaction locks it."""
        began_s, until = self._clock(), self._until()
        lsid = seen["owner"].get("lsid")
        if lsid and lsid != self._owner.get("lsid"):
            await self._server.end_session(lsid)
        try:
            async with self._server.transaction() as session:
                result = await self._meta.update_one(
                    {"_id": "lease", "epoch": seen["epoch"], "renewals": seen["renewals"]},
                    {
                        "$set": {"owner": self._owner, "domain": self._domain, "until": until},
                        "$inc": {"epoch": 1, "renewals": 1},
                    },
                    session=session,
                )
        except Busy:
            return False
        if not result.matched_count:
            return False
        self._epoch, self._renewed_at, self._until_known = seen["epoch"] + 1, began_s, until
        return True

    async def read_clock(self) -> float | None:
        """Learn how far the database server's wall clock is from ours; it, or None if it does not tell.

        Batches renew the lease by what was learnt last.
        """
        now = await self._server.clock()
        self._offset_s = (time.time() if now is None else now) - self._clock()
        return now

    def _until(self) -> str:
        return rfc3339(self._offset_s + self._clock() + self.length_s)

    def _is_free(self, lease: dict[str, Any], server_now: float | None) -> bool:
        owner = lease["owner"]
        if not owner or owner.get("nonce") == self._owner["nonce"] or is_gone(owner):
            return True
        return server_now is not None and server_now >= parse_rfc3339(lease["until"])
