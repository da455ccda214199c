"""`/`, `/health`, `/docs`: what this server is and whether it works."""

import pytest

from tests.api.conftest import Api
from tests.support.golden import recorded, shape_problems

pytestmark = pytest.mark.anyio


async def test_the_root_has_no_envelope_and_all_keys_of_awe(api: Api) -> None:
    reply = await api.http.get("/")
    about = reply.json()
    theirs = recorded("root")["reply"]["body"]
    assert shape_problems({k: v for k, v in theirs.items() if k != "auth"}, about) == []
    assert about["url"] == "http://127.0.0.1:8001/"
    assert about["queue_status"] == "running"


async def test_the_uuid_is_the_one_of_heartbeats(api: Api) -> None:
    client = await api.register()
    about = (await api.http.get("/")).json()
    told = await api.ok("PUT", f"/client/{client['id']}?heartbeat", json={})
    assert about["uuid"] == told["server-uuid"] == client["server_uuid"]


@pytest.mark.parametrize("step_s", [-3600.0, 86_400.0])
async def test_L_11_how_long_it_is_up_does_not_depend_on_the_wall_clock(api: Api, step_s: float) -> None:
    api.hands.advance(61.5)
    api.hands.wall_s += step_s
    assert (await api.http.get("/")).json()["uptime"] == "0h1m1.50s"


async def test_health_says_ready(api: Api) -> None:
    health = await api.ok("GET", "/health")
    assert health["live"]
    assert health["ready"]
    assert health["lease"] is None
    assert health["store"] == "memory"
    assert health["version"]


async def test_a_stopped_server_is_live_but_not_ready_and_refuses_work(api: Api) -> None:
    api.services.engine.close()
    reply = await api.http.get("/health")
    assert reply.status_code == 503
    assert reply.json()["health"]["ready"] is False
    assert (await api.ok("GET", "/health?live"))["live"]
    refused = await api.http.get("/job")
    assert refused.status_code == 503
    assert refused.headers["retry-after"]


async def test_a_server_that_stands_by_says_whom_to_ask(api: Api) -> None:
    api.services.engine.stands_by = "Another server owns this store: host (pid 7)."
    [text] = await api.refused("GET", "/job", 503, "starting")
    assert text == "standing by: ask the other server. Another server owns this store: host (pid 7)."
    assert (await api.http.post("/job", json={})).headers["retry-after"]
    api.services.engine.stands_by = ""
    await api.ok("GET", "/job")


async def test_every_route_is_documented(api: Api) -> None:
    schema = (await api.http.get("/openapi.json")).json()
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation.get("summary"), where
            assert operation.get("description"), where
            assert "422" not in operation["responses"], where
    assert "post" in schema["paths"]["/client/{client_id}/exchange"]
    parameters = {row["name"] for row in schema["paths"]["/job"]["get"]["parameters"]}
    assert {"limit", "offset", "order", "direction", "state", "info.name"} <= parameters


async def test_the_docs_page_needs_no_other_host(api: Api) -> None:
    page = await api.http.get("/docs")
    assert page.status_code == 200
    assert "://" not in page.text
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"):
        assert name in page.text
        assert (await api.http.get(f"/docs/{name}")).status_code == 200
    await api.refused("GET", "/docs/..%2fcore.py", 404, "not_found")


async def test_links_follow_the_name_by_which_the_server_was_asked(api: Api) -> None:
    node = await api.ok("POST", "/node", files={"upload": ("in.txt", b"x")})
    task = {"taskid": "0", "cmd": {"name": "cat"}, "inputs": [{"filename": "in.txt", "node": node["id"]}]}
    job = await api.submit(task)
    shown = await api.ok("GET", f"/job/{job['id']}", headers={"Host": "localhost:9000"})
    assert shown["tasks"][0]["inputs"][0]["url"] == f"http://localhost:9000/node/{node['id']}?download"
    assert shown["tasks"][0]["inputs"][0]["host"] == "http://localhost:9000"


async def test_prometheus_finds_the_numbers(api: Api) -> None:
    await api.submit({"taskid": "0", "cmd": {"name": "x"}, "totalwork": 3})
    await api.checkout(await api.register())
    reply = await api.http.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    lines = reply.text.splitlines()
    assert 'awe_workunits{state="queuing"} 2.0' in lines
    assert 'awe_workunits{state="checkout"} 1.0' in lines
    assert any(line.startswith("awe_commits_total ") for line in lines)
