"""The members of a tar, one after the other, at flat memory, from a file that anybody may have made.

Read strictly: a header that makes no sense, one that is longer than any name needs, and an end without its
mark are refused, where the standard library takes a damaged archive for a shorter one.
"""

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO

BLOCK_BYTES = 512
#: Ends every archive.
END_MARK = bytes(2 * BLOCK_BYTES)

#: Names and other words of one member; nobody's are longer.
_MAX_WORDS_BYTES = 1024 * 1024
_PAX, _PAX_GLOBAL, _GNU_NAME, _GNU_LINK = b"x", b"g", b"L", b"K"
_WORDS = (_PAX, _PAX_GLOBAL, _GNU_NAME, _GNU_LINK)


class DamagedArchive(Exception):
    """A file that is no tar, or not all of one; the text says what is wrong."""


class Kind(StrEnum):
    """What a member is."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    HARD_LINK = "hard link"
    OTHER = "device, pipe, or something that is not known here"


@dataclass(slots=True, frozen=True)
class Member:
    """One member, and where it lies in the archive: `start` ≤ `data` ≤ `end`."""

    name: str  #: as it is written there; bytes that are no UTF-8 as surrogates
    kind: Kind
    size: int  #: bytes of a file
    executable: bool
    target: str  #: of a link
    start: int  #: where its first header begins
    data: int  #: where its bytes begin
    end: int  #: where the next member begins


def members(file: BinaryIO) -> Iterator[Member]:
    """The members in their order; `file` is seekable, and read between the members. Raises DamagedArchive."""
    length = file.seek(0, os.SEEK_END)
    words: dict[str, str] = {}
    start = position = 0
    while True:
        file.seek(position)
        block = file.read(BLOCK_BYTES)
        if len(block) < BLOCK_BYTES:
            raise DamagedArchive(f"it is cut off at byte {length}" if position else "it is not a tar")
        if not any(block):
            if words:
                raise DamagedArchive("it ends within a member")
            return
        header = _header(block, position)
        position += BLOCK_BYTES
        if header.type in _WORDS:
            if not 0 < header.size <= _MAX_WORDS_BYTES:
                raise DamagedArchive(f"a header at byte {position} has {header.size} bytes")
            text = file.read(header.size)
            if len(text) < header.size:
                raise DamagedArchive(f"it is cut off at byte {length}")
            words |= _words(header.type, text)
            position += _padded(header.size)
            continue
        member = _member(header, words, start, position)
        if member.end > length:
            raise DamagedArchive(f"it is cut off at byte {length}, within '{member.name[:200]}'")
        yield member
        words = {}
        start = position = member.end


def _header(block: bytes, position: int) -> tarfile.TarInfo:
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError, OverflowError) as exc:
        reason = f"no header at byte {position}: {exc}" if position else "it is not a tar"
        raise DamagedArchive(reason) from exc
    if header.size < 0:
        raise DamagedArchive(f"a header at byte {position} has {header.size} bytes")
    return header


def _words(type: bytes, text: bytes) -> dict[str, str]:
    if type in (_GNU_NAME, _GNU_LINK):
        name = text.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        return {"path" if type == _GNU_NAME else "linkpath": name}
    words: dict[str, str] = {}
    position = 0
    while position < len(text) and text[position]:
        digits, blank, _ = text[position : position + 20].partition(b" ")
        end = position + int(digits) if blank and digits.isdigit() else 0
        record = text[position + len(digits) + 1 : max(end - 1, 0)]
        key, equals, value = record.partition(b"=")
        if not equals or end > len(text) or text[end - 1 : end] != b"\n":
            raise DamagedArchive("a header of names makes no sense")
        name = key.decode("utf-8", "surrogateescape")
        if name in ("path", "linkpath", "size") or name.startswith("GNU.sparse"):
            words[name] = value.decode("utf-8", "surrogateescape")
        position = end
    if type == _PAX_GLOBAL and words:
        raise DamagedArchive("a header gives all members one name")
    return words


def _member(header: tarfile.TarInfo, words: dict[str, str], start: int, data: int) -> Member:
    name = words.get("path", header.name)
    size = header.size
    if "size" in words:
        if not (words["size"].isascii() and words["size"].isdigit() and len(words["size"]) < 20):
            raise DamagedArchive(f"the size of '{name[:200]}' is no number")
        size = int(words["size"])
    if header.isdir():
        kind = Kind.FOLDER
    elif header.isreg() and header.type != tarfile.GNUTYPE_SPARSE:
        kind = Kind.OTHER if any(key.startswith("GNU.sparse") for key in words) else Kind.FILE
    elif header.issym() or header.islnk():
        kind = Kind.LINK if header.issym() else Kind.HARD_LINK
    else:
        kind = Kind.OTHER
    has_bytes = header.isreg() or header.type not in tarfile.SUPPORTED_TYPES
    return Member(
        name=name,
        kind=kind,
        size=size if kind is Kind.FILE else 0,
        executable=bool(header.mode & 0o111),
        target=words.get("linkpath", header.linkname) if kind in (Kind.LINK, Kind.HARD_LINK) else "",
        start=start,
        data=data,
        end=data + (_padded(size) if has_bytes else 0),
    )


def _padded(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES
