"""What this room needs from others, and the facts it hands back."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from awe_server.store.base import Collection, Document, Operation, Page, Query
from shared_models.errors import AweError


class DocumentPort(Protocol):
    """Durable documents: `put` returns when they are on disk, `get` and `find` see every earlier `put`."""

    async def get(self, collection: Collection, id: str, /) -> Document | None:
        """One document, or None."""

    async def put(self, *operations: Operation) -> None:
        """Apply the operations together."""

    async def find(self, collection: Collection, query: Query, /) -> Page:
        """A page of documents."""


@dataclass(slots=True, frozen=True)
class FileFact:
    """What is known of a file's bytes; checksums are hex text."""

    size: int
    md5: str
    sha256: str


@dataclass(slots=True, frozen=True)
class IndexFact:
    """An index of a node's file: how many units it has, and their format (size, line, fasta, ...)."""

    kind: str
    total_units: int
    format: str
    records: int | None = None  #: in the whole file; None = they were not counted


Buffer = bytes | memoryview


class Sink(Protocol):
    """Takes in the bytes of a file; blocking, in threads, from one at a time."""

    def write(self, data: Buffer, /) -> object:
        """Take bytes; they may change afterwards."""

    def begin(self, data: Buffer, /) -> object:
        """Take bytes; they must not change before the next call of any of these has returned."""

    def settle(self) -> object:
        """Return when what was taken may change."""


@runtime_checkable
class Passing(Protocol):
    """A stream that can be written where it comes from, without handing its bytes around."""

    @property
    def can_pass(self) -> bool:
        """Whether it can now, and it is worth it."""

    def passing(self, sink: Sink, /) -> AsyncIterator[int]:
        """Give the rest to `sink`, in threads; yields how many bytes at a time."""


class Cut(Exception):
    """What a stream raises besides its own error when its sender is gone, or silent for too long."""


class CannotJoin(AweError):
    """The parts of a node cannot be joined."""

    code = "cannot_join"


class Unreadable(AweError):
    """{file} cannot be read: {reason}"""

    code = "unreadable"
