"""Whose a folder is: files are removed below it."""

import stat
from pathlib import Path

import pytest

from awe_server.runtime.data_dir import CannotStart, claim


@pytest.mark.parametrize(
    "names",
    [(), ("lost+found/",), ("awe.sqlite", "logs/"), ("awe.sqlite-wal",), ("nodes/", "nodes/server", "logs/")],
    ids=["empty", "a file system's root", "older, SQLite", "older, its database lost", "older, MongoDB"],
)
def test_a_folder_that_is_empty_or_ours_is_taken_and_taken_again(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    for name in names:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    claim(tmp_path)
    (tmp_path / "notes.txt").touch()
    claim(tmp_path)


@pytest.mark.parametrize("name", ["logs/", "nodes/", "memory/", "notes.txt"])
def test_a_folder_with_something_of_somebody_elses_stays_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    with pytest.raises(CannotStart, match="is not empty, and not awe-server's"):
        claim(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == [name.strip("/")]


def test_a_new_folder_is_closed_to_other_users(tmp_path: Path) -> None:
    claim(tmp_path / "sites" / "awe")
    assert stat.S_IMODE((tmp_path / "sites" / "awe").stat().st_mode) == 0o700


def test_a_folder_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "awe").mkdir()
    (tmp_path / "awe").chmod(0o750)
    claim(tmp_path / "awe")
    assert stat.S_IMODE((tmp_path / "awe").stat().st_mode) == 0o750
