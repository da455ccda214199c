"""Unpack an archive into a work directory: nothing outside of it is touched, whatever the archive says.

Folders are entered one by one without following links, from the directory down, so that no member is written
through a link, of the archive or of anybody else. A link is made only if it leads to somewhere inside: it may
go up first, no further than the directory, and down then. As this depends on its place, no link gets a second
name: a hard link is made to a file only, and only to one of the same archive. Nothing that is there is
replaced.
"""

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from awe_client.daemon.copies import IsStopped
from awe_client.daemon.workdir import LISTED_NAMES
from awe_client.sdk.bodies import CHUNK_BYTES
from shared_models.archives import Pattern
from shared_models.limits import MAX_MEMBER_DEPTH, MAX_MEMBERS
from shared_models.tar_members import DamagedArchive, Kind, Member, members

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(Exception):
    """The archive, or a member of it, cannot be unpacked here; the text says why."""


def unpack(is_stopped: IsStopped, archive: Path, directory: Path, name: str) -> set[str]:
    """Unpack the members that an input's name takes, `out/` or `*.bt2`; names of all that was made.

    Members that the name does not take are left out, but each has to be harmless, and one at least has to be
    taken. Raises Refused, also when it is stopped, and OSError. Blocking: for a worker thread.
    """
    pattern = Pattern(name)
    others: list[str] = []
    count = 0
    is_taken = False
    with archive.open("rb") as file, _Place(directory) as place:
        try:
            for member in members(file):
                count += 1
                if is_stopped():
                    raise Refused("stopped")
                if count > MAX_MEMBERS:
                    raise Refused(f"it has more than {MAX_MEMBERS} members")
                parts = _checked(member)
                if not parts:
                    continue
                if pattern.takes(parts):
                    is_taken = True
                    place.put(member, parts, file)
                elif len(others) < LISTED_NAMES:
                    others.append("/".join(parts)[:200])
        except DamagedArchive as exc:
            raise Refused(f"it is not a whole tar: {exc}") from exc
    if not is_taken:
        raise Refused(f"nothing in it is '{name[:200]}'; it has: {', '.join(others) or 'nothing'}")
    return place.made


def _checked(member: Member) -> list[str]:
    """The parts of a member's name. Raises Refused for one that leads out, or that is nothing we make."""
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if member.name.startswith("/") or ".." in parts or "\0" in member.name:
        raise Refused(f"member '{member.name[:200]}' leads out of the work directory")
    if len(parts) > MAX_MEMBER_DEPTH + 1:
        raise Refused(f"member '{member.name[:200]}…' lies in more than {MAX_MEMBER_DEPTH} folders")
    if member.kind is Kind.OTHER:
        raise Refused(f"member '{member.name[:200]}' is no file, folder or link ({member.kind})")
    if member.kind is Kind.LINK and not _stays_inside(member.target, len(parts) - 1):
        raise Refused(f"member '{member.name[:200]}' is a link that leads out of the work directory")
    if member.kind is Kind.HARD_LINK and (member.target.startswith("/") or ".." in member.target.split("/")):
        raise Refused(f"member '{member.name[:200]}' is a link that leads out of the work directory")
    return parts


def _stays_inside(target: str, depth: int) -> bool:
    """Whether a link in a folder `depth` below the directory leads to somewhere in it.

    A `..` behind a name is refused: what it leads to depends on what that name is.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((i for i, part in enumerate(parts) if part != ".."), len(parts))
    return bool(target) and target[0] != "/" and up <= depth and ".." not in parts[up:] and "\0" not in target


class _Place:
    """The directory, and the folders of it that are open on the way to the last member."""

    def __init__(self, directory: Path) -> None:
        self.made: set[str] = set()  #: names from the directory on
        self._open = [os.open(directory, _FOLDER)]
        self._names: list[str] = []

    def __enter__(self) -> "_Place":
        return self

    def __exit__(self, *_: object) -> None:
        self._leave(0)
        os.close(self._open.pop())

    def put(self, member: Member, parts: Sequence[str], file: BinaryIO) -> None:
        """Make a member. Raises Refused, OSError."""
        try:
            if member.kind is Kind.FOLDER:
                self._enter(parts)
                return
            folder, name = self._enter(parts[:-1]), parts[-1]
            if member.kind is Kind.LINK:
                os.symlink(member.target, name, dir_fd=folder)
            elif member.kind is Kind.HARD_LINK:
                self._link(member, folder, name)
            else:
                _write(member, folder, name, file)
            self.made.add("/".join(parts))
        except FileExistsError as exc:
            raise Refused(f"member '{member.name[:200]}' is there already: another input, or twice") from exc
        except NotADirectoryError as exc:
            raise Refused(f"member '{member.name[:200]}' lies in what is no folder") from exc

    def _enter(self, parts: Sequence[str]) -> int:
        """Open a folder, made if need be."""
        same = 0
        while same < min(len(parts), len(self._names)) and parts[same] == self._names[same]:
            same += 1
        self._leave(same)
        for part in parts[same:]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=self._open[-1])
                self.made.add("/".join((*self._names, part)))
            self._open.append(os.open(part, _FOLDER, dir_fd=self._open[-1]))
            self._names.append(part)
        return self._open[-1]

    def _leave(self, depth: int) -> None:
        while len(self._names) > depth:
            self._names.pop()
            os.close(self._open.pop())

    def _link(self, member: Member, folder: int, name: str) -> None:
        """Another name of a file that was unpacked before."""
        parts = [part for part in member.target.split("/") if part not in ("", ".")]
        if "/".join(parts) not in self.made:
            raise Refused(f"member '{member.name[:200]}' is a link to nothing that was unpacked before it")
        there = os.dup(folder)
        try:
            source = self._enter(parts[:-1])
            if not stat.S_ISREG(os.stat(parts[-1], dir_fd=source, follow_symlinks=False).st_mode):
                raise Refused(f"member '{member.name[:200]}' is a hard link to what is no file")
            os.link(parts[-1], name, src_dir_fd=source, dst_dir_fd=there, follow_symlinks=False)
        finally:
            os.close(there)


def _write(member: Member, folder: int, name: str, file: BinaryIO) -> None:
    descriptor = os.open(name, _NEW_FILE, 0o755 if member.executable else 0o644, dir_fd=folder)
    try:
        file.seek(member.data)
        left = member.size
        while left:
            piece = file.read(min(left, CHUNK_BYTES))
            if not piece:
                raise Refused(f"it was cut off within '{member.name[:200]}'")
            left -= len(piece)
            view = memoryview(piece)
            while view:
                view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)
