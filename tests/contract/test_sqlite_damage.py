"""On the real file: what is torn by kill -9 starts clean, what is damaged is refused and not touched."""

import hashlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from awe_server.store.base import Delete, Match, Put, Query
from awe_server.store.errors import StoreCorrupt
from awe_server.store.sqlite import SqliteStore
from shared_models.errors import StoreUnavailable
from tests.contract.sqlite_writer import BATCH, batch

pytestmark = pytest.mark.anyio

KIB = 1024


class Writer:
    """A process that commits until it is killed; its children live until the end of the `with` block."""

    def __init__(self, folder: Path, first: int = 0, *flags: str) -> None:
        command = [sys.executable, "-m", "tests.contract.sqlite_writer", str(folder), str(first), *flags]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.kill()
        self._process.communicate()

    def kill_after(self, acknowledged: int) -> int:
        """kill -9 once that many commits were acknowledged; the number of the last one seen."""
        assert self._process.stdout is not None
        seen = [int(self._process.stdout.readline()) for _ in range(acknowledged)]
        self._process.kill()
        self._process.wait()
        return seen[-1]


def digests(folder: Path) -> dict[str, str]:
    names = ("awe.sqlite", "awe.sqlite-wal")
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in names
        if (folder / name).exists() and (folder / name).stat().st_size
    }


async def a_database(folder: Path, batches: int = 40) -> Path:
    store = SqliteStore(folder)
    await store.open()
    for number in range(batches):
        await store.commit(batch(number))
    await store.close()
    return folder / "awe.sqlite"


async def assert_refused(folder: Path) -> str:
    before = digests(folder)
    store = SqliteStore(folder)
    with pytest.raises(StoreCorrupt) as refusal:
        await store.open()
    assert digests(folder) == before
    message = refusal.value.message
    assert str(folder / "awe.sqlite") in message
    assert "\n" not in message
    assert "restore a backup" in message
    await store.close()
    return message


@pytest.mark.parametrize("seed", range(5))
async def test_D_04_kill_9_under_load_loses_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    acknowledged = -1
    for _ in range(3):
        with Writer(tmp_path, acknowledged + 1) as writer:
            acknowledged = writer.kill_after(chance.randint(1, 250))
        assert (tmp_path / "awe.sqlite-wal").stat().st_size
        if chance.random() < 0.5:
            (tmp_path / "awe.sqlite-shm").unlink()
        store = SqliteStore(tmp_path)
        await store.open()
        job = await store.get("jobs", "job")
        assert job is not None
        assert job["last"] >= acknowledged
        acknowledged = job["last"]
        total = (await store.find("workunits", Query(limit=1))).total
        assert total == (acknowledged + 1) * BATCH
        assert await store.check() == []
        await store.close()
        assert not (tmp_path / "awe.sqlite-wal").exists()


@pytest.mark.parametrize("flags", [["--fork"], ["--fork", "--exec"]])
async def test_a_child_of_a_killed_server_does_not_keep_the_lock(tmp_path: Path, flags: list[str]) -> None:
    with Writer(tmp_path, 0, *flags) as writer:
        writer.kill_after(1)
        store = SqliteStore(tmp_path)
        await store.open()
        assert await store.get("jobs", "job") is not None
        await store.close()


async def test_D_04_a_start_killed_while_it_made_the_file_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "awe.sqlite.new").write_bytes(b"half a database")
    await a_database(tmp_path)
    assert not (tmp_path / "awe.sqlite.new").exists()


def cut(count: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, path.stat().st_size - count)


def keep(count: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, count)


def zeros(offset: int, count: int) -> Callable[[Path], None]:
    """Overwrite with zeros; a negative offset counts from the end."""

    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
            file.write(bytes(count))

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        cut(100),
        cut(8 * KIB),
        cut(200 * KIB),
        keep(0),
        keep(50),
        keep(100),
        keep(8 * KIB),
        zeros(-8 * KIB, 8 * KIB),
        zeros(-20_000, 8 * KIB),
        zeros(0, 8 * KIB),
        zeros(0, 16),
        zeros(100, 900),
        lambda path: path.write_bytes(b"\x00" * path.stat().st_size),
        lambda path: path.write_bytes(b"not a database\n" * 1000),
        lambda path: path.write_bytes(random.Random(1).randbytes(path.stat().st_size)),
    ],
)
async def test_D_04_a_damaged_file_is_refused_and_left_alone(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = await a_database(tmp_path)
    damage(path)
    await assert_refused(tmp_path)
    await assert_refused(tmp_path)


async def test_D_04_8_kib_of_zeros_anywhere_are_noticed(tmp_path: Path) -> None:
    path = await a_database(tmp_path / "good", 30)
    sound = path.read_bytes()
    for offset in range(4 * KIB, len(sound) - 8 * KIB, 60 * KIB):
        folder = tmp_path / str(offset)
        folder.mkdir()
        damaged = sound[:offset] + bytes(8 * KIB) + sound[offset + 8 * KIB :]
        (folder / "awe.sqlite").write_bytes(damaged)
        await assert_refused(folder)


async def test_D_04_zeros_within_a_large_document_are_noticed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.open()
    await store.commit([Put("tasks", {"id": "large", "text": "x" * 200_000})])
    await store.close()
    zeros(-8 * KIB - 4_000, 4_000)(tmp_path / "awe.sqlite")
    assert "large" in await assert_refused(tmp_path)


async def test_D_04_a_cut_file_with_a_stale_wal_is_refused(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.kill_after(300)
    path = tmp_path / "awe.sqlite"
    assert path.stat().st_size > 1000 * KIB
    cut(600 * KIB)(path)
    await assert_refused(tmp_path)


async def test_D_04_a_wal_without_its_file_is_refused(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.kill_after(3)
    (tmp_path / "awe.sqlite").unlink()
    assert "missing" in await assert_refused(tmp_path)
    assert not (tmp_path / "awe.sqlite").exists()


async def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "awe.sqlite")
    other.execute("CREATE TABLE bookmarks (url TEXT)")
    other.close()
    assert "not a database of this server" in await assert_refused(tmp_path)


async def test_a_lost_collection_is_noticed(tmp_path: Path) -> None:
    path = await a_database(tmp_path)
    other = sqlite3.connect(path)
    other.execute("DROP TABLE nodes")
    other.close()
    assert "nodes" in await assert_refused(tmp_path)


async def test_damage_met_while_running_is_named(tmp_path: Path) -> None:
    path = await a_database(tmp_path, 200)
    store = SqliteStore(tmp_path)
    await store.open()
    zeros(200 * KIB, path.stat().st_size - 200 * KIB)(path)
    with pytest.raises(StoreCorrupt, match=r"awe\.sqlite is damaged"):
        await store.find("workunits", Query(order="pad"))
    with pytest.raises(StoreCorrupt):
        await store.commit([Delete("workunits", f"w{n:06}_{m:02}") for n in range(200) for m in range(20)])
    assert await store.check()
    await store.close()


async def test_a_document_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = await a_database(tmp_path)
    store = SqliteStore(tmp_path)
    await store.open()
    other = sqlite3.connect(path)
    other.execute("UPDATE jobs SET doc = '{'")
    other.commit()
    other.close()
    with pytest.raises(StoreCorrupt, match="document job of jobs"):
        await store.get("jobs", "job")
    assert await store.check() == ["document job of jobs is not readable"]
    await store.close()
    assert "document job of jobs" in await assert_refused(tmp_path)


async def test_a_text_that_is_not_utf8_is_damage_and_not_shown(tmp_path: Path) -> None:
    path = await a_database(tmp_path)
    store = SqliteStore(tmp_path)
    await store.open()
    await store.commit([Put("jobs", {"id": "rotten", "name": "ours", "secret": "canary"})])
    other = sqlite3.connect(path)
    other.execute("UPDATE jobs SET doc = CAST(replace(doc, 'ours', x'fffe') AS TEXT) WHERE id = 'rotten'")
    other.commit()
    other.close()
    with pytest.raises(StoreCorrupt, match="not UTF-8") as refusal:
        await store.get("jobs", "rotten")
    assert "canary" not in str(refusal.value)
    assert await store.check() == ["document rotten of jobs is not readable"]
    await store.close()
    assert "document rotten of jobs" in await assert_refused(tmp_path)


async def test_a_batch_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    path = await a_database(tmp_path)
    store = SqliteStore(tmp_path)
    await store.open()
    other = sqlite3.connect(path)
    other.execute("CREATE TRIGGER t BEFORE INSERT ON tasks BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(StoreUnavailable, match="cannot write"):
        await store.commit([Put("jobs", {"id": "new"}), Put("tasks", {"id": "t"})])
    assert (await store.find("jobs", Query((Match("id", ("new",)),)))).total == 0
    other.execute("DROP TRIGGER t")
    other.close()
    await store.commit([Put("jobs", {"id": "new"}), Put("tasks", {"id": "t"})])
    assert await store.get("tasks", "t") == {"id": "t"}
    await store.close()


async def test_a_copy_of_a_killed_servers_files_is_sound(tmp_path: Path) -> None:
    with Writer(tmp_path / "live") as writer:
        last = writer.kill_after(60)
    shutil.copytree(tmp_path / "live", tmp_path / "copy")
    store = SqliteStore(tmp_path / "copy")
    await store.open()
    job = await store.get("jobs", "job")
    assert job is not None
    assert job["last"] >= last
    assert await store.check() == []
    await store.close()
