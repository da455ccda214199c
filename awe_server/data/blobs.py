"""Files that are whole or not there: write beside, hash, fsync, rename, fsync the folder; never patched."""

import contextlib
import fcntl
import os
import secrets
import threading
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import anyio
from anyio import from_thread, to_thread

from awe_server.data.files import (
    TEMPORARY_PREFIX,
    free_bytes,
    fsync_folder,
    make_folder,
    no_space_mapped,
    start_writing,
    walk,
)
from awe_server.data.hashes import Hashes
from awe_server.data.indexes import SIDECAR_SUFFIX, sidecar
from awe_server.data.ports import Buffer, FileFact, Passing
from awe_server.data.quota import Quota
from shared_models.errors import NoSpace
from shared_models.limits import MIB

BUFFER_BYTES = MIB  #: what one thread call writes and hashes
WRITEBACK_BYTES = MIB  #: what waits in memory at most before the disk begins with it


class Writer:
    """One file on its way to its place. Used from one thread at a time; `abort` may come from another one.

    `is_admitted`: made of bytes that the quota has let in before. `mode`: the file's permissions, whatever
    the umask says, if it is not for this server alone.
    """

    def __init__(
        self,
        folder: Path,
        floor_bytes: int,
        quota: Quota | None = None,
        *,
        is_admitted: bool = False,
        mode: int | None = None,
    ) -> None:
        self._folder = folder
        self._floor_bytes = floor_bytes
        self._quota = quota or Quota()
        self._is_admitted = is_admitted
        self._mode = mode
        self._taken = 0  #: of the quota
        self._lock = threading.Lock()
        self._descriptor = -1
        self._temporary = folder / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        self._over = False
        self._hashes = Hashes()
        self._size = 0
        self._started = 0  #: so far the disk was told to begin

    def write(self, data: Buffer) -> None:
        """Append bytes. Raises NoSpace before the disk is full, QuotaExceeded before the quota is passed."""
        with self._lock:
            try:
                self._write(data)
            finally:
                self._hashes.settle()

    def begin(self, data: Buffer) -> None:
        """As `write`, and hash them meanwhile: until the next call has returned they must not change."""
        with self._lock:
            self._write(data)

    def settle(self) -> None:
        """Return when what was begun is hashed."""
        with self._lock:
            self._hashes.settle()

    def finish(
        self, data: bytes, place: Callable[[FileFact], Path], check: Callable[[], object] | None = None
    ) -> FileFact:
        """Append the last bytes and move the file to the place that its facts give it, durably.

        With `check` the move is made on the event loop, right after the check: nothing can come between. What
        else it takes, and may have to be waited for, is done here.
        """
        with self._lock:
            self._write(data)
            fact = FileFact(self._size, self._hashes.md5, self._hashes.sha256)
            with no_space_mapped():
                os.fsync(self._descriptor)
                target = place(fact)
                if check is None:
                    self._quota.rename(self._temporary, target)
                else:
                    self._quota.replace(target, partial(from_thread.run_sync, self._move, target, check))
                self._over = True
                os.close(self._descriptor)
                fsync_folder(target.parent)
            return fact

    def _move(self, target: Path, check: Callable[[], object]) -> None:
        check()
        self._temporary.rename(target)

    def abort(self) -> None:
        """Remove what was written; nothing happens when the file is already in its place."""
        with self._lock:
            if self._over:
                return
            self._over = True
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._temporary.unlink(missing_ok=True)
            self._quota.give(self._taken)

    def _write(self, data: Buffer) -> None:
        if self._over:
            raise RuntimeError("the file is already finished or aborted")
        self._quota.take(len(data), is_admitted=self._is_admitted)
        self._taken += len(data)
        with no_space_mapped():
            if self._descriptor < 0:
                self._open()
            if self._floor_bytes and free_bytes(self._folder) - len(data) < self._floor_bytes:
                raise NoSpace
            self._hashes.begin(data)
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
        self._size += len(data)
        if self._size - self._started >= WRITEBACK_BYTES:
            start_writing(self._descriptor, self._started, self._size - self._started)
            self._started = self._size

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        make_folder(self._folder)
        try:
            self._descriptor = os.open(self._temporary, flags, 0o640)
        except FileNotFoundError:  # an emptied folder was removed by another thread just now
            make_folder(self._folder)
            self._descriptor = os.open(self._temporary, flags, 0o640)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        if self._mode is not None:
            os.fchmod(self._descriptor, self._mode)


class Intake:
    """Takes in a stream's chunks and gives them to a writer in buffers that are worth a thread call."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.received = 0  #: bytes so far, of all streams

    async def feed(self, stream: AsyncIterable[bytes]) -> None:
        """Take in a stream; when it breaks off, what came is still to be flushed."""
        async for chunk in stream:
            self._held.append(chunk)
            self._held_bytes += len(chunk)
            self.received += len(chunk)
            if self._held_bytes >= BUFFER_BYTES:
                await self.flush()
            if isinstance(stream, Passing) and stream.can_pass:
                await self.flush()
                async for count in stream.passing(self._writer):
                    self.received += count

    async def flush(self) -> None:
        """Write what is held. Whoever is cancelled meanwhile has still written all of it, once."""
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._writer.write, b"".join(self._held))
        self._held, self._held_bytes = [], 0

    async def finish(
        self, place: Callable[[FileFact], Path], check: Callable[[], object] | None = None
    ) -> FileFact:
        """Move the file to its place, see `Writer.finish`."""
        rest, self._held, self._held_bytes = (
            b"".join(self._held),
            [],
            0,
        )  # written once, whatever `check` says
        with anyio.CancelScope(shield=True):
            fact = await to_thread.run_sync(self._writer.finish, rest, place, check)
        return fact

    async def abort(self) -> None:
        """Remove what was written, unless it is in its place."""
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._writer.abort)


async def write_stream(
    writer: Writer,
    stream: AsyncIterable[bytes],
    place: Callable[[FileFact], Path],
    check: Callable[[], object] | None = None,
) -> FileFact:
    """Write a whole stream; if it breaks off, or the caller is cancelled, nothing is left behind."""
    intake = Intake(writer)
    try:
        await intake.feed(stream)
        return await intake.finish(place, check)
    except BaseException:
        await intake.abort()
        raise


class BlobStore:
    """Files under `root`/xx/yy/, each named `<owner>.<random>`, so that a file tells whose it is."""

    def __init__(self, root: Path, floor_bytes: int, quota: Quota | None = None) -> None:
        self.root = root
        self.floor_bytes = floor_bytes
        self.quota = quota or Quota()

    def path(self, name: str) -> Path:
        """Where a blob lies; `name` is the relative path that `add` gave."""
        return self.root / name

    def require(self, size: int) -> None:
        """As `Quota.require`, and raise NoSpace unless that many bytes fit above the floor."""
        self.quota.require(size)
        self.require_free(size)

    def require_free(self, size: int) -> None:
        """Raise NoSpace unless that many bytes fit above the floor."""
        with no_space_mapped():
            make_folder(self.root)
        if free_bytes(self.root) - size < self.floor_bytes:
            raise NoSpace

    def new_name(self, owner: str) -> str:
        """A name that was never used."""
        token = secrets.token_hex(8)
        return f"{token[:2]}/{token[2:4]}/{owner}.{token}"

    def writer(self, name: str, *, is_admitted: bool = False) -> Writer:
        """A writer whose file will be the blob `name` (`finish(..., place=lambda _: path(name))`)."""
        return Writer(self.path(name).parent, self.floor_bytes, self.quota, is_admitted=is_admitted)

    async def add(self, stream: AsyncIterable[bytes], owner: str) -> tuple[str, FileFact]:
        """Store a stream as a new blob. Raises NoSpace; then, or when the stream fails, nothing is kept."""
        name = self.new_name(owner)
        fact = await write_stream(self.writer(name), stream, lambda _: self.path(name))
        return name, fact

    def add_link(self, source: Path, owner: str) -> str:
        """Make an existing whole file of the same file system a blob too, without copying."""
        name = self.new_name(owner)
        target = self.path(name)
        with no_space_mapped():
            make_folder(target.parent)
            os.utime(source)  # young again: the collector leaves it alone until a document names it
            self.quota.link(source, target)
            fsync_folder(target.parent)
        return name

    def link_indexes(self, source: Path, name: str, kinds: Iterable[str]) -> list[str]:
        """Give a blob the index files of another one with the same bytes; those that were there."""
        linked = []
        target = self.path(name)
        for kind in kinds:
            with contextlib.suppress(FileNotFoundError), no_space_mapped():
                os.utime(sidecar(source, kind))  # as in add_link
                os.link(sidecar(source, kind), sidecar(target, kind))
                linked.append(kind)
        if linked:
            fsync_folder(target.parent)
        return linked

    def remove(self, name: str) -> None:
        """Remove a blob and its indexes; fine if it is gone already. Open readers keep their bytes."""
        target = self.path(name)
        self.quota.remove(target)
        for index in target.parent.glob(f"{target.name}.*{SIDECAR_SUFFIX}"):
            index.unlink(missing_ok=True)

    def walk(self) -> Iterator[os.DirEntry[str]]:
        """Every file below the root: blobs, their indexes, temporary files."""
        return walk(self.root)
