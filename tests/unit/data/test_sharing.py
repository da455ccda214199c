"""Nodes of equal content share its bytes, and each has it to its end."""

import asyncio
import errno
import itertools
import os
from pathlib import Path
from unittest import mock

import pytest

from awe_server.data.builder import IndexBuilder
from awe_server.data.nodes import NodeStore
from awe_server.data.quota import Quota
from tests.unit.data.conftest import NewStore
from tests.unit.data.port import MemoryPort, stream

pytestmark = pytest.mark.anyio

OLD = 1_000_000_000.0


def _blobs(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def _inodes(root: Path) -> int:
    return len({path.stat().st_ino for path in _blobs(root)})


async def _content(nodes: NodeStore, node_id: str) -> bytes:
    return b"".join([chunk async for chunk in (await nodes.open_range(node_id)).chunks])


async def test_equal_contents_are_shared_only_when_asked(nodes: NodeStore, tmp_path: Path) -> None:
    for _ in range(2):
        await nodes.create(stream(b"same"))
    assert _inodes(tmp_path) == 2
    await nodes.create(stream(b"same"), dedup=True)
    assert (len(_blobs(tmp_path)), _inodes(tmp_path)) == (3, 2)
    await nodes.create(stream(b"other"), dedup=True)
    assert _inodes(tmp_path) == 3
    assert (await nodes.usage()).used_bytes == 4 + 4 + 5


async def test_a_setting_shares_whatever_comes(new_store: NewStore, port: MemoryPort, tmp_path: Path) -> None:
    nodes = new_store(dedup=True)
    first = await nodes.create(stream(b"same"))
    await nodes.upload((await nodes.create(None))["id"], stream(b"same"))
    await port.add(nodes.output_document("out", job="j", task="t", name="o"))
    for rank, data in ((1, b"sa"), (2, b"me")):
        await nodes.put_part("out", rank, 1, stream(data))
    await nodes.assemble("out", [(1, 1), (2, 1)])
    assert (len(_blobs(tmp_path)), _inodes(tmp_path)) == (3, 1)
    await nodes.delete(first["id"])
    assert await _content(nodes, "out") == b"same"


async def test_the_bytes_stay_while_one_node_needs_them(nodes: NodeStore, tmp_path: Path) -> None:
    ids = [(await nodes.create(stream(b"same"), dedup=True))["id"] for _ in range(4)]
    assert _inodes(tmp_path) == 1
    for gone, left in itertools.pairwise(ids):
        await nodes.delete(gone)
        assert await _content(nodes, left) == b"same"
        assert (await nodes.usage()).used_bytes == 4
    await nodes.delete(ids[-1])
    assert _blobs(tmp_path) == []
    assert (await nodes.usage()).used_bytes == 0


async def test_new_content_of_one_changes_nothing_for_the_others(nodes: NodeStore) -> None:
    first, second = [(await nodes.create(stream(b"same"), dedup=True))["id"] for _ in range(2)]
    await nodes.upload(first, stream(b"new"))
    assert (await _content(nodes, first), await _content(nodes, second)) == (b"new", b"same")


async def test_many_at_once_end_with_one_copy(nodes: NodeStore, tmp_path: Path) -> None:
    await asyncio.gather(*(nodes.create(stream(b"a" * 1000, b"b"), dedup=True) for _ in range(20)))
    assert (len(_blobs(tmp_path)), _inodes(tmp_path)) == (20, 1)
    assert (await nodes.usage()).used_bytes == 1001


async def test_sharing_and_deleting_at_once_lose_nothing(nodes: NodeStore, tmp_path: Path) -> None:
    kept: list[str] = []

    async def come_and_go(number: int) -> None:
        for turn in range(5):
            node = await nodes.create(stream(b"same"), dedup=True)
            if turn == number % 5:
                kept.append(node["id"])
            else:
                await nodes.delete(node["id"])

    await asyncio.gather(*(come_and_go(number) for number in range(8)))
    for node_id in kept:
        assert await _content(nodes, node_id) == b"same"
    assert len(_blobs(tmp_path)) == len(kept)
    await asyncio.gather(*(nodes.delete(node_id) for node_id in kept))
    assert _blobs(tmp_path) == []
    assert (await nodes.usage()).used_bytes == 0


@pytest.mark.parametrize("damage", [b"bad!", b"cut", None])
async def test_a_damaged_file_is_not_shared(nodes: NodeStore, tmp_path: Path, damage: bytes | None) -> None:
    await nodes.create(stream(b"same"))
    (blob,) = _blobs(tmp_path)
    blob.unlink() if damage is None else blob.write_bytes(damage)
    second = await nodes.create(stream(b"same"), dedup=True)
    assert await _content(nodes, second["id"]) == b"same"


async def test_a_file_with_as_many_names_as_it_can_have_is_left(nodes: NodeStore, tmp_path: Path) -> None:
    await nodes.create(stream(b"same"))
    with mock.patch.object(Quota, "link", side_effect=OSError(errno.EMLINK, "Too many links")):
        await nodes.create(stream(b"same"), dedup=True)
    assert _inodes(tmp_path) == 2
    with mock.patch.object(Quota, "link", side_effect=OSError(errno.EMLINK, "Too many links")):
        copy = await nodes.create(None)
        await nodes.copy_data(copy["id"], "node-1")
    assert await _content(nodes, copy["id"]) == b"same"
    assert _inodes(tmp_path) == 3


class Crash(BaseException):
    """The process is gone here."""


async def test_a_crash_between_the_link_and_its_place_leaves_whole_files(
    nodes: NodeStore, new_store: NewStore, tmp_path: Path
) -> None:
    await nodes.create(stream(b"same"))
    plain = Quota.rename

    def crash(quota: Quota, source: Path, target: Path) -> None:
        if source.stat().st_nlink > 1:
            raise Crash
        plain(quota, source, target)

    dead = mock.patch.object(Path, "unlink", side_effect=Crash)  # nobody tidies up after kill -9
    with mock.patch.object(Quota, "rename", crash), dead, pytest.raises(Crash):
        await nodes.create(stream(b"same"), dedup=True)
    assert len(_blobs(tmp_path)) == 3
    restarted = new_store()
    await restarted.start()
    assert await _content(restarted, "node-2") == b"same"
    assert (len(_blobs(tmp_path)), _inodes(tmp_path)) == (2, 2)
    assert (await restarted.usage()).used_bytes == 8


async def test_a_crash_between_a_copys_link_and_its_document_costs_no_bytes(
    nodes: NodeStore, new_store: NewStore, port: MemoryPort, tmp_path: Path
) -> None:
    await nodes.create(stream(b"same"))
    with mock.patch.object(port, "put", side_effect=Crash), pytest.raises(Crash):
        await nodes.add(await nodes.receive_copy("node-1"))
    assert (len(_blobs(tmp_path)), _inodes(tmp_path)) == (2, 1)
    for path in _blobs(tmp_path):
        os.utime(path, (OLD, OLD))
    restarted = new_store()
    await restarted.start()
    assert await restarted.collect_orphans() == 1
    assert await _content(restarted, "node-1") == b"same"
    assert (await restarted.usage()).used_bytes == 4


async def test_a_copy_brings_its_indexes_when_asked(nodes: NodeStore, tmp_path: Path) -> None:
    await nodes.create(stream(b">a\nA\n>b\nC\n"), name="x.fa")
    await nodes.build_index("node-1", "record")
    plain, indexed = await nodes.create(None), await nodes.create(None)
    assert set((await nodes.copy_data(plain["id"], "node-1"))["indexes"]) == {"size"}
    copy = await nodes.copy_data(indexed["id"], "node-1", indexes=True)
    assert copy["indexes"]["record"]["total_units"] == 2
    await nodes.delete("node-1")
    with mock.patch.object(IndexBuilder, "build", side_effect=AssertionError("built anew")):
        part = await nodes.open_range(indexed["id"], index="record", part="2")
    assert b"".join([chunk async for chunk in part.chunks]) == b">b\nC\n"


async def test_an_index_that_was_lost_is_not_copied(nodes: NodeStore, tmp_path: Path) -> None:
    await nodes.create(stream(b"a\nb\n"))
    await nodes.build_index("node-1", "line")
    next(path for path in _blobs(tmp_path) if path.suffix == ".idx").unlink()
    empty = await nodes.create(None)
    assert set((await nodes.copy_data(empty["id"], "node-1", indexes=True))["indexes"]) == {"size"}
