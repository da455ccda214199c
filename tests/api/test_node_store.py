"""/node: asking by attributes, sharing, copying with indexes, expiry, and the quota."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from awe_client.api import AsyncAweClient
from awe_server.runtime.node_expiry import NodeExpiry
from shared_models.limits import MIB
from shared_models.times import ZERO_TIME, rfc3339
from tests.api.conftest import URL, Api

pytestmark = pytest.mark.anyio


@pytest.fixture
def awe(api: Api) -> AsyncAweClient:
    return AsyncAweClient(URL, http=api.http)


def blobs(root: Path) -> list[Path]:
    return [path for path in root.glob("**/blobs/**/*") if path.is_file()]


def inodes(root: Path) -> int:
    return len({path.stat().st_ino for path in blobs(root)})


async def usage(api: Api) -> dict[str, int]:
    found: dict[str, int] = (await api.ok("GET", "/health"))["node_store"]
    return found


# ---- asking by attributes


async def test_a_workers_question_for_an_image_asks_attributes_alone(api: Api, awe: AsyncAweClient) -> None:
    """Source: AWE lib/worker/worker.go findDockerImageInShock asks `?query&type=dockerimage&name=X`."""
    image = await awe.create_node(
        b"tar", name="image.tar", attributes={"type": "dockerimage", "name": "blast:1"}
    )
    await awe.create_node(b"tar", name="blast:1", attributes={"type": "other"})
    await awe.create_node(b"tar", name="blast:1", attributes={"type": "dockerimage", "name": "blast:2"})
    reply = await api.ok("GET", "/node", params={"query": "", "type": "dockerimage", "name": "blast:1"})
    assert [node["id"] for node in reply] == [image.id]
    reply = await api.ok("GET", "/node?query&type=dockerimage&limit=1&offset=1&direction=asc")
    assert len(reply) == 1


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("query&owner=ann", "a"),  # a field of the node has the same name
        ("query&job=7", "b"),
        ("query&task=t", "b"),
        ("query&md5=x", ""),
        ("query&sample.site=gut", "a"),
        ("query&sample.depth=[10;20)", "b"),
        ("query&sample.depth=[5;10)", "a"),
        ("query&sample.depth=[5;)", "ab"),
        ("query&sample.depth=[;10)", "a"),
        ("query&date=[2016-01;2017)", "a"),
        ("query&sample.depth=", "ab"),
        ("query&date=", "a"),
        ("query&flag=", "b"),
        ("query&flag=false", "b"),
        ("query&tags=y", "ab"),
        ("query&tags=x&tags=z", "ab"),
        ("query&label=p,q", "a"),  # a comma is a comma
        ("query&attributes.label=p,q", "a"),
        ("attributes.sample.depth=[10;20)", "b"),
        ("attributes.tags=x,z", "ab"),
        ("attributes.date=", "a"),
        ("query&sample=", ""),  # an object is no value
        ("query&sample.depth=5&tags=z", ""),
    ],
)
async def test_attributes_are_asked_for_by_path_value_range_and_presence(
    api: Api, awe: AsyncAweClient, query: str, names: str
) -> None:
    first = {
        "owner": "ann", "sample": {"site": "gut", "depth": 5}, "date": "2016-03-01", "tags": ["x", "y"],
        "label": "p,q",
    }  # fmt: skip
    second = {"job": 7, "task": "t", "sample": {"depth": 10.5}, "tags": ["y", "z"], "flag": False}
    await awe.create_node(b"1", name="a", attributes=first)
    await awe.create_node(b"2", name="b", attributes=second)
    await awe.create_node(b"3", name="c")
    found = await api.ok("GET", f"/node?{query}")
    assert "".join(sorted(node["file"]["name"] for node in found)) == names


@pytest.mark.parametrize("query", ["query&k=[;)", "query&k=[1;2)&k=3"])
async def test_a_question_that_makes_no_sense_is_refused(api: Api, query: str) -> None:
    await api.refused("GET", f"/node?{query}", 400, "invalid_request")


# ---- sharing and copying


async def test_equal_bytes_are_kept_once_when_asked_in_any_way(
    api: Api, awe: AsyncAweClient, tmp_path: Path
) -> None:
    await awe.create_node(b"same")
    await awe.create_node(b"same", dedup=True)
    raw = {"content": b"same", "headers": {"Content-Type": "text/plain"}}
    await api.ok("POST", "/node?dedup", **raw)
    node = await api.ok("POST", "/node?dedup", files={"upload": ("x", b"same")})
    await api.ok("PUT", f"/node/{(await api.ok('POST', '/node'))['id']}?dedup", **raw)
    await awe.upload_node((await awe.create_node()).id, b"same", dedup=True)
    assert (len(blobs(tmp_path)), inodes(tmp_path)) == (6, 1)
    assert (await usage(api))["used_bytes"] == 4
    form = {"upload": ("x", b"same"), "dedup": (None, b"0")}
    await api.ok("PUT", f"/node/{node['id']}", files=form)
    assert inodes(tmp_path) == 2
    await api.refused("POST", "/node", 400, "invalid_request", files={"dedup": (None, b"maybe")})


async def test_a_copy_has_the_indexes_of_its_source_when_asked(api: Api, awe: AsyncAweClient) -> None:
    source = await awe.create_node(b">a\nA\n>b\nC\n", name="in.fa")
    await awe.build_index(source.id, "record")
    plain = await awe.copy_node(source.id)
    full = await awe.copy_node(source.id, indexes=True, name="other.fa", expiration="1H")
    assert set(plain.indexes) == {"size"}
    assert full.indexes["record"]["total_units"] == 2
    assert (full.file and full.file.name, full.expiration != ZERO_TIME) == ("other.fa", True)
    await awe.delete_node(source.id)
    reply = await api.http.get(f"/node/{full.id}?download&index=record&part=2")
    assert reply.content == b">b\nC\n"


# ---- expiry


async def test_a_node_says_when_it_goes_and_goes(api: Api, awe: AsyncAweClient) -> None:
    node = await awe.create_node(b"x", expiration="3D")
    assert node.expiration == rfc3339(api.hands.wall_s + 3 * 86_400)
    raw = {"content": b"y", "headers": {"Content-Type": "text/plain"}}
    short = await api.ok("POST", "/node?expiration=1M", **raw)
    stays = await awe.create_node(b"z")
    assert stays.expiration == ZERO_TIME
    api.hands.advance(61)
    sweep = NodeExpiry(api.services.engine, api.services.nodes, 60.0)
    assert await sweep.once() == 1
    await api.refused("GET", f"/node/{short['id']}", 404, "node_not_found")
    changed = await awe.set_node_expiration(node.id, "")
    assert changed.expiration == ZERO_TIME
    assert changed.file == node.file
    changed = await awe.set_node_expiration(stays.id, "0M")
    api.hands.advance(1)
    assert await sweep.once() == 1
    assert (await awe.get_node(node.id)).file == node.file


async def test_a_form_sets_and_removes_the_expiration(api: Api) -> None:
    node = await api.ok("POST", "/node", files={"upload": ("x", b"1"), "expiration": (None, b"12H")})
    path = f"/node/{node['id']}"
    assert node["expiration"] != ZERO_TIME
    longer = await api.ok("PUT", path, files={"expiration": (None, b"2D")})
    assert longer["expiration"] > node["expiration"]
    never = await api.ok("PUT", path, files={"remove_expiration": (None, b"1")})
    assert never["expiration"] == ZERO_TIME
    both = {"remove_expiration": (None, b"1"), "expiration": (None, b"2D")}
    await api.refused("PUT", path, 400, "invalid_request", files=both)
    assert await api.ok("GET", path) == never


@pytest.mark.parametrize("text", ["3", "3d", "soon", "-1D", "1.5H"])
async def test_an_expiration_that_makes_no_sense_leaves_and_changes_nothing(
    api: Api, text: str, tmp_path: Path
) -> None:
    form = {"upload": ("x", b"1"), "expiration": (None, text.encode())}
    await api.refused("POST", "/node", 400, "invalid_request", files=form)
    assert (await api.http.get("/node")).json()["total_count"] == 0
    assert blobs(tmp_path) == []
    node = await api.ok("POST", "/node", files={"upload": ("x", b"1")})
    path = f"/node/{node['id']}"
    await api.refused("PUT", path, 400, "invalid_request", files=form)
    raw = {"content": b"y", "headers": {"Content-Type": "text/plain"}}
    await api.refused("PUT", f"{path}?expiration={text}", 400, "invalid_request", **raw)
    assert await api.ok("GET", path) == node


async def test_an_empty_body_with_a_type_is_still_an_empty_file(api: Api) -> None:
    node = await api.ok("POST", "/node", files={"upload": ("x", b"1")})
    path = f"/node/{node['id']}?expiration=1D"
    assert (await api.ok("PUT", path))["file"]["size"] == 1
    emptied = await api.ok("PUT", path, content=b"", headers={"Content-Type": "application/octet-stream"})
    assert emptied["file"]["size"] == 0


# ---- quota


async def pieces(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield b"x" * size


@pytest.fixture
def quota(api: Api) -> int:
    limit = 3 * MIB
    api.services.nodes._quota.limit_bytes = limit
    return limit


async def test_the_quota_is_refused_with_its_numbers_before_a_byte_is_written(
    api: Api, quota: int, tmp_path: Path
) -> None:
    await api.ok("POST", "/node", content=b"x" * MIB)
    for more in ({"content": b"y" * (2 * MIB + 1)}, {"files": {"upload": ("y", b"y" * (3 * MIB))}}):
        reply = await api.http.post("/node", **more)
        assert (reply.status_code, reply.json()["code"]) == (507, "quota_exceeded")
        assert (reply.json()["used_bytes"], reply.json()["limit_bytes"]) == (MIB, quota)
        assert reply.json()["wanted_bytes"] > 2 * MIB
        assert f"{MIB} of {quota} bytes" in reply.json()["error"][0]
        assert reply.headers["Retry-After"]
    [never] = await api.refused("POST", "/node", 413, "too_large", content=b"y" * (quota + 1))
    assert f"whole quota is {quota}" in never
    assert (await api.http.get("/node")).json()["total_count"] == 1
    assert len(blobs(tmp_path)) == 1
    await api.ok("POST", "/node", content=b"y" * (2 * MIB))
    assert (await usage(api))["used_bytes"] == quota


@pytest.mark.parametrize("is_form", [False, True])
async def test_F_13_the_quota_is_reached_in_the_middle_of_an_upload_without_length(
    api: Api, quota: int, tmp_path: Path, is_form: bool
) -> None:
    node = await api.ok("POST", "/node", content=b"old")

    async def form() -> AsyncIterator[bytes]:
        yield b"--B\r\nContent-Disposition: form-data; name=upload; filename=x\r\n\r\n"
        async for piece in pieces(*[MIB] * 8):
            yield piece
        yield b"\r\n--B--\r\n"

    for method, path in (("POST", "/node"), ("PUT", f"/node/{node['id']}")):
        more: dict[str, Any] = {"content": form() if is_form else pieces(*[MIB] * 8)}
        if is_form:
            more["headers"] = {"Content-Type": "multipart/form-data; boundary=B"}
        await api.refused(method, path, 507, "quota_exceeded", **more)
        assert (await usage(api))["used_bytes"] == 3
    assert len(blobs(tmp_path)) == 1
    assert (await api.http.get(f"/node/{node['id']}?download")).content == b"old"
    assert (await api.http.get("/node")).json()["total_count"] == 1
    await api.ok("POST", "/node", content=pieces(MIB, MIB))


async def test_health_and_metrics_say_how_full_it_is(api: Api, quota: int) -> None:
    await api.ok("POST", "/node", content=b"12345")
    seen = await usage(api)
    assert (seen["used_bytes"], seen["quota_bytes"]) == (5, quota)
    assert seen["free_bytes"] > 0
    text = (await api.http.get("/metrics")).text
    assert "\nawe_nodes_used_bytes 5.0\n" in text
    assert "\nawe_nodes_quota_bytes 3.145728e+06\n" in text
    assert "\nawe_nodes_free_bytes " in text
