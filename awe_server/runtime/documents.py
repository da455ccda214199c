"""Reads of stored documents: each sees whatever was marked before it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from awe_server.store.base import Collection, Document, Match, Page, Query, Store


class StoredDocuments:
    """The reading half of the engine. Every read may raise StoreUnavailable."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def _readable(self) -> None:
        """Return when everything marked so far is durable."""
        raise NotImplementedError

    async def get(self, collection: Collection, id: str) -> Document | None:
        """One stored document; what was marked before is waited for."""
        await self._readable()
        return await self._store.get(collection, id)

    async def get_many(self, collection: Collection, ids: Sequence[str]) -> dict[str, Document]:
        """Stored documents by id; what was marked before is waited for."""
        await self._readable()
        return await self._store.get_many(collection, ids)

    async def find(self, collection: Collection, query: Query) -> Page:
        """A page of stored documents; what was marked before is waited for."""
        await self._readable()
        return await self._store.find(collection, query)

    async def scan(
        self, collection: Collection, where: Sequence[Match] = ()
    ) -> AsyncGenerator[Document, None]:
        """All matching stored documents in id order, streamed; what was marked before is waited for.

        Closing it ends the store's look as well.
        """
        await self._readable()
        async with aclosing(self._store.scan(collection, where)) as found:
            async for document in found:
                yield document

    async def distinct(self, collection: Collection, field: str, where: Sequence[Match] = ()) -> list[Any]:
        """The different values of a field."""
        await self._readable()
        return await self._store.distinct(collection, field, where)

    async def count_by(
        self, collection: Collection, field: str, where: Sequence[Match] = ()
    ) -> dict[str, int]:
        """How many documents there are for each value of a field."""
        await self._readable()
        return await self._store.count_by(collection, field, where)

    async def sum_by(
        self, collection: Collection, field: str, by: str, where: Sequence[Match] = ()
    ) -> dict[str, float]:
        """The sum of a number for each text of the field `by`."""
        await self._readable()
        return await self._store.sum_by(collection, field, by, where)
