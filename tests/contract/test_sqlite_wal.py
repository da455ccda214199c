"""The room in SQLite's log of commits that is written before it is needed: nothing is lost in it."""

import errno
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from awe_server.store import sqlite_wal
from awe_server.store.base import Query
from awe_server.store.sqlite import CHECKPOINT_PAGES, SqliteStore
from awe_server.store.sqlite_file import PAGE_BYTES
from awe_server.store.sqlite_wal import FILLED_BYTES, FROM_BYTES, STEP_BYTES
from tests.contract.sqlite_writer import BATCH, batch
from tests.support.wal import used_bytes

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    """One that makes room from its first commit on."""
    monkeypatch.setattr(sqlite_wal, "FROM_BYTES", 0)
    store = SqliteStore(tmp_path / "first")
    await store.open()
    yield store
    await store.close()


async def commit(store: SqliteStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        await store.commit(batch(number))


async def total(store: SqliteStore) -> int:
    return (await store.find("workunits", Query(limit=1))).total


async def copied(store: SqliteStore, tmp_path: Path) -> int:
    """How many workunits are there after a kill; nothing is damaged."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in ("awe.sqlite", "awe.sqlite-wal"):
        shutil.copy(tmp_path / "first" / name, folder)
    other = SqliteStore(folder)
    await other.open()
    found = await total(other)
    assert await other.check() == []
    await other.close()
    shutil.rmtree(folder)
    return found


async def test_room_is_made_commit_by_commit_and_kept_over_checkpoints(
    store: SqliteStore, tmp_path: Path
) -> None:
    wal = tmp_path / "first" / "awe.sqlite-wal"
    await commit(store, 0, 3)
    assert wal.stat().st_size == 3 * STEP_BYTES > used_bytes(wal)
    assert await copied(store, tmp_path) == 3 * BATCH
    for number in range(3, 400, 20):
        await commit(store, number, 20)
        assert await copied(store, tmp_path) == (number + 20) * BATCH
    size = wal.stat().st_size
    assert FILLED_BYTES <= size < FILLED_BYTES + STEP_BYTES
    assert CHECKPOINT_PAGES * PAGE_BYTES < FILLED_BYTES


async def test_a_server_that_writes_little_makes_no_room(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.open()
    await commit(store, 0, 3)
    wal = tmp_path / "awe.sqlite-wal"
    assert wal.stat().st_size == used_bytes(wal) < FROM_BYTES
    await store.close()
    assert not wal.exists()


async def test_what_another_program_writes_is_not_overwritten(store: SqliteStore, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "first" / "awe.sqlite", isolation_level=None)
    other.execute("CREATE TABLE theirs (x)")
    for number in range(20):
        await commit(store, number, 1)
        other.execute("INSERT INTO theirs VALUES (randomblob(600000))")
    assert other.execute("SELECT count(*) FROM theirs").fetchone() == (20,)
    assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    other.close()
    assert await total(store) == 20 * BATCH
    assert await copied(store, tmp_path) == 20 * BATCH


async def test_a_disk_that_is_full_keeps_no_commit_from_what_room_there_is(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("awe_server.store.sqlite_wal.os.pwrite", full)
    await commit(store, 0, 2)
    assert await copied(store, tmp_path) == 2 * BATCH
