"""The Shock of tests against recorded documents of the original, and its faults."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.inputs import many_reads, wrapped_fasta
from tests.support.shock import ShockServer

RECORDED = json.loads((Path(__file__).parent / "recorded_shock.json").read_text())
NEVER = "0001-01-01T00:00:00Z"
MIB = 1048576
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_DIGEST = re.compile(r"[0-9a-f]{32}")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def shock(tmp_path: Path) -> Iterator[ShockServer]:
    with ShockServer(tmp_path / "shock") as server:
        yield server


@pytest.fixture
def http(shock: ShockServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shock.url, timeout=10, trust_env=False) as client:
        yield client


def evened(value: Any, key: str = "") -> Any:
    """A document without what differs from run to run; how fine times are stays."""
    if isinstance(value, dict):
        return {name: evened(found, name) for name, found in value.items()}
    if isinstance(value, list):
        return [evened(found) for found in value]
    if isinstance(value, str):
        if _ID.fullmatch(value):
            return "<id>"
        if _DIGEST.fullmatch(value):
            return "<digest>"
        if value != NEVER and (found := _TIME.fullmatch(value)):
            return "<fine time>" if len(found[1] or "") > 4 else "<time>"
    counted = key in ("size", "total_units", "average_unit_size")
    return "<number>" if counted and isinstance(value, int) and value else value


def same(ours: httpx.Response, name: str) -> None:
    assert evened(ours.json()) == evened(RECORDED[name])


def upload(data: bytes = b"hello world\n", field: str = "upload", name: str = "in.txt") -> dict[str, Any]:
    return {field: (name, data)}


def empty_form(http: httpx.Client) -> str:
    """A node as AWE makes it: with a form that has no field at all."""
    kind = {"Content-Type": "multipart/form-data; boundary=b0"}
    reply = http.post("/node", content=b"--b0--\r\n", headers=kind)
    same(reply, "created-empty")
    return str(reply.json()["data"]["id"])


def test_documents_are_as_recorded(shock: ShockServer, http: httpx.Client) -> None:
    created = http.post("/node", files=upload())
    same(created, "created-with-file")
    same(http.get(f"/node/{created.json()['data']['id']}"), "read")
    node = empty_form(http)
    same(http.put(f"/node/{node}", files=upload(name="out0.txt")), "uploaded")
    node = empty_form(http)
    form = {**upload(name="out1.txt"), "attributes_str": (None, '{"kind": "count"}')}
    same(http.put(f"/node/{node}", files=form), "uploaded-with-attributes")
    got = http.get(f"/node/{node}", params="download")
    assert (got.content, got.headers["content-disposition"]) == (
        b"hello world\n",
        "attachment; filename=out1.txt",
    )


def test_parts_are_joined_in_order_when_the_last_is_in(shock: ShockServer, http: httpx.Client) -> None:
    shock.join_s = math.inf
    node = empty_form(http)
    declare = {"parts": (None, "3"), "file_name": (None, "big.out")}
    same(http.put(f"/node/{node}", files=declare), "parts-declared")
    same(http.get(f"/node/{node}"), "parts-none-in")
    assert http.get(f"/node/{node}?download").json()["error"] == ["Node has no file"]
    pieces = {rank: b"%d" % rank * rank for rank in (1, 2, 3)}
    same(http.put(f"/node/{node}", files=upload(pieces[1], "1", "big.out")), "part-put")
    for rank in (3, 2):
        http.put(f"/node/{node}", files=upload(pieces[rank], str(rank), "big.out"))
    same(http.get(f"/node/{node}"), "parts-joining")
    assert http.get(f"/node/{node}?download").status_code == 400
    shock.unlock()
    same(http.get(f"/node/{node}"), "parts-joined")
    assert http.get(f"/node/{node}?download").content == b"122333"


def test_an_index_is_locked_until_it_is_built(shock: ShockServer, http: httpx.Client) -> None:
    shock.index_s = math.inf
    data = wrapped_fasta()
    node = shock.add(data, "big.fa")
    same(http.put(f"/node/{node}/index/chunkrecord"), "index-reply")
    same(http.get(f"/node/{node}"), "index-locked")
    assert http.get(f"/node/{node}?download&index=chunkrecord&part=1").status_code == 400
    shock.unlock()
    same(http.get(f"/node/{node}"), "index-built")
    assert http.get(f"/node/{node}?download&index=chunkrecord&part=1").content == data
    again = http.put(f"/node/{node}/index/chunkrecord")
    assert (again.status_code, again.json()["error"][0][:27]) == (400, "This index already exists, ")
    assert http.put(f"/node/{node}/index/chunkrecord?force_rebuild=1").status_code == 200


def test_an_index_may_be_built_before_anything_is_answered(shock: ShockServer, http: httpx.Client) -> None:
    shock.answers_late, shock.index_s = True, 0.2
    node = shock.add(b"a\nb\n")
    with pytest.raises(httpx.ReadTimeout):
        http.put(f"/node/{node}/index/line", timeout=0.05)
    assert "line" not in http.get(f"/node/{node}").json()["data"]["indexes"]
    http.put(f"/node/{node}/index/line")
    assert http.get(f"/node/{node}?download&index=line&part=2").content == b"b\n"


@pytest.mark.parametrize("data", [many_reads(), wrapped_fasta(6000)], ids=["fastq", "fasta"])
@pytest.mark.parametrize("kind", ["size", "line", "record", "chunkrecord"])
def test_the_units_of_an_index_are_the_whole_file(
    shock: ShockServer, http: httpx.Client, kind: str, data: bytes
) -> None:
    node = shock.add(data)
    assert http.put(f"/node/{node}/index/{kind}").status_code == 200
    total = http.get(f"/node/{node}/index/{kind}").json()["data"][kind]["total_units"]
    units = [data[start : start + length] for start, length in shock.nodes[node].indexes[kind].spans]
    assert (len(units), b"".join(units)) == (total, data)
    half = total // 2
    parts = [f"1-{half}", f"{half + 1}-{total}"] if half else ["1"]
    got = [http.get(f"/node/{node}?download&index={kind}&part={part}").content for part in parts]
    assert (got[0], b"".join(got)) == (b"".join(units[: half or 1]), data)
    if "record" in kind:
        assert {unit[:1] for unit in units} == {data[:1]}
    if kind in ("size", "chunkrecord"):
        assert len(data) / MIB <= total < 2 * len(data) / MIB
        assert max(len(unit) for unit in units) <= MIB
    beyond = http.get(f"/node/{node}?download&index={kind}&part={total + 1}")
    assert (beyond.status_code, beyond.json()["error"]) == (400, ["Index record out of bounds"])


def test_indexes_that_cannot_be_built(shock: ShockServer, http: httpx.Client) -> None:
    node = shock.add(b"no sequences\n")
    shock.no_index, shock.index_errors = {"line"}, {"chunkrecord": "out of memory"}
    assert http.put(f"/node/{node}/index/record").json()["error"] == ["unknown file format"]
    assert http.put(f"/node/{node}/index/line").json()["error"] == ["Invalid index type"]
    assert http.put(f"/node/{node}/index/chunkrecord").status_code == 200
    found = http.get(f"/node/{node}").json()["data"]["indexes"]["chunkrecord"]
    assert (found["total_units"], found["locked"]["error"]) == (0, "out of memory")
    assert http.get(f"/node/{node}?download&index=record&part=1").json()["error"] == ["Invalid index type"]


def test_stretches_and_ranges(shock: ShockServer, http: httpx.Client) -> None:
    node = shock.add(b"0123456789")
    path = f"/node/{node}?download"
    wanted = {"&seek=3&length=4": b"3456", "&seek=7": b"789", "&length=2": b"01", "&seek=8&length=9": b"89"}
    assert {query: http.get(path + query).content for query in wanted} == wanted
    part = {"Range": "bytes=2-4"}
    assert (http.get(path, headers=part).status_code, http.get(path, headers=part).content) == (
        200,
        b"0123456789",
    )
    shock.ranges = True
    assert (http.get(path, headers=part).status_code, http.get(path, headers=part).content) == (206, b"234")


def test_copies_and_subsets(shock: ShockServer, http: httpx.Client) -> None:
    data = b">1\nA\n>2\nC\n>3\nG\n"
    source = shock.add(data, "x.fa", {"a": 1})
    http.put(f"/node/{source}/index/record")
    form = {"copy_data": (None, source), "copy_indexes": (None, "1")}
    copy = http.post("/node", files=form).json()["data"]
    assert (copy["type"], copy["file"]["name"], copy["indexes"]["record"]["total_units"]) == (
        "copy",
        "x.fa",
        3,
    )
    assert shock.content(copy["id"]) == data
    subset = {"parent_node": (None, source), "parent_index": (None, "record")}
    made = http.post("/node", files=subset | upload(b"1\n3\n", "subset_indices")).json()["data"]
    assert (made["type"], shock.content(made["id"])) == ("subset", b">1\nA\n>3\nG\n")
    for wrong in (b"3\n1\n", b"4\n"):
        assert http.post("/node", files=subset | upload(wrong, "subset_indices")).status_code == 400
    assert len(shock.nodes) == 3


def test_files_are_immutable(shock: ShockServer, http: httpx.Client) -> None:
    node = shock.add(b"first")
    for form in (upload(b"second"), upload(b"x", "1"), {"parts": (None, "2")}):
        reply = http.put(f"/node/{node}", files=form)
        assert (reply.status_code, reply.json()["error"][0][-19:]) == (400, "Node file immutable")
    changed = http.put(f"/node/{node}", files=upload(b'{"a": [1]}', "attributes"))
    assert (changed.json()["data"]["attributes"], shock.content(node)) == ({"a": [1]}, b"first")
    assert http.delete(f"/node/{node}").json() == {"status": 200, "data": None, "error": None}
    gone = http.get(f"/node/{node}")
    assert (gone.status_code, gone.json()["error"]) == (404, ["Node not found"])


def test_nodes_are_found_by_attributes(shock: ShockServer, http: httpx.Client) -> None:
    image = shock.add(b"1", attributes={"type": "dockerimage", "tag": {"v": 2}})
    shock.add(b"2", attributes={"type": "other"})

    def found(query: str) -> list[str]:
        return [node["id"] for node in http.get(f"/node?{query}").json()["data"]]

    assert found("query&type=dockerimage&tag.v=2") == [image]
    assert found("query&tag") == [image]
    assert found("querynode&file.name=in.txt&attributes.type=other") != [image]
    page = http.get("/node?query&limit=1&offset=1").json()
    assert (page["limit"], page["offset"], page["total_count"], len(page["data"])) == (1, 1, 2, 1)


@pytest.mark.parametrize(("token", "header"), [("tok", "OAuth tok"), ("mgrast abc", "mgrast abc")])
def test_a_token_is_wanted(tmp_path: Path, token: str, header: str) -> None:
    with ShockServer(tmp_path, token=token) as shock, httpx.Client(trust_env=False) as http:
        url = shock.node_url(shock.add(b"x"))
        refused = http.get(url)
        assert (refused.status_code, refused.json()["error"]) == (401, ["No Authorization"])
        wrong = http.get(url, headers={"Authorization": "OAuth wrong"})
        assert (wrong.status_code, wrong.json()["error"]) == (
            400,
            ["Invalid authorization header or content"],
        )
        assert http.get(url, headers={"Authorization": header}).content == b"x"
        shock.anonymous_read = True
        assert http.get(url).content == b"x"
        assert http.post(f"{shock.url}/node").status_code == 401
        assert shock.seen("GET", "download")[2].headers["authorization"] == header


def test_without_users_every_token_is_refused(shock: ShockServer, http: httpx.Client) -> None:
    reply = http.get(f"/node/{shock.add(b'x')}", headers={"Authorization": "OAuth tok"})
    assert (reply.status_code, reply.json()["error"]) == (400, ["Invalid authorization header or content"])


def test_faults(shock: ShockServer, http: httpx.Client) -> None:
    data = bytes(100_000)
    url = shock.node_url(shock.add(data))
    shock.faults.fail(500, 2, method="GET")
    replies = [http.get(url) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [500, 500, 200]
    assert replies[0].json() == {"status": 500, "data": None, "error": ["failed on purpose"]}
    shock.faults.cut(70_000)
    with pytest.raises(httpx.RemoteProtocolError):
        http.get(url)
    shock.faults.flip(5)
    assert http.get(url).content == data[:5] + b"\1" + data[6:]
    shock.faults.cut(10, method="POST|PUT")
    with pytest.raises(httpx.TransportError):
        http.post("/node", files=upload(data * 20))
    shock.full = True
    refused = http.post("/node", files=upload(data))
    assert (refused.status_code, refused.json()["error"][0][-23:]) == (400, "no space left on device")
    assert len(shock.nodes) == 1
    shock.full = False
    assert http.post("/node", files=upload(data)).status_code == 200


def test_nodes_outlive_a_restart(shock: ShockServer, http: httpx.Client) -> None:
    node = shock.add(b"x")
    port = shock.port
    shock.stop()
    with pytest.raises(httpx.TransportError):
        http.get(f"/node/{node}")
    shock.start(port)
    assert http.get(f"/node/{node}?download").content == b"x"
