"""Index files and part names."""

import asyncio
from array import array
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from awe_server.data.indexes import IndexFiles, locate_size, parse_part, sidecar, write_index
from shared_models.errors import BadRange
from shared_models.limits import MIB


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    write_index(tmp_path / "blob", "record", [array("Q", [0, 10]), array("Q"), array("Q", [25, 26])], 40)
    return tmp_path / "blob"


@pytest.mark.parametrize(
    ("part", "place"),
    [("1", (0, 10)), ("1-1", (0, 10)), ("2-3", (10, 16)), ("4", (26, 14)), ("1-4", (0, 40))],
)
def test_a_part_is_located_in_an_index_file(blob: Path, part: str, place: tuple[int, int]) -> None:
    assert IndexFiles().locate(blob, "record", part) == place


@pytest.mark.parametrize(
    "part", ["", "0", "5", "0-1", "3-2", "1-5", "-1", "1-", "a", "1,2", " 1", "1\n", "１", "9" * 30, "1-2-3"]
)
def test_nonsense_parts_are_refused(part: str) -> None:
    with pytest.raises(BadRange) as caught:
        parse_part(part, 4)
    assert caught.value.fields["units"] == 4


def test_a_missing_index_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        IndexFiles().locate(tmp_path / "none", "record", "1")


@pytest.mark.parametrize(
    ("size", "part", "place"),
    [
        (0, "1", (0, 0)),
        (1, "1", (0, 1)),
        (MIB, "1", (0, MIB)),
        (MIB + 1, "2", (MIB, 1)),
        (3 * MIB, "2-3", (MIB, 2 * MIB)),
    ],
)
def test_the_size_index_has_units_of_one_mib(size: int, part: str, place: tuple[int, int]) -> None:
    assert locate_size(size, part) == place


def test_a_part_past_the_last_size_unit_is_refused() -> None:
    with pytest.raises(BadRange):
        locate_size(MIB, "2")


def test_an_index_that_fails_half_way_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> "Iterator[array[int]]":
        raise ValueError("broken record")
        yield array("Q", [0])

    with pytest.raises(ValueError, match="broken record"):
        write_index(tmp_path / "blob", "record", failing(), 3)
    assert list(tmp_path.iterdir()) == []


def test_only_the_most_recently_used_index_files_stay_open(tmp_path: Path) -> None:
    files = IndexFiles()
    with mock.patch("awe_server.data.indexes._CACHED", 2):
        for name in ("a", "b", "a", "c"):
            write_index(tmp_path / name, "line", [array("Q", [0])], 1)
            assert files.locate(tmp_path / name, "line", "1") == (0, 1)
        assert {path.name for path in files._open} == {"a.line.idx", "c.line.idx"}
    files.close()
    files.close()


@pytest.mark.anyio
async def test_an_index_that_is_ready_needs_no_disk(blob: Path) -> None:
    files = IndexFiles()
    with pytest.raises(FileNotFoundError):
        await files.ready(blob, "line")
    await asyncio.gather(*(files.ready(blob, "record") for _ in range(3)))
    with mock.patch("awe_server.data.indexes._mapped", side_effect=AssertionError):
        await files.ready(blob, "record")
        assert files.locate(blob, "record", "2-3") == (10, 16)
    files.close()


def test_an_index_lies_beside_its_blob() -> None:
    assert sidecar(Path("/x/blob"), "line") == Path("/x/blob.line.idx")
