"""The writer's lease: of all servers that share a MongoDB database, one writes.

The lease is the document `lease` of `meta`: `{owner, domain, epoch, renewals, until}`. `epoch` grows with
every change of owner, and whatever the owner writes has to match it. `renewals` grows with every renewal.
A lease is free when its owner gave it back, has visibly ended, let it run out by the database server's clock,
or did not renew it for its whole length by our monotonic clock. A wrong wall clock can make a takeover late
or early, but never make two writers, because the older one no longer matches the epoch.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from awe_server.store.errors import LeaseGone, StoreLocked
from awe_server.store.owner import describe, is_gone
from shared_models.times import ZERO_TIME, parse_rfc3339, rfc3339

LEASE_S = 15.0
POLL_S = 0.25

#: The database server's wall clock in seconds, None if it does not tell.
ServerClock = Callable[[], Awaitable[float | None]]


class Lease:
    """A store's claim to be the writer. `meta` is a motor collection, `owner` names the store."""

    def __init__(
        self, meta: Any, clock: ServerClock, *, owner: dict[str, Any], domain: str, length_s: float
    ) -> None:
        self._meta = meta
        self._clock = clock
        self._domain = domain
        self._owner = owner
        self._offset_s = 0.0  #: server's wall clock minus our monotonic clock
        self._renewed_at = 0.0
        self._epoch = 0
        self.length_s = length_s
        self.is_lost = False

    async def take(self, *, wait: bool = False) -> None:
        """Become the writer.

        An owner that cannot be seen is watched for up to the lease's length. Raises StoreLocked once an owner
        is known to live, unless told to wait for as long as it takes.
        """
        nobody = {"owner": {}, "domain": self._domain, "epoch": 0, "renewals": 0, "until": ZERO_TIME}
        await self._meta.update_one({"_id": "lease"}, {"$setOnInsert": nobody}, upsert=True)
        first = await self._meta.find_one({"_id": "lease"})
        seen, since = first, time.monotonic()
        while True:
            now = await self._read_clock()
            unmoved_s = time.monotonic() - since
            if self._is_free(seen, now) or unmoved_s >= self.length_s:
                if await self._claim(seen):
                    return
            elif not wait and (is_gone(seen["owner"]) is False or seen["renewals"] != first["renewals"]):
                raise StoreLocked(owner=f"{describe(seen['owner'])}, until {seen['until']}")
            await asyncio.sleep(POLL_S)
            current = await self._meta.find_one({"_id": "lease"})
            if (current["epoch"], current["renewals"]) != (seen["epoch"], seen["renewals"]):
                since = time.monotonic()
            seen = current

    async def renew(self, session: Any = None) -> None:
        """Renew, as part of a transaction if one is given. Raises LeaseGone if somebody else took over."""
        started = time.monotonic()
        change = {"$set": {"until": self._until()}, "$inc": {"renewals": 1}}
        result = await self._meta.update_one({"_id": "lease", "epoch": self._epoch}, change, session=session)
        if not result.matched_count:
            self.is_lost = True
        self.require()
        self._renewed_at = started

    def require(self) -> None:
        """Raise LeaseGone once the lease was seen to be lost."""
        if self.is_lost:
            raise LeaseGone

    async def renew_if_due(self) -> None:
        """Renew unless writing did it within the last third of the length."""
        if time.monotonic() - self._renewed_at >= self.length_s / 3:
            await self._read_clock()
            await self.renew()

    async def release(self) -> None:
        """Let the next server start at once; the epoch stays, so a new owner gets a new one."""
        await self._meta.update_one(
            {"_id": "lease", "epoch": self._epoch}, {"$set": {"owner": {}, "until": ZERO_TIME}}
        )
        self.is_lost = True

    async def _claim(self, seen: dict[str, Any]) -> bool:
        started = time.monotonic()
        result = await self._meta.update_one(
            {"_id": "lease", "epoch": seen["epoch"], "renewals": seen["renewals"]},
            {
                "$set": {"owner": self._owner, "domain": self._domain, "until": self._until()},
                "$inc": {"epoch": 1, "renewals": 1},
            },
        )
        self._epoch, self._renewed_at = seen["epoch"] + 1, started
        return bool(result.matched_count)

    async def _read_clock(self) -> float | None:
        now = await self._clock()
        self._offset_s = (time.time() if now is None else now) - time.monotonic()
        return now

    def _until(self) -> str:
        return rfc3339(self._offset_s + time.monotonic() + self.length_s)

    def _is_free(self, lease: dict[str, Any], server_now: float | None) -> bool:
        owner = lease["owner"]
        if not owner or owner == self._owner or is_gone(owner):
            return True
        return server_now is not None and server_now >= parse_rfc3339(lease["until"])
