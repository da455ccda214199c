"""One download into one file, so that the file is either whole and right, or not there.

Bytes go to `<name>.<random>.part` beside the target, are hashed as they arrive, checked against what is known
of them, and only then renamed. A cut connection is resumed by Range from the bytes that are already there;
with an ETag, If-Range makes a changed source start over.
"""

import contextlib
import hashlib
import os
import secrets
import stat
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx

from awe_client.sdk.bodies import CHUNK_BYTES, Progress
from awe_client.sdk.transport import raise_for_error
from shared_models.errors import AweError, BadRange, BadRequest
from shared_models.views import NodeFile

#: Opens one GET with the given extra headers.
Opener = Callable[[Mapping[str, str]], AbstractAsyncContextManager[httpx.Response]]


class DownloadCorrupt(AweError):
    """The bytes that arrived are not the bytes that were promised."""

    code = "download_corrupt"


class DownloadCut(AweError):
    """The connection ended before the content did."""

    code = "download_cut"
    retryable = True


@dataclass(slots=True, frozen=True)
class Wanted:
    """What to get and what is known of it."""

    size: int = -1  #: of the whole answer, before unpacking; -1 = not known
    md5: str = ""  #: of the whole answer, before unpacking; "" = not known
    offset: int = 0  #: first byte of the source to get
    length: int = -1  #: bytes to get from `offset`; -1 = to the end
    gunzip: bool = False  #: unpack while downloading

    @property
    def ranged(self) -> bool:
        """Whether only a piece of the source is wanted."""
        return self.offset > 0 or self.length >= 0


def known_of(file: NodeFile | None) -> Wanted:
    """The whole of a node's file, with what its document says; the size may be missing from it."""
    if file is None:
        return Wanted()
    return Wanted(size=file.size if "size" in file.model_fields_set else -1, md5=file.checksum.get("md5", ""))


@dataclass(slots=True, frozen=True)
class Downloaded:
    """What arrived: raw bytes and their digest."""

    size: int
    md5: str


class Download:
    """The state that survives a cut: the part file, its digest, and where to go on.

    Call `attempt` until it returns; it raises httpx.TransportError or a retryable AweError when going on
    makes sense, and anything else when it does not. `close` removes the part file unless it was renamed.
    """

    def __init__(self, target: Path, wanted: Wanted, on_progress: Progress | None = None) -> None:
        self._target = target
        self._wanted = wanted
        self._on_progress = on_progress
        # Beside the target, and no longer a name than the file system takes, whatever the target is called.
        stem = os.fsdecode(os.fsencode(target.name)[:200])
        self._part = target.with_name(f"{stem}.{secrets.token_hex(4)}.part")
        self._file: Any = None
        self._etag = ""
        self._restart()

    def _restart(self) -> None:
        self._done = 0
        self._total = self._wanted.length if self._wanted.length >= 0 else self._wanted.size
        self._digest = hashlib.md5(usedforsecurity=False)
        self._unpack = _Gunzip() if self._wanted.gunzip else None
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()

    async def attempt(self, opener: Opener) -> Downloaded:
        """Ask once for all that is missing, then check and rename."""
        if self._file is None:
            self._file = await anyio.to_thread.run_sync(self._open)
        if not (self._done and self._done == self._total) and self._wanted.length != 0:
            async with opener(self._headers()) as reply:
                if reply.status_code >= 400:
                    await reply.aread()
                    raise_for_error(reply)
                self._begin(reply)
                async for chunk in _at_least(reply.aiter_raw(), CHUNK_BYTES):
                    await anyio.to_thread.run_sync(self._take, chunk)
                    if self._on_progress is not None:
                        self._on_progress(self._done, self._total)
        return await anyio.to_thread.run_sync(self._finish)

    def _open(self) -> Any:
        """The part file. Raises BadRequest if the target is there and no plain file: it would be replaced."""
        if os.path.lexists(self._target) and not stat.S_ISREG(os.lstat(self._target).st_mode):
            raise BadRequest(f"{self._target} is not a plain file: a download does not replace it")
        return self._part.open("xb")

    def _headers(self) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity"}
        first = self._wanted.offset + self._done
        if self._wanted.ranged or self._done:
            last = self._wanted.offset + self._wanted.length - 1 if self._wanted.length >= 0 else ""
            headers["Range"] = f"bytes={first}-{last}"
        if self._done and self._etag:
            headers["If-Range"] = self._etag
        return headers

    def _begin(self, reply: httpx.Response) -> None:
        """Settle where in the content this reply begins."""
        if reply.status_code == 206:
            self._etag = self._etag or reply.headers.get("etag", "")
            self._check_place(reply.headers.get("content-range", ""))
        elif self._wanted.ranged:
            raise BadRange(f"{reply.url.host} does not answer byte ranges; a piece of the source was wanted")
        else:
            # The whole content again: the source changed, or it cannot resume.
            self._restart()
            self._etag = reply.headers.get("etag", "")
        if self._total < 0 and reply.headers.get("content-length", "").isdigit():
            self._total = self._done + int(reply.headers["content-length"])

    def _check_place(self, content_range: str) -> None:
        """Refuse a piece from another place than the one asked for."""
        first = self._wanted.offset + self._done
        if content_range and not content_range.startswith(f"bytes {first}-"):
            raise DownloadCorrupt(f"asked for bytes from {first}, got '{content_range}'")

    def _take(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        if self._unpack is None:
            self._file.write(chunk)
        else:
            for plain in self._unpack.feed(chunk):
                self._file.write(plain)
        self._done += len(chunk)

    def _finish(self) -> Downloaded:
        wanted, md5 = self._wanted, self._digest.hexdigest()
        if self._total >= 0 and self._done < self._total:
            raise DownloadCut(f"the connection ended after {self._done} of {self._total} bytes")
        if self._total >= 0 and self._done != self._total:
            raise DownloadCorrupt(f"{self._done} bytes arrived where {self._total} were expected")
        if wanted.md5 and not wanted.ranged and md5 != wanted.md5:
            raise DownloadCorrupt(f"checksum mismatch: md5 is {md5}, expected {wanted.md5}")
        if self._unpack is not None:
            self._unpack.check_whole()
        self._file.close()
        os.rename(self._part, self._target)
        self._file = None
        return Downloaded(self._done, md5)

    def close(self) -> None:
        """Remove what is unfinished."""
        if self._file is not None:
            self._file.close()
            self._file = None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._part)


class _Gunzip:
    """Unpacks a gzip stream of one or more members."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self._fed = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the unpacked bytes in bounded pieces: a small file may unpack to a huge one."""
        while data:
            self._fed = True
            if self._member.eof:
                data = data.lstrip(b"\0")  # padding after the last member is legal
                if not data:
                    return
                self._member = zlib.decompressobj(wbits=31)
            try:
                yield self._member.decompress(data, CHUNK_BYTES)
            except zlib.error as exc:
                raise DownloadCorrupt(f"not a valid gzip file: {exc}") from exc
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail

    def check_whole(self) -> None:
        if not (self._fed and self._member.eof):
            raise DownloadCorrupt("the gzip file ends in the middle")


async def _at_least(chunks: AsyncIterator[bytes], size: int) -> AsyncIterator[bytes]:
    """Join small chunks, so that the hop into a thread pays."""
    held: list[bytes] = []
    count = 0
    try:
        async for chunk in chunks:
            held.append(chunk)
            count += len(chunk)
            if count >= size:
                yield b"".join(held)
                held, count = [], 0
    except httpx.TransportError:
        if held:
            yield b"".join(held)
        raise
    if held:
        yield b"".join(held)
