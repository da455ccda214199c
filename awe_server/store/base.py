"""What a store is: it keeps documents, one per entity, and knows nothing of jobs.

A document is a JSON-ready dict; its id is the value of `id`. A batch is applied in order and is durable
when `commit` returns (SQLite: one fsynced transaction; a MongoDB replica set: one majority transaction;
otherwise ordered writes, so a torn batch is a prefix). An internal seam, free to change: every change of
meaning starts as a test in tests/contract/store_suite.py.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from awe_server.store.documents import Odd as Odd
from awe_server.store.documents import encode
from shared_models.errors import LeadInDoubt

Document = dict[str, Any]

Collection = Literal["jobs", "tasks", "workunits", "clients", "clientgroups", "users", "nodes", "meta"]

COLLECTIONS: tuple[Collection, ...] = (
    "jobs",
    "tasks",
    "workunits",
    "clients",
    "clientgroups",
    "users",
    "nodes",
    "meta",
)

#: Bumped whenever stored documents change their form; a store of another version is refused at open.
FORMAT_VERSION = 3

#: Steps of a batch that a store turns into its own form at once; more in a thread, so that others are served.
INLINE_STEPS = 500


@dataclass(slots=True)
class Put:
    """Store a document, replacing the one of the same id.

    Not frozen, although nobody changes one: two are made for each workunit, and freezing costs more than
    making.
    """

    collection: Collection
    document: Document


@dataclass(slots=True, frozen=True)
class Delete:
    """Remove a document; fine if there is none."""

    collection: Collection
    id: str


@dataclass(slots=True, frozen=True)
class DeleteWhere:
    """Remove all documents whose top-level field equals a value (field: an indexed one, see indexes.py)."""

    collection: Collection
    field: str
    value: str


Operation = Put | Delete | DeleteWhere


@dataclass(slots=True, frozen=True)
class Match:
    """One condition of a query; conditions are joined with AND.

    `field` is a dotted path into the document. `op`: `in` (any of the values; a list-valued field matches if
    it shares one), `ge` / `lt` (against the single value; texts by code point, numbers by value).
    """

    field: str
    values: tuple[str | int | float | bool, ...]
    op: Literal["in", "ge", "lt"] = "in"


@dataclass(slots=True, frozen=True)
class AnyOf:
    """At least one of the conditions holds."""

    matches: tuple[Match, ...]


@dataclass(slots=True, frozen=True)
class Query:
    """Which documents, in what order, and which page of them. Ties are broken by id: pages never overlap."""

    where: tuple[Match | AnyOf, ...] = ()
    order: str = "id"
    descending: bool = False
    limit: int = 0  #: 0 = no limit
    offset: int = 0


def check_storable(operations: Iterable[Operation]) -> None:
    """Refuse before a batch is made what every store would refuse in the middle of it.

    Raises InvalidDocument for a document without id, that is not JSON, or too large.
    """
    for operation in operations:
        if isinstance(operation, Put):
            encode(operation.document)


@dataclass(slots=True)
class Page:
    """One page of documents and how many match in all."""

    documents: list[Document] = field(default_factory=list)
    total: int = 0


class Store(Protocol):
    """The seam. Every method raises StoreUnavailable when the store cannot be reached or written.

    Any method may raise StoreCorrupt: the store is damaged and the server has to stop.
    """

    #: For /health and logs, without secrets: "sqlite:/path", "mongodb://host/db", "memory".
    name: str

    @property
    def lease(self) -> Document | None:
        """The claim to be the only writer, `{"epoch", "until"}`, while it is held.

        None for a store whose claim is a lock that cannot run out.
        """

    @property
    def in_doubt(self) -> bool:
        """Whether the claim to be the only writer may have gone to another server by now, or has.

        Asked many times for each request: a comparison, no question to anybody.
        """
        ...

    async def open(self) -> None:
        """Connect, take the writer's lock, check the format version.

        Raises StoreLocked, StoreCorrupt, StoreVersion.
        """

    async def close(self) -> None:
        """Give the lock back; safe to call twice and before open."""

    async def commit(self, batch: Sequence[Operation]) -> None:
        """Apply a batch; durable on return. An empty one asks whether this server still may write.

        The documents are copied before the first wait; those of a batch of more than INLINE_STEPS are copied
        in a thread, and must not change until this returns.

        Raises StoreUnavailable (nothing or a prefix was applied; repeating is safe), InvalidDocument (nothing
        was applied; repeating is vain: see documents.py), LeaseGone (another server writes now; stop).
        """

    async def get(self, collection: Collection, id: str) -> Document | None:
        """One document, or None."""

    async def get_many(self, collection: Collection, ids: Sequence[str]) -> dict[str, Document]:
        """Those documents of the given ids that exist, by id."""

    async def find(self, collection: Collection, query: Query) -> Page:
        """A page of documents."""

    def scan(self, collection: Collection, where: Sequence[Match] = ()) -> AsyncGenerator[Document, None]:
        """All matching documents in id order, streamed; for recovery and export. Closing it ends the look."""
        ...

    async def count_by(
        self, collection: Collection, field: str, where: Sequence[Match] = ()
    ) -> dict[str, int]:
        """How many matching documents there are for each value of a top-level field."""

    async def sum_by(
        self, collection: Collection, field: str, by: str, where: Sequence[Match] = ()
    ) -> dict[str, float]:
        """The sum of a top-level number over the matching documents, for each text of another field `by`.

        A missing number counts as 0; documents without that text are left out.
        """

    async def highest_number(self, collection: Collection, field: str) -> int:
        """The highest number among a top-level field's texts of 1 to 18 digits; 0 if there is none."""

    async def distinct(self, collection: Collection, field: str, where: Sequence[Match] = ()) -> list[Any]:
        """The different values of a dotted field, sorted."""

    async def check(self) -> list[str]:
        """Look for damage; an empty list means sound."""


def require_lead(store: Store) -> None:
    """Raise LeadInDoubt if another server may lead by now; before anything is done outside the store.

    May be called in any thread.
    """
    if store.in_doubt:
        raise LeadInDoubt()
