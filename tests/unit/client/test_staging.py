"""Outputs on a shared file system, the client's half: put beside the target, linked or copied."""

import hashlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from awe_client.daemon.attempt import Attempt
from awe_client.daemon.outputs import Found
from awe_client.daemon.shared_files import OutOfReach
from awe_client.daemon.staging import Stager, TargetRefused
from shared_models.ids import TaskId
from shared_models.staging import stage_folder, stage_path

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
