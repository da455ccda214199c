"""Nodes: documents and content."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from awe_server.data.nodes import NodeStore
from awe_server.store.base import Match, Query
from shared_models.errors import (
    AweError,
    BadRequest,
    NodeNotFound,
    NoFile,
    NoSpace,
    StoreUnavailable,
    TooLarge,
)
from shared_models.limits import MAX_DEPTH
from tests.unit.data.conftest import NewStore
from tests.unit.data.port import MemoryPort, broken, stream

pytestmark = pytest.mark.anyio


async def _content(nodes: NodeStore, node_id: str) -> bytes:
    download = await nodes.open_range(node_id)
    return b"".join([chunk async for chunk in download.chunks])


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


async def test_a_new_node_has_its_document_in_shocks_fields(nodes: NodeStore) -> None:
    created = await nodes.create(stream(b"hel", b"lo"), name="a.txt", attributes={"k": [1]}, owner="ann")
    document = await nodes.get(created["id"])
    assert document == created
    assert document["id"] == "node-1"
    assert document["owner"] == "ann"
    assert document["attributes"] == {"k": [1]}
    assert document["created_on"] == document["last_modified"] == "2023-11-14T22:13:20.000000Z"
    assert document["file"] == {
        "name": "a.txt",
        "size": 5,
        "checksum": {
            "md5": hashlib.md5(b"hello").hexdigest(),
            "sha256": hashlib.sha256(b"hello").hexdigest(),
        },
        "created_on": "2023-11-14T22:13:20.000000Z",
    }
    assert document["indexes"]["size"]["total_units"] == 1
    assert document["indexes"]["size"]["average_unit_size"] == 1_048_576
    assert await _content(nodes, "node-1") == b"hello"


async def test_a_node_without_content_has_no_file(nodes: NodeStore) -> None:
    document = await nodes.create(None, name="later.txt", parts=3)
    assert document["file"] is None
    assert document["indexes"] == {}
    assert document["parts"] == {"count": 3}
    with pytest.raises(NoFile):
        await nodes.open_range(document["id"])
    with pytest.raises(NoFile):
        await nodes.build_index(document["id"], "line")


async def test_an_empty_file_is_a_file(nodes: NodeStore) -> None:
    document = await nodes.create(stream(), name="empty.fa")
    assert document["file"]["size"] == 0
    assert await _content(nodes, document["id"]) == b""


@pytest.mark.parametrize("node_id", ["none", "", "../x", "a/b", "a" * 65, "a\0", ".tmp", "1.2"])
async def test_unknown_and_impossible_ids_are_not_found(nodes: NodeStore, node_id: str) -> None:
    for refused in (
        nodes.get(node_id),
        nodes.upload(node_id, stream(b"x")),
        nodes.delete(node_id),
        nodes.put_part(node_id, 1, 1, stream(b"x")),
        nodes.open_range(node_id),
    ):
        with pytest.raises(NodeNotFound):
            await refused


async def test_an_upload_replaces_content_and_drops_indexes(nodes: NodeStore, tmp_path: Path) -> None:
    first = await nodes.create(stream(b">a\nA\n>b\nC\n"), name="a.fa")
    await nodes.build_index("node-1", "record")
    indexed = await nodes.get("node-1")
    second = await nodes.upload("node-1", stream(b"new"))
    assert second["file"]["name"] == "a.fa"
    assert set(second["indexes"]) == {"size"}
    assert len({first["version"], indexed["version"], second["version"]}) == 3
    assert await _content(nodes, "node-1") == b"new"
    assert len(_files(tmp_path)) == 1


async def test_an_upload_may_give_a_new_name(nodes: NodeStore) -> None:
    await nodes.create(stream(b"x"), name="old")
    assert (await nodes.upload("node-1", stream(b"y"), "new"))["file"]["name"] == "new"


async def test_of_uploads_at_once_the_last_to_end_is_kept_whole(nodes: NodeStore, tmp_path: Path) -> None:
    await nodes.create(None)
    gates = [asyncio.Event() for _ in range(3)]

    async def slow(number: int) -> AsyncIterator[bytes]:
        yield b"%d" % number * 2_000_000
        await gates[number].wait()
        yield b"%d" % number * 2_000_000

    uploads = [asyncio.create_task(nodes.upload("node-1", slow(number))) for number in range(3)]
    for number in (2, 0, 1):
        gates[number].set()
        await uploads[number]
    assert await _content(nodes, "node-1") == b"1" * 4_000_000
    assert len(_files(tmp_path)) == 1


async def test_a_broken_upload_changes_nothing(nodes: NodeStore, tmp_path: Path) -> None:
    before = await nodes.create(stream(b"old"))
    with pytest.raises(ConnectionError):
        await nodes.upload("node-1", broken(b"new"))
    with pytest.raises(ConnectionError):
        await nodes.create(broken(b"new"))
    assert await nodes.get("node-1") == before
    assert (await nodes.list(Query())).total == 1
    assert len(_files(tmp_path)) == 1


async def test_an_upload_to_a_node_deleted_meanwhile_leaves_nothing(nodes: NodeStore, tmp_path: Path) -> None:
    await nodes.create(None)

    async def deleting() -> AsyncIterator[bytes]:
        yield b"x"
        await nodes.delete("node-1")

    with pytest.raises(NodeNotFound):
        await nodes.upload("node-1", deleting())
    assert _files(tmp_path) == []


async def test_a_put_that_fails_keeps_both_contents_until_it_is_clear_which_counts(
    nodes: NodeStore, port: MemoryPort, tmp_path: Path
) -> None:
    await nodes.create(stream(b"old"))
    port.fail_after_put = True
    with pytest.raises(StoreUnavailable):
        await nodes.upload("node-1", stream(b"new"))
    assert await _content(nodes, "node-1") == b"new"
    port.fail_put = True
    with pytest.raises(StoreUnavailable):
        await nodes.upload("node-1", stream(b"newer"))
    assert await _content(nodes, "node-1") == b"new"
    assert len(_files(tmp_path)) == 3


async def test_deleting_removes_document_then_file_index_and_parts(nodes: NodeStore, tmp_path: Path) -> None:
    await nodes.create(stream(b"a\nb\n"), parts=2)
    await nodes.build_index("node-1", "line")
    await nodes.put_part("node-1", 1, 4, stream(b"part"))
    await nodes.delete("node-1")
    assert _files(tmp_path) == []
    with pytest.raises(NodeNotFound):
        await nodes.get("node-1")


async def test_a_failed_delete_leaves_the_node_readable(nodes: NodeStore, port: MemoryPort) -> None:
    await nodes.create(stream(b"x"))
    port.fail_put = True
    with pytest.raises(StoreUnavailable):
        await nodes.delete("node-1")
    assert await _content(nodes, "node-1") == b"x"


async def test_copying_shares_bytes_but_not_fate(nodes: NodeStore) -> None:
    await nodes.create(stream(b"bytes"), name="a.txt")
    await nodes.create(None)
    copy = await nodes.copy_data("node-2", "node-1")
    assert copy["file"]["name"] == "a.txt"
    await nodes.delete("node-1")
    assert await _content(nodes, "node-2") == b"bytes"
    with pytest.raises(NodeNotFound):
        await nodes.copy_data("node-2", "node-1")


async def test_a_file_missing_on_disk_is_said_plainly(nodes: NodeStore, tmp_path: Path) -> None:
    await nodes.create(stream(b"bytes"))
    _files(tmp_path)[0].unlink()
    await nodes.create(None)
    for lost in (nodes.open_range("node-1"), nodes.copy_data("node-2", "node-1")):
        with pytest.raises(AweError, match="node node-1 is missing on the server's disk"):
            await lost


async def test_attributes_are_any_json_object(nodes: NodeStore) -> None:
    await nodes.create(None)
    for attributes in ({}, {"a": {"b": [1, 2.5, None, "é"]}}, None):
        assert (await nodes.set_attributes("node-1", attributes))["attributes"] == attributes
        assert (await nodes.get("node-1"))["attributes"] == attributes


def _nested(levels: int) -> dict[str, Any]:
    return {"a": _nested(levels - 1)} if levels else {}


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ([1], BadRequest),
        ("text", BadRequest),
        (_nested(MAX_DEPTH), BadRequest),
        ({"n": 1 << 70}, BadRequest),
        ({1: "a"}, BadRequest),
        ({"a": "x" * (1 << 20)}, TooLarge),
    ],
)
async def test_attributes_out_of_bounds_are_refused(
    nodes: NodeStore, attributes: Any, error: type[AweError]
) -> None:
    before = await nodes.create(None)
    with pytest.raises(error):
        await nodes.set_attributes("node-1", attributes)
    with pytest.raises(error):
        await nodes.create(None, attributes=attributes)
    assert await nodes.get("node-1") == before


async def test_attributes_at_the_bound_are_kept(nodes: NodeStore) -> None:
    await nodes.create(None, attributes=_nested(MAX_DEPTH - 1))


@pytest.mark.parametrize("name", ["résumé.txt", "报告.fa", "plan-🚀.txt", 'a"b.txt', "x" * 255, "~", "C:\\x"])
async def test_any_visible_name_is_kept(nodes: NodeStore, name: str) -> None:
    assert (await nodes.create(stream(b""), name=name))["file"]["name"] == name


async def test_of_a_path_the_last_component_is_the_name(nodes: NodeStore) -> None:
    assert (await nodes.create(stream(b""), name="../../sub/ok.txt"))["file"]["name"] == "ok.txt"


@pytest.mark.parametrize(
    "name", ["x\r\ny", "a\0b", "..", "a/..", ".", "x" * 256, "é" * 128, "\udcff", "\x85"]
)
async def test_names_that_are_none_are_refused(nodes: NodeStore, name: str) -> None:
    await nodes.create(None)
    for refused in (nodes.create(None, name=name), nodes.upload("node-1", stream(b""), name)):
        with pytest.raises(BadRequest):
            await refused


@pytest.mark.parametrize("parts", [-1, 10_000_001])
async def test_an_impossible_number_of_parts_is_refused(nodes: NodeStore, parts: int) -> None:
    with pytest.raises(BadRequest):
        await nodes.create(None, parts=parts)


async def test_nodes_are_listed(nodes: NodeStore) -> None:
    for owner in ("ann", "bob", "ann"):
        await nodes.create(None, owner=owner)
    page = await nodes.list(Query(where=(Match("owner", ("ann",)),), limit=1))
    assert page.total == 2
    assert [document["id"] for document in page.documents] == ["node-1"]


async def test_a_known_length_that_cannot_fit_is_refused_before_a_byte_is_read(new_store: NewStore) -> None:
    nodes = new_store()
    await nodes.create(None, parts=1)

    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("read")
        yield b""

    for refused in (
        nodes.create(never(), expected_bytes=1 << 60),
        nodes.upload("node-1", never(), expected_bytes=1 << 60),
        nodes.put_part("node-1", 1, 1, never(), expected_bytes=1 << 60),
    ):
        with pytest.raises(NoSpace):
            await refused


async def test_start_cleans_up_after_a_dead_process_only(new_store: NewStore, tmp_path: Path) -> None:
    nodes = new_store()
    await nodes.create(stream(b"kept"))
    for folder in (_files(tmp_path)[0].parent, tmp_path / "data" / "parts" / "node-1"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".tmp-dead").write_bytes(b"half")
    again = new_store()
    await again.start()
    assert len(_files(tmp_path)) == 1
    assert await _content(again, "node-1") == b"kept"
    await again.stop()
    await again.stop()
