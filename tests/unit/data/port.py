"""The documents of a node store under test."""

from collections.abc import AsyncIterator

from awe_server.store.base import Collection, Document, Operation, Page, Put, Query
from awe_server.store.memory import MemoryStore
from shared_models.errors import StoreUnavailable


class MemoryPort:
    """A DocumentPort on the memory store that can fail at will."""

    def __init__(self) -> None:
        self._store = MemoryStore()
        self.puts = 0
        self.fail_put = False  #: the next put does nothing
        self.fail_after_put = False  #: the next put is applied, and fails nevertheless

    async def open(self) -> None:
        await self._store.open()

    async def get(self, collection: Collection, id: str, /) -> Document | None:
        return await self._store.get(collection, id)

    async def put(self, *operations: Operation) -> None:
        if self.fail_put:
            self.fail_put = False
            raise StoreUnavailable
        self.puts += 1
        await self._store.commit(operations)
        if self.fail_after_put:
            self.fail_after_put = False
            raise StoreUnavailable

    async def find(self, collection: Collection, query: Query, /) -> Page:
        return await self._store.find(collection, query)

    async def add(self, document: Document) -> None:
        """Store a node document as a caller of `output_document` does."""
        await self.put(Put("nodes", document))


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def broken(*chunks: bytes) -> AsyncIterator[bytes]:
    """A connection that is lost after some bytes."""
    for chunk in chunks:
        yield chunk
    raise ConnectionError("lost")
