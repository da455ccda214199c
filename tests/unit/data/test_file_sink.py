"""Outputs on a shared file system: put in place once, whatever dies, and never through somebody's link."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from awe_server.data.ports import CannotJoin
from awe_server.data.sinks import files as files_module
from awe_server.data.sinks.base import SinkBusy, SinkRefused
from awe_server.data.sinks.files import FileSink, Wanted
from awe_server.data.sinks.stage import Stage
from shared_models.ids import TaskId
from shared_models.staging import stage_folder
from tests.support.lead import leads
from tests.support.staged import stage_path

TASK = TaskId("job_make")


class Root:
    """A directory that is open to jobs, and what clients staged in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.target = folder / "out.txt"
        self.sink = FileSink([str(folder)], leads)

    def stage(self, rank: int, attempt: int, data: bytes) -> Path:
        path = Path(stage_path(str(self.target), TASK, 1, rank, attempt))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return path

    def wanted(self, *parts: tuple[int, int], **more: object) -> Wanted:
        return Wanted(str(self.target), TASK, 1, parts, **more)  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "root")


def test_the_file_of_one_workunit_is_moved(root: Root) -> None:
    staged = root.stage(0, 2, b"data").stat().st_ino
    root.stage(0, 1, b"of an attempt that was lost")
    wanted = root.wanted((0, 2), sizes={0: 4})
    assert root.sink.missing(wanted) == []
    fact = root.sink.place(wanted)
    assert (fact.size, root.target.read_bytes(), root.target.stat().st_ino) == (4, b"data", staged)


def test_files_of_several_are_joined_with_one_header(root: Root) -> None:
    for rank in (1, 2, 3):
        root.stage(rank, 1, b"head\n%d\n" % rank)
    fact = root.sink.place(root.wanted((1, 1), (2, 1), (3, 1), header_lines=1))
    assert root.target.read_bytes() == b"head\n1\n2\n3\n"
    assert (fact.size, len(fact.md5)) == (11, 32)


@pytest.mark.parametrize("ranks", [1, 3])
def test_what_is_repeated_changes_nothing(root: Root, ranks: int) -> None:
    parts = [(rank, 1) for rank in range(1, ranks + 1)]
    for rank, _ in parts:
        root.stage(rank, 1, b"%d" % rank)
    wanted = root.wanted(*parts)
    first = root.sink.place(wanted)
    inode = root.target.stat().st_ino
    assert root.sink.missing(wanted) == []
    assert root.sink.place(wanted) == first
    assert root.target.stat().st_ino == inode


def test_a_target_that_is_replaced_by_another_file_is_made_again(root: Root) -> None:
    root.stage(1, 1, b"a")
    root.stage(2, 1, b"b")
    wanted = root.wanted((1, 1), (2, 1))
    root.sink.place(wanted)
    root.target.write_bytes(b"of another one")
    root.sink.place(wanted)
    assert root.target.read_bytes() == b"ab"


def test_what_is_missing_or_short_is_named(root: Root) -> None:
    assert root.sink.missing(root.wanted((1, 1), (2, 1))) == [(1, 1), (2, 1)]
    root.stage(1, 1, b"short")
    root.stage(3, 1, b"whole")
    found = root.sink.missing(root.wanted((1, 1), (2, 1), (3, 1), sizes={1: 6, 3: 5}))
    assert found == [(1, 1), (2, 1)]


def test_a_link_in_place_of_a_file_or_folder_is_not_followed(root: Root, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    root.stage(0, 1, b"x").unlink()
    Path(stage_path(str(root.target), TASK, 1, 0, 1)).symlink_to(secret)
    assert root.sink.missing(root.wanted((0, 1))) == [(0, 1)]
    stage = Path(stage_folder(str(root.target), TASK, 1))
    Path(stage_path(str(root.target), TASK, 1, 0, 1)).unlink()
    stage.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stage.symlink_to(elsewhere)
    with pytest.raises(SinkRefused):
        root.sink.missing(root.wanted((0, 1)))


SECRET = b"only this server may read it"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    return path


def a_link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def a_pipe(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path, secret: Path) -> None:
    path.mkdir()


def another_file(path: Path, secret: Path) -> None:
    path.write_bytes(b"x" * 7)


Plant = Callable[[Path, Path], None]


@pytest.mark.parametrize("plant", [a_link, a_pipe, a_folder, another_file])
@pytest.mark.parametrize("is_archive", [True, False], ids=["archive", "plain"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_what_takes_the_place_of_a_part_after_the_look_goes_nowhere(
    root: Root, secret: Path, plant: Plant, ranks: int, is_archive: bool
) -> None:
    parts = [(rank, 1) for rank in range(1, ranks + 1)]
    staged = [root.stage(rank, 1, bytes(len(SECRET))) for rank, _ in parts]
    wanted = root.wanted(*parts, sizes={rank: len(SECRET) for rank, _ in parts}, is_archive=is_archive)
    assert root.sink.missing(wanted) == []
    staged[0].unlink()
    plant(staged[0], secret)
    with pytest.raises(SinkBusy, match=r"1\.1 was replaced"):
        root.sink.place(wanted)
    assert not root.target.exists()
    assert root.sink.missing(wanted) == [(1, 1)]


def test_a_part_is_the_same_one_whenever_it_is_read(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive is looked at before it is copied."""
    staged = [root.stage(rank, 1, bytes(1024)) for rank in (1, 2)]

    def merged(parts: Any, writer: Any, target: Any, open_part: Any) -> Any:
        open_part(parts[1].path).close()
        staged[1].unlink()
        staged[1].write_bytes(bytes(1024))
        open_part(parts[1].path).close()

    monkeypatch.setattr(files_module, "merge_archives", merged)
    with pytest.raises(SinkBusy, match=r"2\.1 was replaced"):
        root.sink.place(root.wanted((1, 1), (2, 1), is_archive=True))


@pytest.mark.parametrize("plant", [a_link, a_pipe])
def test_a_joined_file_that_is_replaced_before_it_is_moved_goes_nowhere(
    root: Root, secret: Path, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.stage(1, 1, b"a").chmod(0o777)
    whole = root.stage(2, 1, b"b").with_name("whole")
    merge = files_module.merge

    def merged(*args: Any) -> Any:
        fact = merge(*args)
        whole.unlink()
        plant(whole, secret)
        return fact

    monkeypatch.setattr(files_module, "merge", merged)
    with pytest.raises(SinkBusy, match="whole was replaced"):
        root.sink.place(root.wanted((1, 1), (2, 1)))
    assert not root.target.exists()
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_file_that_is_replaced_at_the_last_moment_is_not_taken_for_the_output(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = root.stage(0, 1, b"data")
    mark = Stage.mark

    def marked(stage: Stage, what: dict[str, Any]) -> None:
        mark(stage, what)
        staged.unlink()
        staged.write_bytes(b"evil")

    monkeypatch.setattr(Stage, "mark", marked)
    wanted = root.wanted((0, 1))
    with pytest.raises(SinkBusy, match="replaced"):
        root.sink.place(wanted)
    assert root.sink.missing(wanted) == [(0, 1)]


@pytest.mark.parametrize("plant", [a_link, a_pipe, another_file])
def test_a_mark_that_somebody_else_made_stops_nobody(root: Root, secret: Path, plant: Plant) -> None:
    plant(root.stage(0, 1, b"data").with_name("placed"), secret)
    wanted = root.wanted((0, 1))
    assert root.sink.missing(wanted) == []
    root.sink.place(wanted)
    assert root.target.read_bytes() == b"data"


def test_a_joined_file_has_the_permissions_of_the_first_and_lends_nobody_an_id(root: Root) -> None:
    root.stage(1, 1, b"#!/bin/sh\n").chmod(0o6775)
    root.stage(2, 1, b"id\n")
    root.sink.place(root.wanted((1, 1), (2, 1)))
    assert stat.S_IMODE(root.target.stat().st_mode) == 0o775


def test_each_generation_of_a_task_has_a_folder_of_its_own(root: Root) -> None:
    """What is removed of the one before, however late and however often, is not of the new."""
    first, second = (stage_folder(str(root.target), TASK, generation) for generation in (1, 2))
    root.stage(0, 1, b"old")
    shutil.copytree(first, second)
    for _ in range(2):
        root.sink.remove(f"{first}/")
    assert root.sink.missing(root.wanted((0, 1))) == [(0, 1)]
    assert root.sink.missing(Wanted(str(root.target), TASK, 2, [(0, 1)])) == []


def test_what_is_not_below_a_root_is_refused(root: Root, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root.folder / "away").symlink_to(outside)
    for path in (f"{root.folder}/away/out.txt", f"{outside}/out.txt"):
        with pytest.raises(SinkRefused, match="not below a directory"):
            root.sink.missing(Wanted(path, TASK, 1, [(0, 1)]))
        with pytest.raises(SinkRefused):
            root.sink.remove(path)
    assert not any(outside.iterdir())


def test_a_folder_in_place_of_the_target_is_a_refusal(root: Root) -> None:
    root.target.mkdir()
    root.stage(0, 1, b"x")
    with pytest.raises(SinkRefused, match="is a directory"):
        root.sink.place(root.wanted((0, 1)))


def test_archives_that_are_none_are_told_apart(root: Root) -> None:
    root.stage(1, 1, b"no tar" * 200)
    root.stage(2, 1, b"no tar" * 200)
    with pytest.raises(CannotJoin, match="rank 1"):
        root.sink.place(root.wanted((1, 1), (2, 1), is_archive=True))
    assert not root.target.exists()


def test_files_and_stage_folders_are_removed_once_and_nothing_else_is(root: Root) -> None:
    root.stage(0, 1, b"x")
    stage = stage_folder(str(root.target), TASK, 1)
    other = root.folder / "other"
    other.mkdir()
    for _ in range(2):
        root.sink.remove(f"{stage}/")
        root.sink.remove(f"{other}/")
        root.sink.remove(str(root.target))
    assert os.listdir(root.folder) == ["other"]


def test_what_a_link_made_one_file_with_another_of_its_task_is_not_overwritten(root: Root) -> None:
    """A directory may become a link after the job was submitted."""
    (root.folder / "alias").symlink_to(root.folder)
    root.target.write_bytes(b"what the task reads")
    root.stage(0, 1, b"made")
    with pytest.raises(SinkRefused, match=r"out\.txt: links make it one file with /.*/alias/out\.txt"):
        root.sink.place(root.wanted((0, 1), others=[f"{root.folder}/alias/out.txt"]))
    assert root.target.read_bytes() == b"what the task reads"
    others = [f"{root.folder}/out.txt.gz", f"{root.folder}/sub/out.txt", f"{root.folder}/alias/more"]
    root.sink.place(root.wanted((0, 1), others=others))
    assert root.target.read_bytes() == b"made"
