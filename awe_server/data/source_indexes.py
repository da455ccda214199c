"""Indexes of files that are not ours: `<root>/<key>.<kind>.idx`, the key made of address, version and size.

So an index is found again by whoever cuts the same file, and never taken for one of other content. A file of
which neither version nor MD5 is told gets an index of its own each time. What no unfinished task needs is
removed.

An index that one job's data token opened a file for serves other jobs, too. Nobody learns anything by that:
a task's files are looked at first, with its own job's token, and only who was let in is told of an MD5.
"""

import asyncio
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Collection
from pathlib import Path
from weakref import WeakValueDictionary

from anyio import to_thread

from awe_server.data.builder import IndexBuilder
from awe_server.data.files import clean_temporary, free_bytes, make_folder, no_space_mapped
from awe_server.data.hosts import host_of
from awe_server.data.indexes import SIDECAR_SUFFIX, IndexFiles, SizeUnits, Units, sidecar, size_units
from awe_server.data.ports import IndexFact
from awe_server.data.sources.facts import Place
from shared_models.errors import NoIndex, NoSpace

#: Younger files are left alone: the task that they were made for may not be known to need them yet.
YOUNG_S = 600.0
MAX_AT_ONCE = 2  #: scans of files of one host


def key_of(place: Place, md5: str = "") -> str:
    """The key of a file's indexes; `md5`: of its content, "" if that was not told."""
    version = place.version or md5 or secrets.token_hex(16)
    return hashlib.sha256(f"{place.url}\n{version}\n{place.size_bytes}".encode()).hexdigest()


class SourceIndexes:
    """Builds, finds and removes them."""

    def __init__(self, root: Path, floor_bytes: int) -> None:
        self._root = root
        self._floor_bytes = floor_bytes
        self._builder = IndexBuilder()
        self._files = IndexFiles()
        self._facts: dict[tuple[str, str], IndexFact] = {}  #: of those that were built since the start
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def build(self, key: str, place: Place, kind: str, name: str) -> IndexFact:
        """Index a file, unless it was done before; `name` is what errors call it.

        Raises BadRequest, NotCuttable, InvalidData, NoSpace, Unreadable, and the errors of sources/facts.py.
        """
        if kind == "size":
            return IndexFact(kind, size_units(place.size_bytes), kind)
        async with self._locks.setdefault((key, kind), asyncio.Lock()):
            known = self._facts.get((key, kind))
            if known is not None and await to_thread.run_sync(self._touch, key, kind):
                return known
            await to_thread.run_sync(self._require_space)
            async with self._turns.setdefault(host_of(place.url), asyncio.Semaphore(MAX_AT_ONCE)):
                fact = await self._builder.build_foreign(self._root / key, kind, name, place)
            self._facts[key, kind] = fact
            return fact

    async def ready(self, key: str, kind: str, size: int) -> Units:
        """A file's units, to be held by whoever finds parts in them on the event loop. Raises NoIndex."""
        if kind == "size":
            return SizeUnits(size)
        try:
            return await self._files.ready(self._root / key, kind, size)
        except FileNotFoundError as exc:
            raise NoIndex(f"The index '{kind}' is lost.") from exc

    async def collect(
        self,
        needed: Collection[str],
        now_s: float | None = None,
        *,
        require_lead: Callable[[], object],
    ) -> int:
        """Remove what none of the needed keys stands for; how many files that were.

        Ends with what `require_lead` raises: another server needs what nobody needed here.
        """
        old_s = (time.time() if now_s is None else now_s) - YOUNG_S
        gone = await to_thread.run_sync(self._remove, frozenset(needed), old_s, require_lead)
        for known in [known for known in self._facts if known in gone]:
            del self._facts[known]
        return len(gone)

    async def close(self) -> None:
        """End the scans that run, and close all files."""
        await self._builder.close()
        self._files.close()

    def _touch(self, key: str, kind: str) -> bool:
        """Make an index young again, if it is there."""
        try:
            os.utime(sidecar(self._root / key, kind))
        except FileNotFoundError:
            return False
        return True

    def _require_space(self) -> None:
        with no_space_mapped():
            make_folder(self._root)
        if free_bytes(self._root) < self._floor_bytes:
            raise NoSpace

    def _remove(
        self, needed: frozenset[str], old_s: float, require_lead: Callable[[], object]
    ) -> set[tuple[str, str]]:
        gone: set[tuple[str, str]] = set()
        if not self._root.is_dir():
            return gone
        clean_temporary(self._root, old_s)
        for path in self._root.glob(f"*{SIDECAR_SUFFIX}"):
            key, kind = key_and_kind(path.name)
            if key not in needed and path.stat().st_mtime < old_s:
                require_lead()
                path.unlink(missing_ok=True)
                gone.add((key, kind))
        return gone


def key_and_kind(name: str) -> tuple[str, str]:
    """What the name of an index file says."""
    key, _, kind = name.removesuffix(SIDECAR_SUFFIX).rpartition(".")
    return key, kind
