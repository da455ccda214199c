"""Many files as one tar, always the same bytes for the same files, made while it is sent.

Nothing is written to disk and no list is kept: the files are walked once to know the size, and once more each
time the bytes are needed. Names are sorted, times and owners are left out, of the mode only whether a file
may be executed is kept. A link is kept as one if it leads to somewhere in the same folder; a link to a file
elsewhere in the work directory becomes that file. What leads out of it, a pipe, a device is refused.
"""

import errno
import hashlib
import os
import stat
import tarfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from awe_client.daemon.workdir import NotInside, require_inside
from awe_client.sdk.bodies import CHUNK_BYTES
from awe_client.sdk.threads import to_its_end
from shared_models.archives import Pattern, Places
from shared_models.limits import MAX_MEMBER_DEPTH, MAX_MEMBERS
from shared_models.tar_members import BLOCK_BYTES, END_MARK


class NotKept(Exception):
    """Something that cannot be a member of an archive; the text says what and why."""


@dataclass(slots=True, frozen=True)
class Entry:
    """A member of an archive that is to be made: a file, a folder, or (with a target) a link."""

    name: str
    path: str  #: of a file, links resolved
    size: int
    executable: bool = False
    is_folder: bool = False
    target: str = ""

    def header(self) -> bytes:
        """Its blocks before the bytes."""
        info = tarfile.TarInfo(self.name)
        info.mode = 0o755 if self.executable or self.is_folder else 0o644
        if self.is_folder:
            info.type = tarfile.DIRTYPE
        elif self.target:
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, self.target, 0o777
        else:
            info.size = self.size
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


class ArchiveBody:
    """An archive as a raw body of known length; as `FileBody`, it may be read again.

    After it was read to its end, `md5` is the digest of the bytes that were sent. `has_bytes`: not all its
    files are empty. Making one walks the files: for a worker thread. Raises NotKept, OSError.
    """

    def __init__(self, entries: Callable[[], Iterable[Entry]]) -> None:
        self._entries = entries
        self.md5 = ""
        self.count = 0
        self.has_bytes = False
        self.size = len(END_MARK)
        for entry in entries():
            self.count += 1
            if self.count > MAX_MEMBERS:
                raise _too_many()
            self.has_bytes = self.has_bytes or entry.size > 0
            self.size += len(entry.header()) + entry.size + _padding(entry.size)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Make the archive from its beginning. Reading and hashing happen in a thread."""
        digest = hashlib.md5(usedforsecurity=False)
        chunks = pack(self._entries())
        sent = 0
        while chunk := await to_its_end(_next, chunks, digest):
            sent += len(chunk)
            if sent > self.size:
                break
            yield chunk
        if sent != self.size:
            raise _changed("the files")
        self.md5 = digest.hexdigest()

    @property
    def headers(self) -> dict[str, str]:
        """What the request must say about this body."""
        return {"Content-Type": "application/octet-stream", "Content-Length": str(self.size)}


def _too_many() -> NotKept:
    return NotKept(f"has more than {MAX_MEMBERS} files; they cannot be kept as one")


def _next(chunks: Iterator[bytes], digest: "hashlib._Hash") -> bytes:
    chunk = next(chunks, b"")
    digest.update(chunk)
    return chunk


def pack(entries: Iterable[Entry]) -> Iterator[bytes]:
    """The bytes of the archive, in pieces of about 1 MiB. Raises OSError, also for a file that changed."""
    held: list[bytes] = []
    size = 0
    for entry in entries:
        for piece in _blocks(entry):
            held.append(piece)
            size += len(piece)
            if size >= CHUNK_BYTES:
                yield b"".join(held)
                held, size = [], 0
    held.append(END_MARK)
    yield b"".join(held)


def _blocks(entry: Entry) -> Iterator[bytes]:
    yield entry.header()
    if entry.is_folder or entry.target:
        return
    descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size != entry.size:
            raise _changed(entry.name)
        left = entry.size
        while left:
            piece = os.read(descriptor, min(left, CHUNK_BYTES))
            if not piece:
                raise _changed(entry.name)
            left -= len(piece)
            yield piece
    finally:
        os.close(descriptor)
    yield bytes(_padding(entry.size))


def _padding(size: int) -> int:
    return -size % BLOCK_BYTES


def _changed(what: str) -> OSError:
    return OSError(errno.ESTALE, f"{what} changed while being read")


# --- finding them --------------------------------------------------------------------------------


class Finder:
    """Finds what an output's pattern takes in a work directory.

    `left_out` are names that are never taken; of a folder among them, what is in it and not left out itself
    is. With `leave_bad`, what cannot be kept, or not be read, is left out, too; but not what is too much.
    """

    def __init__(
        self, directory: Path, left_out: AbstractSet[str] = frozenset(), *, leave_bad: bool = False
    ) -> None:
        self._directory = directory
        self._left_out = left_out
        self._leave_bad = leave_bad
        self._held = 0  #: names of the folders that are being read: each may be a member

    def find(self, pattern: Pattern, base: str = "") -> Iterator[Entry]:
        """What is taken below `base`, as members named from there, in order. Raises NotKept, OSError."""
        start = f"{self._directory}/{base}" if base else str(self._directory)
        try:
            require_inside(self._directory, Path(start), base)
        except NotInside as exc:
            raise NotKept(str(exc)) from exc
        yield from self._search(start, "", base, pattern, pattern.begin())

    def _search(
        self, folder: str, below: str, base: str, pattern: Pattern, places: Places
    ) -> Iterator[Entry]:
        def is_on_the_way(entry: os.DirEntry[str]) -> bool:
            there = pattern.step(places, entry.name)
            return bool(there) and (pattern.accepts(there) or entry.is_dir(follow_symlinks=False))

        for name in self._names(folder, below, base, is_on_the_way):
            there = pattern.step(places, name)
            member = _member(below, name)
            path = f"{folder}/{name}"
            if pattern.accepts(there):
                yield from self._take(path, member, base)
            elif member.count("/") < MAX_MEMBER_DEPTH:
                yield from self._search(path, member, base, pattern, there)

    def _take(self, path: str, member: str, base: str) -> Iterator[Entry]:
        """A file or folder that matches; a link to one counts as what it leads to."""
        try:
            path = self._inside(path, member)
            if not os.path.lexists(path):
                raise NotKept(f"'{member[:200]}' is a link that leads to no file")
            info = os.lstat(path)
            is_folder = stat.S_ISDIR(info.st_mode)
            entry = Entry(member, path, 0, is_folder=True) if is_folder else self._file(path, member, info)
        except (NotKept, OSError):
            if self._leave_bad:
                return
            raise
        if not self._is_left_out(base, member):
            yield entry
        if entry.is_folder:
            yield from self._below(path, member, base, path)

    def _below(self, folder: str, member: str, base: str, top: str) -> Iterator[Entry]:
        """All that lies in a folder."""
        for name in self._names(folder, member, base, lambda _: True):
            path, inner = f"{folder}/{name}", f"{member}/{name}"
            try:
                entry = self._entry(path, inner, top)
            except (NotKept, OSError):
                if self._leave_bad:
                    continue
                raise
            if not self._is_left_out(base, inner):
                yield entry
            if entry.is_folder:
                yield from self._below(path, inner, base, top)

    def _names(
        self, folder: str, below: str, base: str, is_wanted: Callable[[os.DirEntry[str]], bool]
    ) -> Iterator[str]:
        """What is wanted of a folder, sorted: no more names than an archive can have members."""

        def counts(entry: os.DirEntry[str]) -> bool:
            left_out = self._is_left_out(base, _member(below, entry.name))
            return is_wanted(entry) and not (left_out and not entry.is_dir(follow_symlinks=False))

        try:
            with os.scandir(folder) as entries:
                room = MAX_MEMBERS - self._held
                names = [entry.name for entry in islice(filter(counts, entries), room + 1)]
        except NotADirectoryError:
            return
        except OSError:
            if self._leave_bad:
                return
            raise
        if len(names) > room:
            raise _too_many()
        self._held += len(names)
        yield from sorted(names, key=os.fsencode)
        self._held -= len(names)

    def _entry(self, path: str, member: str, top: str) -> Entry:
        if member.count("/") > MAX_MEMBER_DEPTH:
            raise NotKept(f"'{member[:200]}…' lies in more than {MAX_MEMBER_DEPTH} folders")
        info = os.lstat(path)
        if stat.S_ISDIR(info.st_mode):
            return Entry(member, path, 0, is_folder=True)
        if stat.S_ISLNK(info.st_mode):
            return self._link(path, member, top)
        return self._file(path, member, info)

    def _link(self, path: str, member: str, top: str) -> Entry:
        real = self._inside(path, member)
        if real == top or real.startswith(top + "/"):
            # From real folder to real target: leading `..`s only, so that it cannot be led elsewhere.
            return Entry(member, path, 0, target=os.path.relpath(real, os.path.dirname(path)))
        if not os.path.isfile(real):
            raise NotKept(f"'{member[:200]}' is a link that leads to no file, and out of its folder")
        return self._file(real, member, os.lstat(real))

    def _file(self, path: str, member: str, info: os.stat_result) -> Entry:
        if not stat.S_ISREG(info.st_mode):
            what = "a pipe, socket or device: only files, folders and links are kept"
            raise NotKept(f"'{member[:200]}' is {what}")
        if self._leave_bad and not os.access(path, os.R_OK, effective_ids=True):
            raise NotKept(f"'{member[:200]}' cannot be read")
        return Entry(member, path, info.st_size, executable=bool(info.st_mode & 0o111))

    def _inside(self, path: str, member: str) -> str:
        try:
            require_inside(self._directory, Path(path), member)
        except NotInside as exc:
            raise NotKept(str(exc)) from exc
        real = os.path.realpath(path)
        if os.path.islink(real):
            raise NotKept(f"'{member[:200]}' is a link in a circle")
        return real

    def _is_left_out(self, base: str, member: str) -> bool:
        return bool(self._left_out) and _member(base, member) in self._left_out


def _member(below: str, name: str) -> str:
    return f"{below}/{name}" if below else name
