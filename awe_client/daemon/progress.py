"""How far the transfers of an attempt's step are, for whoever asks why nothing seems to happen."""

import time
from collections.abc import AsyncIterator, Callable

from awe_client.sdk.bodies import CountedBody, Progress


class Meter:
    """Adds up the files of one step. Files are told apart by any key; -1 stands for a size nobody knows."""

    def __init__(self, stage: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.stage = stage  #: "fetching" or "pushing"
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

    def follow(self, key: str) -> Progress:
        """What to call while a file moves."""

        def moved(done: int, total: int) -> None:
            self._files[key] = (done, total)

        return moved

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


class Followers:
    """All who wait for one transfer; who comes later hears at once how far it is."""

    def __init__(self) -> None:
        self._all: list[Progress] = []
        self._last: tuple[int, int] | None = None

    def join(self, follower: Progress) -> None:
        """One more."""
        self._all.append(follower)
        if self._last is not None:
            follower(*self._last)

    def leave(self, follower: Progress) -> bool:
        """One less; whether somebody is left."""
        self._all.remove(follower)
        return bool(self._all)

    def moved(self, done: int, total: int) -> None:
        """What to call while the file moves."""
        self._last = (done, total)
        for follower in self._all:
            follower(done, total)


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
