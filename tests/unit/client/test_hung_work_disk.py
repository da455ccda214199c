"""A work disk that hangs: heartbeats go on, the server is told, and the end waits for it only so long."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon import cache as cache_module
from awe_client.daemon import spool as spool_module
from awe_client.daemon import workdir as workdir_module
from awe_client.daemon.cache import Cache
from awe_client.daemon.identity import WorkRoot
from awe_client.daemon.spool import Spool
from awe_client.daemon.work_disk import WorkDisk
from awe_client.daemon.workdir import WorkDirs, make_directory
from tests.support.eventually import eventually
from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import MakeDaemon

pytestmark = pytest.mark.anyio


class Disk:
    """One that hangs from `hang` on until `free`."""

    def __init__(self) -> None:
        self._answers = threading.Event()
        self.asked = 0  #: while it hung
        self.free()

    def hang(self) -> None:
        self._answers.clear()

    def free(self) -> None:
        self._answers.set()

    @property
    def is_free(self) -> bool:
        return self._answers.is_set()

    def behind(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keys: Any) -> Any:
            if not self._answers.is_set():
                self.asked += 1
                self._answers.wait(20)
            return plain(*args, **keys)

        return call


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.free()


def begun_files(root: Path) -> list[str]:
    """The inputs that have not come whole."""
    return [name for _, _, names in os.walk(root) for name in names if name.startswith("in.txt.")]


@pytest.mark.parametrize("hangs", ["is_ours", "show_life", "statvfs"])
async def test_L_05_a_work_disk_that_hangs_stops_no_heartbeat_and_is_said(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch, disk: Disk, hangs: str
) -> None:
    where: Any = os if hangs == "statvfs" else WorkRoot
    monkeypatch.setattr("awe_client.daemon.work_disk.ALIVE_S", 0.05)
    monkeypatch.setattr("awe_client.daemon.daemon.LOOK_S", 0.2)
    monkeypatch.setattr(where, hangs, disk.behind(getattr(where, hangs)))
    server.lease_s = 0.6
    start(slots=2)
    [long] = await server.add_task("sleep", "30")
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    disk.hang()
    await server.until(lambda: "work disk" in server.exchanges[-1].get("trouble", ""), 10.0)
    seen = len(server.exchanges)
    await server.until(lambda: len(server.exchanges) >= seen + 5, 10.0)
    assert all(len(x["holds"]) == 1 and x["want"] == 0 for x in server.exchanges[seen:])
    assert long in server.leased
    assert disk.asked == 1, "one thread at a time"
    disk.free()
    [quick] = await server.add_task("true")
    assert (await server.result(quick))["outcome"] == "done"
    assert "trouble" not in server.exchanges[-1]


async def test_L_05_a_download_that_is_given_up_while_the_work_disk_hangs_stops_no_heartbeat(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch, disk: Disk, tmp_path: Path
) -> None:
    monkeypatch.setattr("awe_client.daemon.daemon.LOOK_S", 0.2)
    monkeypatch.setattr(os, "statvfs", disk.behind(os.statvfs))
    server.lease_s, server.download_delay_s = 0.6, 30.0
    start()
    [work] = await server.add_task("true", inputs=[server.input("in.txt", bytes(200_000))])
    await server.until(lambda: server.downloads == 1)
    await eventually(lambda: begun_files(tmp_path))
    disk.hang()
    await server.until(lambda: "work disk" in server.exchanges[-1].get("trouble", ""))
    await server.discard(work)
    seen = len(server.exchanges)
    await server.until(lambda: len(server.exchanges) >= seen + 5, 10.0)
    await eventually(lambda: disk.asked > 1)  # the removal waits for it, too
    assert not disk.is_free
    disk.free()
    await server.until(lambda: not server.exchanges[-1]["holds"])
    await eventually(lambda: not begun_files(tmp_path))


async def test_a_disk_that_has_answered_does_not_hang_however_late_that_is_seen(tmp_path: Path) -> None:
    """Nobody would ask it again: who waits wakes after its time, and the answer is there."""
    root = WorkRoot(tmp_path)
    root.open()
    work_disk = WorkDisk(root, on_change=lambda: None)
    work_disk.open()
    looking = asyncio.ensure_future(work_disk.look(0.05))
    await asyncio.sleep(0)
    time.sleep(0.3)  # noqa: ASYNC251 — as on a machine that is busy with others
    await looking
    assert not work_disk.hangs
    work_disk.close()
    root.close()


async def test_a_look_that_comes_back_late_leaves_nothing_open(tmp_path: Path, disk: Disk) -> None:
    """The lock's file was removed, and taken anew by a thread that hung over the end of its daemon."""
    root = WorkRoot(tmp_path)
    root.open()
    (tmp_path / "lock").unlink()
    plain, work_disk = root._take_lock, WorkDisk(root, on_change=lambda: None)
    root._take_lock = disk.behind(plain)  # type: ignore[method-assign]
    disk.hang()
    work_disk.open()
    await work_disk.look(0.05)
    assert work_disk.hangs
    root.close()
    disk.free()
    await eventually(lambda: not work_disk.hangs)
    work_disk.close()
    second = WorkRoot(tmp_path)
    second.open()
    second.close()


async def test_the_end_waits_only_so_long_for_directories_that_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, disk: Disk
) -> None:
    monkeypatch.setattr(workdir_module, "CLOSE_S", 0.1, raising=False)
    monkeypatch.setattr(workdir_module, "remove_tree", disk.behind(workdir_module.remove_tree))
    dirs, directory = WorkDirs(tmp_path, keep_failed_s=0.0), tmp_path / "aa" / "attempt"
    make_directory(directory)
    disk.hang()
    dirs.clean(directory, keep=False)
    await asyncio.wait_for(dirs.close(), 10)
    assert "removals_do_not_end" in caplog.messages
    disk.free()
    await eventually(lambda: not directory.exists())


async def test_a_removal_that_fails_leaves_no_disk_full_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(workdir_module, "remove_tree", refuse)
    dirs = WorkDirs(tmp_path, keep_failed_s=0.0)
    dirs.was_full(tmp_path / "a")
    assert dirs.has_no_room
    dirs.clean(tmp_path / "a", keep=False)
    await dirs.close()
    assert not dirs.has_no_room


async def test_the_end_waits_only_so_long_for_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, disk: Disk
) -> None:
    monkeypatch.setattr(cache_module, "CLOSE_S", 0.1, raising=False)
    cache = Cache(tmp_path, 100)

    async def fetch(path: Path) -> None:
        await asyncio.to_thread(path.write_bytes, b"1234")

    entry = await cache.use("url-1", 4, fetch)
    assert entry is not None
    monkeypatch.setattr(Cache, "_unlink", disk.behind(Cache._unlink))
    cache.done(entry)
    disk.hang()
    cache.give_way(4)
    await asyncio.wait_for(cache.close(), 10)
    assert "cache_does_not_end" in caplog.messages
    disk.free()
    await eventually(lambda: not entry.path.exists())


@pytest.mark.parametrize("hangs", ["fdatasync", "ftruncate"])
async def test_the_end_waits_only_so_long_for_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, disk: Disk, hangs: str
) -> None:
    monkeypatch.setattr(spool_module, "END_S", 0.1, raising=False)
    monkeypatch.setattr(os, hangs, disk.behind(getattr(os, hangs)))
    spool, key = Spool(tmp_path), ("5e4f3c2b-1a09-4d8c-b7a6-958473625140_a_1", 1)
    spool.open()
    spool.add({"work": key[0], "attempt": key[1], "token": "t", "outcome": "done"})  # type: ignore[typeddict-item]
    if hangs == "ftruncate":
        await spool.flush()
        spool.acknowledge(key)  # type: ignore[arg-type]
    disk.hang()
    await asyncio.wait_for(spool.end(), 10)
    assert "spool_does_not_end" in caplog.messages
    disk.free()


_HANGS = """
import asyncio, sys, threading
from pathlib import Path
from awe_client.daemon import workdir
workdir.CLOSE_S = 0.1
workdir.remove_tree = lambda *_: threading.Event().wait()
async def main():
    dirs = workdir.WorkDirs(Path(sys.argv[1]), 0.0)
    dirs.clean(Path(sys.argv[1], "a"), keep=False)
    await dirs.close()
asyncio.run(main())
"""


def test_a_program_ends_although_a_removal_hangs(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _HANGS, str(tmp_path)], timeout=20, check=True)
