"""The database file: one owner, created whole or not at all, looked at before it is opened for writing."""

import contextlib
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from awe_server.store.base import COLLECTIONS, FORMAT_VERSION
from awe_server.store.documents import decode
from awe_server.store.errors import StoreCorrupt, StoreLocked, StoreVersion
from awe_server.store.sqlite_place import refuse_orphaned_files
from awe_server.store.sqlite_query import row, schema, upsert
from shared_models.errors import BadRequest, StoreUnavailable

PAGE_BYTES = 8192  #: measured: 10 % more puts/s than 4096, and a task's workunits lie together
INSPECT_S = 5.0  #: how long a start may look for damage; about 5 GB

_MAGIC = b"SQLite format 3\x00"
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_NOT_JSON = "malformed JSON"  #: has no code of its own
_NOT_TEXT = "Could not decode to UTF-8"  #: the sqlite3 module's own error, which has no code

_held: set[int] = set()


def _drop_inherited_locks() -> None:
    """A forked child must not keep our lock alive after our death."""
    for fd in _held:
        with contextlib.suppress(OSError):
            os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_drop_inherited_locks)


def take_lock(path: Path) -> int:
    """Become the owner of a data directory; the kernel gives the lock back however the process ends.

    Raises StoreLocked naming the owner's pid.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        owner = f"pid {os.pread(fd, 32, 0).decode('ascii', 'replace').strip() or 'unknown'}"
        os.close(fd)
        raise StoreLocked(
            f"{path.parent} is in use by another server ({owner}); stop it, or choose another --data",
            owner=owner,
        ) from exc
    except OSError as exc:
        os.close(fd)
        exc.filename = str(path)  # the call knows only a number
        raise
    hold(fd)
    with contextlib.suppress(OSError):  # a full disk: then the owner stays unnamed
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def hold(fd: int) -> None:
    """A descriptor keeps a lock: forked children close it."""
    _held.add(fd)


def drop_lock(fd: int) -> None:
    """Give the data directory back."""
    _held.discard(fd)
    os.close(fd)


@contextlib.contextmanager
def translated(path: Path, action: str) -> Iterator[None]:
    """Turn sqlite3's errors into the store's, once."""
    try:
        yield
    except UnicodeEncodeError as exc:
        raise BadRequest("an id or value is not valid Unicode text") from exc
    except sqlite3.Error as exc:
        if getattr(exc, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
            raise StoreCorrupt(path=path, detail=str(exc)) from exc
        if str(exc) == _NOT_JSON:
            raise StoreCorrupt(path=path, detail="a document in it is not JSON") from exc
        if str(exc).startswith(_NOT_TEXT):  # what follows is the document, secrets included
            raise StoreCorrupt(path=path, detail="a text in it is not UTF-8") from None
        raise StoreUnavailable(f"{path}: cannot {action}: {exc}", op=action) from exc


def prepare(path: Path, busy_s: float, *, read_all: bool = True) -> None:
    """Make sure that a sound database of our format is there; a damaged one is not touched.

    `read_all`: documents that cannot be read are damage, too. Raises StoreCorrupt, StoreVersion,
    StoreUnavailable.
    """
    if not path.exists():
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size:
            raise _without_its_file(path, wal)
        refuse_orphaned_files(path)
        _create(path)
    with path.open("rb") as file:
        head = file.read(100)
    if len(head) < 100:
        raise StoreCorrupt(path=path, detail="cut short: no header")
    if not head.startswith(_MAGIC):
        raise StoreCorrupt(path=path, detail="not an SQLite database")
    with translated(path, "read"), contextlib.closing(connect(path, read_only=True, busy_s=busy_s)) as db:
        _inspect(db, path, read_all)


def _without_its_file(path: Path, wal: Path) -> StoreCorrupt:
    """SQLite deletes a WAL that it finds without its file, and spoils another file beside which one lies."""
    return StoreCorrupt(
        f"{path} is missing, although {wal.name} is there, which holds only the newest changes: put that "
        f"same file back if it was moved; else restore a backup into a new directory, or move {wal.name} "
        f"away first. Do not open {path.name} with sqlite3: that deletes {wal.name}. Nothing was changed",
        path=path,
        detail="missing",
    )


def connect(path: Path, *, read_only: bool = False, busy_s: float) -> sqlite3.Connection:
    """A connection in autocommit mode that may move between threads but is used by one at a time."""
    mode = "ro" if read_only else "rw"
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False)


def _create(path: Path) -> None:
    """Build the file under another name first: a half-made one is never found under the real name."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with translated(draft, "create"), contextlib.closing(connect(draft, busy_s=0.0)) as db:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        for collection in COLLECTIONS:
            for statement in schema(collection):
                db.execute(statement)
        form = {"id": "format", "version": FORMAT_VERSION}
        db.execute(upsert("meta"), row("meta", form, b'{"id":"format","version":%d}' % FORMAT_VERSION))
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = WAL")
    draft.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _inspect(db: sqlite3.Connection, path: Path, read_all: bool) -> None:
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "meta" not in tables:
        raise StoreCorrupt(path=path, detail="not a database of this server")
    found = db.execute("SELECT doc FROM meta WHERE id = 'format'").fetchone()
    version = decode(found[0]).get("version") if found else None
    if version != FORMAT_VERSION:
        raise StoreVersion(name=path, found=version, wanted=FORMAT_VERSION)
    missing = set(COLLECTIONS) - tables
    if missing:
        raise StoreCorrupt(path=path, detail=f"collections are missing: {', '.join(sorted(missing))}")
    damage = find_damage(db, "quick_check", INSPECT_S, read_all=read_all)
    if damage:
        raise StoreCorrupt(path=path, detail=damage[0])


def find_damage(db: sqlite3.Connection, pragma: str, budget_s: float, *, read_all: bool = True) -> list[str]:
    """What `quick_check` or `integrity_check`, and a reading of all documents, find within the time."""
    stop = threading.Timer(budget_s, db.interrupt)
    stop.daemon = True
    until = time.monotonic() + budget_s
    stop.start()
    try:
        db.create_function("is_utf8", 1, _is_utf8, deterministic=True)
        found = [text for (text,) in db.execute(f"PRAGMA {pragma}(20)") if text != "ok"]
        for collection in COLLECTIONS if read_all else ():
            unreadable = "NOT json_valid(doc) OR NOT is_utf8(CAST(doc AS BLOB))"
            broken = db.execute(f"SELECT id FROM {collection} WHERE {unreadable} LIMIT 20")
            found += [f"document {id} of {collection} is not readable" for (id,) in broken]
    except sqlite3.OperationalError as exc:
        if exc.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT or time.monotonic() < until:
            raise
        return []
    finally:
        stop.cancel()
    return [" ".join(text.split()) for text in found]


def _is_utf8(raw: bytes) -> bool:
    """SQLite's own json_valid does not look at it."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
