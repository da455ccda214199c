"""Which fields are indexed: the one table that all stores read.

Each index costs every write of its collection, and workunits are the hot path (about 8 % for theirs).
SQLite keeps an indexed field as a column of its own, so a change here is a change of FORMAT_VERSION.
An indexed field holds a single value (text or number) in every document that has it.
"""

from awe_server.store.base import Collection

#: Per collection, the indexes; each is the dotted paths it covers, in order.
INDEXES: dict[Collection, tuple[tuple[str, ...], ...]] = {
    "jobs": (("state",), ("info.submittime",), ("info.user",), ("jid",), ("_idempotency",)),
    "tasks": (("jobid",),),
    "workunits": (("taskid", "state"),),
    "clients": (),
    "clientgroups": (),
    "users": (),
    "nodes": (("created_on",), ("job",)),
    "meta": (),
}

#: Fields whose value, followed by `_`, begins the document's id: the primary key serves as their index.
ID_PREFIX: frozenset[tuple[Collection, str]] = frozenset({("workunits", "jobid")})


def indexed_fields(collection: Collection) -> tuple[str, ...]:
    """Every indexed path of a collection, once each."""
    return tuple(dict.fromkeys(path for index in INDEXES[collection] for path in index))


def id_range(value: str) -> tuple[str, str]:
    """First id and end (exclusive) of the ids that begin with `<value>_`."""
    return f"{value}_", f"{value}`"
