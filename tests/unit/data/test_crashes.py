"""What a crash or a failing store leaves behind, and that trying again puts it right."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

import pytest

from awe_server.data.blobs import BlobStore
from awe_server.data.files import clean_temporary
from awe_server.data.nodes import NodeStore
from awe_server.data.parts import PartStore
from shared_models.errors import StoreUnavailable
from tests.unit.data.conftest import NewStore
from tests.unit.data.port import MemoryPort, stream

pytestmark = pytest.mark.anyio

OLD = 1_000_000_000.0


class Crash(BaseException):
    """The process is gone here."""


def _files(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.rglob("*") if path.is_file()]


def _age_everything(tmp_path: Path) -> None:
    for path in tmp_path.rglob("*"):
        os.utime(path, (OLD, OLD))


async def _content(nodes: NodeStore, node_id: str) -> bytes:
    return b"".join([chunk async for chunk in (await nodes.open_range(node_id)).chunks])


def _before_joining() -> AbstractContextManager[object]:
    return mock.patch.object(NodeStore, "_join", side_effect=Crash)


def _before_the_old_blob_goes() -> AbstractContextManager[object]:
    return mock.patch.object(BlobStore, "remove", side_effect=Crash)


def _before_parts_go() -> AbstractContextManager[object]:
    return mock.patch.object(PartStore, "drop", side_effect=Crash)


def _half_way_through_parts() -> AbstractContextManager[object]:
    plain_unlink = Path.unlink
    left = [1]

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if "parts" in path.parts:
            if not left:
                raise Crash
            left.pop()
        plain_unlink(path, missing_ok)

    return mock.patch.object(Path, "unlink", unlink)


@pytest.mark.parametrize(
    "crash", [_before_joining, _before_the_old_blob_goes, _before_parts_go, _half_way_through_parts]
)
@pytest.mark.parametrize("ranks", [1, 3])
async def test_an_assembly_that_crashed_anywhere_ends_right_when_repeated(
    new_store: NewStore,
    port: MemoryPort,
    tmp_path: Path,
    crash: Callable[[], AbstractContextManager[object]],
    ranks: int,
) -> None:
    nodes = new_store()
    await port.add(nodes.output_document("out", job="j", task="t", name="o"))
    await nodes.upload("out", stream(b"old"))
    parts = [(rank, 2) for rank in range(1, ranks + 1)]
    for rank, attempt in parts:
        await nodes.put_part("out", rank, attempt, stream(b"%d\n" % rank))
    with crash(), contextlib.suppress(Crash):  # one part leaves nothing to crash in the middle of
        await nodes.assemble("out", parts, 0)

    restarted = new_store()
    await restarted.start()
    fact = await restarted.assemble("out", parts, 0)
    whole = b"".join(b"%d\n" % rank for rank, _ in parts)
    assert await _content(restarted, "out") == whole
    assert fact.size == len(whole)
    _age_everything(tmp_path)
    await restarted.collect_orphans()
    assert len(_files(tmp_path)) == 1
    assert await _content(restarted, "out") == whole


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("ranks", [1, 3])
async def test_an_assembly_whose_document_was_perhaps_stored_ends_right_when_repeated(
    nodes: NodeStore, port: MemoryPort, tmp_path: Path, applied: bool, ranks: int
) -> None:
    await port.add(nodes.output_document("out", job="j", task="t", name="o"))
    parts = [(rank, 1) for rank in range(1, ranks + 1)]
    for rank, attempt in parts:
        await nodes.put_part("out", rank, attempt, stream(b"%d\n" % rank))
    port.fail_after_put, port.fail_put = applied, not applied
    with pytest.raises(StoreUnavailable):
        await nodes.assemble("out", parts, 0)
    await nodes.assemble("out", parts, 0)
    assert await _content(nodes, "out") == b"".join(b"%d\n" % rank for rank, _ in parts)
    _age_everything(tmp_path)
    await nodes.collect_orphans()
    assert len(_files(tmp_path)) == 1


async def test_declared_parts_whose_merge_crashed_are_merged_by_the_repeated_upload(
    new_store: NewStore, port: MemoryPort
) -> None:
    nodes = new_store()
    await nodes.create(None, parts=2)
    await nodes.put_part("node-1", 1, 0, stream(b"a"))
    with _before_joining(), pytest.raises(Crash):
        await nodes.put_part("node-1", 2, 0, stream(b"b"))
    restarted = new_store()
    await restarted.put_part("node-1", 2, 0, stream(b"b"))
    assert await _content(restarted, "node-1") == b"ab"


async def test_a_delete_that_crashed_is_finished_by_the_collector(
    new_store: NewStore, tmp_path: Path
) -> None:
    nodes = new_store()
    await nodes.create(stream(b"a\nb\n"), parts=1)
    await nodes.build_index("node-1", "line")
    await nodes.put_part("node-1", 1, 3, stream(b"part"))
    with _before_the_old_blob_goes(), pytest.raises(Crash):
        await nodes.delete("node-1")
    assert len(_files(tmp_path)) == 3
    assert await nodes.collect_orphans() == 0  # too young to be sure
    _age_everything(tmp_path)
    assert await nodes.collect_orphans() == 3
    assert _files(tmp_path) == []


async def test_the_collector_leaves_everything_that_is_named(
    nodes: NodeStore, port: MemoryPort, tmp_path: Path
) -> None:
    for number in range(1, 1201):
        await nodes.create(stream(b"%d" % number) if number % 10 == 0 else None)
    await nodes.build_index("node-10", "line")
    await nodes.put_part("node-1", 1, 1, stream(b"part"))
    port.fail_put = True
    with pytest.raises(StoreUnavailable):
        await nodes.upload("node-10", stream(b"never named"))
    before = len(_files(tmp_path))
    _age_everything(tmp_path)
    assert await nodes.collect_orphans() == 1
    assert len(_files(tmp_path)) == before - 1
    assert await _content(nodes, "node-1200") == b"1200"


async def test_a_linked_part_is_young_for_the_collector(
    nodes: NodeStore, port: MemoryPort, tmp_path: Path
) -> None:
    """An old part becomes a blob by a link: between the link and the document it must not be collected."""
    await port.add(nodes.output_document("out", job="j", task="t", name="o"))
    await nodes.put_part("out", 0, 1, stream(b"bytes"))
    _age_everything(tmp_path)
    port.fail_put = True
    with pytest.raises(StoreUnavailable):
        await nodes.assemble("out", [(0, 1)], 0)
    assert await nodes.collect_orphans() == 0


async def test_what_comes_after_the_start_is_never_left_of_before_it(
    new_store: NewStore, port: MemoryPort, tmp_path: Path
) -> None:
    """The first collection runs beside merges and copies; a file server's clock may be behind ours."""
    before = new_store()
    await before.create(stream(b"a\nb\n"))
    await before.build_index("node-1", "line")
    await port.add(before.output_document("out", job="j", task="t", name="o"))
    await before.put_part("out", 0, 1, stream(b"bytes"))
    left = before._blobs.path("gone.0123")
    left.write_bytes(b"left of a dead process")
    _age_everything(tmp_path)
    nodes = new_store(wall=time.time() + 3600)
    await nodes.start()
    port.fail_put = True
    with pytest.raises(StoreUnavailable):
        await nodes.assemble("out", [(0, 1)], 0)
    copy = await nodes.receive_copy("node-1", indexes=True)
    assert await nodes.collect_left() == 1
    assert not left.exists()
    await nodes.add(copy)
    part = await nodes.open_range(copy.node_id, index="line", part="2")
    assert b"".join([chunk async for chunk in part.chunks]) == b"b\n"
    await nodes.assemble("out", [(0, 1)], 0)
    assert await _content(nodes, "out") == b"bytes"


UPLOAD = """
import sys, time
from pathlib import Path
from awe_server.data.blobs import Writer

writer = Writer(Path(sys.argv[1]), 0)
writer.write(b"half")
print("written", flush=True)
time.sleep(60)
"""


def test_what_an_upload_left_behind_is_cleaned_once_its_process_is_dead(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", UPLOAD, str(tmp_path / "aa" / "bb")]
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env) as upload:
        assert upload.stdout is not None
        assert upload.stdout.readline() == b"written\n"
        assert clean_temporary(tmp_path) == 0
        upload.kill()
    assert clean_temporary(tmp_path, time.time() - 60) == 0  # too young for the collector
    assert clean_temporary(tmp_path) == 1
    assert _files(tmp_path) == []
