"""Cases from the field about jobs that are stopped, done again, or wait for others; nothing is executed.

Each name begins with the case's number; docs/field-reports.md has all of them.
"""

import logging
from pathlib import Path
from typing import Any

import pytest

from awe_server.scheduler.invariants import check
from awe_server.scheduler.tick import tick
from tests.api.conftest import Api
from tests.api.test_exchange import Native, native
from tests.api.test_field_reports import (
    READS,
    next_of,
    nothing_is_stored,
    runs_to_its_end,
    scans_by,
    task,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio
__all__ = ["native"]


def a_second_later(api: Api) -> None:
    api.hands.advance(1)
    api.services.engine.run(tick)


# -- S-02 ------------------------------------------------------------------------------------------------


async def test_S_02_what_shows_only_at_run_time_suspends_once_and_is_not_tried_again(
    api: Api, native: Native, caplog: pytest.LogCaptureFixture
) -> None:
    """An optional output that was not made is the only such input that a submission cannot see."""
    job = await api.submit(
        task("find", outputs=[{"filename": "hits.txt", "optional": True}]),
        task("use", inputs=[{"filename": "hits.txt", "origin": "find"}]),
    )
    grant = await next_of(native, "find")
    await native.exchange(reports=[native.report(grant, outputs=[])])
    before = await api.state_of(job, "suspend")
    assert "hits.txt not available: task 'find' was completed without making it" in before["notes"]
    events = api.services.engine.events.last
    caplog.clear()
    with caplog.at_level(logging.INFO, "awe_server"):
        for _ in range(60):
            a_second_later(api)
            assert await native.take() == []
    assert [record for record in caplog.records if record.name.startswith("awe_server")] == []
    assert api.services.engine.events.last == events
    assert await api.ok("GET", f"/job/{job['id']}") == before


# -- S-04 ------------------------------------------------------------------------------------------------


async def run_next(api: Api, client: dict[str, Any], name: str, content: bytes) -> dict[str, Any]:
    """The one workunit that there is to do is this task's; its output gets this content."""
    await eventually(lambda: any(demand.listed for demand in api.services.engine.state.demand_list))
    work = await api.checkout(client)
    assert work["id"].endswith(f"_{name}_0")
    await api.refused("GET", f"/work?client={client['id']}", 400, "no_work")
    for output in work["outputs"]:
        await api.ok("PUT", f"/node/{output['node']}", files={"upload": (output["filename"], content)})
    await api.report(work)
    return work


async def read_by(api: Api, work: dict[str, Any]) -> bytes:
    """What the first input of a workunit holds."""
    return (await api.http.get(f"/node/{work['inputs'][0]['node']}?download")).content


async def a_chain(api: Api, client: dict[str, Any]) -> dict[str, Any]:
    """A -> B -> C, completed once."""
    job = await api.submit(
        task("a", outputs=[{"filename": "a.txt"}]),
        task("b", inputs=[{"filename": "a.txt", "origin": "a"}], outputs=[{"filename": "b.txt"}]),
        task("c", inputs=[{"filename": "b.txt", "origin": "b"}], outputs=[{"filename": "c.txt"}]),
    )
    for name in "abc":
        await run_next(api, client, name, b"old " + name.encode())
    return await api.state_of(job, "completed")


async def test_S_04_after_a_recompute_children_wait_and_then_use_the_new_output(api: Api) -> None:
    client = await api.register()
    job = await a_chain(api, client)
    old = [t["outputs"][0]["node"] for t in job["tasks"]]

    await api.ok("PUT", f"/job/{job['id']}?recompute=a")

    shown = await api.ok("GET", f"/job/{job['id']}")
    assert [t["state"] for t in shown["tasks"]][1:] == ["pending", "pending"]
    assert not {t["outputs"][0]["node"] for t in shown["tasks"]} & set(old), "no old output is current"
    assert shown["tasks"][1]["inputs"][0]["node"] != old[0]
    for node in old:

        async def is_gone(node: str = node) -> bool:
            return (await api.http.get(f"/node/{node}?download")).status_code == 404

        await eventually(is_gone)
    await run_next(api, client, "a", b"new a")  # nothing else can be checked out meanwhile
    assert await read_by(api, await run_next(api, client, "b", b"new b")) == b"new a"
    assert await read_by(api, await run_next(api, client, "c", b"new c")) == b"new b"
    await api.state_of(job, "completed")


async def test_S_04_a_recompute_from_the_middle_leaves_what_comes_before_alone(api: Api) -> None:
    client = await api.register()
    done = await a_chain(api, client)
    first = done["tasks"][0]["outputs"][0]

    await api.ok("PUT", f"/job/{done['id']}?recompute=b")

    shown = await api.ok("GET", f"/job/{done['id']}")
    untouched = ("state", "outputs", "starteddate", "completeddate", "computetime")
    assert [shown["tasks"][0][key] for key in untouched] == [done["tasks"][0][key] for key in untouched]
    assert (await api.http.get(f"/node/{first['node']}?download")).content == b"old a"
    assert await read_by(api, await run_next(api, client, "b", b"new b")) == b"old a"
    assert await read_by(api, await run_next(api, client, "c", b"new c")) == b"new b"
    await api.state_of(done, "completed")


# -- S-05, S-07 ------------------------------------------------------------------------------------------

#: Ways to stop a job, and the state it is in then; "" = there is none.
VERBS = {
    "suspend": ("PUT", "?suspend", "suspend"),
    "delete": ("DELETE", "", "deleted"),
    "remove": ("DELETE", "?full", ""),
}


async def is_over(api: Api, job: dict[str, Any], state: str) -> None:
    """It is what it was told to be, and never failed."""
    if not state:
        await api.refused("GET", f"/job/{job['id']}", 404, "job_not_found")
        return
    shown = await api.ok("GET", f"/job/{job['id']}")
    assert (shown["state"], shown["lastfailed"]) == (state, "")


async def nobody_gets_work(api: Api) -> None:
    client = await api.register("late")
    await api.refused("GET", f"/work?client={client['id']}", 400, "no_work")


@pytest.mark.parametrize("verb", VERBS)
async def test_S_05_a_job_that_nobody_took_is_at_once_what_it_was_told_to_be(api: Api, verb: str) -> None:
    method, query, state = VERBS[verb]
    jobs = []
    for _ in range(200):
        jobs.append(await api.submit(task("0", outputs=[{"filename": "out"}]), task("1", "0")))
        await api.ok(method, f"/job/{jobs[-1]['id']}{query}")
        await is_over(api, jobs[-1], state)
    for _ in range(61):
        a_second_later(api)
    await api.services.engine.settled()
    for job in jobs:
        await is_over(api, job, state)
    await nobody_gets_work(api)
    assert check(api.services.engine.state) == []


@pytest.mark.parametrize("verb", VERBS)
async def test_S_05_so_it_is_while_its_input_is_being_cut(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    method, query, state = VERBS[verb]
    began, gate = tmp_path / "began", tmp_path / "gate"
    wait = f'echo $$ > {began}\nuntil [ -e {gate} ]; do sleep 0.02; done\nexec PYTHON "$@"'
    scans_by(wait)(tmp_path / "blob", monkeypatch)
    node = await api.ok("POST", "/node", files={"upload": ("reads.fastq", READS * 20)})
    inputs = [{"filename": "reads.fastq", "node": node["id"]}]
    split = {"totalwork": 4, "partinfo": {"input": "reads.fastq", "index": "record"}}
    job = await api.submit(task("0", inputs=inputs, **split))
    await eventually(lambda: began.exists() and began.read_text().endswith("\n"))
    scan = Path("/proc", began.read_text().strip())
    await api.ok(method, f"/job/{job['id']}{query}")
    await is_over(api, job, state)
    gate.touch()
    await eventually(lambda: not scan.exists())  # it ended, or was ended
    a_second_later(api)
    await api.services.engine.settled()
    await is_over(api, job, state)
    await nobody_gets_work(api)
    if verb == "suspend":
        await api.ok("PUT", f"/job/{job['id']}?resume")
        await runs_to_its_end(api, job, 4)


@pytest.mark.parametrize("verb", VERBS)
async def test_S_07_a_job_whose_client_is_gone_is_over_at_once_and_stays_so(
    api: Api, native: Native, verb: str
) -> None:
    method, query, state = VERBS[verb]
    job = await api.submit(task("0", totalwork=3))
    assert len(await native.take()) == 1  # and is never heard of again
    await api.ok(method, f"/job/{job['id']}{query}")
    await is_over(api, job, state)
    api.hands.advance(61)
    api.services.engine.run(tick)
    await is_over(api, job, state)
    assert (await api.ok("GET", f"/client/{native.id}"))["Status"] == "offline"
    assert check(api.services.engine.state) == []
    await nobody_gets_work(api)
    if verb == "suspend":
        await api.ok("PUT", f"/job/{job['id']}?resume")
        other = await api.register("other")
        for _ in range(3):
            await api.report(await api.checkout(other))
        await api.state_of(job, "completed")


# -- Q-01, Q-04 ------------------------------------------------------------------------------------------


async def test_Q_01_a_client_on_which_everything_fails_is_put_aside_where_all_can_see_it(
    api: Api, native: Native
) -> None:
    good = await api.register("good")
    job = await api.submit(task("0", totalwork=20))
    await api.report(await api.checkout(good))
    failed = set()
    for _ in range(5):
        [grant] = await native.take()
        failed.add(grant["id"])
        report = native.report(grant, "failed", kind="command", exit_code=1, message="dead disk")
        await native.exchange(reports=[report])
    assert len(failed) == 5, "what failed there is not offered there again"
    shown = await api.ok("GET", f"/client/{native.id}")
    assert (shown["Status"], shown["suspended"]) == ("suspend", True)
    assert "5 workunits in a row failed on it" in shown["suspend_reason"]
    told = [event for event in await api.ok("GET", "/events") if event["code"] == "CS"]
    assert [(event["clientid"], event["reason"]) for event in told] == [(native.id, shown["suspend_reason"])]
    assert (await native.exchange(want=1))["suspended"] is True
    for _ in range(19):
        await api.report(await api.checkout(good))
    await api.state_of(job, "completed")


@pytest.mark.parametrize("priority", [10**9, -(10**9), 1.5, "high", "7", True, None])
async def test_Q_04_a_priority_that_is_none_is_refused(api: Api, priority: Any) -> None:
    document = {"info": {"priority": priority}, "tasks": [task("0")]}
    [text] = await api.refused("POST", "/job", 400, "invalid_document", json=document)
    assert text.startswith("info.priority: ")
    await nothing_is_stored(api)


async def test_Q_04_a_priority_below_1_is_1_and_how_many_go_before_is_shown(api: Api) -> None:
    """As in AWE: jobs cannot be put behind those that say nothing."""
    low = await api.submit(priority=-5)
    high = await api.submit(priority=5)
    assert low["info"]["priority"] == 1
    assert (await api.ok("GET", f"/job/{low['id']}?position"))["position"] == 2
    assert (await api.ok("GET", f"/job/{high['id']}?position"))["position"] == 1
