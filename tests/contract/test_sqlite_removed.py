"""A database that is removed or replaced while it is used: what it gets then is not acknowledged."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from awe_server.store.base import Put
from awe_server.store.errors import StoreCorrupt, StoreLocked
from awe_server.store.sqlite import SqliteStore
from shared_models.errors import StoreUnavailable

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


@pytest.mark.parametrize("batch", [[JOB], []])
async def test_no_commit_succeeds_once_the_folder_is_none_any_more(tmp_path: Path, batch: list[Put]) -> None:
    store = await opened(tmp_path / "data")
    (tmp_path / "data").rename(tmp_path / "away")
    (tmp_path / "data").touch()
    with pytest.raises(StoreCorrupt, match=f"{tmp_path}/data/awe.sqlite was removed or replaced"):
        await store.commit(batch)
    await store.close()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ENOSPC, errno.EROFS, errno.ESTALE])
@pytest.mark.parametrize("batch", [[JOB], []])
async def test_a_file_that_cannot_be_looked_at_is_named_and_the_commit_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, batch: list[Put]
) -> None:
    store = await opened(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("awe_server.store.sqlite_place.os.stat", failing(number))
        with pytest.raises(StoreUnavailable) as trouble:
            await store.commit(batch)
    says = f"{tmp_path}/awe.sqlite: cannot see whether it is still the file that is open: "
    assert trouble.value.message == says + os.strerror(number)
    await store.commit(batch)
    assert await store.get("jobs", "one") == JOB.document
    await store.close()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.ENOLCK])
@pytest.mark.parametrize("call", ["os.open", "fcntl.flock"])
async def test_a_folder_that_cannot_be_owned_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    store = SqliteStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(f"awe_server.store.sqlite_file.{call}", failing(number))
        with pytest.raises(StoreUnavailable) as trouble:
            await store.open()
    assert trouble.value.message == f"{tmp_path}/awe.lock: cannot open: {os.strerror(number)}"
    await store.open()
    await store.close()


def failing(number: int) -> Callable[..., object]:
    def call(path: object, *_: object) -> object:
        name = () if isinstance(path, int) else (str(path),)
        raise OSError(number, os.strerror(number), *name)

    return call


async def test_a_log_that_lost_its_database_comes_with_advice_that_destroys_nothing(tmp_path: Path) -> None:
    """`sqlite3 FILE .recover` would delete it, a backup put beside it would be spoilt by it."""
    store = await opened(tmp_path / "was")
    await store.commit([Put("jobs", {"id": "two"})])
    shutil.copytree(tmp_path / "was", tmp_path / "data")
    await store.close()
    database, wal = (tmp_path / "data" / name for name in ("awe.sqlite", "awe.sqlite-wal"))
    database.rename(tmp_path / "moved")
    again = SqliteStore(tmp_path / "data")
    with pytest.raises(StoreCorrupt) as refusal:
        await again.open()
    says = refusal.value.message
    assert f"{database} is missing, although {wal.name} is there" in says
    assert "put that same file back" in says
    assert f"move {wal.name} away first" in says
    assert ".recover" not in says
    (tmp_path / "moved").rename(database)
    await again.open()
    assert await again.get("jobs", "two")
    await again.close()


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
