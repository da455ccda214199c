"""Reference data that many attempts share: one copy per content, linked into each work directory.

Kept under the content's md5 if that is known, so a changed source is another entry; else under a hash of the
address, and then only as long as this daemon runs. Entries appear whole (a download is renamed into place)
and are read-only. Concurrent attempts wait for one download. The least recently used go when there is too
much; what an attempt of this moment links to stays.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path


class PredataCache:
    """Files by key, and who uses them."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._arriving: dict[str, asyncio.Future[Path]] = {}
        self._used: dict[str, int] = {}

    def open(self) -> None:
        """Remove unfinished downloads and entries that have no checksum in their name."""
        for entry in self._folder.iterdir():
            if entry.name.startswith("url-") or entry.suffix == ".part":
                with contextlib.suppress(OSError):
                    entry.unlink()

    @staticmethod
    def key(url: str, md5: str, *, unpacked: bool) -> str:
        """Name of an entry."""
        suffix = "-unpacked" if unpacked else ""
        return f"md5-{md5}{suffix}" if md5 else f"url-{hashlib.sha256(url.encode()).hexdigest()}{suffix}"

    async def use(self, key: str, download: Callable[[Path], Awaitable[object]]) -> Path:
        """Give the entry's file, after `download(path)` if it is not there.

        For each use `done` must be called later.
        """
        self._used[key] = self._used.get(key, 0) + 1
        try:
            while True:
                arriving = self._arriving.get(key)
                if arriving is None:
                    return await self._arrive(key, download)
                with contextlib.suppress(asyncio.CancelledError):
                    return await asyncio.shield(arriving)
                # Cancelled: either we were, or the attempt that was downloading was; then it is our turn.
                if not arriving.cancelled():
                    raise asyncio.CancelledError
        except BaseException:
            self.done(key)
            raise

    def done(self, key: str) -> None:
        """One user less."""
        self._used[key] -= 1
        if not self._used[key]:
            del self._used[key]

    async def _arrive(self, key: str, download: Callable[[Path], Awaitable[object]]) -> Path:
        path = self._folder / key
        if path.exists():
            os.utime(path)
            return path
        arriving: asyncio.Future[Path] = asyncio.get_running_loop().create_future()
        self._arriving[key] = arriving
        try:
            await download(path)
            path.chmod(0o444)
        except BaseException as exc:
            if isinstance(exc, asyncio.CancelledError):
                arriving.cancel()
            else:
                arriving.set_exception(exc)
                arriving.exception()  # nobody need be waiting
            raise
        finally:
            del self._arriving[key]
        arriving.set_result(path)
        await asyncio.to_thread(self._shrink)
        return path

    def _shrink(self) -> None:
        """Remove unused entries, the longest unused first, until the rest is small enough."""
        entries = []
        for entry in self._folder.iterdir():
            with contextlib.suppress(OSError):
                info = entry.stat()
                entries.append((info.st_mtime, info.st_size, entry))
        total = sum(size for _, size, _ in entries)
        for _, size, entry in sorted(entries):
            if total <= self._max_bytes:
                return
            if entry.name not in self._used and entry.name.startswith(("md5-", "url-")):
                with contextlib.suppress(OSError):
                    entry.unlink()
                    total -= size
