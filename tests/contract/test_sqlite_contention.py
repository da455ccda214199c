"""On the real file: other programs delay a commit or a start, they never lose one."""

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from awe_server.store import sqlite as sqlite_store
from awe_server.store.base import Match, Put, Query
from awe_server.store.sqlite import SqliteStore
from shared_models.errors import StoreUnavailable
from tests.contract.sqlite_writer import BATCH, batch

pytestmark = pytest.mark.anyio

#: The longest that a commit may take beside readers and a VACUUM of a small file.
SLOWEST_COMMIT_S = 2.0

_BESIDE = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
for statement in sys.argv[3:]:
    db.execute(statement).fetchall()
print("ready", flush=True)
time.sleep(float(sys.argv[2]))
"""


@contextlib.contextmanager
def beside(path: Path, hold_s: float, *statements: str) -> Iterator["subprocess.Popen[str]"]:
    """Another program that runs statements on the file and then keeps what they hold for a while."""
    command = [sys.executable, "-c", _BESIDE, str(path), str(hold_s), *statements]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_ready(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path)
    await store.open()
    yield store
    await store.close()


async def commits(store: SqliteStore, first: int, count: int) -> float:
    """Commit batches; the time of the slowest."""
    slowest_s = 0.0
    for number in range(first, first + count):
        started = time.monotonic()
        await store.commit(batch(number))
        slowest_s = max(slowest_s, time.monotonic() - started)
    return slowest_s


async def total(store: SqliteStore) -> int:
    return (await store.find("workunits", Query(limit=1))).total


async def test_D_08_a_long_reader_a_vacuum_and_a_dashboard_lose_no_commit(
    store: SqliteStore, tmp_path: Path
) -> None:
    path = tmp_path / "awe.sqlite"
    await commits(store, 0, 50)

    async def dashboard() -> None:
        while True:
            await store.find("workunits", Query((Match("state", ("checkout",)),), order="pad", limit=25))
            await store.count_by("workunits", "state")

    polling = asyncio.create_task(dashboard())
    reading = ("BEGIN", "SELECT count(*) FROM workunits")
    with beside(path, 60.0, *reading) as reader, beside(path, 0.0, "VACUUM", "VACUUM") as vacuum:
        wait_until_ready(reader)
        slowest_s = await commits(store, 50, 500)
        await asyncio.to_thread(vacuum.wait)
    polling.cancel()
    assert slowest_s < SLOWEST_COMMIT_S
    assert await total(store) == 550 * BATCH


@pytest.mark.parametrize("lock", ["BEGIN EXCLUSIVE", "BEGIN IMMEDIATE"])
async def test_D_08_a_foreign_write_lock_only_delays_a_commit(
    store: SqliteStore, tmp_path: Path, lock: str
) -> None:
    with beside(tmp_path / "awe.sqlite", 60.0, lock) as other:
        wait_until_ready(other)
        waiting = asyncio.create_task(commits(store, 0, 1))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        other.kill()
        await waiting
        assert await commits(store, 1, 5) < SLOWEST_COMMIT_S
    assert await total(store) == 6 * BATCH


async def test_D_08_reads_go_on_while_a_commit_waits(store: SqliteStore, tmp_path: Path) -> None:
    await commits(store, 0, 1)
    with beside(tmp_path / "awe.sqlite", 60.0, "BEGIN EXCLUSIVE") as other:
        wait_until_ready(other)
        waiting = asyncio.create_task(store.commit(batch(1)))
        for _ in range(20):
            assert await total(store) == BATCH
            assert await store.get("jobs", "job") is not None
        assert not waiting.done()
        other.kill()
        await waiting
    assert await total(store) == 2 * BATCH


async def test_D_08_a_lock_held_too_long_is_unavailable_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "BUSY_S", 0.1)
    store = SqliteStore(tmp_path)
    await store.open()
    with beside(tmp_path / "awe.sqlite", 30.0, "BEGIN IMMEDIATE") as other:
        wait_until_ready(other)
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.commit(batch(0))
        assert await total(store) == 0
    await store.commit(batch(0))
    assert await total(store) == BATCH
    await store.close()


async def test_D_02_a_start_waits_for_a_file_that_is_held(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path)
    await first.open()
    await first.commit([Put("jobs", {"id": f"j{n}", "state": "queued"}) for n in range(20)])
    await first.close()
    holding = ("PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "UPDATE meta SET doc = doc")
    with beside(tmp_path / "awe.sqlite", 60.0, *holding) as other:
        wait_until_ready(other)
        second = SqliteStore(tmp_path)
        opening = asyncio.create_task(second.open())
        await asyncio.sleep(0.5)
        assert not opening.done()
        other.kill()
        await opening
    assert len([job async for job in second.scan("jobs")]) == 20
    await second.close()


async def test_D_02_a_start_gives_up_with_a_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "BUSY_S", 0.1)
    first = SqliteStore(tmp_path)
    await first.open()
    await first.close()
    holding = ("PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "UPDATE meta SET doc = doc")
    with beside(tmp_path / "awe.sqlite", 60.0, *holding) as other:
        wait_until_ready(other)
        second = SqliteStore(tmp_path, open_wait_s=0.3)
        with pytest.raises(StoreUnavailable, match=r"awe\.sqlite: cannot .* locked"):
            await second.open()
    await second.open()
    await second.close()


async def test_the_wal_shrinks_again_after_a_long_reader(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "WAL_LIMIT_BYTES", 256 * 1024)
    monkeypatch.setattr(sqlite_store, "WAL_RETRY_S", 0.0)
    wal = tmp_path / "awe.sqlite-wal"
    await commits(store, 0, 1)
    reader = sqlite3.connect(tmp_path / "awe.sqlite", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM workunits").fetchall()
    await commits(store, 1, 20)
    assert wal.stat().st_size > 256 * 1024
    reader.execute("COMMIT")
    reader.close()
    await commits(store, 21, 1)
    assert wal.stat().st_size == 0
    assert await total(store) == 22 * BATCH


async def test_an_abandoned_scan_and_a_cancelled_commit_harm_nothing(store: SqliteStore) -> None:
    await commits(store, 0, 3)
    scan = store.scan("workunits")
    await anext(scan)
    writing = asyncio.create_task(store.commit(batch(3)))
    await asyncio.sleep(0)
    writing.cancel()
    await commits(store, 4, 2)
    await scan.aclose()  # type: ignore[attr-defined]
    assert await total(store) % BATCH == 0
    assert await store.check() == []


async def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="file"):
        await SqliteStore(tmp_path / "file" / "data").open()


async def test_the_file_is_readable_by_its_owner_only(store: SqliteStore, tmp_path: Path) -> None:
    await commits(store, 0, 1)
    for name in ("awe.sqlite", "awe.sqlite-wal", "awe.lock"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
