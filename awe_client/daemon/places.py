"""Places for attempts that move files: so many in all, and no foreign host has more than half of them.

A shared file system counts as a host. So one that is slow holds up what needs it, and nothing else; one place
is never a foreign host's, as long as there are two, so that what comes from our own server always comes.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

Hosts = frozenset[str]


class Places:
    """Who waits for a host lets those pass that do not."""

    def __init__(self, total: int) -> None:
        self._free = total
        self._foreign = max(total - 1, 1)  #: left for attempts that need a foreign host
        self._per_host = max(total // 2, 1)
        self._taken: Counter[str] = Counter()
        self._line: list[tuple[Hosts, asyncio.Future[None]]] = []  #: none of them fits now

    @contextlib.asynccontextmanager
    async def take(self, hosts: Hosts, on_wait: Callable[[str], None]) -> AsyncIterator["Place"]:
        """Have a place, once there is one also at all of these foreign hosts.

        `on_wait` is told why there is none yet, and "" in the end.
        """
        place = Place(self, hosts)
        await place.enter(on_wait)
        try:
            yield place
        finally:
            place.leave()

    async def enter(self, hosts: Hosts, on_wait: Callable[[str], None]) -> None:
        """As `take`; `leave` must be called later."""
        if not self._fits(hosts):
            await self._wait(hosts, on_wait)
        else:
            self._count(hosts, 1)

    def leave(self, hosts: Hosts) -> None:
        """Give a place to the next."""
        self._count(hosts, -1)
        self._call_up()

    async def _wait(self, hosts: Hosts, on_wait: Callable[[str], None]) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((hosts, place))
        on_wait(self._why_not(hosts))
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._line.remove((hosts, place))
            else:
                self.leave(hosts)  # it was given and not begun
            raise
        on_wait("")

    def _call_up(self) -> None:
        """Give what is free, in order, to those for whom it is enough."""
        still: list[tuple[Hosts, asyncio.Future[None]]] = []
        for hosts, place in self._line:
            if not place.done() and self._fits(hosts):
                self._count(hosts, 1)
                place.set_result(None)
            else:
                still.append((hosts, place))
        self._line = still

    def _fits(self, hosts: Hosts) -> bool:
        if not hosts:
            return self._free > 0
        crowded = any(self._taken[host] >= self._per_host for host in hosts)
        return self._free > 0 and self._foreign > 0 and not crowded

    def _count(self, hosts: Hosts, one: int) -> None:
        self._free -= one
        if hosts:
            self._foreign -= one
        for host in hosts:
            self._taken[host] += one
            if not self._taken[host]:
                del self._taken[host]

    def _why_not(self, hosts: Hosts) -> str:
        crowded = sorted(host for host in hosts if self._taken[host] >= self._per_host)
        if crowded:
            return f"this client moves {self._per_host} workunits' files from or to {crowded[0]} already"
        return "other workunits' files are moved first"


class Place:
    """One place, and who has it."""

    def __init__(self, places: Places, hosts: Hosts) -> None:
        self._places = places
        self._hosts = hosts
        self._is_taken = False

    async def enter(self, on_wait: Callable[[str], None]) -> None:
        """Have it, once it is there."""
        await self._places.enter(self._hosts, on_wait)
        self._is_taken = True

    def leave(self) -> None:
        """Have it no more; nothing if it was left before."""
        if self._is_taken:
            self._is_taken = False
            self._places.leave(self._hosts)

    async def aside(self, pause: Awaitable[object], on_wait: Callable[[str], None]) -> None:
        """Let others have it during a pause."""
        self.leave()
        await pause
        await self.enter(on_wait)
