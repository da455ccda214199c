"""Uploads that were cut go on where they were cut, and take room only for a while."""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from awe_server.data import unfinished
from awe_server.data.nodes import NodeStore
from awe_server.data.ports import Cut
from shared_models.errors import Conflict, LeadInDoubt, LeaseLost, QuotaExceeded
from shared_models.limits import MIB
from tests.support.eventually import eventually
from tests.unit.data.conftest import NewStore
from tests.unit.data.port import MemoryPort, broken, stream

pytestmark = pytest.mark.anyio


@pytest.fixture
async def output(nodes: NodeStore, port: MemoryPort) -> str:
    await port.add(nodes.output_document("out", job="j1", task="j1_t", name="out.txt"))
    return "out"


def _files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "data" / "parts").rglob("*") if path.is_file()]


async def cut(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    raise Cut


async def hanging(*chunks: bytes, sent: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    """A sender that is gone without a word."""
    for chunk in chunks:
        yield chunk
    if sent is not None:
        sent.set()
    await asyncio.Event().wait()


async def _cut_at(nodes: NodeStore, node: str, offset: int, *chunks: bytes, rank: int = 0) -> None:
    with pytest.raises(Cut):
        await nodes.put_part(node, rank, 1, cut(*chunks), offset=offset)


async def test_an_upload_goes_on_where_it_was_cut(nodes: NodeStore, output: str) -> None:
    data, rng = random.Random(4).randbytes(5 * MIB), random.Random(5)
    offset = 0
    for _ in range(20):
        more = rng.randrange(1, 300_000)
        await _cut_at(
            nodes,
            output,
            offset,
            data[offset : offset + more // 2],
            data[offset + more // 2 :][: more - more // 2],
        )
        assert await nodes.unfinished(output, 0, 1) == offset + more
        offset += more
    fact = await nodes.put_part(output, 0, 1, stream(data[offset:]), offset=offset)
    assert (fact.size, fact.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    await nodes.assemble(output, [(0, 1)])
    assert b"".join([chunk async for chunk in (await nodes.open_range(output)).chunks]) == data


async def test_another_offset_is_refused_and_changes_nothing(nodes: NodeStore, output: str) -> None:
    with pytest.raises(Conflict):
        await nodes.put_part(output, 0, 1, stream(b"x"), offset=3)
    await _cut_at(nodes, output, 0, b"abc")
    for offset in (2, 4):
        with pytest.raises(Conflict, match="3 bytes are here"):
            await nodes.put_part(output, 0, 1, stream(b"x"), offset=offset)
    assert (await nodes.put_part(output, 0, 1, stream(b"d"), offset=3)).size == 4


async def test_an_upload_that_begins_anew_is_only_what_it_brings(
    nodes: NodeStore, output: str, tmp_path: Path
) -> None:
    await _cut_at(nodes, output, 0, b"old")
    fact = await nodes.put_part(output, 0, 1, stream(b"new"), offset=0)
    assert fact.md5 == hashlib.md5(b"new", usedforsecurity=False).hexdigest()
    assert len(_files(tmp_path)) == 1


async def test_nothing_is_kept_of_what_fails_in_another_way(
    nodes: NodeStore, output: str, tmp_path: Path
) -> None:
    with pytest.raises(ConnectionError):
        await nodes.put_part(output, 0, 1, broken(b"half"), offset=0)
    await _cut_at(nodes, output, 0)
    with pytest.raises(Cut):
        await nodes.put_part(output, 0, 1, cut(b"half"))
    assert await nodes.unfinished(output, 0, 1) == 0
    assert _files(tmp_path) == []


async def test_a_request_whose_sender_is_gone_unnoticed_is_taken_over(nodes: NodeStore, output: str) -> None:
    for offset, data in ((0, b"aaabbbb"), (7, b"c")):
        sent = asyncio.Event()
        chunks = hanging(data[:3], data[3:], sent=sent)
        former = asyncio.ensure_future(nodes.put_part(output, 0, 1, chunks, offset=offset))
        await sent.wait()
        assert await nodes.unfinished(output, 0, 1) == offset + len(data)
        with pytest.raises(Conflict, match="another request"):
            await former
    assert (await nodes.put_part(output, 0, 1, stream(b"d"), offset=8)).size == 9


async def test_of_two_requests_at_once_the_later_one_goes_on(nodes: NodeStore, output: str) -> None:
    sent = asyncio.Event()
    former = asyncio.ensure_future(nodes.put_part(output, 0, 1, hanging(b"abc", sent=sent), offset=0))
    await sent.wait()
    assert (await nodes.put_part(output, 0, 1, stream(b"d"), offset=3)).size == 4
    with pytest.raises(Conflict, match="another request"):
        await former


async def test_what_had_arrived_before_the_cut_is_read_before_it_is_taken_over(
    nodes: NodeStore, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "QUIET_S", 0.2)

    begun = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        for _ in range(10):
            begun.set()
            yield b"x"
            await asyncio.sleep(0.05)
        raise Cut

    first = asyncio.ensure_future(nodes.put_part(output, 0, 1, slow(), offset=0))
    await begun.wait()
    assert await nodes.unfinished(output, 0, 1) == 10
    with pytest.raises(Cut):
        await first


async def test_an_upload_whose_answer_was_lost_needs_nothing_more(nodes: NodeStore, output: str) -> None:
    fact = await nodes.put_part(output, 0, 1, stream(b"whole"), offset=0)
    assert await nodes.unfinished(output, 0, 1) == 5
    assert await nodes.put_part(output, 0, 1, stream(), offset=5) == fact
    with pytest.raises(Conflict):
        await nodes.put_part(output, 0, 1, stream(b"more"), offset=5)
    await _cut_at(nodes, output, 0, b"who")
    assert await nodes.unfinished(output, 0, 1) == 3


async def test_a_restart_begins_at_nothing(
    nodes: NodeStore, output: str, new_store: NewStore, tmp_path: Path
) -> None:
    await _cut_at(nodes, output, 0, b"abc")
    await nodes.stop()
    after = new_store()
    await after.start()
    assert await after.unfinished(output, 0, 1) == 0
    assert _files(tmp_path) == []
    await after.stop()


async def test_only_so_many_are_kept_and_the_oldest_go(
    nodes: NodeStore, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "MAX_KEPT", 8)
    for rank in range(1, 1001):
        await _cut_at(nodes, output, 0, b"x" * 100, rank=rank)
    assert len(_files(tmp_path)) == 8
    assert (await nodes.usage()).used_bytes == 800
    here = [rank for rank in range(1, 1001) if await nodes.unfinished(output, rank, 1)]
    assert here == list(range(993, 1001))


async def test_uploads_of_attempts_stay_whatever_is_cut_of_other_nodes(
    nodes: NodeStore, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "MAX_KEPT", 8)
    for rank in range(1, 4):
        await _cut_at(nodes, output, 0, b"x" * 100, rank=rank)
    for _ in range(30):
        node = (await nodes.create(None))["id"]
        with pytest.raises(Cut):
            await nodes.upload(node, cut(b"y"), offset=0)
    assert [await nodes.unfinished(output, rank, 1) for rank in range(1, 4)] == [100] * 3


async def test_room_is_given_back_after_a_while(
    new_store: NewStore, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = new_store(quota=1000)
    await nodes.start()
    await _cut_at(nodes, output, 0, b"x" * 900)
    with pytest.raises(QuotaExceeded):
        await nodes.create(stream(b"y" * 200))
    assert await nodes.drop_unfinished() == 0
    monkeypatch.setattr(unfinished, "KEEP_S", 0.0)
    assert await nodes.drop_unfinished() == 1
    assert await nodes.unfinished(output, 0, 1) == 0
    assert _files(tmp_path) == []
    await nodes.create(stream(b"y" * 200))
    assert (await nodes.usage()).used_bytes == 200
    await nodes.stop()


async def test_room_that_an_upload_holds_does_not_keep_it_from_beginning_anew(
    new_store: NewStore, output: str
) -> None:
    nodes = new_store(quota=1000)
    await nodes.start()
    await _cut_at(nodes, output, 0, b"x" * 900)
    fact = await nodes.put_part(output, 0, 1, stream(b"y" * 950), expected_bytes=950, offset=0)
    assert fact.size == 950
    await nodes.stop()


async def test_a_full_store_keeps_nothing(new_store: NewStore, output: str, tmp_path: Path) -> None:
    nodes = new_store(quota=1000)
    await nodes.start()
    with pytest.raises(Cut):
        await nodes.put_part(output, 0, 1, cut(b"x" * 1001), offset=0)
    assert _files(tmp_path) == []
    assert (await nodes.usage()).used_bytes == 0
    await nodes.stop()


async def test_an_attempt_that_is_held_no_more_lets_go(nodes: NodeStore, output: str, tmp_path: Path) -> None:
    held = True

    def check() -> None:
        if not held:
            raise LeaseLost(workunit_id="j1_t_0")

    with pytest.raises(Cut):
        await nodes.put_part(output, 0, 1, cut(b"abc"), check=check, offset=0)
    assert await nodes.drop_unfinished() == 0
    held = False
    assert await nodes.drop_unfinished() == 1
    with pytest.raises(Cut):
        await nodes.put_part(output, 0, 1, cut(b"abc"), check=check, offset=0)
    assert _files(tmp_path) == []


async def test_what_came_is_kept_while_nobody_knows_whether_it_is_held(nodes: NodeStore, output: str) -> None:
    """The database is away for a while; also for who has sent the whole of it."""
    in_doubt = True

    def check() -> None:
        if in_doubt:
            raise LeadInDoubt

    with pytest.raises(Cut):
        await nodes.put_part(output, 0, 1, cut(b"abc"), check=check, offset=0)
    assert await nodes.drop_unfinished() == 0
    with pytest.raises(LeadInDoubt):
        await nodes.put_part(output, 0, 1, stream(b"de"), check=check, offset=3)
    assert await nodes.drop_unfinished() == 0
    assert await nodes.unfinished(output, 0, 1) == 5
    in_doubt = False
    fact = await nodes.put_part(output, 0, 1, stream(), check=check, offset=5)
    assert (fact.size, fact.md5) == (5, hashlib.md5(b"abcde", usedforsecurity=False).hexdigest())


async def test_a_node_that_is_deleted_lets_go(nodes: NodeStore, output: str, tmp_path: Path) -> None:
    await _cut_at(nodes, output, 0, b"abc")
    sent = asyncio.Event()
    chunks = hanging(b"a" * 2 * MIB, sent=sent)
    coming = asyncio.ensure_future(nodes.put_part(output, 1, 1, chunks, offset=0))
    await sent.wait()
    assert len(_files(tmp_path)) == 2
    await nodes.delete(output)
    with pytest.raises(Conflict, match="another request"):
        await coming
    assert _files(tmp_path) == []


async def test_the_end_of_the_server_leaves_nothing(nodes: NodeStore, output: str, tmp_path: Path) -> None:
    first = asyncio.ensure_future(nodes.put_part(output, 0, 1, hanging(b"a" * 2 * MIB), offset=0))
    await eventually(lambda: _files(tmp_path) != [])
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert _files(tmp_path) == []
