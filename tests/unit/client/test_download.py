"""Downloads take what was asked for, no more and no less, whatever a source answers."""
# ruff: noqa: ASYNC240 — a look at a temporary folder blocks nobody here

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path

import pytest

from awe_client.sdk.download import Asked, Download, Reply, Wanted
from awe_client.sdk.download_errors import DownloadCorrupt, DownloadCut
from shared_models.errors import AweError, BadRange, TooLarge

pytestmark = pytest.mark.anyio

MIB = 1 << 20


class Source:
    """Answers with some blocks, and counts what was taken of them."""

    def __init__(self, blocks: Iterator[bytes], *, offset: int = 0, left: int = -1, etag: str = "") -> None:
        self.taken = 0
        self.asked: list[Asked] = []
        self._blocks, self._offset, self._left, self._etag = blocks, offset, left, etag

    @asynccontextmanager
    async def __call__(self, asked: Asked) -> AsyncIterator[Reply]:
        async def chunks() -> AsyncIterator[bytes]:
            for block in self._blocks:
                self.taken += len(block)
                yield block

        self.asked.append(asked)
        yield Reply(chunks(), self._offset, self._left, self._etag)


def endless() -> Iterator[bytes]:
    return repeat(bytes(MIB // 4))


@pytest.mark.parametrize(
    ("wanted", "left", "error", "says"),
    [
        (Wanted(length=5), 1 << 40, BadRange, "no byte ranges, and a piece of it was wanted"),
        (Wanted(offset=5, length=5), 1 << 40, BadRange, "no byte ranges, and a piece of it was wanted"),
        (Wanted(size=4), 1 << 40, DownloadCorrupt, "gives 1099511627776 bytes where 4 were expected"),
        (Wanted(size=4), 3, DownloadCorrupt, "gives 3 bytes where 4 were expected"),
        (Wanted(max_bytes=4), 5, TooLarge, "has more than 4 bytes"),
    ],
)
async def test_an_answer_of_another_length_is_refused_before_a_byte_is_taken(
    tmp_path: Path, wanted: Wanted, left: int, error: type[AweError], says: str
) -> None:
    source = Source(endless(), left=left)
    download = Download(tmp_path / "x", wanted)
    with pytest.raises(error, match=says):
        await download.attempt(source)
    assert source.taken == 0
    await download.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wanted", "error", "says"),
    [
        (Wanted(length=5), DownloadCorrupt, "more than the 5 bytes that were expected"),
        (Wanted(size=3 * MIB), DownloadCorrupt, "more than the 3145728 bytes that were expected"),
        (Wanted(max_bytes=3 * MIB), TooLarge, "has more than 3145728 bytes"),
    ],
)
async def test_an_answer_that_does_not_say_how_long_it_is_ends_where_it_should(
    tmp_path: Path, wanted: Wanted, error: type[AweError], says: str
) -> None:
    source = Source(endless())
    download = Download(tmp_path / "x", wanted)
    with pytest.raises(error, match=says):
        await download.attempt(source)
    allowed = max(wanted.length, wanted.size, wanted.max_bytes)
    assert source.taken <= allowed + MIB
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= allowed
    await download.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_piece_may_come_in_smaller_ones(tmp_path: Path) -> None:
    download = Download(tmp_path / "x", Wanted(offset=10, length=6))
    with pytest.raises(DownloadCut, match="after 4 of 6 bytes"):
        await download.attempt(Source(iter((b"abcd",)), offset=10, left=4, etag='"1"'))
    rest = Source(iter((b"ef",)), offset=14, left=2, etag='"1"')
    assert (await download.attempt(rest)).size == 6
    assert rest.asked == [Asked(14, 2, '"1"')]
    assert (tmp_path / "x").read_bytes() == b"abcdef"


async def test_a_source_without_ranges_may_give_a_piece_that_is_all_of_it(tmp_path: Path) -> None:
    download = Download(tmp_path / "x", Wanted(length=5, max_bytes=5))
    assert (await download.attempt(Source(iter((b"hello",)), left=5))).size == 5


@pytest.mark.parametrize("restart", ["start_over", "changed"])
async def test_no_removal_holds_up_the_loop(tmp_path: Path, restart: str) -> None:
    """Neither of what came and was wrong, nor of what is left: a disk that hangs holds up only who waits."""
    removals: list[threading.Thread] = []
    download = Download(
        tmp_path / "x",
        Wanted(size=6),
        before_removal=lambda: removals.append(threading.current_thread()),
    )
    with pytest.raises(DownloadCut):
        await download.attempt(Source(iter((b"abcd",)), left=6, etag='"1"'))
    if restart == "start_over":
        download.start_over()
    assert not removals
    with pytest.raises(DownloadCut):
        await download.attempt(Source(iter((b"xy",)), left=6, etag='"2"'))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"xy"]
    await download.close()
    assert list(tmp_path.iterdir()) == []
    assert len(removals) == 2
    assert threading.main_thread() not in removals


async def test_a_file_that_turned_out_empty_keeps_nothing_of_what_it_was(tmp_path: Path) -> None:
    download = Download(tmp_path / "x", Wanted())
    with pytest.raises(DownloadCut):
        await download.attempt(Source(iter((b"abcd",)), left=6, etag='"1"'))
    assert (await download.attempt(Source(iter(()), left=0, etag='"2"'))).size == 0
    assert (tmp_path / "x").read_bytes() == b""
