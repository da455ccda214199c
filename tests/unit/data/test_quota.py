"""The quota: bytes count once, from the first one written to the last name that goes."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from awe_server.data.nodes import NodeStore
from awe_server.store.base import Query
from shared_models.errors import QuotaExceeded, TooLarge
from shared_models.limits import MIB
from tests.unit.data.conftest import NewStore
from tests.unit.data.port import MemoryPort, broken, stream

pytestmark = pytest.mark.anyio


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


async def used(nodes: NodeStore) -> int:
    return (await nodes.usage()).used_bytes


async def measured(new_store: NewStore) -> int:
    """What a restarted server counts."""
    again = new_store()
    await again.start()
    return await used(again)


async def test_every_way_of_coming_and_going_is_counted(
    nodes: NodeStore, new_store: NewStore, port: MemoryPort
) -> None:
    seen = []

    async def note() -> None:
        seen.append(await used(nodes))
        assert await measured(new_store) == seen[-1]

    first = await nodes.create(stream(b"x" * 100))
    await note()
    await nodes.upload(first["id"], stream(b"y" * 40))
    await note()
    copy = await nodes.create(None)
    await nodes.copy_data(copy["id"], first["id"])
    await note()
    await nodes.build_index(first["id"], "line")
    await note()
    await nodes.delete(first["id"])
    await note()
    await nodes.delete(copy["id"])
    await note()
    assert seen == [100, 40, 40, 40, 40, 0]


async def test_parts_count_until_they_are_the_file(
    nodes: NodeStore, new_store: NewStore, port: MemoryPort
) -> None:
    await port.add(nodes.output_document("out", job="j", task="t", name="o"))
    for rank in (1, 2):
        await nodes.put_part("out", rank, 1, stream(b"x" * 10))
        await nodes.put_part("out", rank, 1, stream(b"x" * 10))  # the same again
    assert await used(nodes) == await measured(new_store) == 20
    await nodes.put_part("out", 1, 2, stream(b"z" * 10))
    assert await used(nodes) == 30
    await nodes.assemble("out", [(1, 2), (2, 1)])
    assert await used(nodes) == await measured(new_store) == 20


async def test_a_single_part_becomes_the_file_and_is_counted_once(
    nodes: NodeStore, new_store: NewStore, port: MemoryPort
) -> None:
    await port.add(nodes.output_document("out", job="j", task="t", name="o"))
    await nodes.put_part("out", 0, 1, stream(b"x" * 10))
    await nodes.assemble("out", [(0, 1)])
    assert await used(nodes) == await measured(new_store) == 10
    await nodes.delete("out")
    assert await used(nodes) == 0


async def test_what_was_broken_off_gives_its_bytes_back(nodes: NodeStore) -> None:
    with pytest.raises(ConnectionError):
        await nodes.create(broken(b"x" * MIB, b"y" * MIB, b"z"))
    assert await used(nodes) == 0


async def test_a_known_size_is_refused_before_a_byte_is_taken(new_store: NewStore, tmp_path: Path) -> None:
    nodes = new_store(quota=100)
    await nodes.create(stream(b"x" * 60))
    before = _files(tmp_path)

    async def untouched() -> AsyncIterator[bytes]:
        pytest.fail("somebody read it")
        yield b""

    with pytest.raises(QuotaExceeded) as refused:
        await nodes.create(untouched(), expected_bytes=41)
    assert refused.value.fields == {"wanted_bytes": 41, "used_bytes": 60, "limit_bytes": 100}
    assert "41 bytes more do not fit" in refused.value.message
    assert "60 of 100 bytes are taken" in refused.value.message
    with pytest.raises(TooLarge, match=r"it has 101 bytes: the node store's whole quota is 100"):
        await nodes.create(untouched(), expected_bytes=101)
    assert _files(tmp_path) == before
    await nodes.create(stream(b"y" * 40), expected_bytes=40)
    assert await used(nodes) == 100


async def test_an_unknown_size_is_refused_when_the_limit_is_passed_and_leaves_nothing(
    new_store: NewStore, tmp_path: Path
) -> None:
    nodes = new_store(quota=3 * MIB)
    with pytest.raises(QuotaExceeded):
        await nodes.create(stream(*[b"x" * MIB] * 10))
    assert (await nodes.list(Query())).total == 0
    assert _files(tmp_path) == []
    assert await used(nodes) == 0
    await nodes.create(stream(*[b"x" * MIB] * 3))


async def test_uploads_at_once_do_not_pass_the_limit_together(new_store: NewStore) -> None:
    nodes = new_store(quota=5 * MIB)
    ended = await asyncio.gather(
        *(nodes.create(stream(*[b"x" * MIB] * 2)) for _ in range(6)), return_exceptions=True
    )
    made = [node for node in ended if not isinstance(node, BaseException)]
    assert all(isinstance(end, dict | QuotaExceeded) for end in ended)
    assert await used(nodes) == 2 * MIB * len(made) <= 5 * MIB


async def test_outputs_that_came_in_are_put_together_although_the_quota_is_used_up(
    new_store: NewStore, port: MemoryPort
) -> None:
    nodes = new_store(quota=25)
    await port.add(nodes.output_document("out", job="j", task="t", name="o"))
    for rank in (1, 2):
        await nodes.put_part("out", rank, 1, stream(b"x" * 10))
    with pytest.raises(QuotaExceeded):
        await nodes.put_part("out", 3, 1, stream(b"x" * 10))
    assert (await nodes.assemble("out", [(1, 1), (2, 1)])).size == 20
    assert await used(nodes) == 20


async def test_room_that_a_deleted_node_leaves_is_there_at_once(new_store: NewStore) -> None:
    nodes = new_store(quota=10)
    full = await nodes.create(stream(b"x" * 10))
    with pytest.raises(QuotaExceeded):
        await nodes.create(stream(b"y"))
    await nodes.create(stream(), expected_bytes=0)  # an empty file takes none
    await nodes.delete(full["id"])
    await nodes.create(stream(b"y" * 10))


async def test_the_event_loop_moves_an_upload_and_waits_for_no_other_threads_names(
    nodes: NodeStore, port: MemoryPort
) -> None:
    await port.add(nodes.output_document("out", job="j", task="t", name="o"))
    seen: list[tuple[bool, bool]] = []

    def check() -> None:
        is_here = threading.current_thread() is threading.main_thread()
        seen.append((is_here, nodes._quota._naming.locked()))

    await nodes.put_part("out", 0, 1, stream(b"x" * 10), check=check)
    assert seen == [(True, True)], "its thread has waited before"
    with pytest.raises(ZeroDivisionError):
        await nodes.put_part("out", 0, 2, stream(b"y" * 10), check=lambda: 1 // 0)
    assert await used(nodes) == 10
    await nodes.put_part("out", 0, 1, stream(b"x" * 10), check=check)
    assert await used(nodes) == 10
