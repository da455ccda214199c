"""Files that attempts of this client have in common: each is fetched once and kept for later ones.

An entry is known by its content's md5, so a changed source is another entry. Where that is not known, its
address, version and size stand for it, and then it is kept only as long as this daemon runs.

An entry is a read-only file `<key>.<size>.<mtime_ns>.<random>`. It gets this name, which says all that has to
be known of it, when it is whole and on the disk; so a daemon may be killed at any moment, and the next one
takes what is true to its name and removes the rest. Before each use it is looked at again, and also after it:
one that was changed (other size, time or inode) is dropped and fetched anew. Its bytes are not read for that;
another mode or one more name, which leave them as they are, are no change.

Concurrent users wait for one download, which goes on as long as one of them is left. The longest unused go
when there is too much, or when the disk is short. What is in use stays, and what has no room beside it is not
taken: the attempt fetches it for itself.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from awe_client.daemon.copies import IsStopped, in_thread
from awe_client.daemon.disk import DiskWatch, free_disk
from awe_client.sdk.download import Wanted
from awe_client.sdk.threads import file_work

log = logging.getLogger(__name__)

MAX_ENTRIES = 10_000
#: A disk that hangs holds up the end for so long.
CLOSE_S = 5.0
#: The time of an entry lies so far back that every later change shows, however coarse the clock of files is.
_BACK_NS = 2_000_000_000

_MD5 = re.compile(r"[0-9a-f]{32}")
#: Entries that outlive a daemon.
_KEPT = re.compile(r"(?P<key>md5-[0-9a-f]{32}(-unpacked)?)\.(?P<size>\d+)\.(?P<mtime_ns>\d+)\.[0-9a-f]{8}")

#: Brings a file to a path.
Fetch = Callable[[Path], Awaitable[object]]


@dataclass(slots=True, eq=False)
class Cached:
    """An entry: a file, and how many use it."""

    key: str
    path: Path
    size: int  #: while it is on its way, what is expected
    mtime_ns: int = 0
    inode: int = 0
    users: int = 0
    bringing: asyncio.Task[None] | None = field(default=None, repr=False)  #: None = it was there at the start

    @property
    def is_here(self) -> bool:
        """Whether it has arrived."""
        return self.inode > 0


def key_of(url: str, wanted: Wanted, *, scope: str = "") -> str:
    """What an entry with this content is known by. `scope` counts where nothing tells versions apart."""
    suffix = "-unpacked" if wanted.gunzip else ""
    if _MD5.fullmatch(wanted.md5):
        return f"md5-{wanted.md5}{suffix}"
    facts = "\n".join((url, wanted.etag or scope, str(wanted.size)))
    return f"url-{hashlib.sha256(facts.encode('utf-8', 'surrogatepass')).hexdigest()}{suffix}"


class Cache:
    """Files by key. Everything but `open` belongs to one event loop."""

    def __init__(self, folder: Path, max_bytes: int, disk: DiskWatch | None = None) -> None:
        """At most `max_bytes`, as far as sizes are known beforehand; 0 = keep nothing.

        `disk` hears of removals, and that there is no room; by default nobody else needs to know.
        """
        self.disk = disk or DiskWatch(folder)
        self._folder = folder
        self._max_bytes = max_bytes
        self._entries: dict[str, Cached] = {}  #: the longest unused first
        self._total = 0  #: bytes of all there are or are on their way, also of dropped ones still in use
        self._in_use = 0  #: of these, bytes that cannot be removed
        self._leaving = 0  #: bytes of files that are being removed
        self._downloads: set[asyncio.Task[None]] = set()
        self._removals: set[asyncio.Task[None]] = set()
        self.hits = self.misses = 0

    def open(self) -> None:
        """Take over what an earlier daemon left whole, and remove everything else."""
        found: list[tuple[int, Cached]] = []
        for path in self._folder.iterdir():
            name = _KEPT.fullmatch(path.name)
            try:
                info = path.lstat()
                if name is not None and stat.S_ISREG(info.st_mode):
                    entry = Cached(name["key"], path, int(name["size"]), int(name["mtime_ns"]), info.st_ino)
                    if _is_true(entry, info):
                        found.append((info.st_atime_ns, entry))
                        continue
                path.unlink()
            except OSError as exc:
                log.warning("cache_not_cleaned", extra={"path": str(path), "reason": exc.strerror})
        for _, entry in sorted(found, key=lambda one: one[0]):
            if twin := self._entries.pop(entry.key, None):
                self._total -= twin.size
                self._unlink([twin.path])
            self._entries[entry.key] = entry
            self._total += entry.size
        self._unlink([entry.path for entry in self._evict(self._excess())])
        log.debug("cache_opened", extra={"entries": len(self._entries), "bytes": self._total})

    @property
    def unused_bytes(self) -> int:
        """What `make_room` can give to the disk, or is giving."""
        return self._total - self._in_use + self._leaving

    def has(self, key: str) -> bool:
        """Whether an entry is there or on its way."""
        return key in self._entries

    async def use(self, key: str, size: int, fetch: Fetch) -> Cached | None:
        """Give an entry, after `fetch(path)` if it is not there; None if there is no room for it.

        `size` is what is known of it, -1 if nothing is. `done` must be called later. Raises what `fetch`
        raises, for all who wait for the same.
        """
        while True:
            entry = self._entries.get(key)
            is_new = entry is None
            if entry is None:
                if not self._fits(size):
                    self._count(key, is_hit=False)
                    return None
                entry = self._begin(key, max(size, 0), fetch)
            self._take(entry)
            try:
                if entry.bringing is not None and not entry.bringing.done():
                    await asyncio.wait((entry.bringing,))
                if entry.bringing is not None:
                    entry.bringing.result()
                is_right = is_new or await self.check(entry, note_use=entry.users == 1)
            except BaseException:
                self.done(entry)
                raise
            if is_right:
                self._count(key, is_hit=not is_new)
                return entry
            self.done(entry)

    async def check(self, entry: Cached, *, note_use: bool = False) -> bool:
        """Look at an entry that is in use; one that is not any more what it was is dropped.

        `note_use`: for the order of entries after a restart. Not while others use it: they may write to it.
        """
        if await file_work(_look, entry, note_use=note_use):
            return True
        if self._entries.get(entry.key) is entry:
            log.warning("cache_entry_changed", extra={"path": str(entry.path), "users": entry.users})
            del self._entries[entry.key]
        return False

    def done(self, entry: Cached) -> None:
        """One user less. What nobody uses may be removed, and a download that nobody waits for ends."""
        entry.users -= 1
        if entry.users:
            return
        self._in_use -= entry.size
        if self._entries.get(entry.key) is not entry:
            self._total -= entry.size
            self._remove([entry] if entry.is_here else [])
        elif not entry.is_here:
            del self._entries[entry.key]
            self._total -= entry.size
            assert entry.bringing is not None
            entry.bringing.cancel()
        else:
            self._remove(self._evict(self._excess()))

    async def make_room(self, needed_bytes: int) -> bool:
        """Remove what is unused until so much of the disk is free; whether anything went."""
        self.give_way(needed_bytes - await file_work(free_disk, self._folder))
        is_going = self._leaving > 0
        await self._settled()
        return is_going

    def give_way(self, missing_bytes: int) -> None:
        """Give so much of what is unused to the disk, in the background."""
        self._remove(self._evict(missing_bytes - self._leaving))

    async def close(self) -> None:
        """Wait some seconds for downloads that end and files that go; the next start removes what is left."""
        until = time.monotonic() + CLOSE_S
        while work := (*self._downloads, *self._removals):
            left_s = until - time.monotonic()
            if left_s <= 0:
                log.error("cache_does_not_end", extra={"within_s": CLOSE_S, "works": len(work)})
                return
            await asyncio.wait(work, timeout=left_s)

    # --- what comes ------------------------------------------------------------------------------

    def _fits(self, size: int) -> bool:
        """Whether there is room; makes it if need be."""
        size = max(size, 0)
        if not self._max_bytes or self._in_use + size > self._max_bytes:
            return False
        self._remove(self._evict(self._excess(size)))
        return True

    def _begin(self, key: str, size: int, fetch: Fetch) -> Cached:
        fresh = self._folder / f"{key}.{secrets.token_hex(4)}.new"
        entry = self._entries[key] = Cached(key, fresh, size)
        self._total += size
        entry.bringing = asyncio.ensure_future(self._bring(entry, fetch))
        entry.bringing.add_done_callback(_look_at_the_end)
        self._downloads.add(entry.bringing)
        entry.bringing.add_done_callback(self._downloads.discard)
        return entry

    async def _bring(self, entry: Cached, fetch: Fetch) -> None:
        """Fetch an entry. It belongs to all who wait for it; the last one to leave cancels this."""
        fresh = entry.path
        try:
            await self._settled()  # what has to go first is gone
            await fetch(fresh)
            info = await in_thread(_finish, entry)
        except BaseException:
            if self._entries.get(entry.key) is entry:
                del self._entries[entry.key]
            await asyncio.shield(file_work(self._unlink, [fresh, entry.path]))
            raise
        self._in_use += info.st_size - entry.size
        self._total += info.st_size - entry.size
        entry.size, entry.mtime_ns, entry.inode = info.st_size, info.st_mtime_ns, info.st_ino
        self._remove(self._evict(self._excess()))

    def _take(self, entry: Cached) -> None:
        if not entry.users:
            self._in_use += entry.size
        entry.users += 1
        if self._entries.get(entry.key) is entry:
            self._entries[entry.key] = self._entries.pop(entry.key)

    def _count(self, key: str, *, is_hit: bool) -> None:
        self.hits += is_hit
        self.misses += not is_hit
        facts = {"hits": self.hits, "misses": self.misses, "bytes": self._total}
        log.debug("cache_hit" if is_hit else "cache_miss", extra={"key": key, **facts})

    # --- what goes -------------------------------------------------------------------------------

    def _excess(self, coming: int = 0) -> int:
        return self._total + coming - self._max_bytes

    def _evict(self, excess: int) -> list[Cached]:
        """Forget unused entries, the longest unused first: so many bytes, and what is too much in number."""
        going: list[Cached] = []
        surplus = len(self._entries) - MAX_ENTRIES
        if excess <= 0 and surplus <= 0:
            return going
        for entry in list(self._entries.values()):
            if excess <= 0 and surplus <= 0:
                break
            if not entry.users:
                del self._entries[entry.key]
                self._total -= entry.size
                excess -= entry.size
                surplus -= 1
                going.append(entry)
        return going

    def _remove(self, going: list[Cached]) -> None:
        if not going:
            return
        size = sum(entry.size for entry in going)
        self._leaving += size

        async def remove() -> None:
            try:
                await file_work(self._unlink, [entry.path for entry in going])
            finally:
                self._leaving -= size

        removal = asyncio.ensure_future(remove())
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    def _unlink(self, paths: Iterable[Path]) -> None:
        for path in paths:
            self.disk.before_removal()
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    async def _settled(self) -> None:
        """Wait until what has to go is gone."""
        while self._removals:
            await asyncio.wait(tuple(self._removals))


def _finish(_: IsStopped, entry: Cached) -> os.stat_result:
    """Give a fetched file the form and the name of an entry."""
    fresh = entry.path
    fd = os.open(fresh, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(fd, 0o444)
        now = time.time_ns()
        os.utime(fd, ns=(now, now - _BACK_NS))
        if entry.key.startswith("md5-"):
            os.fsync(fd)
        info = os.fstat(fd)
    finally:
        os.close(fd)
    token = fresh.suffixes[-2]
    entry.path = fresh.with_name(f"{entry.key}.{info.st_size}.{info.st_mtime_ns}{token}")
    fresh.rename(entry.path)
    return info


def _look(entry: Cached, *, note_use: bool) -> bool:
    """Whether an entry is what it was.

    Noting the time of its use sets its time of change, too: a change at that very moment would be hidden.
    """
    try:
        is_true = _is_true(entry, entry.path.lstat())
        if is_true and note_use:
            os.utime(entry.path, ns=(time.time_ns(), entry.mtime_ns))
    except OSError:
        return False
    return is_true


def _is_true(entry: Cached, info: os.stat_result) -> bool:
    facts = (info.st_size, info.st_mtime_ns, info.st_ino)
    return stat.S_ISREG(info.st_mode) and facts == (entry.size, entry.mtime_ns, entry.inode)


def _look_at_the_end(bringing: asyncio.Task[None]) -> None:
    """Whoever still waits gets the error; perhaps nobody does."""
    if not bringing.cancelled():
        bringing.exception()
