"""Subsets: exactly the units that a list names, read a lot at a time, beside everything else."""

import itertools
from unittest.mock import Mock

import pytest
from anyio import to_thread

from awe_server.data import indexes
from awe_server.data.blobs import BUFFER_BYTES
from awe_server.data.nodes import NodeStore
from awe_server.data.ports import CannotJoin
from tests.unit.data.port import stream
from tests.unit.data.samples import READS, four_line_starts

pytestmark = pytest.mark.anyio

STARTS = (*four_line_starts(READS), len(READS))


async def subset(nodes: NodeStore, data: bytes, kind: str, listed: bytes) -> bytes:
    parent, list_of = [(await nodes.create(stream(content)))["id"] for content in (data, listed)]
    return b"".join([piece async for piece in nodes.subset(parent, kind, list_of)])


@pytest.mark.parametrize(
    "units", [[1], [250], [1, 2, 3], [2, 3, 7, 249, 250], range(1, 251), range(2, 251, 2)]
)
async def test_the_units_of_the_list_come_in_its_order(nodes: NodeStore, units: list[int]) -> None:
    listed = "".join(f"{unit}\n" for unit in units).encode()
    wanted = b"".join(READS[STARTS[unit - 1] : STARTS[unit]] for unit in units)
    assert await subset(nodes, READS, "record", listed) == wanted


async def test_units_of_size_are_pieces_of_the_file(nodes: NodeStore) -> None:
    data = bytes(range(256)) * 4096 * 2 + b"end"
    assert await subset(nodes, data, "size", b"1 3") == data[:BUFFER_BYTES] + b"end"
    assert await subset(nodes, data, "size", b"1 2") == data[: 2 * BUFFER_BYTES]


@pytest.mark.parametrize("listed", [b"0", b"251", b"x", b"2 1", b"1 1", b"-1"])
async def test_what_is_no_list_of_units_is_refused(nodes: NodeStore, listed: bytes) -> None:
    with pytest.raises(CannotJoin, match="line 1"):
        await subset(nodes, READS, "record", listed)


async def test_many_short_units_cost_few_calls_of_a_thread(
    nodes: NodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second line, each shorter than a buffer by far."""
    lines = 200_000
    parent = (await nodes.create(stream(b"12345678\n" * lines)))["id"]
    list_of = (await nodes.create(stream("\n".join(map(str, range(1, lines, 2))).encode())))["id"]
    await nodes.build_index(parent, "line")
    calls = Mock(side_effect=to_thread.run_sync)
    monkeypatch.setattr("awe_server.data.node_subsets.to_thread", Mock(run_sync=calls))
    sizes = [len(piece) async for piece in nodes.subset(parent, "line", list_of)]
    assert (sum(sizes), max(sizes)) == (9 * lines // 2, 9 * lines // 2)
    assert calls.call_count < 10


async def test_indexes_that_are_opened_and_closed_meanwhile_do_not_disturb_it(
    nodes: NodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The open indexes of everybody else belong to the event loop; a subset is read by other threads."""
    monkeypatch.setattr(indexes, "_CACHED", 0)
    monkeypatch.setattr("awe_server.data.node_subsets.BUFFER_BYTES", 500)
    parent = (await nodes.create(stream(READS)))["id"]
    list_of = (await nodes.create(stream(b"\n".join(b"%d" % unit for unit in range(1, 251, 2)))))["id"]
    other = await nodes.create(stream(b"a\nb\n"))
    await nodes.build_index(other["id"], "line")
    document = await nodes.get(other["id"])
    data = b""
    async for piece in nodes.subset(parent, "record", list_of):
        data += piece
        nodes._index_files.close()
        await nodes.ready(document, "line")
    assert data == b"".join(READS[a:b] for a, b in itertools.islice(itertools.pairwise(STARTS), 0, None, 2))


async def test_a_damaged_index_is_built_again(nodes: NodeStore) -> None:
    parent = (await nodes.create(stream(b"a\nb\nc\n")))["id"]
    await nodes.build_index(parent, "line")
    path = indexes.sidecar(nodes._blob_path(await nodes.get(parent)), "line")
    content = bytearray(path.read_bytes())
    content[32] = 3
    path.write_bytes(content)
    list_of = (await nodes.create(stream(b"2")))["id"]
    assert [piece async for piece in nodes.subset(parent, "line", list_of)] == [b"b\n"]
