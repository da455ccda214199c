"""Staged parts and their assembly."""

import asyncio
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from awe_server.data.nodes import NodeStore
from awe_server.data.parts import PartStore
from shared_models.errors import BadRequest, LeaseLost, MissingPart, NoSpace
from shared_models.limits import MAX_TOTALWORK, MIB
from tests.unit.data.conftest import NewStore
from tests.unit.data.port import MemoryPort, broken, stream

pytestmark = pytest.mark.anyio


@pytest.fixture
async def output(nodes: NodeStore, port: MemoryPort) -> str:
    await port.add(nodes.output_document("out", job="j1", task="j1_t", name="out.txt", parts=3))
    return "out"


async def _content(nodes: NodeStore, node_id: str) -> bytes:
    return b"".join([chunk async for chunk in (await nodes.open_range(node_id)).chunks])


def _parts(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "data" / "parts").rglob("*") if path.is_file())


async def test_parts_become_the_file_in_rank_order(nodes: NodeStore, output: str, tmp_path: Path) -> None:
    for rank, attempt, data in ((3, 1, b"c"), (1, 2, b"a"), (2, 1, b"b")):
        await nodes.put_part(output, rank, attempt, stream(data))
    assert (await nodes.get(output))["file"] is None
    fact = await nodes.assemble(output, [(3, 1), (1, 2), (2, 1)], 0)
    document = await nodes.get(output)
    assert await _content(nodes, output) == b"abc"
    assert document["file"]["name"] == "out.txt"
    assert document["file"]["checksum"] == {"md5": fact.md5, "sha256": fact.sha256}
    assert (document["job"], document["task"]) == ("j1", "j1_t")
    assert _parts(tmp_path) == []
    assert not (tmp_path / "data" / "parts" / output).exists()


async def test_F_11_only_accepted_attempts_count(nodes: NodeStore, output: str, tmp_path: Path) -> None:
    for rank, attempt, data in (
        (1, 1, b"half"),
        (1, 2, b"a"),
        (1, 3, b"later"),
        (2, 1, b"b"),
        (7, 1, b"stray"),
    ):
        await nodes.put_part(output, rank, attempt, stream(data))
    await nodes.assemble(output, [(1, 2), (2, 1)], 0)
    assert await _content(nodes, output) == b"ab"
    assert [name.split(".")[:2] for name in _parts(tmp_path)] == [["1", "3"]]


async def test_an_interrupted_part_is_no_part(nodes: NodeStore, output: str, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        await nodes.put_part(output, 1, 1, broken(b"half"))
    assert _parts(tmp_path) == []
    with pytest.raises(MissingPart) as caught:
        await nodes.assemble(output, [(1, 1)], 0)
    assert caught.value.fields["rank"] == 1


async def test_a_missing_part_changes_nothing(nodes: NodeStore, output: str, tmp_path: Path) -> None:
    await nodes.put_part(output, 1, 1, stream(b"a"))
    before = await nodes.get(output)
    with pytest.raises(MissingPart):
        await nodes.assemble(output, [(1, 1), (2, 1)], 0)
    assert await nodes.get(output) == before
    assert len(_parts(tmp_path)) == 1


async def test_the_same_part_again_is_one_part(nodes: NodeStore, output: str, tmp_path: Path) -> None:
    first = await nodes.put_part(output, 1, 1, stream(b"a"))
    assert await nodes.put_part(output, 1, 1, stream(b"a")) == first
    assert len(_parts(tmp_path)) == 1


async def test_of_two_uploads_of_one_attempt_the_later_counts(
    nodes: NodeStore, output: str, tmp_path: Path
) -> None:
    await nodes.put_part(output, 1, 1, stream(b"later"))
    await nodes.put_part(output, 1, 1, stream(b"earlier"))
    folder = tmp_path / "data" / "parts" / output
    for path in folder.iterdir():
        os.utime(path, ns=(0, 5 if ".5." in path.name else 1))
    await nodes.assemble(output, [(1, 1)], 0)
    assert await _content(nodes, output) == b"later"
    assert _parts(tmp_path) == []


async def test_attributes_wait_with_their_part(nodes: NodeStore, output: str, tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        await nodes.put_attributes(output, 1, attempt, {"attempt": attempt})
        await nodes.put_part(output, 1, attempt, stream(b"%d" % attempt))
    await nodes.put_attributes(output, 2, 1, {"rank": 2})
    await nodes.put_part(output, 2, 1, stream(b"b"))
    assert (await nodes.get(output))["attributes"] is None
    await nodes.assemble(output, [(1, 2), (2, 1)])
    assert (await nodes.get(output))["attributes"] == {"attempt": 2}
    assert [name.split(".")[:2] for name in _parts(tmp_path)] == [["1", "3"]] * 2
    await nodes.delete(output)
    assert _parts(tmp_path) == []


async def test_without_a_word_of_the_first_rank_the_attributes_stay(nodes: NodeStore, output: str) -> None:
    await nodes.set_attributes(output, {"from": "the job"})
    await nodes.put_attributes(output, 3, 1, {"rank": 3})
    await nodes.put_part(output, 3, 1, stream(b"c"))
    await nodes.assemble(output, [(3, 1)])
    assert (await nodes.get(output))["attributes"] == {"from": "the job"}


async def test_attributes_of_a_lost_attempt_are_not_staged(
    nodes: NodeStore, output: str, tmp_path: Path
) -> None:
    def lost() -> None:
        raise LeaseLost(workunit_id="w")

    with pytest.raises(LeaseLost):
        await nodes.put_attributes(output, 0, 1, {"a": 1}, lost)
    assert _parts(tmp_path) == []


async def test_a_single_part_is_not_copied(nodes: NodeStore, output: str, tmp_path: Path) -> None:
    await nodes.put_part(output, 0, 4, stream(b"h\nwhole"))
    inode = next((tmp_path / "data" / "parts" / output).iterdir()).stat().st_ino
    await nodes.assemble(output, [(0, 4)], 1)
    assert await _content(nodes, output) == b"h\nwhole"
    assert [path.stat().st_ino for path in (tmp_path / "data").rglob("*") if path.is_file()] == [inode]


async def test_later_parts_lose_their_header(nodes: NodeStore, output: str) -> None:
    for rank in (1, 2, 3):
        await nodes.put_part(output, rank, 1, stream(b"head\n", b"%d\n" % rank))
    await nodes.assemble(output, [(rank, 1) for rank in (1, 2, 3)], 1)
    assert await _content(nodes, output) == b"head\n1\n2\n3\n"


async def test_assembling_again_changes_nothing(nodes: NodeStore, output: str) -> None:
    await nodes.put_part(output, 1, 1, stream(b"a"))
    await nodes.put_part(output, 2, 1, stream(b"b"))
    fact = await nodes.assemble(output, [(1, 1), (2, 1)], 0)
    before = await nodes.get(output)
    assert await nodes.assemble(output, [(1, 1), (2, 1)], 0) == fact
    assert await nodes.get(output) == before


async def test_a_later_generation_replaces_the_file(nodes: NodeStore, output: str) -> None:
    await nodes.put_part(output, 1, 1, stream(b"old"))
    await nodes.assemble(output, [(1, 1)], 0)
    await nodes.put_part(output, 1, 5, stream(b"new"))
    await nodes.assemble(output, [(1, 1)], 0)
    assert await _content(nodes, output) == b"old"
    await nodes.assemble(output, [(1, 5)], 0)
    assert await _content(nodes, output) == b"new"


async def test_an_assembly_that_would_fill_the_disk_is_refused_and_keeps_the_parts(
    nodes: NodeStore, output: str, tmp_path: Path
) -> None:
    await nodes.put_part(output, 1, 1, stream(b"a"))
    await nodes.put_part(output, 2, 1, stream(b"b"))
    nodes._blobs.floor_bytes = 1 << 60
    with pytest.raises(NoSpace):
        await nodes.assemble(output, [(1, 1), (2, 1)], 0)
    assert len(_parts(tmp_path)) == 2
    nodes._blobs.floor_bytes = 0
    await nodes.assemble(output, [(1, 1), (2, 1)], 0)


async def test_declared_parts_are_merged_when_the_last_comes_in(nodes: NodeStore, tmp_path: Path) -> None:
    await nodes.create(None)
    declared = await nodes.declare_parts("node-1", 3, "big.out")
    assert declared["parts"] == {"count": 3}
    assert declared["file"] is None
    for rank, data in ((2, b"b"), (3, b"c"), (2, b"B")):
        await nodes.put_part("node-1", rank, 0, stream(data))
        assert (await nodes.get("node-1"))["file"] is None
    assert [(part.rank, part.attempt) for part in await nodes.staged_parts("node-1")] == [(2, 0), (3, 0)]
    await nodes.put_part("node-1", 1, 0, stream(b"a"))
    document = await nodes.get("node-1")
    assert document["file"]["name"] == "big.out"
    assert await _content(nodes, "node-1") == b"aBc"
    assert _parts(tmp_path) == []
    assert await nodes.staged_parts("node-1") == []


async def test_declared_parts_that_come_in_at_once_are_merged_once(
    nodes: NodeStore, port: MemoryPort
) -> None:
    await nodes.create(None, parts=40)
    puts = port.puts
    await asyncio.gather(*(nodes.put_part("node-1", rank, 0, stream(b"%d," % rank)) for rank in range(1, 41)))
    assert await _content(nodes, "node-1") == b"".join(b"%d," % rank for rank in range(1, 41))
    assert port.puts == puts + 1


async def test_declared_parts_survive_a_restart(nodes: NodeStore, new_store: Any) -> None:
    await nodes.create(None, parts=2)
    await nodes.put_part("node-1", 2, 0, stream(b"b"))
    again = new_store()
    await again.put_part("node-1", 1, 0, stream(b"a"))
    assert await _content(again, "node-1") == b"ab"


async def test_a_second_round_of_declared_parts_replaces_the_file(nodes: NodeStore) -> None:
    await nodes.create(None, parts=2)
    for text in (b"a", b"b", b"A", b"B"):
        await nodes.put_part("node-1", 1 if text in b"aA" else 2, 0, stream(text))
    assert await _content(nodes, "node-1") == b"AB"


async def test_declaring_after_the_parts_came_in_merges_them(nodes: NodeStore) -> None:
    await nodes.create(None, parts=3)
    await nodes.put_part("node-1", 1, 0, stream(b"a"))
    await nodes.put_part("node-1", 2, 0, stream(b"b"))
    document = await nodes.declare_parts("node-1", 2, "two.txt")
    assert document["file"]["size"] == 2
    assert document["file"]["name"] == "two.txt"


async def test_parts_beyond_the_declared_ones_do_not_count(nodes: NodeStore) -> None:
    await nodes.create(None, parts=4)
    await nodes.put_part("node-1", 3, 0, stream(b"c"))
    await nodes.put_part("node-1", 4, 0, stream(b"d"))
    assert (await nodes.declare_parts("node-1", 2))["file"] is None
    await nodes.put_part("node-1", 2, 0, stream(b"b"))
    assert (await nodes.get("node-1"))["file"] is None
    await nodes.put_part("node-1", 1, 0, stream(b"a"))
    assert await _content(nodes, "node-1") == b"ab"


async def test_declaring_parts_costs_what_came_in_not_what_is_awaited(nodes: NodeStore) -> None:
    await nodes.create(None)
    tracemalloc.start()
    try:
        await nodes.declare_parts("node-1", MAX_TOTALWORK)
        await nodes.put_part("node-1", MAX_TOTALWORK, 0, stream(b"last"))
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


async def test_parts_nobody_waits_for_are_refused(nodes: NodeStore, output: str) -> None:
    await nodes.create(None)
    for refused in (
        nodes.put_part("node-1", 1, 0, stream(b"")),
        nodes.put_part(output, 4, 0, stream(b"")),
        nodes.put_part(output, 0, 0, stream(b"")),
        nodes.put_part(output, -1, 1, stream(b"")),
        nodes.put_part(output, 1, -1, stream(b"")),
        nodes.assemble(output, [], 0),
        nodes.declare_parts("node-1", 0, "x"),
    ):
        with pytest.raises(BadRequest):
            await refused


@pytest.mark.slow
async def test_a_hundred_thousand_parts_are_found_in_one_listing(tmp_path: Path) -> None:
    store = PartStore(tmp_path, 0)
    folder = store.folder("n1")
    folder.mkdir()
    for rank in range(1, 100_001):
        os.close(os.open(folder / f"{rank}.1.0.{'m' * 32}.{'s' * 64}", os.O_CREAT | os.O_WRONLY))
    assert len(store.present("n1")) == 100_000
    store.drop("n1", [(rank, 1) for rank in range(1, 100_001)])
    assert not folder.exists()


async def test_one_look_tells_what_is_staged_of_many_and_memory_saves_it(
    nodes: NodeStore, new_store: NewStore, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {
        (output, rank, 1): await nodes.put_part(output, rank, 1, stream(b"%d" % rank)) for rank in range(1, 9)
    }
    looks, present = list[str](), PartStore.present

    def counted(self: PartStore, node_id: str) -> Any:
        looks.append(node_id)
        return present(self, node_id)

    monkeypatch.setattr(PartStore, "present", counted)
    assert await nodes.staged(facts) == facts
    assert looks == []
    restarted = new_store()
    assert await restarted.staged([*facts, (output, 9, 1), (output, 1, 2), ("other", 1, 1)]) == facts
    assert sorted(looks) == ["other", output]


async def test_parts_that_are_missing_are_told_until_the_file_was_made_of_them(
    nodes: NodeStore, output: str
) -> None:
    parts = [(1, 1), (2, 1), (3, 2)]
    await nodes.put_part(output, 2, 1, stream(b"b"))
    await nodes.put_part(output, 3, 1, stream(b"older"))
    assert await nodes.missing_parts(output, parts) == [(1, 1), (3, 2)]
    for rank, attempt in ((1, 1), (3, 2)):
        await nodes.put_part(output, rank, attempt, stream(b"x"))
    assert await nodes.missing_parts(output, parts) == []
    await nodes.assemble(output, parts)
    assert await nodes.missing_parts(output, parts) == []
    assert await nodes.missing_parts(output, [(1, 2), *parts[1:]]) == [(1, 2), *parts[1:]]
    assert await nodes.missing_parts("out", []) == []
