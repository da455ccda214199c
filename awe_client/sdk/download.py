"""One download into one file, so that the file is either whole and right, or not there.

Bytes go to `<name>.<random>.part` beside the target, are hashed as they arrive, checked against what is known
of them, and only then renamed. A cut is resumed from the bytes that are already there, if it can be told that
they are still the source's: by its validator, or in the end by the checksum. A whole source that has changed
meanwhile starts over; a piece of it is refused, because others hold pieces of what it was before.

What a source is, is not known here: it answers an `Asked` with a `Reply`.
"""

import contextlib
import hashlib
import os
import secrets
import stat
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from awe_client.sdk.bodies import CHUNK_BYTES, Progress
from awe_client.sdk.download_errors import DownloadCorrupt, DownloadCut, SourceBusy, SourceChanged
from awe_client.sdk.gunzip import Gunzip
from awe_client.sdk.threads import to_its_end
from shared_models.errors import BadRange, BadRequest, TooLarge
from shared_models.views import NodeFile

PROGRESS_S = 2.0  #: so long after the last bytes at most, those that came are written and told
_NO_RANGES = "the source gives no byte ranges, and a piece of it was wanted"


@dataclass(slots=True, frozen=True)
class Wanted:
    """What to get and what is known of it."""

    size: int = -1  #: of the whole answer, before unpacking; -1 = not known
    md5: str = ""  #: of the whole answer, before unpacking; "" = not known
    offset: int = 0  #: first byte of the source to get
    length: int = -1  #: bytes to get from `offset`; -1 = to the end
    gunzip: bool = False  #: unpack while downloading
    etag: str = ""  #: the source must be at this version; "" = at any
    max_bytes: int = -1  #: an answer that is longer is refused, whatever it says of itself; -1 = none is

    @property
    def ranged(self) -> bool:
        """Whether only a piece of the source is wanted."""
        return self.offset > 0 or self.length >= 0


@dataclass(slots=True, frozen=True)
class Asked:
    """What a source is asked for."""

    offset: int = 0
    length: int = -1  #: -1 = to the end
    etag: str = ""  #: the version of which these bytes are to be; "" = any
    or_all: bool = False  #: if the source is at another version, all of that will do

    @property
    def is_all(self) -> bool:
        """Whether the whole source is asked for."""
        return self.offset == 0 and self.length < 0


@dataclass(slots=True, frozen=True)
class Reply:
    """What a source answers: bytes from `offset` on."""

    chunks: AsyncIterator[bytes]
    offset: int = 0
    left: int = -1  #: bytes to come; -1 = not said
    etag: str = ""  #: the version they are of; "" = not said
    size: int = -1  #: of all that the source has; -1 = not said


#: Asks a source once. Raises SourceChanged, SourceBusy, and other AweErrors of the source.
Opener = Callable[[Asked], AbstractAsyncContextManager[Reply]]


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

    Call `attempt` until it returns; it raises a retryable AweError when going on makes sense, and anything
    else when it does not. `close` removes the part file unless it was renamed.
    """

    def __init__(
        self,
        target: Path,
        wanted: Wanted,
        on_progress: Progress | None = None,
        before_removal: Callable[[], object] = lambda: None,
    ) -> None:
        """`before_removal` is called, in a thread, before what came is removed."""
        self._before_removal = before_removal
        self._target = target
        self._wanted = wanted
        self._on_progress = on_progress
        self._part = part_of(target)
        self._file: BinaryIO | None = None
        self._is_stale = False  #: what is in the file was given up
        self.most = 0  #: bytes that were there at the best moment, also if they had to be given up
        self._restart()

    def _restart(self) -> None:
        self._done = 0
        self._etag = self._wanted.etag
        self._total = self._wanted.length if self._wanted.length >= 0 else self._wanted.size
        self._digest = hashlib.md5(usedforsecurity=False)
        self._unpack = Gunzip() if self._wanted.gunzip else None
        self._is_stale = self._file is not None

    def start_over(self) -> None:
        """Give up what is there: it turned out to be wrong."""
        self._restart()

    async def attempt(self, opener: Opener) -> Downloaded:
        """Ask once for all that is missing, then check and rename."""
        if self._file is None:
            await to_its_end(self._open)
        if self._done and not (self._etag or self._wanted.md5):
            # Nobody could tell whether the rest is of the same version.
            self._restart()
        if not (self._done and self._done == self._total) and self._wanted.length != 0:
            async with opener(self._asked()) as reply:
                self._begin(reply)
                async with contextlib.aclosing(_at_least(reply.chunks, CHUNK_BYTES)) as chunks:
                    async for chunk in chunks:
                        await to_its_end(self._take, chunk)
                        if self._on_progress is not None:
                            self._on_progress(self._done, self._total)
        return await to_its_end(self._finish)

    def _open(self) -> None:
        """Make the part file. Raises BadRequest if the target, which it will replace, is no plain file."""
        check_replaceable(self._target)
        self._file = self._part.open("xb", buffering=0)

    def _asked(self) -> Asked:
        length = self._wanted.length - self._done if self._wanted.length >= 0 else -1
        whole = not self._wanted.ranged and not self._wanted.etag
        return Asked(self._wanted.offset + self._done, length, self._etag, or_all=whole)

    def _begin(self, reply: Reply) -> None:
        """Settle where in the content this reply begins."""
        expected = self._wanted.offset + self._done
        if self._wanted.etag and reply.etag and reply.etag != self._wanted.etag:
            raise SourceChanged
        if reply.offset == 0 and expected and not self._wanted.ranged:
            # The whole content again: the source changed, or it cannot resume.
            self._restart()
        elif reply.offset == 0 and expected:
            raise BadRange(_NO_RANGES)
        elif reply.offset != expected:
            raise DownloadCorrupt(f"asked for bytes from {expected}, got bytes from {reply.offset}")
        elif self._done and self._etag and reply.etag and reply.etag != self._etag:
            self._restart()
            raise (
                SourceChanged if self._wanted.ranged else SourceBusy("the source changed: from the beginning")
            )
        self._etag = self._etag or reply.etag
        if reply.size >= 0:
            self._check_size(reply.size)
        if reply.left >= 0:
            self._check_length(reply)

    def _check_size(self, size: int) -> None:
        """Refuse a piece of a source of another size than what is known of it."""
        known = self._wanted.size
        if not self._wanted.ranged:
            known = self._total = size if self._total < 0 else self._total
        if known >= 0 and size != known:
            raise DownloadCorrupt(f"the source has {size} bytes where {known} were expected")

    def _check_length(self, reply: Reply) -> None:
        """Refuse an answer of another length than what is missing, before a byte of it is written."""
        size = self._done + reply.left
        self._check_bound(size)
        if self._total < 0:
            self._total = size
        elif size > self._total and self._wanted.ranged and reply.offset == 0:
            raise BadRange(_NO_RANGES)
        elif size > self._total or (size < self._total and reply.offset == 0 and not self._wanted.ranged):
            # A piece may come in smaller ones.
            raise DownloadCorrupt(f"the source gives {size} bytes where {self._total} were expected")

    def _check_bound(self, size: int) -> None:
        if 0 <= self._wanted.max_bytes < size:
            raise TooLarge(f"it has more than {self._wanted.max_bytes} bytes")

    def _emptied(self) -> BinaryIO:
        """The part file, without what was given up."""
        assert self._file is not None
        if self._is_stale:
            self._before_removal()
            self._file.seek(0)
            self._file.truncate()
            self._is_stale = False
        return self._file

    def _take(self, chunk: bytes) -> None:
        done = self._done + len(chunk)
        self._check_bound(done)
        if 0 <= self._total < done:
            raise DownloadCorrupt(f"the source gives more than the {self._total} bytes that were expected")
        file = self._emptied()
        self._digest.update(chunk)
        for plain in (chunk,) if self._unpack is None else self._unpack.feed(chunk):
            _write(file, plain)
        self._done = done
        self.most = max(self.most, done)

    def _finish(self) -> Downloaded:
        wanted, md5 = self._wanted, self._digest.hexdigest()
        if self._total >= 0 and self._done < self._total:
            raise DownloadCut(f"the connection ended after {self._done} of {self._total} bytes")
        if wanted.md5 and not wanted.ranged and md5 != wanted.md5:
            raise DownloadCorrupt(f"checksum mismatch: md5 is {md5}, expected {wanted.md5}")
        if self._unpack is not None:
            self._unpack.check_whole()
        self._emptied().close()
        os.rename(self._part, self._target)
        self._file = None
        return Downloaded(self._done, md5)

    async def close(self) -> None:
        """Remove what is unfinished."""
        if self._file is not None:
            await to_its_end(self._remove)

    def _remove(self) -> None:
        assert self._file is not None
        self._before_removal()
        self._file.close()
        self._file = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._part)


def _write(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def part_of(target: Path) -> Path:
    """A name for what is not whole yet: beside the target, and never too long for a file system."""
    stem = os.fsdecode(os.fsencode(target.name)[:200])
    return target.with_name(f"{stem}.{secrets.token_hex(4)}.part")


def check_replaceable(target: Path) -> None:
    """Raise BadRequest if the target is there and no plain file."""
    if os.path.lexists(target) and not stat.S_ISREG(os.lstat(target).st_mode):
        raise BadRequest(f"{target} is not a plain file: a download does not replace it")


async def _at_least(chunks: AsyncIterator[bytes], size: int) -> AsyncGenerator[bytes, None]:
    """Join small chunks, so that the hop into a thread pays; what came before a cut is not lost, and what
    comes slowly is told nevertheless."""
    held: list[bytes] = []
    count, told_s = 0, time.monotonic()
    try:
        async for chunk in chunks:
            held.append(chunk)
            count += len(chunk)
            now_s = time.monotonic()
            if count >= size or now_s - told_s >= PROGRESS_S:
                yield b"".join(held)
                held, count, told_s = [], 0, now_s
    except Exception:
        if held:
            yield b"".join(held)
        raise
    if held:
        yield b"".join(held)
