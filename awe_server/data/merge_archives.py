"""Join the archives of a task's ranks into one, in rank order, hashing on the way.

Members are copied as they are. A file that two ranks made is refused: one of them would be lost when it is
unpacked. A folder may be in all of them. Of every name 8 bytes are remembered, and only if two of these are
equal are the names themselves looked at.
"""

import itertools
from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

from awe_server.data.blobs import BUFFER_BYTES, Writer
from awe_server.data.merge import OpenPart, open_own
from awe_server.data.parts import Part
from awe_server.data.ports import CannotJoin, FileFact
from shared_models.limits import MAX_MEMBERS
from shared_models.tar_members import END_MARK, DamagedArchive, Kind, Member, members


def merge_archives(
    parts: Sequence[Part], writer: Writer, target: Path, open_part: OpenPart = open_own
) -> FileFact:
    """Write the members of all parts to one archive, `target`.

    Raises CannotJoin for a member of two ranks, too many of them, or a damaged part, NoSpace, and as
    `open_part`; then nothing is left behind. Blocking: for a worker thread.
    """
    try:
        ends = _check(parts, open_part)
        held: list[bytes] = []
        size = 0
        for part, end in zip(parts, ends, strict=True):
            for data in _beginning(part, end, open_part):
                held.append(data)
                size += len(data)
                if size >= BUFFER_BYTES:
                    writer.write(b"".join(held))
                    held, size = [], 0
        return writer.finish(b"".join([*held, END_MARK]), lambda _: target)
    except BaseException:
        writer.abort()
        raise


def _beginning(part: Part, end: int, open_part: OpenPart) -> Iterator[bytes]:
    with open_part(part.path) as file:
        while end > 0 and (data := file.read(min(end, BUFFER_BYTES))):
            end -= len(data)
            yield data


def _check(parts: Sequence[Part], open_part: OpenPart) -> list[int]:
    """Where the last member of each part ends."""
    ends: list[int] = []
    files = array("Q")
    folders: set[int] = set()
    for part in parts:
        end = 0
        for member in _members(part, open_part):
            mark = _mark(_name(member))
            if member.kind is Kind.FOLDER:
                folders.add(mark)
            else:
                files.append(mark)
            if len(files) + len(folders) > MAX_MEMBERS:
                raise CannotJoin(f"all ranks together made more than {MAX_MEMBERS} files")
            end = member.end
        ends.append(end)
    twice = {one for one, next in itertools.pairwise(sorted(files)) if one == next}
    twice.update(mark for mark in files if mark in folders)
    if twice:
        _compare(parts, twice, open_part)
    return ends


def _compare(parts: Sequence[Part], marks: set[int], open_part: OpenPart) -> None:
    """Look at the names that may be there twice. Raises CannotJoin."""
    first: dict[str, tuple[Part, Kind]] = {}
    for part in parts:
        for member in _members(part, open_part):
            name = _name(member)
            if _mark(name) not in marks:
                continue
            other, kind = first.setdefault(name, (part, member.kind))
            if (other is not part or kind is not member.kind) and {kind, member.kind} != {Kind.FOLDER}:
                shown = name.encode("utf-8", "replace").decode()[:200]
                raise CannotJoin(f"ranks {other.rank} and {part.rank} both made '{shown}'")


def _members(part: Part, open_part: OpenPart) -> Iterator[Member]:
    with open_part(part.path) as file:
        try:
            yield from members(file)
        except DamagedArchive as exc:
            raise CannotJoin(f"what rank {part.rank} made is not a whole tar: {exc}") from exc


def _name(member: Member) -> str:
    return "/".join(part for part in member.name.split("/") if part not in ("", "."))


def _mark(name: str) -> int:
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest())
