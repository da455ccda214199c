"""The work directory: only plain files in it, and one daemon, also if somebody removes its lock."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from awe_client.daemon import daemon as daemon_module
from awe_client.daemon import work_disk as work_disk_module
from awe_client.daemon.daemon import Daemon
from awe_client.daemon.identity import WorkRoot, WorkRootBusy, WorkRootLost, WorkRootUnusable
from awe_client.daemon.work_disk import WorkDisk
from tests.support.eventually import eventually
from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import Launch, MakeDaemon, settings_for

pytestmark = pytest.mark.anyio


def opened(path: Path) -> WorkRoot:
    root = WorkRoot(path)
    root.open()
    return root


@pytest.mark.parametrize("name", ["lock", "awe-client-work", "client-id", "alive", "lease", "control-group"])
def test_a_fifo_in_the_place_of_a_file_is_named_and_not_waited_for(tmp_path: Path, name: str) -> None:
    opened(tmp_path).close()
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(WorkRootUnusable, match=f"{name} is neither a file nor a directory"):
        WorkRoot(tmp_path).open()


def test_a_sign_of_life_waits_for_nobody(tmp_path: Path) -> None:
    root = opened(tmp_path)
    (tmp_path / "alive").unlink()
    os.mkfifo(tmp_path / "alive")
    root.show_life()
    (tmp_path / "alive").unlink()
    root.show_life()
    assert (tmp_path / "alive").is_file()
    root.close()


def test_a_lock_that_was_removed_is_taken_again(tmp_path: Path) -> None:
    root = opened(tmp_path)
    assert root.is_ours()
    (tmp_path / "lock").unlink()
    assert root.is_ours()
    with pytest.raises(WorkRootBusy):
        WorkRoot(tmp_path).open()
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").touch()
    assert root.is_ours(), "nobody else has it"
    with pytest.raises(WorkRootBusy):
        WorkRoot(tmp_path).open()
    root.close()


async def test_a_directory_that_another_daemon_has_taken_is_lost(tmp_path: Path) -> None:
    root = opened(tmp_path)
    (tmp_path / "lock").unlink()
    second = opened(tmp_path)
    assert second.is_ours()
    assert not root.is_ours()
    disk = WorkDisk(root, on_change=lambda: None)
    disk.open()
    with pytest.raises(WorkRootLost, match="another awe-client has taken"):
        await disk.require_ours(20)
    disk.close()
    for one in (root, second):
        one.close()


async def test_a_daemon_ends_that_has_lost_its_directory(
    server: FakeServer, launch: Launch, start: MakeDaemon, tmp_path: Path
) -> None:
    """The second one has all that is there: what the first ran is ended, and it does not register again."""
    first = await launch()
    [work] = await server.add_task("sleep", "1000")
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    (tmp_path / "work" / "lock").unlink()
    start()
    assert await asyncio.wait_for(first.wait(), 30) == 2
    log = (tmp_path / "daemon.log").read_text()
    assert "awe-client: another awe-client has taken" in log.splitlines()[-1]
    assert work not in server.results
    [work] = await server.add_task("true")
    assert (await server.result(work))["outcome"] == "done"
    assert len(server.profiles) == 2


async def test_a_failure_is_told_only_after_a_look_whose_directory_it_is(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who takes a directory ends the commands that run there: that is no failure of theirs."""
    monkeypatch.setattr(work_disk_module, "FRESH_S", 1000.0)
    daemon = asyncio.ensure_future(Daemon(settings_for(server.url, tmp_path / "work")).run())
    go = tmp_path / "go"
    [work] = await server.add_task(script=[f"until [ -e {go} ]; do sleep 0.02; done; kill -9 $$"])
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    (tmp_path / "work" / "lock").unlink()
    second = opened(tmp_path / "work")
    go.touch()
    with pytest.raises(WorkRootLost):
        await asyncio.wait_for(daemon, 20)
    assert work not in server.results
    second.close()


async def test_a_look_that_was_just_done_does_for_what_hangs_little_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = opened(tmp_path)
    looks, look = list[float](), root.is_ours
    monkeypatch.setattr(root, "is_ours", lambda: (looks.append(time.monotonic()), look())[1])
    disk = WorkDisk(root, on_change=lambda: None)
    disk.open()
    for _ in range(3):
        await disk.require_ours(20, anew=False)
    assert len(looks) == 1
    await disk.require_ours(20)
    assert len(looks) == 2
    monkeypatch.setattr(work_disk_module, "FRESH_S", -1.0)
    await disk.require_ours(20, anew=False)
    assert len(looks) == 3
    disk.close()
    root.close()


async def test_a_daemon_that_lost_its_directory_notices_without_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "PROGRESS_S", 0.1)
    daemon = asyncio.ensure_future(Daemon(settings_for("http://127.0.0.1:9", tmp_path)).run())
    await eventually((tmp_path / "alive").exists)
    (tmp_path / "lock").unlink()
    second = opened(tmp_path)
    with pytest.raises(WorkRootLost):
        await asyncio.wait_for(daemon, 20)
    second.close()
