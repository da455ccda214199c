"""How far the transfers of an attempt's step are, for whoever asks why nothing seems to happen."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from awe_client.daemon.places import Place
from awe_client.sdk.bodies import CountedBody, Progress


class Follower(Protocol):
    """Who wants to know how one file moves."""

    def __call__(self, done: int, total: int) -> None:
        """So far it is: bytes done, bytes in all or -1."""

    def waits(self, reason: str) -> None:
        """It does not move now, and why; "" = it goes on."""


class Meter:
    """Adds up the files of one step. Files are told apart by any key; -1 stands for a size nobody knows."""

    def __init__(
        self, stage: str, place: Place | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stage = stage  #: "fetching" or "pushing"
        self._place = place  #: of the step, among those that move files
        self.waits_for = ""  #: why nothing moves, until something does
        self._reached = 0  #: bytes done, when it last said so
        self._clock = clock
        self._since = clock()
        self._files: dict[str, tuple[int, int]] = {}

    def expect(self, key: str, size: int = -1) -> None:
        """Another file will be moved."""
        self._files[key] = (0, size)

    def there(self, key: str) -> None:
        """Nothing, or no more, has to be moved for a file: it is there."""
        done, _ = self._files.pop(key, (0, 0))
        if done:
            self._files[key] = (done, done)

    def follow(self, key: str) -> Follower:
        """Whom to tell how a file moves."""
        return _File(self, key)

    def moved(self, key: str, done: int, total: int) -> None:
        """So far is a file. What is only sent again does not show that the wait is over."""
        self._files[key] = (done, total)
        if self.waits_for and self.bytes_done > self._reached:
            self.waits_for = ""

    def waits(self, reason: str) -> None:
        """Nothing moves now, and why; "" = it goes on."""
        self.waits_for = reason
        self._reached = max(self._reached, self.bytes_done)

    async def stand_aside(self, pause: Awaitable[object]) -> None:
        """Pause, and let others move their files meanwhile."""
        if self._place is None:
            await pause
        else:
            await self._place.aside(pause, self.waits)

    @property
    def seconds(self) -> float:
        """For how long it has been going on."""
        return self._clock() - self._since

    @property
    def bytes_done(self) -> int:
        """What was moved so far."""
        return sum(done for done, _ in self._files.values())

    @property
    def bytes_known(self) -> int:
        """What is to be moved in all of files whose size is known."""
        return sum(max(total, 0) for _, total in self._files.values())

    @property
    def bytes_total(self) -> int:
        """What is to be moved in all; -1 if that is not known."""
        totals = [total for _, total in self._files.values()]
        return -1 if -1 in totals else sum(totals)


class _File:
    """One file of a meter."""

    def __init__(self, meter: Meter, key: str) -> None:
        self._meter = meter
        self._key = key

    def __call__(self, done: int, total: int) -> None:
        self._meter.moved(self._key, done, total)

    def waits(self, reason: str) -> None:
        """It does not move now, and why; "" = it goes on."""
        self._meter.waits(reason)


class Followers:
    """All who wait for one transfer; who comes later hears at once how far it is."""

    def __init__(self) -> None:
        self._all: list[Follower] = []
        self._last: tuple[int, int] | None = None
        self._waits_for = ""

    def join(self, follower: Follower) -> None:
        """One more."""
        self._all.append(follower)
        if self._last is not None:
            follower(*self._last)
        if self._waits_for:
            follower.waits(self._waits_for)

    def leave(self, follower: Follower) -> bool:
        """One less; whether somebody is left."""
        self._all.remove(follower)
        return bool(self._all)

    def __call__(self, done: int, total: int) -> None:
        """So far is the file."""
        self._last = (done, total)
        for follower in self._all:
            follower(done, total)

    def waits(self, reason: str) -> None:
        """It does not move now, and why; "" = it goes on."""
        self._waits_for = reason
        for follower in self._all:
            follower.waits(reason)


class MeteredBody:
    """A body that tells how much of it was sent; each reading begins at `there`, which the receiver has."""

    def __init__(self, body: CountedBody, on_progress: Progress, there: int = 0) -> None:
        self._body = body
        self._on_progress = on_progress
        self._there = there
        self.size = body.size

    @property
    def md5(self) -> str:
        """Of the bytes that were sent."""
        return self._body.md5

    @property
    def headers(self) -> dict[str, str]:
        """What the request must say about it."""
        return self._body.headers

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Read it from its beginning."""
        done, total = self._there, self._there + self.size
        async for chunk in self._body:
            yield chunk
            done += len(chunk)
            self._on_progress(done, total)
