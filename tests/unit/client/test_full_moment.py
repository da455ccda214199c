"""A disk that was full for a moment: whoever wrote then is not taken for whole (F-13)."""
# ruff: noqa: ASYNC240 — a look at a temporary folder blocks nobody here

import asyncio
import gzip
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon.cache import Cache
from awe_client.daemon.copies import copy_file
from awe_client.daemon.daemon import Daemon
from awe_client.daemon.disk import DiskWatch
from awe_client.daemon.shared_files import SharedFiles
from awe_client.daemon.spool import Spool
from awe_client.daemon.workdir import WorkDirs, make_directory
from awe_client.sdk.download import Asked, Download, Reply, Wanted
from tests.support.fake_server import FakeServer
from tests.support.tmpfs import fill, tmpfs
from tests.unit.client.conftest import settings_for

pytestmark = pytest.mark.anyio

PAGE = 4096
#: Prints more than there is room for, and waits for a file before it ends well.
PRINT = "head -c 10000000 /dev/zero; touch {full}; until [ -e {freed} ]; do sleep 0.02; done; exit 0"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "disk", 4 << 20) as folder:
        yield folder


class Moment:
    """A disk that others fill; `was_seen` says whether that was known when it has room again."""

    def __init__(self, folder: Path) -> None:
        self.watch, self._folder = DiskWatch(folder), folder
        self._began = time.monotonic()
        self.watch.look()

    def fill(self) -> None:
        assert not self.watch.was_full_since(self._began)
        fill(self._folder)

    @property
    def was_seen(self) -> bool:
        assert os.statvfs(self._folder).f_bavail > 0, "nothing made room"
        return self.watch.was_full_since(self._began)


def test_a_full_disk_is_remembered_by_its_time(small_disk: Path) -> None:
    watch = DiskWatch(small_disk)
    before = time.monotonic()
    assert not watch.look()
    assert not watch.was_full_since(before)
    ballast = fill(small_disk)
    assert watch.look()
    ballast.unlink()
    assert not watch.look()
    assert watch.was_full_since(before)
    assert not watch.was_full_since(time.monotonic())


def test_a_disk_without_room_for_one_more_file_is_full(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 4 << 20, inodes=8) as folder:
        with suppress(OSError):
            for number in range(10):
                (folder / str(number)).touch()
        assert DiskWatch(folder).look()


def test_a_disk_with_much_room_is_not_looked_at_for_each_file_that_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    place = os.statvfs_result((4096, 4096, 10**9, 10**9, 10**9, 10**9, 10**9, 10**9, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: looks.append(path) or place)
    now = [100.0]
    monkeypatch.setattr("awe_client.daemon.disk.time.monotonic", lambda: now[0])
    watch = DiskWatch(tmp_path)
    for _ in range(5):
        watch.before_removal()
    assert len(looks) == 1
    now[0] += 0.3
    watch.before_removal()
    assert len(looks) == 2


def test_what_cannot_be_looked_at_is_not_full(tmp_path: Path) -> None:
    assert not DiskWatch(tmp_path / "missing").look()


async def test_a_directory_that_is_removed_hides_no_full_disk(small_disk: Path) -> None:
    moment = Moment(small_disk)
    dirs = WorkDirs(small_disk, 0.0, moment.watch)
    make_directory(small_disk / "aa" / "attempt")
    (small_disk / "aa" / "attempt" / "out").write_bytes(bytes(PAGE))
    moment.fill()
    dirs.clean(small_disk / "aa" / "attempt", keep=False)
    await dirs.close()
    assert moment.was_seen


async def test_a_file_that_leaves_the_cache_hides_no_full_disk(small_disk: Path) -> None:
    moment = Moment(small_disk)
    (small_disk / "cache").mkdir()
    cache = Cache(small_disk / "cache", 1 << 20, moment.watch)

    async def fetch(path: Path) -> None:
        path.write_bytes(bytes(PAGE))

    entry = await cache.use("md5-" + 32 * "0", PAGE, fetch)
    assert entry is not None
    cache.done(entry)
    moment.fill()
    assert await cache.make_room(1 << 40)
    await cache.close()
    assert moment.was_seen


@pytest.mark.parametrize("how", ["emptied", "cut back"])
async def test_the_spool_hides_no_full_disk(small_disk: Path, how: str) -> None:
    moment = Moment(small_disk)
    spool = Spool(small_disk, moment.watch.before_removal)
    spool.open()
    first: Any = {"work": "a", "attempt": 1, "token": "t", "outcome": "done"}
    spool.add({**first, "stdout_tail": "x" * 2000})
    await spool.flush()
    if how == "emptied":
        moment.fill()
        spool.acknowledge(("a", 1))
    else:
        ballast = fill(small_disk, 4 * PAGE)
        spool.add({**first, "attempt": 2, "stdout_tail": "x" * 10 * PAGE})
        assert ballast.exists()
    await spool.flush()
    assert moment.was_seen
    spool.close()


@asynccontextmanager
async def too_much(_: Asked) -> AsyncIterator[Reply]:
    async def chunks() -> AsyncIterator[bytes]:
        yield bytes(8 << 20)

    yield Reply(chunks())


async def test_a_download_that_is_given_up_hides_no_full_disk(small_disk: Path) -> None:
    moment = Moment(small_disk)
    download = Download(small_disk / "in", Wanted(), before_removal=moment.watch.before_removal)
    with pytest.raises(OSError, match="No space"):
        await download.attempt(too_much)
    await download.close()
    assert moment.was_seen


def test_a_copy_that_is_given_up_hides_no_full_disk(small_disk: Path, tmp_path: Path) -> None:
    moment = Moment(small_disk)
    (tmp_path / "big").write_bytes(bytes(8 << 20))
    with pytest.raises(OSError, match="No space"):
        copy_file(lambda: False, tmp_path / "big", small_disk / "in", moment.watch.before_removal)
    assert list(small_disk.iterdir()) == []
    assert moment.was_seen


async def test_a_shared_file_that_does_not_fit_hides_no_full_disk(small_disk: Path, tmp_path: Path) -> None:
    moment = Moment(small_disk)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "big").write_bytes(bytes(8 << 20))
    files = SharedFiles([str(tmp_path / "shared")], moment.watch.before_removal)
    with pytest.raises(OSError, match="No space"):
        await files.copy(f"file://{tmp_path}/shared/big", small_disk / "in", Wanted(offset=1))
    assert list(small_disk.iterdir()) == []
    assert moment.was_seen


async def fails(server: FakeServer, work: str) -> None:
    report = await server.result(work)
    assert (report["outcome"], report.get("kind")) == ("failed", "node")
    assert "no space left" in report["message"]


async def test_F_13_a_report_that_leaves_the_disk_does_not_make_a_cut_output_whole(
    server: FakeServer, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued, go, full, freed = (tmp_path / name for name in ("queued", "go", "full", "freed"))
    write = Spool._write

    def write_when_full(self: Spool, data: bytes, sync: bool, nothing_open: bool) -> None:
        leaves = nothing_open and os.fstat(self._fd).st_blocks > 0
        if leaves:
            go.touch()
            deadline = time.monotonic() + 20
            while not full.exists() and time.monotonic() < deadline:
                time.sleep(0.001)
        write(self, data, sync, nothing_open)
        if leaves:
            freed.touch()

    monkeypatch.setattr(Spool, "_write", write_when_full)
    daemon = Daemon(settings_for(server.url, small_disk / "w", slots=1))
    task = asyncio.ensure_future(daemon.run())
    wait = "until [ -e {} ]; do sleep 0.02; done; "
    await server.add_task(script=[f"{wait.format(queued)} exit 0"])
    [printed] = await server.add_task(script=[wait.format(go) + PRINT.format(full=full, freed=freed)])
    queued.touch()
    await fails(server, printed)
    assert full.exists()
    daemon.drain("test")
    assert await task == 0


async def test_F_13_a_command_that_removes_what_filled_the_disk_does_not_end_well(
    server: FakeServer, small_disk: Path
) -> None:
    daemon = Daemon(settings_for(server.url, small_disk / "w", slots=1))
    task = asyncio.ensure_future(daemon.run())
    out = server.output("out.bin")
    script = "echo a > out.bin; head -c 10000000 /dev/zero > big; echo b >> out.bin; sleep 1; rm big; exit 0"
    [work] = await server.add_task(script=[script], outputs=[out])
    await fails(server, work)
    assert server.uploads == {}
    daemon.drain("test")
    assert await task == 0


async def test_F_13_room_that_the_cache_makes_for_an_input_hides_no_full_disk(
    server: FakeServer, small_disk: Path, tmp_path: Path
) -> None:
    full, freed = tmp_path / "full", tmp_path / "freed"
    daemon = Daemon(settings_for(server.url, small_disk / "w", slots=1))
    task = asyncio.ensure_future(daemon.run())
    keep = server.input("db", os.urandom(1 << 20), cache=True)
    [first] = await server.add_task("true", inputs=[keep])
    assert (await server.result(first))["outcome"] == "done"
    [printed] = await server.add_task(script=[PRINT.format(full=full, freed=freed)])
    await server.until(full.exists)
    unpacked = server.input("in", gzip.compress(bytes(100_000)), uncompress="gzip")
    await server.add_task("true", inputs=[unpacked])
    await server.until(lambda: os.statvfs(small_disk).f_bavail > 0)
    freed.touch()
    report = await server.result(printed)
    assert report["outcome"] != "done"
    assert "client's disk" in report["message"]
    daemon.drain("test")
    assert await task == 0
