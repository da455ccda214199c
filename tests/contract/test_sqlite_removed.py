"""A database that is removed or replaced while it is used: what it gets then is not acknowledged."""

import os
import shutil
from pathlib import Path

import pytest

from awe_server.store.base import Put
from awe_server.store.errors import StoreCorrupt, StoreLocked
from awe_server.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio

JOB = Put("jobs", {"id": "one"})


async def opened(folder: Path) -> SqliteStore:
    store = SqliteStore(folder)
    await store.open()
    await store.commit([JOB])
    return store


@pytest.mark.parametrize("name", ["awe.sqlite", "awe.sqlite-wal"])
@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("batch", [[JOB], []])
async def test_no_commit_succeeds_once_the_file_is_another_one(
    tmp_path: Path, name: str, is_replaced: bool, batch: list[Put]
) -> None:
    store = await opened(tmp_path)
    if is_replaced:
        shutil.copy(tmp_path / name, tmp_path / "copy")
        os.rename(tmp_path / "copy", tmp_path / name)
    else:
        (tmp_path / name).unlink()
    with pytest.raises(StoreCorrupt, match=f"{name} was removed or replaced"):
        await store.commit(batch)
    await store.close()


async def test_nobody_else_has_the_file_when_the_lock_was_removed(tmp_path: Path) -> None:
    first = await opened(tmp_path)
    (tmp_path / "awe.lock").unlink()
    second = SqliteStore(tmp_path)
    with pytest.raises(StoreLocked, match=f"{tmp_path} is in use by another server"):
        await second.open()
    await first.commit([JOB])
    await first.close()
    await second.open()
    assert await second.get("jobs", "one") == JOB.document
    await second.close()


async def test_no_database_is_made_beside_the_files_of_one(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "server").write_text("a-store\n")
    store = SqliteStore(tmp_path)
    with pytest.raises(StoreCorrupt, match="there is no database"):
        await store.open()
    assert not [name for name in os.listdir(tmp_path) if name.startswith("awe.sqlite")]
