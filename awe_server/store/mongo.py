"""Documents in MongoDB, for a site. The only file that knows motor, so that leaving it is one file.

On a replica set or behind mongos a batch is one transaction, acknowledged by a majority's journal, which also
renews the writer's lease. All transactions are of one session: the next one ends one that an outage left open
on the server, and the lease tells a successor which session to end. MongoDB 8 takes all writes of a
transaction, the renewal included, in one request; an older one, also one that a fail-over brings, wants one
for each collection, and so does a newer one that is told to behave as an older one. A standalone
server has no transactions: there the lease is renewed first, then the batch is written in its order.
"""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC
from typing import Any

from bson.binary import UUID_SUBTYPE, Binary
from bson.errors import BSONError
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import ASCENDING, DESCENDING, DeleteMany, DeleteOne, ReplaceOne, UpdateOne, WriteConcern
from pymongo.errors import (
    ClientBulkWriteException,
    ConfigurationError,
    DocumentTooLarge,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
)

from awe_server.faults import reach
from awe_server.store.base import (
    COLLECTIONS,
    FORMAT_VERSION,
    INLINE_STEPS,
    Collection,
    Delete,
    Document,
    Match,
    Operation,
    Page,
    Put,
    Query,
)
from awe_server.store.documents import decode, encode
from awe_server.store.errors import LeaseGone, StoreVersion
from awe_server.store.indexes import INDEXES
from awe_server.store.lease import LEASE_S, Busy, Lease, Renewal
from awe_server.store.mongo_query import conditions, from_mongo, path, to_mongo
from awe_server.store.owner import this_process
from awe_server.store.query import MAX_DIGITS, distinct_values, group_name
from awe_server.store.waiting import Waiting
from shared_models.errors import BadRequest, InvalidDocument, StoreUnavailable

log = logging.getLogger(__name__)

DEFAULT_DATABASE = "awe"
OPEN_WAIT_S = 60.0  #: how long a start waits for a server that does not answer
TRIES = 3  #: of a transaction that meets passing trouble; after that the caller repeats the batch
TRY_AGAIN_WITHIN_S = 1.0  #: a trouble that took longer is an outage

#: Nothing waits for ever; a value in the URL wins.
TIMEOUTS_MS = {
    "serverSelectionTimeoutMS": 5_000,
    "connectTimeoutMS": 5_000,
    "socketTimeoutMS": 30_000,
}

_DURABLE = WriteConcern("majority", wtimeout=20_000, j=True)

_NOT_ALLOWED = (13, 18)  #: MongoDB's codes for "unauthorized" and "authentication failed"; waiting is vain
_PASSING = ("TransientTransactionError", "UnknownTransactionCommitResult")
_NO_SUCH_COMMAND = (59, 115)  #: MongoDB's codes for "command not found" and "command not supported"
_ALL_AT_ONCE = 25  #: MongoDB 8's wire version: one request may write to several collections
_IDS_PER_REQUEST = 500
_SCAN_DOCUMENTS = 1_000


class _CannotAtOnce(Exception):
    """The server does not take writes to several collections in one request; nothing was written."""


class MongoStore:
    """One database; one server at a time writes to it."""

    def __init__(
        self,
        url: str,
        *,
        connect: Callable[..., Any] = AsyncIOMotorClient,
        lease_s: float = LEASE_S,
        open_wait_s: float = OPEN_WAIT_S,
    ) -> None:
        self._url = url
        self._connect = connect
        self._lease_s = lease_s
        self._open_wait_s = open_wait_s
        scheme, _, rest = url.partition("://")
        #: Where, without user and password.
        self.name = f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"
        self._owner = this_process()
        self._client: Any = None
        self._session: Any = None
        self._database: Any = None
        self._has_transactions = False
        self._writes_at_once = False
        self._lease: Lease | None = None
        self._gave_up = False  #: there was a lease, and it was given back
        self._renewal: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._refused = ""  #: the session that the server did not let us end

    @property
    def lease(self) -> Document | None:
        """The lease, as far as this server knows, while it is held."""
        return None if self._lease is None or self._lease.is_lost else self._lease.shown

    @property
    def in_doubt(self) -> bool:
        """Whether another server may own the lease by now. May be asked in any thread."""
        lease = self._lease
        return self._gave_up if lease is None else lease.in_doubt

    async def open(self, *, wait: bool = False) -> None:
        """Connect and become the writer; `wait`: for as long as another server is the writer.

        A server that does not answer is waited for up to OPEN_WAIT_S.
        """
        if self._lease is not None:
            return
        waiting = Waiting(self.name, "the database does not answer")
        async with waiting.told():
            await self._open_patiently(waiting, wait=wait)

    async def _open_patiently(self, waiting: Waiting, *, wait: bool) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._open_wait_s
        while True:
            try:
                await self._open(waiting, wait=wait)
                return
            except StoreUnavailable as exc:
                waiting.reason = exc.message
                await self.close()
                if loop.time() >= until or getattr(exc.__cause__, "code", None) in _NOT_ALLOWED:
                    raise
                await asyncio.sleep(0.2)
            except BaseException:
                await self.close()
                raise

    async def _open(self, waiting: Waiting, *, wait: bool) -> None:
        options = {name: ms for name, ms in TIMEOUTS_MS.items() if name.lower() not in self._url.lower()}
        try:
            self._client = self._connect(self._url, **options)
        except (ConfigurationError, ValueError) as exc:
            kind = type(exc).__name__  # its text may hold the password
            raise BadRequest(
                f"{self.name}: not a usable MongoDB URL ({kind}); escape user and password"
            ) from None
        self._database = self._client.get_default_database(DEFAULT_DATABASE, write_concern=_DURABLE)
        with _translated(self.name, "open"):
            hello = await self._client.admin.command("hello")
            self._has_transactions = "setName" in hello or hello.get("msg") == "isdbgrid"
            self._writes_at_once = self._has_transactions and hello["maxWireVersion"] >= _ALL_AT_ONCE
            await self._check_format()
            if self._has_transactions:
                # All writes go to the primary, and what they match is seen as of their beginning anyway.
                self._session = await self._client.start_session(causal_consistency=False)
            lease = Lease(
                self._database["meta"],
                self,
                waiting,
                owner={**self._owner, "lsid": self._lsid()},
                domain=self._database.name,
                length_s=self._lease_s,
            )
            await lease.take(wait=wait)
            self._lease = lease
            await self._create_collections()
        self._renewal = asyncio.create_task(self._keep_lease(lease))

    async def _check_format(self) -> None:
        stored = await self._database["meta"].find_one({"_id": "format"})
        if stored is not None and stored.get("version") != FORMAT_VERSION:
            raise StoreVersion(name=self.name, found=stored.get("version"), wanted=FORMAT_VERSION)

    async def _create_collections(self) -> None:
        """A transaction had better not create a collection: it would conflict with others."""
        existing = set(await self._database.list_collection_names())
        for name in COLLECTIONS:
            if name not in existing:
                await self._database.create_collection(name)
            for fields in INDEXES[name]:
                await self._database[name].create_index([(path(field), ASCENDING) for field in fields])
        await self._database["meta"].update_one(
            {"_id": "format"}, {"$setOnInsert": {"version": FORMAT_VERSION}}, upsert=True
        )

    def _lsid(self) -> str:
        """The session of our transactions, for whoever has to end it; "" where there are no transactions."""
        return "" if self._session is None else bytes(self._session.session_id["id"]).hex()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Give a session in a transaction, None where there are none. Raises Busy."""
        if self._session is None:
            yield None
            return
        try:
            async with self._session.start_transaction(write_concern=_DURABLE):
                yield self._session
        except PyMongoError as exc:
            if any(exc.has_error_label(label) for label in _PASSING):
                raise Busy(str(exc)) from exc
            raise

    async def end_session(self, lsid: str) -> None:
        """Abort what that session left open. A server that does not let us gives it up by itself, later."""
        try:
            named = {"id": Binary(bytes.fromhex(lsid), UUID_SUBTYPE)}
            await self._client.admin.command("killSessions", [named])
        except (OperationFailure, ValueError) as exc:
            if self._refused != lsid:
                self._refused = lsid
                waits_for = "the end of what the last writer left open (up to a minute)"
                log.warning("session_not_ended", extra={"reason": str(exc), "waits_for": waits_for})

    async def clock(self) -> float | None:
        """The server's wall clock, in seconds; None if it does not tell."""
        now = (await self._client.admin.command("hello")).get("localTime")
        return None if now is None else float(now.replace(tzinfo=UTC).timestamp())

    async def _keep_lease(self, lease: Lease) -> None:
        """Renew in the background. What fails is tried again; only a successor ends it."""
        while True:
            await asyncio.sleep(lease.length_s / 6)
            try:
                await self._renew(lease)
            except StoreUnavailable:
                continue
            except LeaseGone:
                return

    async def _renew(self, lease: Lease) -> None:
        with _translated(self.name, "renew the lease"):
            await lease.read_clock()
            async with self._writing:
                await lease.renew_if_due()

    async def close(self) -> None:
        """Give the lease back and disconnect."""
        renewal, lease, session, client = self._renewal, self._lease, self._session, self._client
        self._gave_up = self._gave_up or lease is not None
        self._renewal = self._lease = self._session = self._client = None
        if renewal is not None:
            renewal.cancel()
            await asyncio.wait([renewal])
        if lease is not None and not lease.is_lost:
            async with self._writing:
                with contextlib.suppress(StoreUnavailable), _translated(self.name, "give back the lease"):
                    await lease.release()
        if session is not None:
            with contextlib.suppress(PyMongoError):
                await session.end_session()
        if client is not None:
            client.close()

    async def commit(self, batch: Sequence[Operation]) -> None:
        """Write a batch: all or nothing where there are transactions, otherwise in order.

        An empty one asks the database only if the lease is in doubt.
        """
        lease = self._opened_lease()
        lease.require()
        if not batch:
            if lease.in_doubt:
                await self._renew(lease)
            return
        is_short = len(batch) <= INLINE_STEPS
        async with self._writing:
            runs = self._runs(batch) if is_short else await asyncio.to_thread(self._runs, batch)
            with _translated(self.name, "write"):
                try:
                    await self._write_durably(lease, runs)
                except _CannotAtOnce as exc:
                    log.warning("mongodb_writes_one_by_one", extra={"reason": str(exc)})
                    self._writes_at_once = False
                    await self._write_durably(lease, self._runs(batch))

    async def _write_durably(self, lease: Lease, runs: list[tuple[Collection, list[Any]]]) -> None:
        if self._has_transactions:
            await self._in_transaction(lease, runs)
        else:
            lease.renewed(await lease.renew())
            await self._write(runs)

    def _runs(self, batch: Sequence[Operation]) -> list[tuple[Collection, list[Any]]]:
        """The batch in its order, neighbours of one collection together."""
        runs = []
        for collection, steps in itertools.groupby(batch, key=lambda step: step.collection):
            namespace = f"{self._database.name}.{collection}" if self._writes_at_once else None
            runs.append((collection, [_write_of(step, namespace) for step in steps]))
        return runs

    async def _in_transaction(self, lease: Lease, runs: list[tuple[Collection, list[Any]]]) -> None:
        started = time.monotonic()
        for attempt in range(1, TRIES + 1):
            try:
                async with self.transaction() as session:
                    if self._writes_at_once:
                        renewal = await self._write_at_once(lease, runs, session)
                    else:
                        renewal = await lease.renew(session)
                        await self._write(runs, session)
                lease.renewed(renewal)
                return
            except Busy:
                if attempt == TRIES or time.monotonic() - started > TRY_AGAIN_WITHIN_S:
                    raise

    async def _write_at_once(
        self, lease: Lease, runs: list[tuple[Collection, list[Any]]], session: Any
    ) -> Renewal:
        """Renew the lease and write all in one request. Raises LeaseGone, _CannotAtOnce."""
        renewal = lease.renewal()
        writes = [UpdateOne(lease.ours, renewal.change, namespace=f"{self._database.name}.meta")]
        writes += itertools.chain.from_iterable(some for _, some in runs)
        try:
            result = await self._client.bulk_write(writes, ordered=True, session=session)
        except ClientBulkWriteException as exc:
            cause = exc.error if isinstance(exc.error, PyMongoError) else exc
            _refuse_at_once(cause)
            raise cause from exc
        except PyMongoError as exc:
            _refuse_at_once(exc)
            raise
        reach("inside-commit")
        # Each write but a deletion finds its document or makes it; only the lease's makes none.
        deletions = sum(isinstance(write, DeleteOne | DeleteMany) for write in writes)
        lease.matched(result.matched_count + result.upserted_count == len(writes) - deletions)
        return renewal

    async def _write(self, runs: list[tuple[Collection, list[Any]]], session: Any = None) -> None:
        for number, (collection, writes) in enumerate(runs):
            if session is None and self.in_doubt:  # no transaction would refuse it
                raise StoreUnavailable(f"{self.name}: the lease ran out before all was written", op="write")
            await self._database[collection].bulk_write(writes, ordered=True, session=session)
            if number == 0:
                reach("inside-commit")

    async def get(self, collection: Collection, id: str) -> Document | None:
        """One document, or None."""
        with self._reading():
            stored = await self._database[collection].find_one({"_id": id})
        return None if stored is None else from_mongo(stored)

    async def get_many(self, collection: Collection, ids: Sequence[str]) -> dict[str, Document]:
        """Those that exist, by id."""
        found: dict[str, Document] = {}
        with self._reading():
            for start in range(0, len(ids), _IDS_PER_REQUEST):
                some = list(ids[start : start + _IDS_PER_REQUEST])
                async for stored in self._database[collection].find({"_id": {"$in": some}}):
                    document = from_mongo(stored)
                    found[document["id"]] = document
        return found

    async def find(self, collection: Collection, query: Query) -> Page:
        """A page of documents."""
        wanted = conditions(collection, query.where)
        direction = DESCENDING if query.descending else ASCENDING
        order = [("_id", direction)]
        if query.order != "id":
            order.insert(0, (path(query.order), direction))
        with self._reading():
            total = await self._database[collection].count_documents(wanted)
            cursor = self._database[collection].find(wanted).sort(order).allow_disk_use(True)
            cursor = cursor.skip(query.offset).limit(query.limit)
            return Page([from_mongo(stored) async for stored in cursor], total)

    async def scan(
        self, collection: Collection, where: Sequence[Match] = ()
    ) -> AsyncGenerator[Document, None]:
        """All matching documents in id order."""
        with self._reading():
            cursor = self._database[collection].find(conditions(collection, where)).sort([("_id", ASCENDING)])
            async for stored in cursor.allow_disk_use(True).batch_size(_SCAN_DOCUMENTS):
                yield from_mongo(stored)

    async def count_by(
        self, collection: Collection, field: str, where: Sequence[Match] = ()
    ) -> dict[str, int]:
        """How many documents there are for each value."""
        stages = [
            {"$match": conditions(collection, where)},
            {"$group": {"_id": f"${path(field)}", "documents": {"$sum": 1}}},
        ]
        counts: dict[str, int] = {}
        with self._reading():
            async for group in self._database[collection].aggregate(stages):
                name = group_name(group["_id"])
                counts[name] = counts.get(name, 0) + group["documents"]
        return counts

    async def sum_by(
        self, collection: Collection, field: str, by: str, where: Sequence[Match] = ()
    ) -> dict[str, float]:
        """The sum of a number for each text of `by`."""
        stages = [
            {"$match": conditions(collection, where)},
            {"$group": {"_id": f"${path(by)}", "total": {"$sum": f"${path(field)}"}}},
        ]
        with self._reading():
            groups = [group async for group in self._database[collection].aggregate(stages)]
        return {group["_id"]: float(group["total"]) for group in groups if isinstance(group["_id"], str)}

    async def highest_number(self, collection: Collection, field: str) -> int:
        """The highest number among a field's texts of digits."""
        name = path(field)
        digits = {name: {"$regex": f"^[0-9]{{1,{MAX_DIGITS}}}$"}, f"{name}.0": {"$exists": False}}  # no list
        stages = [
            {"$match": digits},
            {"$group": {"_id": None, "highest": {"$max": {"$toLong": f"${name}"}}}},
        ]
        with self._reading():
            groups = [group async for group in self._database[collection].aggregate(stages)]
        return max((int(group["highest"] or 0) for group in groups), default=0)

    async def distinct(self, collection: Collection, field: str, where: Sequence[Match] = ()) -> list[Any]:
        """The different values, sorted."""
        with self._reading():
            return distinct_values(
                await self._database[collection].distinct(path(field), conditions(collection, where))
            )

    async def check(self) -> list[str]:
        """MongoDB looks after its own files; say whether it answers."""
        with self._reading():
            await self._client.admin.command("ping")
        return []

    def _opened_lease(self) -> Lease:
        if self._lease is None:
            raise StoreUnavailable("the store is not open")
        return self._lease

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        self._opened_lease()
        with _translated(self.name, "read"):
            yield


@contextlib.contextmanager
def _translated(name: str, action: str) -> Iterator[None]:
    """Turn the driver's errors into the store's, once."""
    try:
        yield
    except (DocumentTooLarge, OverflowError) as exc:
        raise InvalidDocument(f"MongoDB cannot keep a document of the batch: {exc}") from exc
    except (BSONError, UnicodeEncodeError) as exc:
        raise BadRequest("an id or value is not valid Unicode text") from exc
    except (PyMongoError, Busy) as exc:
        raise StoreUnavailable(f"{name}: cannot {action}: {exc}", op=action) from exc


def _refuse_at_once(error: PyMongoError) -> None:
    """Raise _CannotAtOnce if that is what the driver or the server says."""
    if isinstance(error, InvalidOperation) or getattr(error, "code", None) in _NO_SUCH_COMMAND:
        raise _CannotAtOnce(str(error)) from error


def _write_of(step: Operation, namespace: str | None) -> ReplaceOne[Any] | DeleteOne | DeleteMany:
    if isinstance(step, Put):
        stored = to_mongo(decode(encode(step.document)))
        return ReplaceOne({"_id": stored["_id"]}, stored, upsert=True, namespace=namespace)
    if isinstance(step, Delete):
        return DeleteOne({"_id": step.id}, namespace=namespace)
    return DeleteMany(conditions(step.collection, (Match(step.field, (step.value,)),)), namespace=namespace)
