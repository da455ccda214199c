"""A node that a job needs is not deleted; one that nobody needs, or whose job is over, is."""

from typing import Any

import pytest

from tests.api.conftest import Api
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio


async def node_of(api: Api, content: bytes) -> str:
    return str((await api.ok("POST", "/node", files={"upload": ("in.txt", content)}))["id"])


def task(name: str = "0", **keys: Any) -> dict[str, Any]:
    return {"taskid": name, "cmd": {"name": "x"}, **keys}


async def is_kept(api: Api, node: str, job: dict[str, Any]) -> str:
    """Why it is not deleted; the job is named."""
    [text] = await api.refused("DELETE", f"/node/{node}", 409, "conflict")
    assert f"task {job['id']}_0 of job {job['id']}" in text
    assert (await api.http.get(f"/node/{node}?download")).status_code != 404
    return text


async def is_gone(api: Api, node: str) -> None:
    await api.ok("DELETE", f"/node/{node}")
    await api.refused("GET", f"/node/{node}", 404, "node_not_found")


async def test_an_output_stays_until_its_job_has_ended(api: Api) -> None:
    job = await api.submit(task(outputs=[{"filename": "out.txt"}]))
    await api.state_of(job, "queued")
    work = await api.checkout(await api.register())
    output = work["outputs"][0]["node"]
    assert "is an output of" in await is_kept(api, output, job)
    await api.ok("PUT", f"/job/{job['id']}?suspend")
    assert "which is suspend" in await is_kept(api, output, job)
    await api.ok("PUT", f"/job/{job['id']}?resume")
    work = await api.checkout({"id": work["client"]})
    await api.ok("PUT", f"/node/{output}", files={"upload": ("out.txt", b"7\n")})
    await api.report(work)
    await api.state_of(job, "completed")
    await is_gone(api, output)


@pytest.mark.parametrize("use", ["inputs", "predata"])
async def test_what_work_reads_stays_until_its_job_has_ended_or_is_suspended(api: Api, use: str) -> None:
    nodes = [await node_of(api, b"a\nb\n") for _ in range(2)]
    jobs = [await api.submit(task(**{use: [{"filename": "in.txt", "node": node}]})) for node in nodes]
    for node, job in zip(nodes, jobs, strict=True):
        await api.state_of(job, "queued")
        assert "is an input of" in await is_kept(api, node, job)
    await api.ok("PUT", f"/job/{jobs[0]['id']}?suspend")
    await is_gone(api, nodes[0])
    work = await api.checkout(await api.register())
    await is_kept(api, nodes[1], jobs[1])
    await api.report(work)
    await api.state_of(jobs[1], "completed")
    await is_gone(api, nodes[1])


async def test_what_a_task_will_read_that_waits_for_others_stays(api: Api) -> None:
    node = await node_of(api, b"a\n")
    waits = task("0", dependsOn=["first"], inputs=[{"filename": "in.txt", "node": node}])
    job = await api.submit(waits, task("first"))
    assert "is an input of" in await is_kept(api, node, job)
    await api.ok("DELETE", f"/job/{job['id']}")
    await is_gone(api, node)


async def test_what_an_output_is_made_from_and_where_one_waits_to_be_delivered_stay(api: Api) -> None:
    parent = await node_of(api, b"a\nb\n")
    options = {"parent_node": parent, "parent_index": "line"}
    subset = {"filename": "list", "type": "subset", "formoptions": options}
    job = await api.submit(task(outputs=[subset]))
    await api.state_of(job, "queued")
    assert "is an input of" in await is_kept(api, parent, job)
    live = api.services.engine.state.jobs[job["id"]].tasks[0].outputs[0]
    for made in (live["node"], live["_staging"]):
        assert "is an output of" in await is_kept(api, made, job)


async def test_the_servers_own_deletions_ask_nobody(api: Api) -> None:
    job = await api.submit(task(outputs=[{"filename": "out.txt"}]))
    await api.state_of(job, "queued")
    path, state = f"/job/{job['id']}", api.services.engine.state
    output = state.jobs[job["id"]].tasks[0].outputs[0]["node"]
    await api.ok("PUT", f"{path}?suspend")
    await api.ok("PUT", f"{path}?recompute=0")

    async def is_gone() -> bool:
        return (await api.http.get(f"/node/{output}")).status_code == 404

    await eventually(is_gone)


@pytest.mark.parametrize("type_", ["copy", "subset"])
async def test_what_an_output_is_made_from_has_its_content_until_its_job_is_suspended(
    api: Api, type_: str
) -> None:
    parent = await node_of(api, b"a\nb\n")
    options = {"parent_node": parent} | ({"parent_index": "line"} if type_ == "subset" else {})
    job = await api.submit(task(outputs=[{"filename": "made", "type": type_, "formoptions": options}]))
    await api.state_of(job, "queued")
    other = {"upload": ("in.txt", b"other\n")}
    [text] = await api.refused("PUT", f"/node/{parent}", 409, "conflict", files=other)
    assert f"task {job['id']}_0" in text
    assert (await api.http.get(f"/node/{parent}?download")).content == b"a\nb\n"
    await api.ok("PUT", f"/job/{job['id']}?suspend")
    await api.ok("PUT", f"/node/{parent}", files=other)
