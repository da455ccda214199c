"""A server that may not lead any more, say because it was stopped for a while, answers nothing from memory,
begins nothing elsewhere, and takes no client's work away.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from awe_server.runtime.ticker import Ticker
from awe_server.store.memory import MemoryStore
from tests.api.conftest import Api
from tests.api.test_error_shape import PATHS, routes

pytestmark = pytest.mark.anyio

NATIVE: dict[str, Any] = {"native": True, "incarnation": "one", "cores": 4}


@pytest.fixture(autouse=True)
def doubt(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Switches the doubt on and off."""

    def switch(on: bool) -> None:
        monkeypatch.setattr(MemoryStore, "in_doubt", on)

    return switch


@pytest.fixture
async def api(api: Api, doubt: Any) -> AsyncIterator[Api]:
    """It leads again at the end, to be looked at."""
    yield api
    doubt(False)


async def refused(api: Api, method: str, path: str, **more: Any) -> None:
    reply = await api.http.request(method, path, **more)
    assert reply.status_code == 503, (method, path, reply.text)
    assert reply.headers["retry-after"] == "1"
    envelope = reply.json()
    assert envelope["code"] == "lead_in_doubt", (method, path)
    assert envelope["data"] is None
    assert "may lead by now" in envelope["error"][0]


async def exchange(api: Api, client: str, number: int, **more: Any) -> httpx.Response:
    body = {
        "incarnation": "one", "request_id": number, "want": 0, "wait_s": 0.0, "holds": [], "reports": [],
        "free": {"cores": 4, "memory_bytes": 2**40, "disk_bytes": 2**40, "gpus": 0}, **more,
    }  # fmt: skip
    return await api.http.post(f"/client/{client}/exchange", json=body)


async def test_every_route_but_health_says_so(api: Api, doubt: Any) -> None:
    job = await api.submit()
    doubt(True)
    for method, path in routes(api):
        if path != "/health":
            await refused(
                api, method, PATHS.sub(job["id"], path), **({"json": {}} if method == "POST" else {})
            )
    reply = await api.http.get("/health")
    assert reply.status_code == 503
    assert "may lead by now" in reply.json()["error"][0]
    assert (await api.http.get("/health?live")).status_code == 200
    doubt(False)
    assert [found["id"] for found in await api.ok("GET", "/job")] == [job["id"]]
    assert (await api.ok("GET", "/health"))["ready"]


async def test_nobody_is_told_to_discard(api: Api, doubt: Any) -> None:
    client = await api.register(**NATIVE)
    foreign = [["0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10_0_1", 1]]
    assert (await exchange(api, client["id"], 1, holds=foreign)).json()["data"]["discard"]
    doubt(True)
    reply = await exchange(api, client["id"], 2, holds=foreign)
    assert (reply.status_code, reply.json()["data"]) == (503, None)


@pytest.mark.parametrize("what", ["exchange", "job", "events"])
async def test_who_waits_is_not_answered_from_memory(api: Api, doubt: Any, what: str) -> None:
    client = await api.register(apps=["none"], **NATIVE)
    job = await api.state_of(await api.submit(), "queued")
    assert (await exchange(api, client["id"], 1)).status_code == 200
    last = (await api.ok("GET", "/events"))[-1]["seq"]
    waiting = {
        "exchange": lambda: exchange(api, client["id"], 2, want=1, wait_s=0.4),
        "job": lambda: api.http.get(f"/job/{job['id']}?wait_s=0.4&revision={job['revision']}"),
        "events": lambda: api.http.get(f"/events?since={last}&wait_s=0.4"),
    }[what]
    reply = asyncio.create_task(waiting())
    await asyncio.sleep(0.2)
    assert not reply.done()
    doubt(True)
    assert (await reply).status_code == 503
    assert (await reply).headers["retry-after"] == "1"


async def test_a_change_whose_answer_is_held_back_is_said_to_be_unsure(
    api: Api, doubt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed while this server led: told to try again, its sender would have it twice."""
    commit = MemoryStore.commit

    async def and_then_stop(self: MemoryStore, batch: Any) -> None:
        await commit(self, batch)
        doubt(True)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "commit", and_then_stop)
        reply = await api.http.post("/job", json={"tasks": [{"taskid": "0", "cmd": {"name": "true"}}]})
    assert (reply.status_code, reply.json()["code"]) == (503, "not_confirmed")
    assert "retry-after" not in reply.headers
    doubt(False)
    assert len(await api.ok("GET", "/job")) == 1


async def test_an_upload_is_not_acknowledged(api: Api, doubt: Any) -> None:
    async def content() -> Any:
        yield b"first"
        doubt(True)
        yield b"last"

    reply = await api.http.post(
        "/node", content=content(), headers={"Content-Type": "application/octet-stream"}
    )
    assert reply.status_code == 503, reply.text
    doubt(False)
    assert await api.ok("GET", "/node") == []


async def test_a_download_that_runs_is_cut(api: Api, doubt: Any) -> None:
    """So is a stream of events: what it says next would be of yesterday."""
    parts: list[bytes] = []
    size = 3 * 2**20
    node = await api.ok(
        "POST", "/node", content=bytes(size), headers={"Content-Type": "application/octet-stream"}
    )
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and message.get("body"):
            parts.append(message["body"])
            doubt(True)

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()  # the caller stays
        raise AssertionError

    scope = {
        "type": "http", "method": "GET", "path": f"/node/{node['id']}", "query_string": b"download",
        "headers": [(b"host", b"127.0.0.1:8001")], "http_version": "1.1", "scheme": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"}, "server": ("127.0.0.1", 8001), "raw_path": b"",
        "root_path": "", "client": ("127.0.0.1", 1),
    }  # fmt: skip
    await api.app(scope, receive, send)
    assert sent[0]["status"] == 200
    assert 0 < sum(map(len, parts)) < size
    assert all(message.get("more_body") for message in sent[1:]), "the server cuts what has no end"


async def test_no_lease_of_a_client_runs_out_meanwhile(api: Api, doubt: Any) -> None:
    """Their exchanges are refused, so they cannot be heard: the whole time is given to them as grace."""
    client, job = await api.register(**NATIVE), await api.submit()
    await api.state_of(job, "queued")
    [granted] = (await exchange(api, client["id"], 1, want=1)).json()["data"]["work"]
    held = [[f"{granted['task']}_{granted['rank']}", granted["attempt"]]]
    ticker = Ticker(api.services.engine, tick_s=0.5)
    for on in (False, True, False):
        doubt(on)
        for _ in range(150 if on else 10):
            api.hands.advance(0.5)
            ticker.once()
    reply = await exchange(api, client["id"], 2, holds=held)
    assert reply.json()["data"]["discard"] == []
