"""A disk that really is full: a small file system of its own."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from awe_server.data.nodes import NodeStore
from awe_server.store.base import Query
from shared_models.errors import NoSpace
from shared_models.limits import MIB
from tests.support.tmpfs import tmpfs
from tests.unit.data.conftest import NewStore
from tests.unit.data.port import MemoryPort, stream

pytestmark = pytest.mark.anyio


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """4 MiB."""
    with tmpfs(tmp_path / "disk", 4 << 20) as folder:
        yield folder


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


async def _content(nodes: NodeStore, node_id: str) -> bytes:
    return b"".join([chunk async for chunk in (await nodes.open_range(node_id)).chunks])


@pytest.mark.parametrize("floor", [0, MIB])
async def test_F_13_an_upload_that_does_not_fit_is_refused_and_nothing_of_it_is_listed_or_kept(
    new_store: NewStore, small_disk: Path, floor: int
) -> None:
    nodes = new_store(small_disk, floor)
    with pytest.raises(NoSpace):
        await nodes.create(stream(*[b"x" * MIB] * 10), name="big")
    assert (await nodes.list(Query())).total == 0
    assert _files(small_disk) == []
    kept = await nodes.create(stream(b"x" * MIB))
    with pytest.raises(NoSpace):
        await nodes.upload(kept["id"], stream(*[b"y" * MIB] * 10))
    assert await _content(nodes, kept["id"]) == b"x" * MIB
    assert len(_files(small_disk)) == 1


async def test_F_13_uploads_work_again_once_there_is_space(new_store: NewStore, small_disk: Path) -> None:
    nodes = new_store(small_disk)
    big = await nodes.create(stream(*[b"x" * MIB] * 3))
    with pytest.raises(NoSpace):
        await nodes.create(stream(*[b"y" * MIB] * 2))
    await nodes.delete(big["id"])
    assert await _content(nodes, (await nodes.create(stream(*[b"y" * MIB] * 2)))["id"]) == b"y" * (2 * MIB)


async def test_the_floor_keeps_room_for_others(new_store: NewStore, small_disk: Path) -> None:
    nodes = new_store(small_disk, 2 * MIB)
    with pytest.raises(NoSpace):
        await nodes.create(stream(*[b"x" * (MIB // 2)] * 6))
    await nodes.create(stream(b"x" * MIB))
    state = os.statvfs(small_disk)
    assert state.f_bavail * state.f_frsize >= 2 * MIB


async def test_F_13_parts_and_their_assembly_survive_a_full_disk(
    new_store: NewStore, port: MemoryPort, small_disk: Path
) -> None:
    nodes = new_store(small_disk)
    await port.add(nodes.output_document("out", job="j", task="t", name="o"))
    await nodes.put_part("out", 1, 1, stream(b"a" * MIB))
    with pytest.raises(NoSpace):
        await nodes.put_part("out", 2, 1, stream(*[b"b" * MIB] * 4))
    await nodes.put_part("out", 2, 2, stream(b"b" * MIB))
    ballast = await nodes.create(stream(b"x" * MIB))
    with pytest.raises(NoSpace):
        await nodes.assemble("out", [(1, 1), (2, 2)], 0)
    await nodes.delete(ballast["id"])
    assert (await nodes.assemble("out", [(1, 1), (2, 2)], 0)).size == 2 * MIB
    assert await _content(nodes, "out") == b"a" * MIB + b"b" * MIB


async def test_F_13_an_index_that_does_not_fit_is_refused(new_store: NewStore, small_disk: Path) -> None:
    nodes = new_store(small_disk)
    await nodes.create(stream(b"\n" * (MIB // 4)))
    await nodes.create(stream(*[b"x" * MIB] * 2))
    with pytest.raises(NoSpace):
        await nodes.build_index("node-1", "line")
    assert len(_files(small_disk)) == 2
    await nodes.delete("node-2")
    assert (await nodes.build_index("node-1", "line")).total_units == MIB // 4


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_F_13_a_full_disk_or_quota_told_only_at_fsync_is_no_success(
    nodes: NodeStore, tmp_path: Path, number: int
) -> None:
    full = OSError(number, "full")
    with mock.patch("awe_server.data.blobs.os.fsync", side_effect=full), pytest.raises(NoSpace):
        await nodes.create(stream(b"x"))
    assert _files(tmp_path) == []


async def test_another_disk_error_is_not_called_a_full_disk(nodes: NodeStore, tmp_path: Path) -> None:
    with (
        mock.patch("awe_server.data.blobs.os.write", side_effect=OSError(errno.EIO, "broken")),
        pytest.raises(OSError, match="broken"),
    ):
        await nodes.create(stream(b"x"))
    assert _files(tmp_path) == []
