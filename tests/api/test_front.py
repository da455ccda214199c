"""What holds for every request: HEAD, slashes, foreign pages, surprises."""

import logging
from typing import Any

import anyio
import pytest

from awe_server.api import bodies
from awe_server.api.names import Names
from tests.api.conftest import URL, Api

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "path", ["/", "/health", "/job", "/work", "/client", "/queue", "/node", "/events", "/docs"]
)
async def test_head_is_get_without_the_body(api: Api, path: str) -> None:
    got, head = await api.http.get(path), await api.http.head(path)
    assert head.status_code == got.status_code == 200
    assert head.content == b""
    assert head.headers["content-type"] == got.headers["content-type"]


async def test_the_servers_own_notes_of_a_request_are_left_alone(api: Api) -> None:
    scope = {
        "type": "http", "method": "HEAD", "path": "/job/", "query_string": b"", "headers": [],
        "scheme": "http", "server": ("127.0.0.1", 80), "root_path": "",
    }  # fmt: skip
    before = dict(scope)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await api.app(scope, receive, send)
    assert {key: scope[key] for key in before} == before
    assert sent[0]["status"] == 200


async def test_a_slash_at_the_end_means_nothing(api: Api) -> None:
    await api.ok("GET", "/job/")
    await api.ok("POST", "/node/", files={"upload": ("x", b"x")})


async def test_X_08_nothing_may_be_sniffed(api: Api) -> None:
    for path in ("/job", "/nope", "/docs"):
        assert (await api.http.get(path)).headers["x-content-type-options"] == "nosniff"


async def test_X_08_a_page_of_another_site_cannot_change_anything(api: Api) -> None:
    foreign = {"Origin": "http://evil.test"}
    await api.refused("PUT", "/queue?suspend", 403, "forbidden", headers=foreign)
    await api.refused("POST", "/job", 403, "forbidden", headers=foreign, files={"upload": ("j", b"{}")})
    assert (await api.http.get("/")).json()["queue_status"] == "running"
    await api.ok("PUT", "/queue?suspend", headers={"Origin": URL})
    reply = await api.http.get("/job", headers=foreign)
    assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("origin", ["null", "file://", "", "null://", "http://", "127.0.0.1:8001"])
async def test_X_08_a_page_of_no_site_cannot_change_anything(api: Api, origin: str) -> None:
    """A sandboxed frame, a local file: whoever wrote it, it is not ours."""
    files = {"upload": ("j", b'{"tasks": [{"taskid": "0", "cmd": {"name": "true"}}]}')}
    await api.refused("POST", "/job", 403, "forbidden", headers={"Origin": origin}, files=files)
    await api.refused("DELETE", "/job", 403, "forbidden", headers={"Origin": origin, "Host": ""})
    assert (await api.http.get("/job")).json()["total_count"] == 0


@pytest.mark.parametrize("path", ["/job", "/node", "/health", "/docs"])
async def test_who_listens_on_loopback_goes_by_loopback_names(api: Api, path: str) -> None:
    """A site whose name suddenly means 127.0.0.1 is of the same origin for a browser."""
    for host in ("127.0.0.1", "localhost:9000", "LOCALHOST", "a.localhost:1", "127.1.2.3:80", "[::1]:8001"):
        assert (await api.http.get(path, headers={"Host": host})).status_code == 200
    for host in (
        "evil.test:8001",
        "localhost.evil.test",
        "127.0.0.1.evil.test",
        "8.8.8.8",
        "[fe80::1]",
        "[x",
    ):
        [text] = await api.refused("GET", path, 403, "forbidden", headers={"Host": host})
        assert "public_url" in text


@pytest.mark.parametrize(
    ("listens_on", "public_url", "host", "is_ours"),
    [
        ("127.0.0.1", "https://awe.site.test/api", "awe.site.test", True),
        ("::1", "https://awe.site.test:8443", "AWE.site.test", True),
        ("localhost", "https://awe.site.test", "other.test", False),
        ("127.8.8.8", "", "other.test", False),
        ("0.0.0.0", "", "other.test", True),
        ("192.0.2.7", "https://awe.site.test", "other.test", True),
        ("head-node", "", "other.test", True),
    ],
)
def test_other_names_are_those_of_the_settings(
    listens_on: str, public_url: str, host: str, is_ours: bool
) -> None:
    assert Names(listens_on, public_url).has(host.encode()) == is_ours


async def test_neither_head_nor_a_link_elsewhere_checks_work_out(api: Api) -> None:
    job = await api.submit()
    client = await api.register()
    path = f"/work?client={client['id']}"
    assert (await api.http.head(path)).status_code == 400
    await api.refused("GET", path, 403, "forbidden", headers={"Sec-Fetch-Site": "cross-site"})
    assert (await api.ok("GET", f"/work/{job['id']}_0_0"))["state"] == "queued"


async def test_a_body_that_stalls_is_given_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "STALL_S", 0.02)

    async def slow() -> Any:
        yield b'{"tasks": ['
        await anyio.sleep(30)
        yield b"]}"

    headers = {"Content-Type": "application/json"}
    [text] = await api.refused("POST", "/job", 400, "invalid_request", content=slow(), headers=headers)
    assert "stalled" in text
    assert (await api.http.get("/job")).json()["total_count"] == 0


async def test_X_08_no_method_or_format_is_chosen_by_the_query(api: Api) -> None:
    job = await api.submit()
    await api.refused("GET", f"/job/{job['id']}?method=DELETE", 400, "unknown_parameter")
    await api.refused("GET", "/job?callback=f", 400, "unknown_parameter")
    await api.refused("GET", "/job?always200", 400, "unknown_parameter")
    assert (await api.ok("GET", f"/job/{job['id']}"))["state"] == "queued"


async def test_a_surprise_is_answered_with_an_incident_id_and_logged_once(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(api.services.engine, "find", broken)
    with caplog.at_level(logging.ERROR):
        reply = await api.http.get("/job")
    envelope = reply.json()
    assert reply.status_code == envelope["status"] == 500
    assert envelope["code"] == "internal"
    assert envelope["incident"] in envelope["error"][0]
    assert "secret" not in reply.text
    records = [record for record in caplog.records if record.exc_info]
    assert [vars(record)["incident"] for record in records] == [envelope["incident"]]


async def test_a_reply_that_breaks_off_is_not_taken_for_whole(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await api.ok("POST", "/node", files={"upload": ("x", b"x" * 100)})
    real = api.services.nodes.open_range

    async def shortened(*args: Any, **more: Any) -> Any:
        found = await real(*args, **more)
        found.chunks._left = 200  # the file ends too early
        return found

    monkeypatch.setattr(api.services.nodes, "open_range", shortened)
    with pytest.raises(Exception, match="already started"):
        await api.http.get(f"/node/{node['id']}?download")


async def test_a_wrong_value_is_refused_with_place_and_reason(api: Api) -> None:
    [text] = await api.refused("GET", "/job?limit=x", 400, "invalid_request")
    assert text.startswith("limit: ")
    assert "'x'" in text


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/job", "application/json"),
        ("/job", "multipart/form-data; boundary=B"),
        ("/node", "application/octet-stream"),
        ("/node", "multipart/form-data; boundary=B"),
        ("/client", "application/json"),
    ],
)
async def test_a_body_that_is_cut_leaves_nothing(api: Api, path: str, kind: str) -> None:
    document = b'{"info": {}, "tasks": [{"taskid": "0", "cmd": {"name": "true"}}]}'
    head = b'--B\r\nContent-Disposition: form-data; name="upload"; filename="x"\r\n\r\n'
    body = head + document if "B" in kind else document
    received = [
        {"type": "http.request", "body": body, "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return received.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"content-type", kind.encode()), (b"host", b"127.0.0.1")],
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "root_path": "",
    }
    await api.app(scope, receive, send)
    assert sent[0]["status"] == 499
    for list_path in ("/job", "/node"):
        assert (await api.http.get(list_path)).json()["total_count"] == 0
    assert await api.ok("GET", "/client") == []


@pytest.mark.parametrize("path", ["/job", "/node", "/client"])
async def test_a_form_with_an_odd_boundary_is_refused(api: Api, path: str) -> None:
    for boundary in ("b" * 5_000, '""', "ü"):
        kind = f"multipart/form-data; boundary={boundary}".encode()
        reply = await api.http.post(path, content=b"--b--", headers={"Content-Type": kind})
        assert reply.status_code == 400, reply.text
