"""Nodes of the Shock of tests: what one is, how its document looks, how its file is cut."""

import hashlib
import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHUNK = 1048576
NEVER = "0001-01-01T00:00:00Z"
Span = tuple[int, int]


class ShockError(Exception):
    """A refusal: a status and one text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


@dataclass
class Index:
    """Where the units of a file are; locked until it is built."""

    kind: str
    spans: list[Span]
    size: int
    created_ns: int
    ready_at: float = 0.0
    error: str = ""

    @property
    def is_locked(self) -> bool:
        return bool(self.error) or time.monotonic() < self.ready_at

    def document(self, digits: int) -> dict[str, Any]:
        if self.is_locked:
            lock = {"created_on": go_time(self.created_ns, 9), "error": self.error}
            return {"total_units": 0, "average_unit_size": 0, "created_on": NEVER, "locked": lock}
        average = CHUNK if self.kind == "size" else self.size // max(1, len(self.spans))
        created = go_time(self.created_ns, digits)
        return {
            "total_units": len(self.spans),
            "average_unit_size": average,
            "created_on": created,
            "locked": None,
        }


@dataclass
class File:
    """Stored bytes; locked while parts are being joined to them."""

    path: Path
    size: int
    md5: str
    created_ns: int
    ready_at: float = 0.0

    @property
    def is_locked(self) -> bool:
        return time.monotonic() < self.ready_at


@dataclass
class Node:
    """A node; `file` is None until there is one."""

    id: str
    created_ns: int
    name: str = ""
    file: File | None = None
    attributes: Any = None
    type: str = "basic"
    tags: list[str] = field(default_factory=list)
    indexes: dict[str, Index] = field(default_factory=dict)
    parts_count: int = 0
    parts: dict[int, tuple[str, File]] = field(default_factory=dict)
    modified_ns: int = 0
    expiration_ns: int = 0

    def touch(self) -> None:
        self.modified_ns = time.time_ns()

    def set_file(self, file: File) -> None:
        self.file = file
        spans = cut(file.path, "size")
        self.indexes["size"] = Index("size", spans, file.size, time.time_ns(), file.ready_at)
        self.touch()

    def readable(self) -> File:
        """The file, if it can be read now."""
        if self.file is None:
            raise ShockError(400, "Node has no file")
        if self.file.is_locked:
            raise ShockError(400, "Node file is locked from download or indexing")
        return self.file

    def units(self, kind: str, part: str) -> Span:
        """The stretch of the file that `part` of an index stands for."""
        index = self.indexes.get(kind)
        if index is None or index.is_locked:
            raise ShockError(400, "Invalid index type")
        first, dash, last = part.partition("-")
        text = "Invalid index record range" if dash else "Index record out of bounds"
        try:
            start, stop = int(first), int(last if dash else first)
        except ValueError:
            raise ShockError(400, text) from None
        if not 1 <= start <= stop <= len(index.spans):
            raise ShockError(400, text)
        offset = index.spans[start - 1][0]
        return offset, sum(index.spans[stop - 1]) - offset

    def document(self, fresh: str = "") -> dict[str, Any]:
        """As Shock answers; `fresh` is "created" or "updated" in replies to such a request.

        Those carry nanoseconds, and a created node has null where others have empty lists.
        """
        digits = 9 if fresh else 3
        none: list[Any] | None = None if fresh == "created" else []
        versions = {
            "acl_ver": _version("public"),
            "attributes_ver": _version(self.attributes),
            "file_ver": _version([self.name, self.file and self.file.md5]),
            "indexes_ver": _version({kind: len(index.spans) for kind, index in self.indexes.items()}),
        }
        locked = self.file is not None and self.file.is_locked
        indexes = {} if locked else self.indexes
        return {
            "id": self.id,
            "version": _version([self.id, versions]),
            "file": self._file_document(digits, none),
            "attributes": self.attributes,
            "indexes": {kind: index.document(digits) for kind, index in sorted(indexes.items())},
            "version_parts": versions,
            "tags": self.tags or none,
            "linkage": none,
            "priority": 0,
            "created_on": go_time(self.created_ns, 9 if fresh == "created" else 3),
            "last_modified": go_time(self.modified_ns, digits),
            "expiration": go_time(self.expiration_ns, digits),
            "type": self.type,
            "parts": self._parts_document(none if self.parts or not fresh else None),
            "locations": none,
            "restore": False,
        }

    def _file_document(self, digits: int, none: list[Any] | None) -> dict[str, Any]:
        file = self.file
        head = {"name": self.name, "size": 0, "checksum": {}, "format": "", "virtual": False}
        tail: dict[str, Any] = {"virtual_parts": none, "created_on": NEVER, "locked": None}
        if file is None:
            return {**head, **tail}
        created = go_time(file.created_ns, digits)
        if file.is_locked:
            return {**head, **tail, "locked": {"created_on": go_time(file.created_ns, 9), "error": ""}}
        return {**head, "size": file.size, "checksum": {"md5": file.md5}, **tail, "created_on": created}

    def _parts_document(self, none: list[Any] | None) -> dict[str, Any] | None:
        if not self.parts_count:
            return None
        parts = [
            [self.parts[rank][0], self.parts[rank][1].md5] if rank in self.parts else none
            for rank in range(1, self.parts_count + 1)
        ]
        head = {"count": self.parts_count, "length": len(self.parts), "varlen": False}
        return {**head, "parts": parts, "compression": ""}


def cut(path: Path, kind: str) -> list[Span]:
    """The units of a file; whoever cuts elsewhere may compare."""
    if kind == "size":
        size = path.stat().st_size
        return [(at, min(CHUNK, size - at)) for at in range(0, size, CHUNK)]
    data = path.read_bytes()
    if kind == "line":
        starts = [0, *(match.end() for match in re.finditer(rb"\n", data))]
    elif kind in ("record", "chunkrecord"):
        starts = _record_starts(data)
    else:
        raise ShockError(400, "Invalid index type")
    starts = [start for start in starts if start < len(data)]
    if kind == "chunkrecord":
        starts = _chunk_starts(starts, len(data))
    stops = [*starts[1:], len(data)]
    return [(start, stop - start) for start, stop in zip(starts, stops, strict=True)]


def _record_starts(data: bytes) -> list[int]:
    if data.startswith(b">"):
        return [0, *(match.start() + 1 for match in re.finditer(rb"\n>", data))]
    if data.startswith(b"@"):
        return _fastq_starts(data)
    raise ShockError(400, "unknown file format")


def _fastq_starts(data: bytes) -> list[int]:
    """Header, bases up to the line with '+', then as many qualities as there were bases."""
    starts, at = [], 0
    lines = data.splitlines(keepends=True)
    number = 0
    while number < len(lines):
        if not lines[number].startswith(b"@"):
            raise ShockError(400, f"invalid FASTQ: line {number + 1} is no header")
        starts.append(at)
        first, bases, qualities = number, 0, 0
        number += 1
        while number < len(lines) and not lines[number].startswith(b"+"):
            bases += len(lines[number].rstrip())
            number += 1
        number += 1
        while number < len(lines) and qualities < bases:
            qualities += len(lines[number].rstrip())
            number += 1
        if qualities != bases:
            raise ShockError(400, f"invalid FASTQ: record at line {first + 1}")
        at += sum(len(line) for line in lines[first:number])
    return starts


def _chunk_starts(starts: list[int], size: int) -> list[int]:
    """As many whole records as fit into 1 MiB, and at least one."""
    chunks: list[int] = []
    for start, stop in zip(starts, [*starts[1:], size], strict=True):
        if not chunks or stop - chunks[-1] > CHUNK:
            chunks.append(start)
    return chunks


def go_time(ns: int, digits: int) -> str:
    """RFC 3339 as Go writes it: as many digits as it takes."""
    if not ns:
        return NEVER
    fraction = f"{ns % 10**9:09d}"[:digits].rstrip("0")
    head = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ns // 10**9))
    return f"{head}{'.' if fraction else ''}{fraction}Z"


def _version(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
