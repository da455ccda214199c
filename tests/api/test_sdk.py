"""The SDK against the real server: what its models give back is what the server sent, to the byte."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from awe_client.api import AsyncAweClient
from awe_server.data import nodes
from tests.api.conftest import URL, Api

pytestmark = pytest.mark.anyio


@pytest.fixture
def awe(api: Api) -> AsyncAweClient:
    return AsyncAweClient(URL, http=api.http)


def same(shown: BaseModel | list[Any], sent: Any) -> None:
    rows = [row.model_dump(mode="json") for row in shown] if isinstance(shown, list) else None
    given = rows if isinstance(shown, list) else shown.model_dump(mode="json")
    assert json.dumps(given, indent=1) == json.dumps(sent, indent=1)


async def a_site(api: Api) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A job of two tasks, the client that holds a part of it, and the workunit."""
    client = await api.register()
    node = await api.ok("POST", "/node", files={"upload": ("r.fa", b">a\nAC\n>b\nGT\n")})
    first = {
        "taskid": "0",
        "cmd": {"name": "wc", "args": "@r.fa", "environ": {"public": {"A": "1"}}},
        "inputs": [{"filename": "r.fa", "node": node["id"]}],
        "outputs": [{"filename": "n.txt"}],
        "totalwork": 2,
        "partinfo": {"input": "r.fa", "index": "record"},
    }
    second = {
        "taskid": "1",
        "dependsOn": ["0"],
        "cmd": {"name": "cat", "args": "@n.txt"},
        "inputs": [{"filename": "n.txt", "origin": "0"}],
        "userattr": {"k": "v"},
        "resources": {"cores": 2},
        "time_limit_s": 60,
    }
    job = await api.submit(first, second, name="n", userattr={"a": "b"})
    await api.state_of(job, "queued")
    return job, client, await api.checkout(client)


async def test_what_is_shown_is_given_back_whole_and_in_order(api: Api, awe: AsyncAweClient) -> None:
    job, client, work = await a_site(api)
    output = (await api.ok("GET", f"/job/{job['id']}"))["tasks"][0]["outputs"][0]["node"]
    same(await awe.get_job(job["id"]), await api.ok("GET", f"/job/{job['id']}"))
    same((await awe.list_jobs()).items, await api.ok("GET", "/job"))
    same((await awe.list_job_rows()).items, await api.ok("GET", "/job?verbosity=minimal"))
    same(await awe.get_work(work["id"]), await api.ok("GET", f"/work/{work['id']}"))
    same((await awe.list_work()).items, await api.ok("GET", "/work?query"))
    same(await awe.get_client(client["id"]), await api.ok("GET", f"/client/{client['id']}"))
    same((await awe.list_clients()).items, await api.ok("GET", "/client"))
    assert (await awe.list_clients(limit=0)).total == 1
    same(await awe.get_node(output), await api.ok("GET", f"/node/{output}"))
    same((await awe.list_nodes()).items, await api.ok("GET", "/node"))


async def test_all_else_is_given_back_as_well(
    api: Api, awe: AsyncAweClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "free_bytes", lambda folder: 10**9)  # of a disk that others use, too
    job, _, work = await a_site(api)
    same(await awe.why_job(job["id"]), await api.ok("GET", f"/job/{job['id']}?why"))
    same(await awe.why_work(work["id"]), await api.ok("GET", f"/work/{work['id']}?why"))
    same(await awe.job_report(job["id"]), await api.ok("GET", f"/job/{job['id']}?report"))
    same(await awe.queue_counts(), await api.ok("GET", "/queue?json"))
    same(await awe.health(), await api.ok("GET", "/health"))
    same(await awe.list_events(), await api.ok("GET", "/events"))
    same(await awe.server_info(), (await api.http.get("/")).json())
    await awe.suspend_job(job["id"])
    same(await awe.job_perf(job["id"]), await api.ok("GET", f"/job/{job['id']}?perf"))
    perf = await awe.job_perf(job["id"])
    assert list(perf.task_stats) == [f"{job['id']}_0", f"{job['id']}_1"]


async def test_attributes_have_what_was_submitted(api: Api, awe: AsyncAweClient) -> None:
    job, client, work = await a_site(api)
    seen = await awe.get_job(job["id"])
    assert (seen.info.name, seen.info.userattr, seen.state) == ("n", {"a": "b"}, "in-progress")
    first, second = seen.tasks
    assert (first.totalwork, first.remainwork) == (2, 2)
    assert (second.resources.cores, second.time_limit_s, second.userattr) == (2, 60.0, {"k": "v"})
    assert first.partinfo is not None
    assert first.partinfo.totalindex == 2
    assert first.cmd.environ.public == {"A": "1"}
    assert second.dependsOn == [first.id]
    unit = await awe.get_work(work["id"])
    assert (unit.client, unit.rank, unit.attempt) == (client["id"], 1, 1)
    assert (await awe.get_client(client["id"])).current_work.ids == [work["id"]]
    assert [(row.task, row.name) for row in (await awe.list_job_rows()).items] == [([0], "n")]


async def test_uploads_and_indexes_say_what_became_of_them(api: Api, awe: AsyncAweClient) -> None:
    node = await awe.create_node(b"a\nb\n", name="x", attributes={"kept": None})
    assert node.file is not None
    assert (node.file.name, node.file.size) == ("x", 4)
    assert node.attributes == {"kept": None}
    assert (await awe.build_index(node.id, "line")).total_units == 2


async def test_waiting_tells_how_far_it_is_and_ends_with_the_whole_job(api: Api, awe: AsyncAweClient) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "true"}, "totalwork": 3})
    far: list[tuple[str, list[int]]] = []
    await awe.suspend_job(job["id"])
    seen = await awe.wait_job(
        job["id"], on_change=lambda p: far.append((p.state, [task.remainwork for task in p.tasks or ()]))
    )
    assert far == [("suspend", [3])]
    same(seen, await api.ok("GET", f"/job/{job['id']}"))
