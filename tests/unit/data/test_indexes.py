"""Index files and part names."""

import asyncio
from array import array
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from awe_server.data.indexes import (
    OUTDATED,
    IndexFiles,
    SizeUnits,
    UnitsDoNotCover,
    covering,
    index_problem,
    locate_in,
    open_index,
    parse_part,
    sidecar,
    write_index,
)
from shared_models.errors import BadRange
from shared_models.limits import MIB


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    (tmp_path / "blob").write_bytes(bytes(40))
    write_index(tmp_path / "blob", "record", [array("Q", [0, 10]), array("Q"), array("Q", [25, 26])], 40)
    return tmp_path / "blob"


@pytest.mark.parametrize(
    ("part", "place"),
    [("1", (0, 10)), ("1-1", (0, 10)), ("2-3", (10, 16)), ("4", (26, 14)), ("1-4", (0, 40))],
)
def test_a_part_is_located_in_an_index_file(blob: Path, part: str, place: tuple[int, int]) -> None:
    assert locate_in(open_index(blob, "record"), part) == place


@pytest.mark.parametrize(
    "part", ["", "0", "5", "0-1", "3-2", "1-5", "-1", "1-", "a", "1,2", " 1", "1\n", "１", "9" * 30, "1-2-3"]
)
def test_nonsense_parts_are_refused(part: str) -> None:
    with pytest.raises(BadRange) as caught:
        parse_part(part, 4)
    assert caught.value.fields["units"] == 4


def test_a_missing_index_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        locate_in(open_index(tmp_path / "none", "record"), "1")


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
    assert locate_in(SizeUnits(size), part) == place


def test_a_part_past_the_last_size_unit_is_refused() -> None:
    with pytest.raises(BadRange):
        locate_in(SizeUnits(MIB), "2")


def test_an_index_that_fails_half_way_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> "Iterator[array[int]]":
        raise ValueError("broken record")
        yield array("Q", [0])

    with pytest.raises(ValueError, match="broken record"):
        write_index(tmp_path / "blob", "record", failing(), 3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.anyio
async def test_only_the_most_recently_used_index_files_stay_open(tmp_path: Path) -> None:
    files = IndexFiles()
    with mock.patch("awe_server.data.indexes._CACHED", 2):
        for name in ("a", "b", "a", "c"):
            (tmp_path / name).write_bytes(b"x")
            write_index(tmp_path / name, "line", [array("Q", [0])], 1)
            assert locate_in(await files.ready(tmp_path / name, "line"), "1") == (0, 1)
        assert {path.name for path in files._open} == {"a.line.idx", "c.line.idx"}
    files.close()
    files.close()


@pytest.mark.anyio
async def test_an_index_that_is_ready_needs_no_disk(blob: Path) -> None:
    files = IndexFiles()
    with pytest.raises(FileNotFoundError):
        await files.ready(blob, "line")
    await asyncio.gather(*(files.ready(blob, "record") for _ in range(3)))
    with mock.patch("awe_server.data.indexes.open_index", side_effect=AssertionError):
        assert locate_in(await files.ready(blob, "record"), "2-3") == (10, 16)
    files.close()


@pytest.mark.anyio
async def test_an_index_that_is_ready_can_be_used_after_others_took_its_place(blob: Path) -> None:
    files = IndexFiles()
    write_index(blob, "line", [array("Q", [0])], 1)
    with mock.patch("awe_server.data.indexes._CACHED", 1):
        units = await files.ready(blob, "record")
        await files.ready(blob, "line", 1)
        assert [path.name for path in files._open] == [sidecar(blob, "line").name]
        assert locate_in(units, "2-3") == (10, 16)
    files.close()


def test_an_index_lies_beside_its_blob() -> None:
    assert sidecar(Path("/x/blob"), "line") == Path("/x/blob.line.idx")


WHOLE = [[0, 10], [], [25, 26]]


@pytest.mark.parametrize(
    ("pieces", "size", "problem"),
    [
        pytest.param([], 40, "last unit begins at byte -1 of 40", id="no unit at all"),
        pytest.param([[]], 0, "last unit begins at byte -1 of 0", id="no unit of nothing"),
        pytest.param([[1, 10]], 40, "first unit begins at byte 1", id="the first byte is left out"),
        pytest.param([[], [7]], 40, "first unit begins at byte 7", id="the beginning is left out"),
        pytest.param([[0, 10, 10]], 40, "not in order", id="an empty unit"),
        pytest.param(
            [[0, 10], [10]], 40, "after byte 10 are not in order", id="an empty unit between pieces"
        ),
        pytest.param([[0, 20, 10]], 40, "not in order", id="bytes in two units"),
        pytest.param([[0, 20], [10]], 40, "after byte 20 are not in order", id="a piece twice"),
        pytest.param([[0, 40]], 40, "last unit begins at byte 40 of 40", id="an empty unit at the end"),
        pytest.param(WHOLE, 20, "last unit begins at byte 26 of 20", id="a file that became shorter"),
    ],
)
def test_F_02_units_that_do_not_add_up_to_the_file_are_refused(
    tmp_path: Path, pieces: list[list[int]], size: int, problem: str
) -> None:
    arrays = [array("Q", piece) for piece in pieces]
    with pytest.raises(UnitsDoNotCover, match=problem):
        write_index(tmp_path / "blob", "record", arrays, size)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("pieces", "size"), [(WHOLE, 40), (WHOLE, 27), ([[0]], 0), ([[0]], 1)])
def test_units_that_add_up_are_passed_on(pieces: list[list[int]], size: int) -> None:
    found = [start for piece in covering([array("Q", piece) for piece in pieces], size) for start in piece]
    assert found == [start for piece in pieces for start in piece]


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        pytest.param(0, b"X", id="not an index"),
        pytest.param(8, b"\x05", id="another number of units"),
        pytest.param(16, b"\0\0", id="another checksum"),
        pytest.param(24, b"\x01", id="it begins later"),
        pytest.param(32, b"\x0b", id="a unit begins elsewhere"),
        pytest.param(40, b"\x09", id="units out of order"),
        pytest.param(-8, b"\x29", id="it ends elsewhere"),
        pytest.param(slice(20, None), b"", id="torn in its header"),
        pytest.param(slice(-8, None), b"", id="torn at its end"),
        pytest.param(slice(0, None), b"", id="empty"),
    ],
)
def test_F_02_a_damaged_index_file_is_not_believed_and_goes(
    blob: Path, at: int | slice, wrong: bytes
) -> None:
    path = sidecar(blob, "record")
    content = bytearray(path.read_bytes())
    content[at if isinstance(at, slice) else slice(at, at + len(wrong) or None)] = wrong
    path.write_bytes(content)
    assert index_problem(path)
    with pytest.raises(FileNotFoundError):
        locate_in(open_index(blob, "record"), "1")
    assert not path.exists()


def test_an_index_of_an_older_version_is_built_anew_and_no_damage(
    blob: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = sidecar(blob, "record")
    path.write_bytes(b"AWEIDX01" + path.read_bytes()[8:])
    assert index_problem(path) == OUTDATED
    with pytest.raises(FileNotFoundError):
        locate_in(open_index(blob, "record"), "1")
    assert not path.exists()
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_an_index_of_a_file_of_another_size_is_not_believed_and_goes(blob: Path) -> None:
    path = sidecar(blob, "record")
    assert index_problem(path) == index_problem(path, 40) == ""
    assert index_problem(path, 41) == "is about 40 bytes, not about 41"
    blob.write_bytes(bytes(41))
    with pytest.raises(FileNotFoundError):
        locate_in(open_index(blob, "record"), "1")
    assert not path.exists()


def test_an_index_that_the_disk_does_not_give_goes(blob: Path) -> None:
    with (
        mock.patch("awe_server.data.indexes._problem", side_effect=OSError(5, "Input/output error")),
        pytest.raises(FileNotFoundError),
    ):
        locate_in(open_index(blob, "record"), "1")
    assert not sidecar(blob, "record").exists()
