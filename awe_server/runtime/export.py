"""Every stored document for whoever wants to read them elsewhere, without what is nobody's business.

What is left out: the lease tokens of attempts, private environment, data tokens. A line that lacks something
says so. Who writes to this very store (`lease`) is nothing to take along.
"""

from collections.abc import AsyncIterator, Callable

from awe_server.store.base import COLLECTIONS, Collection, Document, Odd, Store

#: Keys that only the holder of an attempt may read, by collection.
SECRETS: dict[Collection, tuple[str, ...]] = {
    "jobs": ("_datatoken",),
    "tasks": ("_private_env",),
    "workunits": ("_token",),
}
_NOT_EXPORTED = {("meta", "lease")}


async def exported(store: Store, skip: Callable[[Collection, str], object]) -> AsyncIterator[Document]:
    """`{"collection", "document"}` for each document, in order of collection and id; `left_out` names the
    keys that were taken out of it. `skip` is called for what is no document of its id.
    """
    for collection in COLLECTIONS:
        async for document in store.scan(collection):
            if isinstance(document, Odd):
                skip(collection, document["id"])
            elif (collection, document["id"]) not in _NOT_EXPORTED:
                yield _line(collection, document)


def _line(collection: Collection, document: Document) -> Document:
    left_out = [key for key in SECRETS.get(collection, ()) if document.get(key)]
    shown = {key: value for key, value in document.items() if key not in left_out}
    line = {"collection": collection, "document": shown}
    return {**line, "left_out": left_out} if left_out else line
