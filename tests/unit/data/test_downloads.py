"""Whole files, ranges, windows and parts."""

import asyncio
import gc
import os
from pathlib import Path

import pytest

from awe_server.data.downloads import CHUNK_BYTES, pick_range
from awe_server.data.indexes import locate_in
from awe_server.data.nodes import NodeStore
from shared_models.errors import AweError, BadRange, BadRequest, NoIndex
from shared_models.limits import MIB
from tests.support.descriptors import open_below
from tests.unit.data.port import stream
from tests.unit.data.samples import READS, four_line_starts

pytestmark = pytest.mark.anyio

TEXT = b"0123456789"


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("", None),
        ("bytes=0-", (0, 10)),
        ("bytes=3-5", (3, 3)),
        ("Bytes = 3 - 5 ", (3, 3)),
        ("bytes=9-", (9, 1)),
        ("bytes=3-99", (3, 7)),
        ("bytes=-3", (7, 3)),
        ("bytes=-99", (0, 10)),
        ("bytes=-", None),
        ("bytes=5-3", None),
        ("bytes=0-1,3-4", None),
        ("lines=0-1", None),
        ("bytes=a-b", None),
    ],
)
def test_a_single_byte_range_is_honoured_and_anything_else_ignored(
    header: str, wanted: tuple[int, int] | None
) -> None:
    assert pick_range(header, 10) == wanted


@pytest.mark.parametrize(
    ("header", "total"), [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-", 0), ("bytes=-5", 0)]
)
def test_a_range_outside_of_the_file_is_refused_with_its_size(header: str, total: int) -> None:
    with pytest.raises(BadRange) as caught:
        pick_range(header, total)
    assert caught.value.fields["total"] == total


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, (TEXT, 0, 10, False)),
        ({"range_header": "bytes=2-4"}, (b"234", 2, 10, True)),
        ({"range_header": "bytes=-2"}, (b"89", 8, 10, True)),
        ({"seek": 4}, (b"456789", 0, 6, False)),
        ({"length": 4}, (b"0123", 0, 4, False)),
        ({"seek": 4, "length": 3}, (b"456", 0, 3, False)),
        ({"seek": 4, "length": 300}, (b"456789", 0, 6, False)),
        ({"seek": 10}, (b"", 0, 0, False)),
        ({"seek": 4, "length": 3, "range_header": "bytes=1-"}, (b"56", 1, 3, True)),
        ({"index": "size", "part": "1"}, (TEXT, 0, 10, False)),
        ({"index": "line", "part": "1", "range_header": "bytes=7-"}, (b"789", 7, 10, True)),
    ],
)
async def test_what_is_asked_for_is_what_comes(
    nodes: NodeStore, asked: dict[str, str], expected: tuple[bytes, int, int, bool]
) -> None:
    created = await nodes.create(stream(TEXT), name="a.txt")
    await nodes.build_index("node-1", "line")
    header = asked.pop("range_header", "")
    download = (await nodes.open_range("node-1", **asked)).cut(header)  # type: ignore[arg-type]
    data = b"".join([chunk async for chunk in download.chunks])
    assert (data, download.offset, download.total, download.partial) == expected
    assert download.size == len(data)
    assert (download.name, download.md5) == ("a.txt", created["file"]["checksum"]["md5"])


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"seek": 11}, BadRange),
        ({"seek": -1}, BadRange),
        ({"length": -1}, BadRange),
        ({"range_header": "bytes=10-"}, BadRange),
        ({"index": "size", "part": "2"}, BadRange),
        ({"index": "size", "part": "x"}, BadRange),
        ({"index": "size"}, BadRequest),
        ({"part": "1"}, BadRequest),
        ({"index": "record", "part": "1"}, NoIndex),
        ({"index": "../x", "part": "1"}, NoIndex),
    ],
)
async def test_what_is_not_there_is_refused(
    nodes: NodeStore, asked: dict[str, str], error: type[AweError]
) -> None:
    await nodes.create(stream(TEXT))
    header = asked.pop("range_header", "")
    with pytest.raises(error):
        (await nodes.open_range("node-1", **asked)).cut(header)  # type: ignore[arg-type]


async def test_parts_by_index_are_whole_records(nodes: NodeStore) -> None:
    document = await nodes.create(stream(READS), name="reads.fastq")
    fact = await nodes.build_index("node-1", "record")
    assert (fact.total_units, fact.format) == (250, "fastq")
    starts = four_line_starts(READS)
    download = await nodes.open_range("node-1", index="record", part="7-9")
    assert b"".join([chunk async for chunk in download.chunks]) == READS[starts[6] : starts[9]]
    document = await nodes.get("node-1")
    assert locate_in(await nodes.ready(document, "record"), "250") == (starts[249], len(READS) - starts[249])
    assert locate_in(await nodes.ready(document, "size"), "1") == (0, len(READS))


async def test_a_download_goes_on_when_its_node_is_replaced_or_deleted(nodes: NodeStore) -> None:
    old = b"o" * (5 * CHUNK_BYTES)
    await nodes.create(stream(old))
    download = await nodes.open_range("node-1")
    data = await anext(download.chunks)
    await nodes.upload("node-1", stream(b"new"))
    data += await anext(download.chunks)
    await nodes.delete("node-1")
    async for chunk in download.chunks:
        data += chunk
    assert data == old


async def test_a_replacement_between_document_and_file_is_noticed(
    nodes: NodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document is read, then the content replaced, then the file opened."""
    await nodes.create(stream(b"old"))
    plain_get = nodes.get
    replaced = False

    async def get_then_replace(node_id: str) -> dict[str, object]:
        nonlocal replaced
        document = await plain_get(node_id)
        if not replaced:
            replaced = True
            await nodes.upload("node-1", stream(b"newer"))
        return document

    monkeypatch.setattr(nodes, "get", get_then_replace)
    download = await nodes.open_range("node-1")
    assert [chunk async for chunk in download.chunks] == [b"newer"]
    assert download.total == 5


async def test_chunks_are_large_but_bounded(nodes: NodeStore) -> None:
    await nodes.create(stream(*[b"x" * MIB] * 3))
    sizes = [len(chunk) async for chunk in (await nodes.open_range("node-1")).chunks]
    assert sum(sizes) == 3 * MIB
    assert max(sizes) == CHUNK_BYTES


async def test_no_descriptor_stays_open(nodes: NodeStore, tmp_path: Path) -> None:
    await nodes.create(stream(b"x" * (2 * CHUNK_BYTES)))
    await (await nodes.open_range("node-1")).chunks.aclose()
    before = open_below(tmp_path)
    ended = await nodes.open_range("node-1")
    assert len([chunk async for chunk in ended.chunks]) == 2
    closed = await nodes.open_range("node-1")
    await anext(closed.chunks)
    await closed.chunks.aclose()
    await closed.chunks.aclose()
    assert [chunk async for chunk in closed.chunks] == []
    forgotten = await nodes.open_range("node-1")
    await anext(forgotten.chunks)
    del forgotten
    gc.collect()
    cancelled = asyncio.create_task(_read_slowly(nodes))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    del cancelled
    gc.collect()
    assert open_below(tmp_path) == before


async def _read_slowly(nodes: NodeStore) -> None:
    async for _ in (await nodes.open_range("node-1")).chunks:
        await asyncio.Event().wait()


async def test_a_file_cut_short_on_disk_ends_in_an_error_not_in_silence(
    nodes: NodeStore, tmp_path: Path
) -> None:
    await nodes.create(stream(b"x" * (2 * CHUNK_BYTES)))
    os.truncate(_only_file(tmp_path), CHUNK_BYTES)
    download = await nodes.open_range("node-1")
    with pytest.raises(AweError, match="ends 524288 bytes too early"):
        async for _ in download.chunks:
            pass


def _only_file(root: Path) -> Path:
    (path,) = (path for path in root.rglob("*") if path.is_file())
    return path
