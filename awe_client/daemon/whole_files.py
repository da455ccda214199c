"""Whole files that an attempt reads: through the cache where others of this client will need them too.

That is so for reference data and files marked `cache`, which become links to the cache's read-only file; and
for the files of a task with several workunits (an array, or what each part needs beside the cut input), of
which each attempt gets a copy that its command may change. What one workunit alone reads goes straight into
its directory, unless the cache has it already.

A link to the cache's file is for reading only, but a command may be able to write through it. So a file must
be after its use what it was before: else whoever read it meanwhile read nobody knows what.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from awe_client.daemon.attempt import Attempt, Link
from awe_client.daemon.cache import Cache, Cached, key_of
from awe_client.daemon.copies import copy_file, in_thread, link_file, remove_file
from awe_client.daemon.outcome import Failure
from awe_client.daemon.progress import Follower, Followers
from awe_client.daemon.transfer import Sources, StepError, disk_error
from awe_client.sdk.download import Wanted
from awe_client.sdk.threads import file_work
from shared_models.errors import BadRequest
from shared_models.states import FailureKind

T = TypeVar("T")


class WholeFiles:
    """Brings them. Every method raises StepError."""

    def __init__(self, sources: Sources, cache: Cache) -> None:
        self._sources = sources
        self._cache = cache
        self._followers: dict[str, Followers] = {}  #: of what somebody waits for, by key

    async def link(self, attempt: Attempt, entry: Mapping[str, Any], target: Path, follow: Follower) -> None:
        """Link the cache's file; it stays at least until `release`."""
        key = _key(attempt, entry)
        cached = await self._with_room(lambda: self._use(attempt, key, entry, follow))
        if cached is None:
            await self._with_room(lambda: self._get(attempt, entry, target, follow))
            await file_work(target.chmod, 0o444)
            return
        attempt.links.append(Link(entry["filename"], cached.path, cached))
        await _write(file_work(link_file, cached.path, target), target)

    async def copy(self, attempt: Attempt, entry: Mapping[str, Any], target: Path, follow: Follower) -> None:
        """Bring a file that is the attempt's own."""
        await self._with_room(lambda: self._copy(attempt, entry, target, follow))

    async def read(
        self,
        attempt: Attempt,
        entry: Mapping[str, Any],
        target: Path,
        follow: Follower,
        read: Callable[[Path], Awaitable[None]],
    ) -> None:
        """Bring a file, to `target` if it is not the cache's, only for `read(path)`."""
        key = self._shared_key(attempt, entry)
        cached = await self._with_room(lambda: self._use(attempt, key, entry, follow)) if key else None
        if cached is not None:
            try:
                await self._read_cached(entry["filename"], cached, read)
            finally:
                self._cache.done(cached)
            return
        try:
            await self._with_room(lambda: self._get(attempt, entry, target, follow))
            await read(target)
        finally:
            await asyncio.shield(file_work(remove_file, target, self._cache.disk.before_removal))

    async def spoilt(self, attempt: Attempt) -> Failure | None:
        """Say which file of the cache that a command had a link to is not what it was; None if all are."""
        for link in attempt.links:
            if link.entry is not None and not await self._cache.check(link.entry):
                what = _spoilt(link.name, "the command ran, by it or by another")
                # Out of reach: whoever wrote, it is a command, and no other work of this client suffers.
                return Failure(FailureKind.NODE, what, out_of_reach=True)
        return None

    def release(self, attempt: Attempt) -> None:
        """The attempt is over: what it linked to may go."""
        while attempt.links:
            link = attempt.links.pop()
            if link.entry is not None:
                self._cache.done(link.entry)

    async def _read_cached(self, name: str, cached: Cached, read: Callable[[Path], Awaitable[None]]) -> None:
        failed: StepError | None = None
        try:
            await read(cached.path)
        except StepError as exc:
            failed = exc
        if not await self._cache.check(cached):
            raise StepError(FailureKind.NODE, _spoilt(name, "it was unpacked"), out_of_reach=True) from failed
        if failed is not None:
            raise failed

    def _shared_key(self, attempt: Attempt, entry: Mapping[str, Any]) -> str:
        """Which entry of the cache a file comes from; "" = it is fetched for this attempt alone."""
        if entry.get("cache"):
            return _key(attempt, entry)
        message = attempt.task.message
        key = _key(attempt, entry, message["jobid"])
        return key if message["totalwork"] > 1 or self._cache.has(key) else ""

    async def _copy(self, attempt: Attempt, entry: Mapping[str, Any], target: Path, follow: Follower) -> None:
        key = self._shared_key(attempt, entry)
        while key and (cached := await self._use(attempt, key, entry, follow)) is not None:
            try:
                await _write(
                    in_thread(copy_file, cached.path, target, self._cache.disk.before_removal), target
                )
                if await self._cache.check(cached):
                    return  # and what was copied is what it is
            finally:
                self._cache.done(cached)
        await self._get(attempt, entry, target, follow)

    async def _use(
        self, attempt: Attempt, key: str, entry: Mapping[str, Any], follow: Follower
    ) -> Cached | None:
        """Use an entry; all who wait for it see how far it is, whoever began to fetch it."""
        followers = self._followers.setdefault(key, Followers())
        followers.join(follow)
        try:
            return await self._cache.use(
                key, whole(entry).size, lambda path: self._get(attempt, entry, path, followers)
            )
        finally:
            if not followers.leave(follow):
                del self._followers[key]

    async def _get(self, attempt: Attempt, entry: Mapping[str, Any], target: Path, follow: Follower) -> None:
        await self._sources.get(
            entry["url"],
            target,
            whole(entry),
            follow,
            is_shock=is_shock(entry),
            datatoken=token_of(attempt),
        )

    async def _with_room(self, bring: Callable[[], Awaitable[T]]) -> T:
        """On a full disk, what the cache keeps for later has to go first."""
        try:
            return await bring()
        except StepError as exc:
            if not exc.disk_full:
                raise
            self._cache.disk.was_full()  # known now, and there is room again before an attempt fails of it
            if not await self._cache.make_room(sys.maxsize):
                raise
        return await bring()


def _spoilt(name: str, when: str) -> str:
    return f"{name} was changed in this client's cache while {when}; links to the cache are for reading only"


async def _write(writing: Awaitable[None], target: Path) -> None:
    try:
        await writing
    except BadRequest as exc:
        raise StepError(FailureKind.INPUT, str(exc)) from exc
    except OSError as exc:
        raise disk_error(exc, target.name) from exc


def _key(attempt: Attempt, entry: Mapping[str, Any], job: str = "") -> str:
    """The entry of a file. Without md5 or any version, it is one only within the job, if that is given.

    `version` is what the server saw before the task started; unlike `etag` it need not be that any more. What
    the server has not seen, perhaps only the job's token opens: then it is nobody's who has another one.
    """
    token = token_of(attempt) if is_shock(entry) else ""
    return key_of(entry["url"], whole(entry), scope=entry.get("version") or job or token)


def token_of(attempt: Attempt) -> str:
    """The job's token for other Shocks; "" if it has none."""
    return attempt.task.message.get("datatoken", "")


def is_shock(entry: Mapping[str, Any]) -> bool:
    """Whether it is a node of another Shock; own nodes have an address without a host."""
    return bool(entry.get("host")) and entry.get("node") not in (None, "", "-")


def whole(entry: Mapping[str, Any]) -> Wanted:
    """What is known of a whole file. A size of 0 is what a document says that does not know."""
    return Wanted(
        size=int(entry.get("size") or 0) or -1,
        md5=entry.get("md5") or "",
        gunzip=entry.get("uncompress") == "gzip",
        etag=entry.get("etag") or "",
    )
