"""Which fields are indexed: the one table that all stores read.

Each index costs every write of its collection, and workunits are the hot path (about 8 % for theirs).
SQLite keeps an indexed field as a column of its own, so a change here is a change of FORMAT_VERSION.
An indexed field holds a single value (text or number) in every document that has it.
"""

from functools import cache

from awe_server.store.base import Collection, Match

#: Per collection, the indexes; each is the dotted paths it covers, in order.
INDEXES: dict[Collection, tuple[tuple[str, ...], ...]] = {
    "jobs": (("state",), ("info.submittime",), ("info.user",), ("jid",), ("expiration",), ("_idempotency",)),
    "tasks": (("jobid",),),
    "workunits": (("taskid", "state"),),
    "clients": (),
    "clientgroups": (),
    "users": (),
    "nodes": (("created_on",), ("job",), ("expiration",), ("file.checksum.sha256",)),
    "meta": (),
}

#: Indexed fields that stay as they are as long as there is a document of that id: SQLite does not write them,
#: nor touch their indexes, when the document is replaced, which most of what is written does.
FIXED: frozenset[tuple[Collection, str]] = frozenset(
    {
        ("jobs", "info.submittime"),
        ("jobs", "info.user"),
        ("jobs", "_idempotency"),
        ("tasks", "jobid"),
        ("workunits", "taskid"),
    }
)

#: Fields whose value, followed by `_`, begins the document's id: the primary key serves as their index.
ID_PREFIX: frozenset[tuple[Collection, str]] = frozenset({("workunits", "jobid")})

#: A condition with more values than this reads the whole collection instead of that many ranges of it.
MAX_RANGES = 20


@cache
def indexed_fields(collection: Collection) -> tuple[str, ...]:
    """Every indexed path of a collection, once each."""
    return tuple(dict.fromkeys(path for index in INDEXES[collection] for path in index))


def id_ranges(collection: Collection, match: Match) -> list[tuple[str, str]]:
    """First id and end (exclusive) of the id ranges that a condition is confined to; empty: unknown."""
    if (collection, match.field) not in ID_PREFIX or match.op != "in" or len(match.values) > MAX_RANGES:
        return []
    if not all(isinstance(value, str) for value in match.values):
        return []
    return [(f"{value}_", f"{value}`") for value in match.values]
