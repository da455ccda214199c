"""The default store: one SQLite file in WAL mode, every commit fsynced, nothing to install.

One connection writes, on a thread of its own; lookups, queries and scans have theirs, so that no reader,
however slow, holds up a commit.
"""

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from awe_server.faults import reach
from awe_server.store import sqlite_file, sqlite_query
from awe_server.store.base import (
    INLINE_STEPS,
    Collection,
    DeleteWhere,
    Document,
    Match,
    Operation,
    Page,
    Put,
    Query,
)
from awe_server.store.documents import decode_document, encode
from awe_server.store.errors import StoreCorrupt
from awe_server.store.query import MAX_DIGITS, distinct_values, group_name
from awe_server.store.sqlite_place import Place
from awe_server.store.sqlite_wal import WalRoom
from awe_server.store.waiting import Waiting
from awe_server.store.work_thread import WorkThread
from shared_models.errors import StoreUnavailable

T = TypeVar("T")

BUSY_S = 10.0  #: how long a commit waits while another program holds the file; then StoreUnavailable
OPEN_WAIT_S = 60.0  #: the same for the start
CHECKPOINT_PAGES = 2_048  #: 16 MiB of WAL are copied into the file in between; about 15 ms
WAL_LIMIT_BYTES = (
    64 * 1024 * 1024
)  #: above this (a reader held the WAL back) it is emptied as soon as it can be
WAL_RETRY_S = 1.0

_SCAN_ROWS = 500
_IDS_PER_STATEMENT = 500

#: One statement of a batch and the rows it runs over.
Step = tuple[str, list[Sequence[Any]]]


class _Connection:
    """One SQLite connection and the one thread that uses it."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self._path = path
        self._thread = WorkThread("sqlite-read" if read_only else "sqlite-write")
        with sqlite_file.translated(path, "open"):
            self.db = sqlite_file.connect(path, read_only=read_only, busy_s=BUSY_S)

    async def run(self, action: str, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._thread.run(lambda: self._guarded(action, work))

    def _guarded(self, action: str, work: Callable[[sqlite3.Connection], T]) -> T:
        with sqlite_file.translated(self._path, action):
            try:
                return work(self.db)
            finally:
                if self.db.in_transaction:
                    self.db.rollback()

    async def close(self) -> None:
        """Let what is running end, then close."""
        await self._thread.run(self.db.close)
        self._thread.end()


class SqliteStore:
    """Documents in `<data_dir>/awe.sqlite`; the directory belongs to one process at a time.

    Without `read_all` it is opened also if a document cannot be read: for `check`, which says which.
    """

    def __init__(self, data_dir: Path, *, open_wait_s: float = OPEN_WAIT_S, read_all: bool = True) -> None:
        self._open_wait_s = open_wait_s
        self._read_all = read_all
        self._path = data_dir / "awe.sqlite"
        self._wal = data_dir / "awe.sqlite-wal"
        self.name = f"sqlite:{self._path}"
        self._lock: int | None = None
        self._place: Place | None = None
        self._room: WalRoom | None = None
        self._writer: _Connection | None = None
        self._lookups: _Connection | None = None
        self._queries: _Connection | None = None
        self._next_truncation = 0.0

    @property
    def lease(self) -> Document | None:
        """The lock on the directory cannot run out."""
        return None

    @property
    def in_doubt(self) -> bool:
        """The lock on the directory cannot run out."""
        return False

    async def open(self) -> None:
        """Own the directory, look at the file, open it. Waits up to OPEN_WAIT_S for a file that is busy."""
        if self._writer is not None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = sqlite_file.take_lock(self._path.parent / "awe.lock")
            waiting = Waiting(self.name, "the file is being looked at, or another program holds it")
            async with waiting.told():
                await self._open_file(waiting)
        except OSError as exc:
            await self.close()
            raise StoreUnavailable(
                f"{exc.filename or self._path}: cannot open: {exc.strerror}", op="open"
            ) from exc
        except BaseException:
            await self.close()
            raise

    async def _open_file(self, waiting: Waiting) -> None:
        until = time.monotonic() + self._open_wait_s
        while True:
            try:
                await asyncio.to_thread(sqlite_file.prepare, self._path, BUSY_S, read_all=self._read_all)
                await self._connect()
                return
            except StoreUnavailable as exc:
                waiting.reason = exc.message
                await self._disconnect()
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(0.2)

    async def _connect(self) -> None:
        self._place = Place(self._path, self._wal, sqlite_file.hold)
        self._writer = _Connection(self._path, read_only=False)
        await self._writer.run("open", _set_up_writer)
        self._place.begin()
        self._room = WalRoom(self._wal)
        self._lookups = _Connection(self._path, read_only=True)
        self._queries = _Connection(self._path, read_only=True)

    async def close(self) -> None:
        """Let running work end, empty the WAL into the file, give the directory back."""
        await self._disconnect()
        if self._lock is not None:
            sqlite_file.drop_lock(self._lock)
            self._lock = None

    async def _disconnect(self) -> None:
        writer, readers = self._writer, [self._lookups, self._queries]
        self._writer = self._lookups = self._queries = None
        for reader in readers:
            if reader is not None:
                await reader.close()
        if writer is not None:
            with contextlib.suppress(StoreUnavailable, StoreCorrupt):
                await writer.run("checkpoint", _empty_wal)
            await writer.close()
        if self._room is not None:
            self._room.close()
            self._room = None
        place, self._place = self._place, None
        if place is not None:
            place.close(sqlite_file.drop_lock)

    async def commit(self, batch: Sequence[Operation]) -> None:
        """Apply a batch as one transaction, on disk when it returns.

        Raises StoreCorrupt if the file is not the one that has its name any more.
        """
        writer = _opened(self._writer)
        if len(batch) > INLINE_STEPS:
            await writer.run("write", lambda db: self._apply(db, list(_steps(batch))))
        elif steps := list(_steps(batch)):
            await writer.run("write", lambda db: self._apply(db, steps))
        else:
            await writer.run("write", lambda _: self._check_place())

    def _apply(self, db: sqlite3.Connection, steps: list[Step]) -> None:
        db.execute("BEGIN IMMEDIATE")
        if self._room is not None:
            self._room.write_some()
        first, *others = steps
        db.executemany(*first)
        reach("inside-commit")
        for statement, rows in others:
            db.executemany(statement, rows)
        db.execute("COMMIT")
        self._check_place()
        self._bound_wal(db)

    def _check_place(self) -> None:
        if self._place is not None:
            self._place.check()

    def _bound_wal(self, db: sqlite3.Connection) -> None:
        """SQLite starts the WAL over only when no reader is in it; if that never came, insist a little."""
        with contextlib.suppress(OSError, sqlite3.OperationalError):
            if os.stat(self._wal).st_size > WAL_LIMIT_BYTES and time.monotonic() >= self._next_truncation:
                self._next_truncation = time.monotonic() + WAL_RETRY_S
                _empty_wal(db)

    async def get(self, collection: Collection, id: str) -> Document | None:
        """One document, or None."""
        return (await self.get_many(collection, [id])).get(id)

    async def get_many(self, collection: Collection, ids: Sequence[str]) -> dict[str, Document]:
        """Those that exist, by id."""

        def work(db: sqlite3.Connection) -> dict[str, Document]:
            found: dict[str, Document] = {}
            for start in range(0, len(ids), _IDS_PER_STATEMENT):
                some = ids[start : start + _IDS_PER_STATEMENT]
                marks = ", ".join("?" * len(some))
                rows = db.execute(f"SELECT id, doc FROM {collection} WHERE id IN ({marks})", some)
                found.update((id, self._document(collection, id, doc)) for id, doc in rows)
            return found

        return await _opened(self._lookups).run("read", work)

    async def find(self, collection: Collection, query: Query) -> Page:
        """A page of documents; page and total are of the same moment."""
        where, values = sqlite_query.where(collection, query.where)
        order, order_values = sqlite_query.order(collection, query)

        def work(db: sqlite3.Connection) -> Page:
            db.execute("BEGIN")
            (total,) = db.execute(f"SELECT count(*) FROM {collection} WHERE {where}", values).fetchone()
            rows = db.execute(
                f"SELECT id, doc FROM {collection} WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?",
                [*values, *order_values, query.limit or -1, query.offset],
            )
            return Page([self._document(collection, id, doc) for id, doc in rows], total)

        return await _opened(self._queries).run("read", work)

    async def scan(
        self, collection: Collection, where: Sequence[Match] = ()
    ) -> AsyncGenerator[Document, None]:
        """All matching documents in id order, as of one moment, on a connection of its own."""
        _opened(self._queries)
        condition, values = sqlite_query.where(collection, where)
        statement = f"SELECT id, doc FROM {collection} WHERE {condition} ORDER BY id"
        connection = _Connection(self._path, read_only=True)
        try:
            cursor = await connection.run("read", lambda db: db.execute(statement, values))
            while rows := await connection.run("read", lambda _: cursor.fetchmany(_SCAN_ROWS)):
                for id, doc in rows:
                    yield self._document(collection, id, doc)
        finally:
            await connection.close()

    async def count_by(
        self, collection: Collection, field: str, where: Sequence[Match] = ()
    ) -> dict[str, int]:
        """How many documents there are for each value."""
        condition, values = sqlite_query.where(collection, where)
        path = sqlite_query.json_path(field)
        value, value_parameters = sqlite_query.value_of(collection, field)
        is_bool = "0" if not value_parameters else "json_type(doc, ?) IN ('true', 'false')"
        parameters = [*value_parameters, *([path] if value_parameters else []), *values]

        def work(db: sqlite3.Connection) -> dict[str, int]:
            rows = db.execute(
                f"SELECT {value}, {is_bool}, count(*) FROM {collection} WHERE {condition} GROUP BY 1, 2",
                parameters,
            )
            return {group_name(bool(key) if flag else key): count for key, flag, count in rows}

        return await _opened(self._queries).run("read", work)

    async def sum_by(
        self, collection: Collection, field: str, by: str, where: Sequence[Match] = ()
    ) -> dict[str, float]:
        """The sum of a number for each text of `by`."""
        condition, values = sqlite_query.where(collection, where)
        parameters = [sqlite_query.json_path(by), sqlite_query.json_path(field), *values]

        def work(db: sqlite3.Connection) -> dict[str, float]:
            rows = db.execute(
                "SELECT json_extract(doc, ?), total(json_extract(doc, ?)) "
                f"FROM {collection} WHERE {condition} GROUP BY 1",
                parameters,
            )
            return {key: total for key, total in rows if isinstance(key, str)}

        return await _opened(self._queries).run("read", work)

    async def highest_number(self, collection: Collection, field: str) -> int:
        """The highest number among a field's texts of digits."""
        value, parameters = sqlite_query.value_of(collection, field)
        statement = (
            f"SELECT max(CAST(value AS INTEGER)) FROM (SELECT {value} AS value FROM {collection}) WHERE "
            f"typeof(value) = 'text' AND length(value) BETWEEN 1 AND {MAX_DIGITS} "
            "AND value NOT GLOB '*[^0-9]*'"
        )

        def work(db: sqlite3.Connection) -> int:
            return int(db.execute(statement, parameters).fetchone()[0] or 0)

        return await _opened(self._queries).run("read", work)

    async def distinct(self, collection: Collection, field: str, where: Sequence[Match] = ()) -> list[Any]:
        """The different values, sorted."""
        condition, values = sqlite_query.where(collection, where)
        path = sqlite_query.json_path(field)
        statement = (
            f"SELECT DISTINCT e.value, e.type FROM {collection} AS d, json_each(d.doc, ?) AS e "
            f"WHERE json_type(d.doc, ?) <> 'object' AND e.type NOT IN ('null', 'array', 'object') "
            f"AND d.id IN (SELECT id FROM {collection} WHERE {condition})"
        )

        def work(db: sqlite3.Connection) -> list[Any]:
            rows = db.execute(statement, [path, path, *values])
            return distinct_values(
                bool(value) if type in ("true", "false") else value for value, type in rows
            )

        return await _opened(self._queries).run("read", work)

    async def check(self) -> list[str]:
        """Look through the whole file, beside all other work."""
        _opened(self._queries)
        connection = _Connection(self._path, read_only=True)
        try:
            return await connection.run(
                "check", lambda db: sqlite_file.find_damage(db, "integrity_check", float(24 * 3600))
            )
        except StoreCorrupt as exc:
            return [exc.message]
        finally:
            await connection.close()

    def _document(self, collection: Collection, id: str, doc: str) -> Document:
        try:
            return decode_document(id, doc)
        except ValueError as exc:
            raise StoreCorrupt(
                path=self._path, detail=f"document {id} of {collection} is not readable"
            ) from exc


def _opened(connection: _Connection | None) -> _Connection:
    if connection is None:
        raise StoreUnavailable("the store is not open")
    return connection


def _set_up_writer(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    db.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
    db.execute("PRAGMA cache_size = -65536")
    db.execute("SELECT count(*) FROM sqlite_schema").fetchone()


def _empty_wal(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA busy_timeout = 100")
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        db.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")


def _steps(batch: Sequence[Operation]) -> Iterator[Step]:
    """A batch as few statements: of several writes to one document only the last counts."""
    last: dict[Collection, dict[str, Sequence[Any] | None]] = {}
    for step in batch:
        if isinstance(step, Put):
            row = sqlite_query.row(step.collection, step.document, encode(step.document))
            last.setdefault(step.collection, {})[row[0]] = row
        elif isinstance(step, DeleteWhere):
            yield from _writes(step.collection, last.pop(step.collection, {}))
            where, values = sqlite_query.where(step.collection, (Match(step.field, (step.value,)),))
            yield f"DELETE FROM {step.collection} WHERE {where}", [tuple(values)]
        else:
            last.setdefault(step.collection, {})[step.id] = None
    for collection, rows in last.items():
        yield from _writes(collection, rows)


def _writes(collection: Collection, rows: dict[str, Sequence[Any] | None]) -> Iterator[Step]:
    puts = [row for row in rows.values() if row is not None]
    deletes: list[Sequence[Any]] = [(id,) for id, row in rows.items() if row is None]
    if puts:
        yield sqlite_query.upsert(collection), puts
    if deletes:
        yield f"DELETE FROM {collection} WHERE id = ?", deletes
