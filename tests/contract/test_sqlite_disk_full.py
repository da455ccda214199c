"""A full disk: nothing is lost, nothing half-done, and when there is room again work goes on."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from awe_server.store.base import Query
from awe_server.store.sqlite import SqliteStore
from shared_models.errors import StoreUnavailable
from tests.contract.sqlite_writer import BATCH, batch
from tests.support.tmpfs import tmpfs

pytestmark = pytest.mark.anyio


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    with tmpfs(tmp_path / "disk", 16 << 20) as folder:
        yield folder


def fill(folder: Path) -> Path:
    """Take all the room there is."""
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler


async def test_F_13_a_full_disk_delays_but_loses_nothing(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "data")
    await store.open()
    for number in range(20):
        await store.commit(batch(number))
    filler = fill(small_disk)
    done = 20
    with contextlib.suppress(StoreUnavailable):
        while done < 2_000:
            await store.commit(batch(done))
            done += 1
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=r"awe\.sqlite: cannot write"):
            await store.commit(batch(done))
    job = await store.get("jobs", "job")
    assert job is not None
    assert job["last"] == done - 1
    assert (await store.find("workunits", Query(limit=1))).total == done * BATCH

    filler.unlink()
    for number in range(done, done + 50):
        await store.commit(batch(number))
    assert await store.check() == []
    await store.close()
    await store.open()
    assert (await store.find("workunits", Query(limit=1))).total == (done + 50) * BATCH
    await store.close()


async def test_F_13_a_start_on_a_full_disk_says_so_and_leaves_nothing_half_made(small_disk: Path) -> None:
    filler = fill(small_disk)
    store = SqliteStore(small_disk / "data", open_wait_s=0.0)
    with pytest.raises(StoreUnavailable, match=r"full|No space"):
        await store.open()
    filler.unlink()
    await store.open()
    assert await store.check() == []
    await store.close()
