"""/events: what happened, as a list and as a stream."""

import json
from typing import Any

import anyio
import pytest

from tests.api.conftest import Api

pytestmark = pytest.mark.anyio


def codes(events: list[dict[str, Any]]) -> list[str]:
    return [event["code"] for event in events]


async def test_a_jobs_life_is_told_in_awes_codes(api: Api) -> None:
    job = await api.submit()
    await api.report(await api.checkout(await api.register()))
    events = await api.ok("GET", "/events")
    assert codes(events) == ["JQ", "TQ", "CR", "WC", "WD", "TD", "JD"]
    assert [event["seq"] for event in events] == sorted({event["seq"] for event in events})
    mine = await api.ok("GET", f"/events?job={job['id']}")
    assert set(codes(mine)) == {"JQ", "TQ", "WC", "WD", "TD", "JD"}
    assert await api.ok("GET", f"/events?since={events[-1]['seq']}") == []
    assert codes(await api.ok("GET", f"/events?since={events[-2]['seq']}")) == ["JD"]


async def test_waiting_for_an_event_that_fits(api: Api) -> None:
    job = await api.submit()
    last = (await api.ok("GET", "/events"))[-1]["seq"]
    found: list[Any] = []

    async def wait() -> None:
        found.extend(await api.ok("GET", f"/events?since={last}&job={job['id']}&wait_s=30"))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await api.register()
        await api.ok("PUT", f"/job/{job['id']}?suspend")
    assert codes(found) == ["JP"]
    assert await api.ok("GET", f"/events?since={found[-1]['seq']}&wait_s=0.01") == []


async def read_stream(
    api: Api, headers: dict[str, str], count: int, then: Any = None
) -> list[dict[str, Any]]:
    """The first events of a stream; read below httpx, whose in-process transport waits for the end."""
    sent: list[bytes] = []
    enough = anyio.Event()

    async def receive() -> Any:
        await enough.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            kinds = dict(message["headers"])
            assert kinds[b"content-type"].startswith(b"text/event-stream")
        elif message["body"]:
            sent.append(message["body"])
            if len(sent) >= count:
                enough.set()

    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http", "method": "GET", "path": "/events", "query_string": b"", "scheme": "http",
        "headers": [(b"accept", b"text/event-stream"), (b"host", b"127.0.0.1"), *raw],
        "server": ("127.0.0.1", 80), "root_path": "", "asgi": {"version": "3.0", "spec_version": "2.4"},
    }  # fmt: skip
    async with anyio.create_task_group() as group:
        group.start_soon(api.app, scope, receive, send)
        if then is not None:
            await anyio.wait_all_tasks_blocked()
            await then()
        await enough.wait()
        group.cancel_scope.cancel()
    blocks = [block.decode().strip().split("\n") for block in sent]
    events = [dict(line.split(": ", 1) for line in block) for block in blocks]
    for event in events:
        data = json.loads(event["data"])
        assert (event["event"], event["id"]) == (data["code"], str(data["seq"]))
    return [json.loads(event["data"]) for event in events]


async def test_a_stream_tells_the_past_and_then_what_happens(api: Api) -> None:
    job = await api.submit()

    async def suspend() -> None:
        await api.ok("PUT", f"/job/{job['id']}?suspend")

    events = await read_stream(api, {}, 3, suspend)
    assert codes(events) == ["JQ", "TQ", "JP"]


async def test_a_cut_stream_goes_on_behind_the_last_event(api: Api) -> None:
    await api.submit()
    first = (await api.ok("GET", "/events"))[0]["seq"]
    assert codes(await read_stream(api, {"Last-Event-ID": str(first)}, 1)) == ["TQ"]


async def test_a_last_event_id_that_is_no_number_is_ignored(api: Api) -> None:
    await api.submit()
    for odd in ("x", "-1", "9" * 5_000):
        assert codes(await read_stream(api, {"Last-Event-ID": odd}, 2)) == ["JQ", "TQ"]
