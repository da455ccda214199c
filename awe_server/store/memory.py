"""A store that forgets at exit, for tests and demonstrations. It accepts what the durable stores accept."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from awe_server.store.base import (
    COLLECTIONS,
    Collection,
    Delete,
    DeleteWhere,
    Document,
    Match,
    Operation,
    Page,
    Put,
    Query,
)
from awe_server.store.documents import decode, encode
from awe_server.store.query import distinct_values, group_name, is_number, lookup, matches, select
from shared_models.errors import StoreUnavailable


class MemoryStore:
    """Documents in dicts; copies go in and out, so nobody shares a document with the store."""

    def __init__(self) -> None:
        self.name = "memory"
        self._collections: dict[Collection, dict[str, Document]] = {name: {} for name in COLLECTIONS}
        self._is_open = False

    @property
    def lease(self) -> Document | None:
        """Nobody else can get at it."""
        return None

    @property
    def in_doubt(self) -> bool:
        """Nobody else can own it."""
        return False

    async def open(self) -> None:
        """Make it usable; documents of before a close are still there."""
        self._is_open = True

    async def close(self) -> None:
        """Refuse everything until it is opened again."""
        self._is_open = False

    async def commit(self, batch: Sequence[Operation]) -> None:
        """Apply all or nothing."""
        copied = [
            Put(step.collection, _copy(step.document)) if isinstance(step, Put) else step for step in batch
        ]
        for step in copied:
            documents = self._documents(step.collection)
            match step:
                case Put():
                    documents[step.document["id"]] = step.document
                case Delete():
                    documents.pop(step.id, None)
                case DeleteWhere():
                    condition = (Match(step.field, (step.value,)),)
                    for id in [id for id, document in documents.items() if matches(document, condition)]:
                        del documents[id]
        await asyncio.sleep(0)  # as every store: others go on before the batch is known to be durable

    async def get(self, collection: Collection, id: str) -> Document | None:
        """One document, or None."""
        document = self._documents(collection).get(id)
        return None if document is None else _copy(document)

    async def get_many(self, collection: Collection, ids: Sequence[str]) -> dict[str, Document]:
        """Those that exist, by id."""
        documents = self._documents(collection)
        return {id: _copy(documents[id]) for id in ids if id in documents}

    async def find(self, collection: Collection, query: Query) -> Page:
        """A page of documents."""
        page = select(self._documents(collection).values(), query)
        page.documents = [_copy(document) for document in page.documents]
        return page

    async def scan(
        self, collection: Collection, where: Sequence[Match] = ()
    ) -> AsyncGenerator[Document, None]:
        """All matching documents in id order."""
        for document in select(self._documents(collection).values(), Query(where=tuple(where))).documents:
            yield _copy(document)

    async def count_by(
        self, collection: Collection, field: str, where: Sequence[Match] = ()
    ) -> dict[str, int]:
        """How many documents there are for each value."""
        return dict(
            Counter(group_name(lookup(document, field)) for document in self._where(collection, where))
        )

    async def sum_by(
        self, collection: Collection, field: str, by: str, where: Sequence[Match] = ()
    ) -> dict[str, float]:
        """The sum of a number for each text of `by`."""
        sums: dict[str, float] = {}
        for document in self._where(collection, where):
            if isinstance(key := document.get(by), str):
                sums[key] = sums.get(key, 0.0) + (document.get(field) or 0)
        return sums

    async def highest_number(self, collection: Collection, field: str) -> int:
        """The highest number among a field's texts of digits."""
        values = [document.get(field) for document in self._documents(collection).values()]
        return max((int(value) for value in values if is_number(value)), default=0)

    async def distinct(self, collection: Collection, field: str, where: Sequence[Match] = ()) -> list[Any]:
        """The different values, sorted."""
        return distinct_values(lookup(document, field) for document in self._where(collection, where))

    async def check(self) -> list[str]:
        """Nothing here can be damaged."""
        self._documents("meta")
        return []

    def _where(self, collection: Collection, where: Sequence[Match]) -> list[Document]:
        return [document for document in self._documents(collection).values() if matches(document, where)]

    def _documents(self, collection: Collection) -> dict[str, Document]:
        if not self._is_open:
            raise StoreUnavailable("the store is not open")
        return self._collections[collection]


def _copy(document: Document) -> Document:
    copy: Document = decode(encode(document))
    return copy
