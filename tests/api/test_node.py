"""/node: Shock's wire. Bytes in, bytes out, names, ranges, parts, and who may write an output."""

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from awe_server.api.bodies import SenderGone
from shared_models.ids import WorkunitId
from tests.api.conftest import Api
from tests.support.golden import recorded, shape_problems

pytestmark = pytest.mark.anyio

FASTA = b"".join(b">s%d\nACGT\n" % i for i in range(10))


async def node_of(api: Api, content: bytes, name: str = "in.fa") -> dict[str, Any]:
    node: dict[str, Any] = await api.ok("POST", "/node", files={"upload": (name, content)})
    return node


def files_below(root: Path) -> list[Path]:
    """Every blob and staged part on the disk."""
    return [path for kind in ("blobs", "parts") for path in root.glob(f"**/{kind}/**/*") if path.is_file()]


async def test_a_form_as_curl_sends_it(api: Api) -> None:
    node = await node_of(api, b"hello world\nsecond line\n", "in.txt")
    theirs = recorded("shock-post")["reply"]["body"]["data"]
    unlike = shape_problems({k: v for k, v in theirs.items() if k not in ("version_parts", "restore")}, node)
    assert [text for text in unlike if "virtual_parts" not in text and "locked" not in text] == []
    assert node["file"]["checksum"]["md5"] == theirs["file"]["checksum"]["md5"]
    assert node["file"]["size"] == 24
    assert (await api.http.get(f"/node/{node['id']}?download")).content == b"hello world\nsecond line\n"


async def test_raw_bodies_of_any_type(api: Api) -> None:
    for kind in ("application/octet-stream", "text/plain", "application/json"):
        headers = {"Content-Type": kind}
        node = await api.ok("POST", "/node?file_name=x.bin", content=b"{raw}", headers=headers)
        assert (node["file"]["name"], node["file"]["size"]) == ("x.bin", 5)
    empty = await api.ok("POST", "/node")
    assert empty["file"]["size"] == 0
    await api.refused("GET", f"/node/{empty['id']}?download", 400, "no_file")
    file = await api.ok("POST", "/node", content=b"", headers={"Content-Type": "application/octet-stream"})
    assert (await api.http.get(f"/node/{file['id']}?download")).content == b""


async def test_attributes_before_and_after_the_file(api: Api) -> None:
    before = [("attributes_str", (None, b'{"kind": "a"}')), ("upload", ("x", b"1"))]
    after = [("upload", ("x", b"1")), ("attributes", ("a.json", b'{"kind": "b"}'))]
    assert (await api.ok("POST", "/node", files=before))["attributes"] == {"kind": "a"}
    node = await api.ok("POST", "/node", files=after)
    assert node["attributes"] == {"kind": "b"}
    changed = await api.ok("PUT", f"/node/{node['id']}", files={"attributes_str": (None, b'{"kind": "c"}')})
    assert changed["attributes"] == {"kind": "c"}
    assert changed["file"] == node["file"]


@pytest.mark.parametrize(
    "files",
    [
        [("upload", ("x", b"1")), ("attributes_str", (None, b"{broken"))],
        [("upload", ("x", b"1")), ("attributes_str", (None, b"[1]"))],
        [("upload", ("x", b"1")), ("upload", ("y", b"2"))],
        [("upload", ("x", b"1")), ("uplod", (None, b"2"))],
        [("upload", ("x", b"1")), ("parts", (None, b"3"))],
        [("parts", (None, b"many"))],
        [("upload", ("x\r\ny", b"1"))],
        [("upload", ("n" * 300, b"1"))],
    ],
)
async def test_a_form_that_makes_no_sense_leaves_no_node(api: Api, files: Any) -> None:
    reply = await api.http.post("/node", files=files)
    assert reply.status_code == 400, reply.text
    assert (await api.http.get("/node")).json()["total_count"] == 0


async def test_a_node_cannot_be_made_of_one_without_content(api: Api) -> None:
    empty = await api.ok("POST", "/node")
    await api.refused("POST", "/node", 404, "node_not_found", files={"copy_data": (None, b"nope")})
    await api.refused("POST", "/node", 400, "no_file", files={"copy_data": (None, empty["id"].encode())})
    assert (await api.http.get("/node")).json()["total_count"] == 1


@pytest.mark.parametrize(
    "files",
    [
        [("upload", ("x", b"new")), ("uplod", (None, b"2"))],
        [("upload", ("x", b"new")), ("attributes_str", (None, b"{broken"))],
        [("upload", ("x", b"new")), ("attributes_str", (None, b"[1]"))],
        [("upload", ("x", b"new")), ("upload", ("y", b"newer"))],
        [("upload", ("x", b"new")), ("parts", (None, b"3"))],
        [("upload", ("x", b"new")), ("copy_data", (None, b"nope"))],
        [("upload", ("x", b"new")), ("file_name", (None, b".."))],
        [("attributes_str", (None, b'{"k": 2}')), ("copy_data", (None, b"nope"))],
    ],
)
async def test_a_form_that_makes_no_sense_changes_no_node(api: Api, files: Any, tmp_path: Path) -> None:
    node = await node_of(api, b"old")
    reply = await api.http.put(f"/node/{node['id']}", files=files)
    assert reply.status_code in (400, 404), reply.text
    assert await api.ok("GET", f"/node/{node['id']}") == node
    assert (await api.http.get(f"/node/{node['id']}?download")).content == b"old"
    assert len(files_below(tmp_path)) == 1


async def test_a_form_that_is_cut_changes_no_node(api: Api, tmp_path: Path) -> None:
    node = await node_of(api, b"old")
    head = b"--B\r\nContent-Disposition: form-data; name=upload; filename=x\r\n\r\nnew\r\n--B"
    kind = {"Content-Type": "multipart/form-data; boundary=B"}
    path = f"/node/{node['id']}"
    await api.refused("PUT", path, 400, "invalid_request", content=head, headers=kind)
    assert await api.ok("GET", path) == node
    assert len(files_below(tmp_path)) == 1


async def test_the_name_of_a_file_may_come_after_it(api: Api) -> None:
    form = [("upload", ("x", b"1")), ("file_name", (None, b"wanted.txt"))]
    node = await api.ok("POST", "/node", files=form)
    assert node["file"]["name"] == "wanted.txt"
    form = [("upload", ("x", b"2")), ("file_name", (None, b"other.txt"))]
    assert (await api.ok("PUT", f"/node/{node['id']}", files=form))["file"]["name"] == "other.txt"


@pytest.mark.parametrize(
    ("name", "ascii_name", "header_rest"),
    [
        ("plain.txt", "plain.txt", ""),
        ("résumé.txt", "r_sum_.txt", "r%C3%A9sum%C3%A9.txt"),
        ("报告.fa", "__.fa", "%E6%8A%A5%E5%91%8A.fa"),
        ("plan-🚀.txt", "plan-_.txt", "plan-%F0%9F%9A%80.txt"),
        ("em—dash", "em_dash", "em%E2%80%94dash"),
        ('a"b.txt', "a_b.txt", "a%22b.txt"),
        ("n" * 255, "n" * 255, ""),
        ("é" * 127 + "x", "_" * 127 + "x", "%C3%A9" * 127 + "x"),
        ("100%.txt", "100_.txt", "100%25.txt"),
    ],
)
async def test_F_07_any_file_name_can_be_downloaded(
    api: Api, name: str, ascii_name: str, header_rest: str
) -> None:
    """By the API; there is no dashboard yet that could be asked, too."""
    node = await node_of(api, b"0123456789", name)
    assert node["file"]["name"] == name
    whole = await api.http.get(f"/node/{node['id']}?download")
    assert whole.content == b"0123456789"
    expected = f'attachment; filename="{ascii_name}"'
    expected += f"; filename*=UTF-8''{header_rest}" if header_rest else ""
    assert whole.headers["content-disposition"] == expected
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["content-type"] == "application/octet-stream"
    part = await api.http.get(f"/node/{node['id']}?download", headers={"Range": "bytes=3-5"})
    assert (part.status_code, part.content) == (206, b"345")


@pytest.mark.parametrize(
    "name", ["résumé.txt", "报告.fa", "plan-🚀.txt", "em—dash", 'a"b.txt', "é" * 127 + "x"]
)
async def test_F_07_a_raw_upload_keeps_its_name(api: Api, name: str) -> None:
    kind = {"Content-Type": "application/octet-stream"}
    node = await api.ok("POST", "/node", params={"file_name": name}, content=b"0123456789", headers=kind)
    path = f"/node/{node['id']}"
    for upload in ({}, {"content": b"9876543210", "headers": kind}):
        if upload:
            node = await api.ok("PUT", path, params={"file_name": name}, **upload)
        assert (node["file"]["name"], node["file"]["size"]) == (name, 10)
        reply = await api.http.get(f"{path}?download", headers={"Range": "bytes=0-3"})
        assert (reply.status_code, reply.content) == (206, b"9876" if upload else b"0123")
        assert reply.headers["content-disposition"].endswith(f"; filename*=UTF-8''{quote(name, safe='')}")


@pytest.mark.parametrize("name", ["x\r\ny", "x\ny", "x\0y", "..", ".", "é" * 128])
async def test_F_07_a_raw_upload_with_a_bad_name_is_refused(api: Api, name: str, tmp_path: Path) -> None:
    kind = {"Content-Type": "application/octet-stream"}
    more: dict[str, Any] = {"params": {"file_name": name}, "content": b"1", "headers": kind}
    await api.refused("POST", "/node", 400, "invalid_request", **more)
    assert (await api.http.get("/node")).json()["total_count"] == 0
    assert files_below(tmp_path) == []


async def test_F_07_a_name_with_a_line_break_is_refused_and_paths_are_cut(api: Api) -> None:
    reply = await api.http.post("/node", files={"upload": ("x\r\nSet-Cookie: y", b"1")})
    assert reply.status_code == 400
    node = await node_of(api, b"1", "../../etc/passwd")
    assert node["file"]["name"] == "passwd"


@pytest.mark.parametrize(
    ("header", "status", "content"),
    [
        ("bytes=0-0", 206, b"0"),
        ("bytes=4-", 206, b"456789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=4-100", 206, b"456789"),
        ("bytes=10-", 416, None),
        ("bytes=5-2", 200, b"0123456789"),
        ("bytes=1-2,4-5", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
    ],
)
async def test_ranges(api: Api, header: str, status: int, content: bytes | None) -> None:
    node = await node_of(api, b"0123456789")
    reply = await api.http.get(f"/node/{node['id']}?download", headers={"Range": header})
    assert reply.status_code == status
    assert reply.headers.get("accept-ranges", "bytes") == "bytes"
    if content is not None:
        assert reply.content == content
        assert int(reply.headers["content-length"]) == len(content)
    if status == 416:
        assert reply.headers["content-range"] == "bytes */10"
        assert reply.json()["code"] == "bad_range"


async def test_a_cut_download_goes_on_only_in_the_same_content(api: Api) -> None:
    node = await node_of(api, b"0123456789")
    path = f"/node/{node['id']}?download"
    etag = (await api.http.get(path)).headers["etag"]
    headers = {"Range": "bytes=5-", "If-Range": etag}
    assert (await api.http.get(path, headers=headers)).content == b"56789"
    await api.ok("PUT", f"/node/{node['id']}", files={"attributes_str": (None, b"{}")})
    assert (await api.http.get(path, headers=headers)).status_code == 206
    await api.ok("PUT", f"/node/{node['id']}", files={"upload": ("x", b"abcdefghij")})
    reply = await api.http.get(path, headers=headers)
    assert (reply.status_code, reply.content) == (200, b"abcdefghij")


@pytest.mark.parametrize("header", ["bytes=5-", "bytes=90-"])
async def test_content_that_is_replaced_while_it_is_asked_for_is_not_mixed(
    api: Api, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    node = await node_of(api, b"0123456789" * (1 if header == "bytes=5-" else 10))
    path, nodes = f"/node/{node['id']}?download", api.services.nodes
    headers = {"Range": header, "If-Range": (await api.http.get(path)).headers["etag"]}
    before = (await api.http.get(path, headers=headers)).content
    plain = nodes.open_range

    async def replaced_then(node_id: str, **window: Any) -> Any:
        found = await plain(node_id, **window)
        monkeypatch.undo()
        await api.ok("PUT", f"/node/{node['id']}", files={"upload": ("x", b"abcdefghij")})
        return found

    monkeypatch.setattr(nodes, "open_range", replaced_then)
    reply = await api.http.get(path, headers=headers)
    assert (reply.status_code, reply.headers["etag"]) == (206, headers["If-Range"])
    assert reply.content == before
    reply = await api.http.get(path, headers=headers)
    assert (reply.status_code, reply.content) == (200, b"abcdefghij")


async def test_parts_by_index_and_windows_by_seek(api: Api) -> None:
    node = await node_of(api, FASTA)
    path = f"/node/{node['id']}"
    await api.refused("GET", f"{path}?download&index=record&part=1", 400, "no_index")
    fact = await api.ok("PUT", f"{path}/index/record")
    assert (fact["kind"], fact["total_units"]) == ("record", 10)
    assert (await api.ok("GET", path))["indexes"]["record"]["total_units"] == 10

    async def bytes_of(query: str, **more: Any) -> bytes:
        reply = await api.http.get(f"{path}?download&{query}", **more)
        assert reply.status_code in (200, 206), reply.text
        return reply.content

    assert await bytes_of("index=record&part=1") == b">s0\nACGT\n"
    assert await bytes_of("index=record&part=2-3") == b">s1\nACGT\n>s2\nACGT\n"
    assert await bytes_of("index=record&part=2-3", headers={"Range": "bytes=0-3"}) == b">s1\n"
    assert await bytes_of("seek=4&length=4") == b"ACGT"
    assert await bytes_of("length=4") == b">s0\n"
    assert await bytes_of("seek=81") == b">s9\nACGT\n"
    assert (await api.http.get(f"{path}?download_raw&seek=86")).content == b"CGT\n"[:4]
    await api.refused("GET", f"{path}?download&index=record&part=11", 416, "bad_range")
    await api.refused("GET", f"{path}?download&index=record", 400, "invalid_request")
    await api.refused("GET", f"{path}?download&seek=-1", 400, "invalid_request")
    await api.refused("PUT", f"{path}/index/bogus", 400, "invalid_request")


async def test_parts_that_were_declared_become_one_file(api: Api) -> None:
    empty = await api.ok("POST", "/node")
    path = f"/node/{empty['id']}"
    declared = await api.ok("PUT", path, files={"parts": (None, b"3"), "file_name": (None, b"all.txt")})
    assert declared["parts"]["count"] == 3
    for rank in (3, 1, 2):
        await api.ok("PUT", path, files={str(rank): ("p", b"part%d;" % rank)})
    whole = await api.http.get(f"{path}?download")
    assert whole.content == b"part1;part2;part3;"
    assert 'filename="all.txt"' in whole.headers["content-disposition"]
    await api.refused("PUT", path, 400, "invalid_request", files={"4": ("p", b"x")})


async def test_copy_list_filter_delete(api: Api) -> None:
    first = await api.ok(
        "POST", "/node", files={"upload": ("a", b"1"), "attributes_str": (None, b'{"k": "v", "n": 3}')}
    )
    second = await node_of(api, b"22", "b")
    copy = await api.ok("POST", "/node", files={"copy_data": (None, first["id"].encode())})
    assert (await api.http.get(f"/node/{copy['id']}?download")).content == b"1"

    async def ids(query: str) -> set[str]:
        return {node["id"] for node in await api.ok("GET", f"/node?{query}")}

    assert await ids("") == {first["id"], second["id"], copy["id"]}
    assert await ids("query&k=v") == await ids("attributes.n=3") == {first["id"]}
    assert await ids("querynode&file.name=b") == await ids("name=b") == {second["id"]}
    assert len(await ids("limit=2")) == 2
    assert (await api.http.get("/node?limit=1&offset=2")).json()["total_count"] == 3
    await api.refused("GET", "/node?k=v", 400, "unknown_parameter")
    assert await api.ok("DELETE", f"/node/{first['id']}") is None
    await api.refused("GET", f"/node/{first['id']}", 404, "node_not_found")
    assert (await api.http.get(f"/node/{copy['id']}?download")).content == b"1"


@pytest.mark.parametrize(
    "id", ["nope", "..%2f..%2fetc", "%2e%2e", "a%00b", "0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10"]
)
async def test_unknown_nodes_are_404(api: Api, id: str) -> None:
    for method, query in (("GET", ""), ("GET", "?download"), ("DELETE", ""), ("PUT", "")):
        reply = await api.http.request(method, f"/node/{id}{query}")
        assert reply.status_code == 404, (method, reply.text)


# ---- outputs of attempts


async def held(api: Api, totalwork: int = 1) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """A held workunit with an output: the workunit, the holder's header, the output."""
    task = {
        "taskid": "0",
        "cmd": {"name": "x"},
        "outputs": [{"filename": "out.txt"}],
        "totalwork": totalwork,
    }
    job = await api.submit(task)
    await api.state_of(job, "queued")
    work = await api.checkout(await api.register(cores=64))
    token = api.services.engine.state.workunits[WorkunitId(work["id"])].token
    return work, {"Awe-Lease": token}, work["outputs"][0]


async def test_F_11_an_attempts_output_is_seen_once_its_report_is_accepted(api: Api) -> None:
    work, lease, output = await held(api)
    path = f"/node/{output['node']}"
    fact = await api.ok("PUT", f"{path}?work={work['id']}&attempt=1", content=b"result", headers=lease)
    assert fact["size"] == 6
    assert len(fact["sha256"]) == 64
    await api.refused("GET", f"{path}?download", 400, "no_file")
    await api.report(work)
    job = await api.state_of({"id": work["jobid"]}, "completed")
    assert (await api.http.get(f"{path}?download")).content == b"result"
    shown = job["tasks"][0]["outputs"][0]
    assert (shown["size"], shown["host"]) == (6, "http://127.0.0.1:8001")


async def test_F_04_an_empty_output_is_a_file_too(api: Api) -> None:
    work, lease, output = await held(api)
    path = f"/node/{output['node']}"
    await api.ok("PUT", f"{path}?work={work['id']}&attempt=1", content=b"", headers=lease)
    await api.report(work)
    await api.state_of({"id": work["jobid"]}, "completed")
    assert (await api.http.get(f"{path}?download")).content == b""


async def test_nobody_but_the_holder_writes_an_output(api: Api) -> None:
    work, lease, output = await held(api)
    path = f"/node/{output['node']}"
    mine = f"{path}?work={work['id']}&attempt=1"
    await api.refused("PUT", mine, 409, "lease_lost", content=b"x", headers={"Awe-Lease": "wrong"})
    await api.refused(
        "PUT", mine.replace("attempt=1", "attempt=2"), 409, "lease_lost", content=b"x", headers=lease
    )
    await api.refused("PUT", mine, 400, "invalid_request", content=b"x")
    await api.refused("PUT", f"{path}?work={work['id']}", 400, "invalid_request", content=b"x", headers=lease)
    await api.refused("PUT", path, 403, "forbidden", content=b"x")
    await api.refused("PUT", path, 403, "forbidden", files={"parts": (None, b"2")})
    plain = await node_of(api, b"other")
    foreign = f"/node/{plain['id']}?work={work['id']}&attempt=1"
    await api.refused("PUT", foreign, 403, "forbidden", content=b"x", headers=lease)
    await api.report(work)
    await api.refused("PUT", mine, 409, "lease_lost", content=b"x", headers=lease)
    await api.refused("PUT", path, 409, "lease_lost", files={"upload": ("x", b"x")})


def attributes(**values: Any) -> dict[str, Any]:
    return {"attributes_str": (None, json.dumps(values))}


async def test_nobody_but_the_holder_describes_an_output(api: Api) -> None:
    work, lease, output = await held(api)
    path = f"/node/{output['node']}"
    mine = f"{path}?work={work['id']}&attempt=1"
    await api.refused("PUT", path, 403, "forbidden", files=attributes(by="anybody"))
    wrong = {"Awe-Lease": "wrong"}
    await api.refused("PUT", mine, 409, "lease_lost", files=attributes(by="anybody"), headers=wrong)
    assert (await api.ok("GET", path))["attributes"] is None
    node = await api.ok("PUT", mine, files=attributes(by="holder"), headers=lease)
    assert node["attributes"] is None
    both = {"upload": ("out.txt", b"7\n"), **attributes(by="holder again")}
    node = await api.ok("PUT", mine, files=both, headers=lease)
    assert (node["attributes"], node["file"]["size"]) == (None, 0)
    await api.refused("PUT", mine, 403, "forbidden", files={"3": ("out.txt", b"x")}, headers=lease)
    await api.report(work)
    await api.state_of({"id": work["jobid"]}, "completed")
    await api.refused("PUT", mine, 409, "lease_lost", files=attributes(by="late"), headers=lease)
    assert (await api.ok("GET", path))["attributes"] == {"by": "holder again"}
    assert (await api.http.get(f"{path}?download")).content == b"7\n"
    node = await api.ok("PUT", path, files=attributes(by="a person"))
    assert node["attributes"] == {"by": "a person"}


async def test_attributes_of_an_output_that_failed_are_nobodys(api: Api) -> None:
    work, _, output = await held(api)
    await api.ok("PUT", f"/job/{work['jobid']}?suspend")
    await api.refused("PUT", f"/node/{output['node']}", 403, "forbidden", files=attributes(by="anybody"))


async def test_attributes_of_an_attempt_that_lost_its_lease_never_show(api: Api, tmp_path: Path) -> None:
    work, lease, output = await held(api)
    path, job = f"/node/{output['node']}", {"id": work["jobid"]}
    first = {"upload": ("out.txt", b"1\n"), **attributes(by="the first")}
    await api.ok("PUT", f"{path}?work={work['id']}&attempt=1", files=first, headers=lease)
    await api.ok("PUT", f"/job/{job['id']}?suspend")
    await api.ok("PUT", f"/job/{job['id']}?resume")
    again = await api.ok("GET", f"/work?client={work['client']}")
    await api.ok("PUT", path, files={"upload": ("out.txt", b"2\n")})
    await api.report(again)
    await api.state_of(job, "completed")
    assert (await api.ok("GET", path))["attributes"] is None
    assert (await api.http.get(f"{path}?download")).content == b"2\n"
    assert len(files_below(tmp_path)) == 1


async def test_L_01_a_lease_lost_during_the_upload_is_noticed_at_its_end(api: Api, tmp_path: Path) -> None:
    work, lease, output = await held(api)

    async def slow() -> Any:
        yield b"first "
        await api.ok("PUT", f"/job/{work['jobid']}?suspend")
        yield b"second"

    path = f"/node/{output['node']}?work={work['id']}&attempt=1"
    await api.refused("PUT", path, 409, "lease_lost", content=slow(), headers=lease)
    assert files_below(tmp_path) == []


async def test_nobody_but_the_holder_goes_on_with_an_upload(api: Api, tmp_path: Path) -> None:
    work, lease, output = await held(api)
    path = f"/node/{output['node']}"
    mine = f"{path}?work={work['id']}&attempt=1"
    asked = mine + "&unfinished"
    assert await api.ok("GET", asked, headers=lease) == {"offset": 0}
    await api.refused("GET", asked, 409, "lease_lost", headers={"Awe-Lease": "wrong"})
    await api.refused("GET", asked, 400, "invalid_request")
    await api.refused("GET", f"{path}?unfinished", 400, "invalid_request", headers=lease)
    await api.refused("GET", f"{path}?work={work['id']}", 400, "invalid_request", headers=lease)
    plain = await node_of(api, b"other")
    foreign = f"/node/{plain['id']}?work={work['id']}&attempt=1"
    await api.refused("GET", foreign + "&unfinished", 403, "forbidden", headers=lease)
    form = {"upload": ("x", b"x")}
    await api.refused("PUT", mine + "&offset=0", 400, "invalid_request", files=form, headers=lease)
    texts = await api.refused("PUT", mine + "&offset=3", 409, "conflict", content=b"x", headers=lease)
    assert "0 bytes are here" in texts[0]
    assert len(files_below(tmp_path)) == 1
    await api.ok("PUT", mine, content=b"abc", headers=lease)
    assert await api.ok("GET", asked, headers=lease) == {"offset": 3}
    await api.report(work)
    await api.refused("GET", asked, 409, "lease_lost", headers=lease)
    await api.refused("PUT", mine + "&offset=3", 409, "lease_lost", content=b"", headers=lease)


@pytest.mark.parametrize("totalwork", [1, 2])
async def test_F_11_an_upload_that_ends_after_the_report_changes_nothing(
    api: Api, tmp_path: Path, totalwork: int
) -> None:
    work, lease, output = await held(api, totalwork)
    path = f"/node/{output['node']}"
    mine = f"{path}?work={work['id']}&attempt=1"

    async def slow() -> Any:
        yield b"late "
        await api.ok("PUT", mine, files={"upload": ("out.txt", b"good\n")}, headers=lease)
        await api.report(work)
        if totalwork == 1:
            await api.state_of({"id": work["jobid"]}, "completed")
        yield b"bytes"

    await api.refused("PUT", mine, 409, "lease_lost", content=slow(), headers=lease)
    if totalwork == 2:
        other = await api.ok("GET", f"/work?client={work['client']}")
        await api.ok("PUT", path, files={str(other["rank"]): ("out.txt", b"2\n")})
        await api.report(other)
        await api.state_of({"id": work["jobid"]}, "completed")
    assert (await api.http.get(f"{path}?download")).content == (b"good\n" if totalwork == 1 else b"good\n2\n")
    assert len(files_below(tmp_path)) == 1


async def test_a_stock_worker_uploads_by_rank(api: Api) -> None:
    work, _, output = await held(api)
    path = f"/node/{output['node']}"
    files = [
        ("attributes_str", (None, json.dumps({"kind": "count"}).encode())),
        ("upload", ("out.txt", b"2\n")),
    ]
    node = await api.ok("PUT", path, files=files)
    assert (node["id"], node["attributes"]) == (output["node"], None)
    await api.report(work)
    await api.state_of({"id": work["jobid"]}, "completed")
    assert (await api.ok("GET", path))["attributes"] == {"kind": "count"}
    assert (await api.http.get(f"{path}?download")).content == b"2\n"


async def test_a_node_of_a_person_goes_on_where_its_upload_was_cut(api: Api, tmp_path: Path) -> None:
    path = f"/node/{(await node_of(api, b'old'))['id']}"
    assert await api.ok("GET", f"{path}?unfinished") == {"offset": 0}
    kind = {"Content-Type": "application/octet-stream"}

    async def cut() -> Any:
        yield b"new "
        raise SenderGone

    with pytest.raises(SenderGone):
        await api.services.nodes.upload(path.rpartition("/")[2], cut(), offset=0)
    assert await api.ok("GET", f"{path}?unfinished") == {"offset": 4}
    assert (await api.http.get(f"{path}?download")).content == b"old"
    await api.refused("PUT", f"{path}?offset=3", 409, "conflict", content=b"x", headers=kind)
    node = await api.ok("PUT", f"{path}?offset=4&expiration=1D", content=b"bytes", headers=kind)
    assert (await api.http.get(f"{path}?download")).content == b"new bytes"
    assert node["file"]["checksum"]["md5"] == hashlib.md5(b"new bytes", usedforsecurity=False).hexdigest()
    assert await api.ok("GET", f"{path}?unfinished") == {"offset": 0}
    assert len(files_below(tmp_path)) == 1
    with pytest.raises(SenderGone):
        await api.services.nodes.upload(path.rpartition("/")[2], cut(), offset=0)
    assert len(files_below(tmp_path)) == 2
    await api.ok("DELETE", path)
    assert files_below(tmp_path) == []


async def test_large_uploads_stream(api: Api) -> None:
    async def chunks() -> Any:
        for i in range(256):
            yield bytes([i]) * 65_536

    node = await api.ok(
        "POST", "/node", content=chunks(), headers={"Content-Type": "application/octet-stream"}
    )
    assert node["file"]["size"] == 256 * 65_536
    last = await api.http.get(f"/node/{node['id']}?download", headers={"Range": "bytes=-2"})
    assert last.content == b"\xff\xff"


def reading(node: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """A task that is cut into two from a node."""
    inputs = [{"filename": "in.txt", "node": node["id"]}]
    cut = {"totalwork": 2, "partinfo": {"input": "in.txt", "index": "line"}}
    return {"taskid": "0", "cmd": {"name": "x"}, "inputs": inputs, **cut, **keys}


@pytest.mark.parametrize("how", ["form", "raw", "copy"])
@pytest.mark.parametrize("use", ["inputs", "predata"])
async def test_content_that_work_reads_is_not_replaced(api: Api, tmp_path: Path, use: str, how: str) -> None:
    node, other = await node_of(api, b"a\nb\n"), await node_of(api, b"c\nd\n")
    task = reading(node)
    if use == "predata":
        task = {"taskid": "0", "cmd": {"name": "x"}, "predata": task["inputs"], "totalwork": 2}
    change: dict[str, Any] = {
        "form": {"files": {"upload": ("in.txt", b"c\nd\n")}},
        "raw": {"content": b"c\nd\n"},
        "copy": {"files": {"copy_data": (None, other["id"].encode())}},
    }[how]
    job = await api.submit(task)
    await api.state_of(job, "queued")
    client, path, before = await api.register(), f"/node/{node['id']}", len(files_below(tmp_path))
    works = []
    for _ in range(2):
        [text] = await api.refused("PUT", path, 409, "conflict", **change)
        assert f"is an input of task {job['id']}_0" in text
        works.append(await api.checkout(client))
    await api.refused("PUT", path, 409, "conflict", **change)
    assert (await api.http.get(f"{path}?download")).content == b"a\nb\n"
    assert len(files_below(tmp_path)) == before
    for work in works:
        await api.report(work)
    await api.state_of(job, "completed")
    await api.ok("PUT", path, **change)
    assert (await api.http.get(f"{path}?download")).content == b"c\nd\n"


async def test_parts_do_not_replace_content_that_work_reads_either(api: Api) -> None:
    node = await node_of(api, b"a\nb\n")
    job = await api.submit(reading(node))
    await api.state_of(job, "queued")
    path, part = f"/node/{node['id']}", {"files": {"1": ("in.txt", b"c\nd\n")}}
    await api.ok("PUT", path, files={"parts": (None, b"1")})
    await api.refused("PUT", path, 409, "conflict", **part)
    assert (await api.http.get(f"{path}?download")).content == b"a\nb\n"
    await api.ok("DELETE", f"/job/{job['id']}")
    await api.ok("PUT", path, **part)
    assert (await api.http.get(f"{path}?download")).content == b"c\nd\n"


async def test_the_same_content_again_is_fine_and_so_is_other_content_of_a_suspended_job(api: Api) -> None:
    node = await node_of(api, b"a\nb\n")
    job = await api.submit(reading(node))
    await api.state_of(job, "queued")
    path = f"/node/{node['id']}"
    await api.ok("PUT", path, content=b"a\nb\n")
    await api.ok("PUT", path, files={"attributes_str": (None, b'{"kind": "c"}')})
    await api.ok("PUT", f"/job/{job['id']}?suspend")
    await api.ok("PUT", path, content=b"c\nd\n")
    await api.ok("PUT", f"/job/{job['id']}?recompute=0")
    await api.state_of(job, "queued")
    await api.refused("PUT", path, 409, "conflict", content=b"e\nf\n")


async def test_an_input_of_a_task_that_waits_for_others_may_change(api: Api) -> None:
    node = await node_of(api, b"a\nb\n")
    first = {"taskid": "first", "cmd": {"name": "x"}}
    await api.submit(first, reading(node, dependsOn=["first"]))
    await api.ok("PUT", f"/node/{node['id']}", content=b"c\nd\n")
