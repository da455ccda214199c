"""Outputs on a shared file system, the client's half: put beside the target, linked or copied."""
# ruff: noqa: ASYNC240 — a look at a temporary folder blocks nobody here

import asyncio
import errno
import hashlib
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from awe_client.daemon import answers, staging
from awe_client.daemon.attempt import Attempt
from awe_client.daemon.outputs import Found
from awe_client.daemon.staging import OutputUnreadable, Stager, TargetBusy, TargetRefused
from awe_client.sdk.download_errors import OutOfReach
from shared_models.ids import TaskId
from shared_models.staging import stage_folder
from tests.support.descriptors import open_below
from tests.support.eventually import eventually
from tests.support.staged import stage_path
from tests.support.tmpfs import fill, tmpfs

pytestmark = pytest.mark.anyio

DATA = b"bytes" * 1000
ATTEMPT = cast(
    Attempt, SimpleNamespace(task=SimpleNamespace(message={"id": "job_t", "generation": 3}), rank=2, number=7)
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
def made(tmp_path: Path) -> Path:
    path = tmp_path / "out.txt"
    path.write_bytes(DATA)
    return path


async def stage(root: Path, made: Path, name: str = "out.txt", roots: Any = None) -> tuple[int, str, Path]:
    target = f"{root}/{name}"
    progress: list[tuple[int, int]] = []
    stager = Stager([str(root)] if roots is None else roots)
    size, md5 = await stager.stage(
        ATTEMPT,
        f"file://{target}",
        Found({"filename": "out.txt"}, made),
        lambda *moved: progress.append(moved),
    )
    assert progress[-1] == (size, size)
    return size, md5, Path(stage_path(target, TaskId("job_t"), 3, 2, 7))


async def test_a_file_that_is_nobody_elses_is_linked(root: Path, made: Path) -> None:
    size, md5, staged = await stage(root, made)
    assert (size, md5) == (len(DATA), "")
    assert staged.samefile(made)
    assert not (root / "out.txt").exists()


async def test_a_file_with_another_name_is_copied(root: Path, made: Path, tmp_path: Path) -> None:
    """It may be an entry of a cache, or somebody's data: what becomes of the output must not touch it."""
    os.link(made, tmp_path / "other")
    size, md5, staged = await stage(root, made)
    assert (size, md5) == (len(DATA), hashlib.md5(DATA, usedforsecurity=False).hexdigest())
    assert not staged.samefile(made)
    assert staged.read_bytes() == DATA


async def test_another_file_system_is_copied_to(
    root: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*args: Any, **more: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    _, md5, staged = await stage(root, made)
    assert md5
    assert staged.read_bytes() == DATA


async def test_repeating_it_is_fine_and_folders_are_made(root: Path, made: Path) -> None:
    for _ in range(3):
        _, _, staged = await stage(root, made, "deep/er/out.txt")
    assert staged.read_bytes() == DATA
    assert os.listdir(staged.parent) == ["2.7"]
    assert staged.parent.parent == root / "deep" / "er"


async def test_what_this_client_does_not_open_is_out_of_reach(root: Path, made: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "away").symlink_to(outside)
    with pytest.raises(OutOfReach):
        await stage(root, made, roots=[])
    with pytest.raises(OutOfReach):
        await stage(root, made, "away/out.txt")
    assert not any(outside.iterdir())


async def test_a_stage_folder_that_is_a_link_is_refused(root: Path, made: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    os.symlink(outside, stage_folder(f"{root}/out.txt", TaskId("job_t"), 3))
    with pytest.raises(TargetRefused):
        await stage(root, made)
    assert not any(outside.iterdir())


# --- stopped, full, gone -------------------------------------------------------------------------


class Held:
    """Holds up the next call of a function of `os` in its thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.is_reached = False
        self._go_on = threading.Event()
        real = getattr(os, name)

        def held(*args: Any, **more: Any) -> Any:
            if not self.is_reached:
                self.is_reached = True
                self._go_on.wait(30)
            return real(*args, **more)

        monkeypatch.setattr(os, name, held)

    def go_on(self) -> None:
        self._go_on.set()


@pytest.mark.parametrize("is_copied", [False, True], ids=["linked", "copied"])
async def test_what_is_stopped_touches_no_folder_of_others_and_leaves_nothing_open(
    root: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_copied: bool
) -> None:
    if is_copied:
        os.link(made, tmp_path / "second")
    other = tmp_path / "other"
    other.write_bytes(b"other")
    _, _, staged = await stage(root, made)  # its folder is there: no other fsync comes first
    staged.unlink()
    _, _, theirs = await stage(root, other, "theirs.txt")
    before = open_below(tmp_path)
    held = Held(monkeypatch, "fsync")
    task = asyncio.ensure_future(stage(root, made))
    await eventually(lambda: held.is_reached)
    task.cancel()
    await asyncio.wait((task,), timeout=0.05)
    # Numbers that were closed now mean the folder of another task.
    folders = [os.open(theirs.parent, os.O_RDONLY | os.O_DIRECTORY) for _ in range(4)]
    held.go_on()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(
        lambda: len(open_below(tmp_path)) == len(before) + len(folders), show=lambda: open_below(tmp_path)
    )
    assert [path.name for path in theirs.parent.iterdir()] == ["2.7"]
    assert theirs.read_bytes() == b"other"
    assert theirs.samefile(other)
    for folder in folders:
        os.close(folder)


@pytest.mark.parametrize("name", ["mkdir", "link", "write", "rename"])
async def test_wherever_it_is_stopped_nothing_stays_open_or_half_written(
    root: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name in ("write", "rename"):
        os.link(made, tmp_path / "second")
    before = open_below(tmp_path)
    held = Held(monkeypatch, name)
    task = asyncio.ensure_future(stage(root, made))
    await eventually(lambda: held.is_reached)
    task.cancel()
    await asyncio.wait((task,), timeout=0.05)
    task.cancel()
    held.go_on()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: any(root.iterdir()))
    await eventually(lambda: open_below(tmp_path) == before, show=lambda: open_below(tmp_path))
    [folder] = root.iterdir()
    assert [path.name for path in folder.iterdir()] == (["2.7"] if name in ("link", "rename") else [])


async def test_a_full_disk_is_waited_for_and_nothing_of_it_is_left(made: Path, tmp_path: Path) -> None:
    made.write_bytes(bytes(3 << 20))
    with tmpfs(tmp_path / "full", 4 << 20) as disk:
        ballast = fill(disk, leave_bytes=1 << 20)
        before = open_below(tmp_path)
        with pytest.raises(TargetBusy, match="no space left on device"):
            await stage(disk, made)
        await eventually(lambda: open_below(tmp_path) == before, show=lambda: open_below(tmp_path))
        [folder] = [path for path in disk.iterdir() if path != ballast]
        assert list(folder.iterdir()) == []
        ballast.unlink()
        size, _, staged = await stage(disk, made)
        assert (size, staged.read_bytes()) == (3 << 20, made.read_bytes())


@pytest.mark.parametrize("fate", ["gone", "shorter"])
async def test_an_output_that_cannot_be_read_is_not_the_targets_fault(
    root: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    if fate == "gone":
        made.unlink()
    else:
        os.link(made, tmp_path / "second")
        body = Found.body

        def shorter(found: Found) -> Any:
            described = body(found)
            os.truncate(made, 10)
            return described

        monkeypatch.setattr(Found, "body", shorter)
    says = "no such file" if fate == "gone" else "the file changed while being read"
    with pytest.raises(OutputUnreadable, match=says):
        await stage(root, made)
    [folder] = root.iterdir()
    assert list(folder.iterdir()) == []


# --- a file system that hangs --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "is_copied"),
    [
        *((name, False) for name in ("mkdir", "link", "rename", "fsync")),
        *((name, True) for name in ("mkdir", "write", "rename", "fsync")),
    ],
)
async def test_a_file_system_that_hangs_is_waited_for_only_so_long_and_spoils_nothing_when_it_wakes(
    root: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_copied: bool
) -> None:
    if is_copied:
        os.link(made, tmp_path / "second")
    monkeypatch.setattr(answers, "ANSWER_S", 0.2)
    before, held = open_below(tmp_path), Held(monkeypatch, name)
    with pytest.raises(TargetBusy, match="does not answer"):
        await stage(root, made)
    _, _, staged = await stage(root, made)
    assert staged.read_bytes() == DATA
    made.unlink()
    held.go_on()
    await eventually(lambda: open_below(tmp_path) == before, show=lambda: open_below(tmp_path))
    assert os.listdir(staged.parent) == ["2.7"]
    assert staged.read_bytes() == DATA


async def test_who_is_stopped_does_not_wait_for_a_file_system_that_hangs(
    root: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, "mkdir")
    task = asyncio.ensure_future(stage(root, made))
    await eventually(lambda: held.is_reached)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 2)
    held.go_on()


async def test_a_file_system_that_hangs_is_asked_by_so_many_threads_and_no_more(
    root: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, asked = threading.Event(), 0

    def hangs(*_: Any, **__: Any) -> None:
        nonlocal asked
        asked += 1
        go_on.wait(30)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(answers, "ANSWER_S", 0.01)
    monkeypatch.setattr(staging, "open_folder_of", hangs)
    stager = Stager([str(root)])
    for _ in range(answers.MAX_HUNG + 3):
        with pytest.raises(TargetBusy, match="does not answer"):
            await stager.stage(ATTEMPT, f"file://{root}/x", Found({"filename": "x"}, made), lambda *_: None)
    assert asked == answers.MAX_HUNG
    go_on.set()
