"""PUT and DELETE /job: AWE's texts for what works, AWE's texts and a code for what is refused."""

import pytest

from awe_server.store.base import Put, Query
from tests.api.conftest import Api
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio

TWO = (
    {"taskid": "0", "cmd": {"name": "x"}},
    {"taskid": "1", "cmd": {"name": "x"}, "dependsOn": ["0"]},
)


async def test_suspend_and_resume(api: Api) -> None:
    job = await api.submit()
    path = f"/job/{job['id']}"
    assert await api.ok("PUT", f"{path}?suspend") == f"job suspended: {job['id']}"
    shown = await api.ok("GET", path)
    assert shown["state"] == "suspend"
    assert shown["notes"] == "manually suspended"
    assert await api.ok("PUT", f"{path}?resume") == f"job resumed: {job['id']}"
    shown = await api.ok("GET", path)
    assert shown["state"] == "queued"
    assert shown["resumed"] == 1


async def test_values_are_set(api: Api) -> None:
    job = await api.submit()
    id, path = job["id"], f"/job/{job['id']}"
    assert await api.ok("PUT", f"{path}?priority=7") == f"job priority updated: {id} to 7"
    assert await api.ok("PUT", f"{path}?clientgroup=big,small") == f"job group updated: {id} to big,small"
    assert await api.ok("PUT", f"{path}?pipeline=p2") == f"job pipeline updated: {id} to p2"
    text = await api.ok("PUT", f"{path}?expiration=2D")
    assert text.startswith("expiration '2026-12-0")
    assert text.endswith(f"set for job: {id}")
    token = {"Datatoken": "secret-canary"}
    assert await api.ok("PUT", f"{path}?settoken", headers=token) == f"data token set for job: {id}"
    info = (await api.ok("GET", path))["info"]
    assert (info["priority"], info["clientgroups"], info["pipeline"], info["auth"]) == (
        7,
        "big,small",
        "p2",
        True,
    )
    assert "secret-canary" not in (await api.http.get(path)).text


async def test_recompute_and_resubmit_of_a_completed_job(api: Api) -> None:
    job = await api.submit(*TWO)
    client = await api.register()
    for _ in range(2):
        await api.report(await api.checkout(client))
    await api.state_of(job, "completed")
    path = f"/job/{job['id']}"
    text = await api.ok("PUT", f"{path}?recompute=1")
    assert text == f"job recompute started at task 1: {job['id']}"
    shown = await api.ok("GET", path)
    assert [task["state"] for task in shown["tasks"]] == ["completed", "queued"]
    await api.report(await api.checkout(client))
    await api.state_of(job, "completed")
    assert await api.ok("PUT", f"{path}?resubmit") == f"job resubmitted: {job['id']}"
    shown = await api.ok("GET", path)
    assert [task["state"] for task in shown["tasks"]] == ["queued", "pending"]
    assert shown["resumed"] == 2


async def test_recover_finds_nothing_to_do(api: Api) -> None:
    job = await api.submit()
    for verb in ("recover", "register"):
        assert await api.ok("PUT", f"/job/{job['id']}?{verb}") == f"job recovered: {job['id']}"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "requested job operation not supported"),
        ("recompute=", "lacking stage id from which the recompute starts"),
        ("clientgroup=", "lacking clientgroup name"),
        ("priority=", "lacking priority value"),
        ("priority=high", "priority value must be an integer"),
        ("pipeline=", "lacking pipeline value"),
        ("expiration=", "lacking expiration value"),
        ("settoken", "no token received"),
        ("suspend&resume", "one action at a time"),
        ("recompute=nope", "fail to recompute job"),
        ("recompute=0", "fail to recompute job"),
        ("resubmit", "fail to resubmit job"),
        ("resume", "fail to resume job"),
        ("clientgroup=no space", "is not a group name"),
        ("expiration=soon", "failed to set the expiration for job"),
        ("priority=99999999999", "failed to set the priority for job"),
    ],
)
async def test_what_cannot_be_done_is_400_with_awes_words_and_changes_nothing(
    api: Api, query: str, text: str
) -> None:
    job = await api.submit()
    before = await api.ok("GET", f"/job/{job['id']}")
    reply = await api.http.put(f"/job/{job['id']}?{query}")
    envelope = reply.json()
    assert reply.status_code == 400, reply.text
    assert text in envelope["error"][0]
    assert envelope["code"]
    assert await api.ok("GET", f"/job/{job['id']}") == before


async def test_an_action_that_does_not_exist_is_refused_with_the_nearest(api: Api) -> None:
    job = await api.submit()
    [text] = await api.refused("PUT", f"/job/{job['id']}?suspnd", 400, "unknown_parameter")
    assert "suspend" in text


@pytest.mark.parametrize("query", ["suspend=0", "suspend=false", "resume=no"])
async def test_a_flag_with_a_value_that_says_no_is_refused(api: Api, query: str) -> None:
    job = await api.submit()
    [text] = await api.refused("PUT", f"/job/{job['id']}?{query}", 400, "invalid_request")
    assert "flag" in text


@pytest.mark.parametrize(
    "request_", ["GET ", "GET ?why", "PUT ?suspend", "PUT ?priority=1", "DELETE ", "DELETE ?full"]
)
async def test_an_unknown_job_is_404_with_awes_text(api: Api, request_: str) -> None:
    method, query = request_.split(" ")
    for id in ("0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10", "x", "%00", "a%2Fb", "é"):
        reply = await api.http.request(method, f"/job/{id}{query}")
        assert reply.status_code == 404, reply.text
        assert reply.json()["code"] in ("job_not_found", "not_found")
    [text] = await api.refused("GET", "/job/nope", 404, "job_not_found")
    assert text == "job not found:nope"


async def test_delete_keeps_the_document_and_full_removes_it(api: Api) -> None:
    job = await api.submit()
    path = f"/job/{job['id']}"
    assert await api.ok("DELETE", path) == f"job deleted: {job['id']}"
    assert (await api.ok("GET", path))["state"] == "deleted"
    assert await api.ok("DELETE", f"{path}?full") == f"job deleted: {job['id']}"
    await api.refused("GET", path, 404, "job_not_found")


async def test_an_unreadable_job_can_be_removed_with_its_nodes_and_logs(api: Api) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}, "outputs": [{"filename": "out"}]})
    path = f"/job/{job['id']}"
    await api.state_of(job, "queued")
    await api.ok("DELETE", path)
    engine, logs = api.services.engine, api.services.logs_dir / job["id"]
    engine.retire(job["id"])
    logs.mkdir(parents=True)
    task = await engine.get("tasks", f"{job['id']}_0") or {}
    await engine.put(Put("tasks", {**task, "state": "dancing"}))
    [text] = await api.refused("DELETE", path, 409, "unreadable_job")
    assert "cannot read the documents" in text
    assert await api.ok("DELETE", f"{path}?full") == f"job deleted: {job['id']}"
    await api.refused("GET", path, 404, "job_not_found")
    assert not logs.exists()

    async def is_gone() -> bool:
        return not (await engine.find("nodes", Query())).total

    await eventually(is_gone)
    assert (await engine.find("tasks", Query())).total == 0


async def test_all_suspended_jobs_at_once(api: Api) -> None:
    jobs = [await api.submit() for _ in range(4)]
    for job in jobs[:3]:
        await api.ok("PUT", f"/job/{job['id']}?suspend")
    assert await api.ok("PUT", "/job?resumeall") == "3 suspended jobs resumed"
    assert await api.ok("PUT", "/job?resumeall") == "0 suspended jobs resumed"
    assert await api.ok("PUT", "/job?recoverall") == "0 missing jobs recovered"
    for job in jobs[:2]:
        await api.ok("PUT", f"/job/{job['id']}?suspend")
    assert await api.ok("DELETE", "/job?suspend&full") == "deleted 2 suspended jobs"
    assert await api.ok("DELETE", "/job?zombie") == "deleted 0 zombie jobs"
    assert (await api.http.get("/job")).json()["total_count"] == 2
    await api.refused("DELETE", "/job", 400, "invalid_request")
    await api.refused("PUT", "/job", 400, "invalid_request")
