"""/client: registration, heartbeats of AWE's workers, and what operators do."""

import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from awe_server.api import views
from tests.api.conftest import Api
from tests.support.golden import form_of, recorded, shape_problems

pytestmark = pytest.mark.anyio


async def test_a_form_as_awes_worker_sends_it(api: Api) -> None:
    exchange = recorded("worker-register")
    body = exchange["request"]["body"]
    client = await api.ok("POST", "/client", files=form_of(body))
    assert shape_problems(exchange["reply"]["body"]["data"], client) == []
    assert client["id"] == body["_multipart"][0]["content"]["id"]
    assert client["server_uuid"]
    assert client["Status"] == "active-idle"


async def test_every_attribute_of_a_client_comes_back(api: Api) -> None:
    profile = {
        "name": "node7", "group": "big", "user": "anna", "domain": "magellan", "instance_id": "i-1",
        "instance_type": "m1", "host": "10.0.0.7", "cores": 8, "apps": ["blast", "bowtie"], "proxy": True,
        "subclients": 2, "version": "0.9.30", "current_work": {}, "memory_bytes": 7, "gpus": 1,
    }  # fmt: skip
    client = await api.register(**profile)
    shown = await api.ok("GET", f"/client/{client['id']}")
    for key in set(profile) - {"current_work"}:
        assert shown[key] == profile[key], key
    api.hands.advance(3 * 3600 + 16 * 60)
    await api.ok("GET", f"/client/{client['id']}?heartbeat")
    shown = await api.ok("GET", f"/client/{client['id']}")
    assert shown["serve_time"] == "3h16m"
    assert shown["idle_time"] == 3 * 3600 + 16 * 60
    assert (shown["total_checkout"], shown["total_completed"], shown["total_failed"]) == (0, 0, 0)
    assert (shown["skip_work"], shown["current_work"]) == ([], {"data": []})


async def test_counters_and_lists_follow_what_it_does(api: Api) -> None:
    await api.submit({"taskid": "0", "cmd": {"name": "x"}, "totalwork": 3})
    client = await api.register(cores=8)
    works = [await api.checkout(client) for _ in range(3)]
    shown = await api.ok("GET", f"/client/{client['id']}")
    assert shown["current_work"]["data"] == [work["id"] for work in works]
    assert shown["Status"] == "active-busy"
    await api.report(works[0])
    await api.report(works[1], "fail")
    shown = await api.ok("GET", f"/client/{client['id']}")
    assert (shown["total_checkout"], shown["total_completed"], shown["total_failed"]) == (3, 1, 1)
    assert shown["skip_work"] == [works[1]["id"]]
    assert shown["current_work"]["data"] == [works[2]["id"]]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({}, "Profile file not provided"),
        ({"files": {"x": (None, b"1")}}, "Profile file not provided"),
        ({"files": {"profile": ("p", b"{nope")}}, "not valid JSON"),
        ({"json": []}, "object"),
        ({"json": {"name": "x", "cores": "many"}}, "cores"),
    ],
)
async def test_a_bad_profile_is_refused_in_awes_words(api: Api, request_: dict[str, Any], words: str) -> None:
    reply = await api.http.post("/client", **request_)
    assert reply.status_code == 400, reply.text
    [text, *_] = reply.json()["error"]
    assert text.startswith("Error in registering new client:")
    assert words in text
    assert await api.ok("GET", "/client") == []


async def test_both_heartbeats_answer_a_map_of_texts_with_the_servers_uuid(api: Api) -> None:
    client = await api.register()
    path = f"/client/{client['id']}?heartbeat"
    recorded_body = recorded("client-heartbeat")["request"]["body"]
    for request_ in (("GET", {}), ("PUT", {"json": recorded_body}), ("PUT", {"json": {}}), ("PUT", {})):
        method, more = request_
        told = await api.ok(method, path, **more)
        assert told == {"server-uuid": client["server_uuid"]}


async def test_a_heartbeat_of_an_unknown_client_is_400_with_the_bare_text(api: Api) -> None:
    for method in ("GET", "PUT"):
        texts = await api.refused(method, "/client/nobody?heartbeat", 400, "client_not_found")
        assert texts == ["Client not found"]


async def test_held_work_that_the_server_does_not_know_is_to_be_discarded(api: Api) -> None:
    client = await api.register()
    job = await api.submit()
    unknown = "0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10_0_0"
    work = await api.checkout(client)
    path = f"/client/{client['id']}?heartbeat"
    told = await api.ok("PUT", path, json={"busy": True, "current_work": {"data": [work["id"], unknown]}})
    assert told["discard"] == unknown
    await api.ok("PUT", f"/job/{job['id']}?suspend")
    told = await api.ok("PUT", path, json={"current_work": {work["id"]: True}})
    assert told["discard"] == work["id"]


@pytest.mark.parametrize("body", [b"{nope", b'{"current_work": 7}', b'{"current_work": {"data": [1]}}'])
async def test_a_damaged_heartbeat_is_refused(api: Api, body: bytes) -> None:
    client = await api.register()
    await api.refused("PUT", f"/client/{client['id']}?heartbeat", 400, "invalid_request", content=body)


async def test_filters_of_the_list(api: Api) -> None:
    await api.submit()
    busy = await api.register("b", group="g1", apps=["*"])
    idle = await api.register("a", group="g2", apps=["blast"])
    await api.checkout(busy)

    async def names(query: str) -> list[str]:
        return [client["name"] for client in await api.ok("GET", f"/client?{query}")]

    assert await names("") == ["a", "b"]
    assert await names("busy") == ["b"]
    assert await names("group=g2") == ["a"]
    assert await names("status=idle") == await names("status=active-idle") == ["a"]
    assert await names("app=blast") == ["a"]
    assert await names("status=idle&group=g1") == []
    await api.ok("PUT", f"/client/{idle['id']}?suspend")
    assert await names("status=suspend") == ["a"]
    await api.refused("GET", "/client?grup=g1", 400, "unknown_parameter")


async def test_the_list_comes_in_pages_only_when_asked(api: Api) -> None:
    for name in ("c", "a", "d", "b"):
        await api.register(name)

    async def page(query: str) -> tuple[list[str], dict[str, Any]]:
        envelope = (await api.http.get(f"/client?{query}")).json()
        return [client["name"] for client in envelope.pop("data")], envelope

    plain = {"status": 200, "error": None}
    assert await page("") == (["a", "b", "c", "d"], plain)
    assert await page("limit=2") == (["a", "b"], {**plain, "limit": 2, "offset": 0, "total_count": 4})
    assert await page("offset=3") == (["d"], {**plain, "limit": 25, "offset": 3, "total_count": 4})
    assert await page("limit=0&offset=9") == ([], {**plain, "limit": 1000, "offset": 9, "total_count": 4})
    await api.refused("GET", "/client?limit=-1", 400, "invalid_request")


async def test_a_long_list_lets_others_have_their_turn(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(230):
        await api.register(f"c{i}")
    events: list[str] = []
    client_view = views.client_view

    def noticed(*args: Any) -> Any:
        events.append("row")
        return client_view(*args)

    async def other() -> None:
        while events.count("row") < 230:
            events.append("other")
            await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(views, "client_view", noticed)
    async with anyio.create_task_group() as group:
        group.start_soon(other)
        assert len(await api.ok("GET", "/client")) == 230
    first, last = events.index("row"), len(events) - events[::-1].index("row")
    between = "".join("." if event == "row" else " " for event in events[first:last]).split()
    assert [len(rows) for rows in between] == [100, 100, 30]


async def test_suspend_and_resume_with_awes_texts(api: Api) -> None:
    client = await api.register()
    path = f"/client/{client['id']}"
    assert await api.ok("PUT", f"{path}?suspend") == "client suspended"
    reply = await api.http.put(f"{path}?suspend")
    assert (reply.status_code, reply.json()["error"]) == (400, ["Client not active"])
    assert (await api.ok("GET", path))["suspended"]
    assert await api.ok("PUT", f"{path}?resume") == "client resumed"
    reply = await api.http.put(f"{path}?resume")
    assert (reply.status_code, reply.json()["error"]) == (400, ["Client not suspended"])
    await api.register("other")
    assert await api.ok("PUT", "/client?suspendall") == "2 clients suspended"
    assert await api.ok("PUT", "/client?resumeall") == "2 suspended clients resumed"
    await api.refused("PUT", "/client", 400, "invalid_request")
    await api.refused("PUT", path, 400, "invalid_request")
    await api.refused("PUT", "/client/nobody?suspend", 404, "client_not_found")


async def test_subclients_of_a_proxy(api: Api) -> None:
    client = await api.register(proxy=True)
    assert await api.ok("PUT", f"/client/{client['id']}?subclients=3") == "ok"
    assert (await api.ok("GET", f"/client/{client['id']}"))["subclients"] == 3
    await api.refused("PUT", f"/client/{client['id']}?subclients=x", 400, "invalid_request")


async def test_a_removed_client_loses_its_work_and_is_told_to_stop(api: Api) -> None:
    job = await api.submit()
    client = await api.register()
    await api.checkout(client)
    path = f"/client/{client['id']}"
    assert await api.ok("DELETE", path) == "client deleted"
    await api.refused("GET", path, 404, "client_not_found")
    assert (await api.ok("GET", f"/work/{job['id']}_0_0"))["state"] == "queued"
    told = await api.ok("GET", f"{path}?heartbeat")
    assert told["stop"] == client["id"]
    await api.refused("DELETE", path, 404, "client_not_found")


async def test_L_02_a_restarted_client_gives_its_old_work_back_at_once(api: Api) -> None:
    job = await api.submit()
    client = await api.register(id="node1")
    await api.checkout(client)
    await api.register(id="node1")
    shown = await api.ok("GET", f"/work/{job['id']}_0_0")
    assert shown["state"] == "queued"
    assert shown["failed"] == 0


async def test_ids_are_kept_or_given(api: Api) -> None:
    first, second = await api.register(), await api.register()
    assert first["id"] != second["id"]
    assert (await api.register(id="my-node.1"))["id"] == "my-node.1"
    body = json.dumps({"name": "x", "id": "a/b", "group": "default", "apps": []})
    reply = await api.http.post("/client", content=body)
    assert reply.status_code == 400


@pytest.mark.parametrize(
    "request_",
    ["PUT /client/{id}?heartbeat", "GET /client/{id}?heartbeat", "GET /work?client={id}"],
)
async def test_nobody_lives_or_fetches_in_the_name_of_a_client_that_speaks_exchange(
    api: Api, request_: str
) -> None:
    """It would take back what the client holds, or hand out work that the client never hears of."""
    await api.submit()
    await api.submit()
    client = await api.register(native=True, incarnation="one")
    exchange = {"incarnation": "one", "request_id": 1, "want": 1, "holds": [], "reports": []}
    path = f"/client/{client['id']}/exchange"
    [grant] = (await api.ok("POST", path, json=exchange))["work"]
    method, url = request_.format(id=client["id"]).split(" ")
    body: Any = {"json": {"current_work": {"data": []}}} if method == "PUT" else {}
    [text] = await api.refused(method, url, 403, "forbidden", **body)
    assert "speaks exchange" in text
    holds = (await api.ok("GET", f"/client/{client['id']}"))["current_work"]
    assert holds["data"] == [f"{grant['task']}_{grant['rank']}"]
