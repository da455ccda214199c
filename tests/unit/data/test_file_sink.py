"""Outputs on a shared file system: put in place once, whatever dies, and never through somebody's link."""

import os
from pathlib import Path

import pytest

from awe_server.data.ports import CannotJoin
from awe_server.data.sinks.base import SinkRefused
from awe_server.data.sinks.files import FileSink, Wanted
from shared_models.ids import TaskId
from shared_models.staging import stage_folder, stage_path

TASK = TaskId("job_make")


class Root:
    """A directory that is open to jobs, and what clients staged in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.target = folder / "out.txt"
        self.sink = FileSink([str(folder)])

    def stage(self, rank: int, attempt: int, data: bytes) -> Path:
        path = Path(stage_path(str(self.target), TASK, rank, attempt))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return path

    def wanted(self, *parts: tuple[int, int], **more: object) -> Wanted:
        return Wanted(str(self.target), TASK, parts, **more)  # type: ignore[arg-type]


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
    Path(stage_path(str(root.target), TASK, 0, 1)).symlink_to(secret)
    assert root.sink.missing(root.wanted((0, 1))) == [(0, 1)]
    stage = Path(stage_folder(str(root.target), TASK))
    Path(stage_path(str(root.target), TASK, 0, 1)).unlink()
    stage.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stage.symlink_to(elsewhere)
    with pytest.raises(SinkRefused):
        root.sink.missing(root.wanted((0, 1)))


def test_what_is_not_below_a_root_is_refused(root: Root, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root.folder / "away").symlink_to(outside)
    for path in (f"{root.folder}/away/out.txt", f"{outside}/out.txt"):
        with pytest.raises(SinkRefused, match="not below a directory"):
            root.sink.missing(Wanted(path, TASK, [(0, 1)]))
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
    stage = stage_folder(str(root.target), TASK)
    other = root.folder / "other"
    other.mkdir()
    for _ in range(2):
        root.sink.remove(f"{stage}/")
        root.sink.remove(f"{other}/")
        root.sink.remove(str(root.target))
    assert os.listdir(root.folder) == ["other"]
