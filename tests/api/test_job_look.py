"""GET /job/{id} and its other faces: waiting, why, position, report, perf."""

from typing import Any

import anyio
import pytest

from awe_server.api import job_look
from shared_models.ids import JobId
from tests.api.conftest import Api
from tests.support.eventually import eventually
from tests.support.golden import recorded, shape_problems

pytestmark = pytest.mark.anyio


async def waits_of(api: Api) -> bool:
    return bool(api.services.engine.waiters.counts[1])


async def test_waiting_returns_when_the_job_has_ended(api: Api) -> None:
    job = await api.submit()
    client = await api.register()
    found: list[Any] = []

    async def wait() -> None:
        found.append(await api.ok("GET", f"/job/{job['id']}?wait_s=30"))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await eventually(lambda: waits_of(api))
        work = await api.checkout(client)
        assert found == []
        await api.report(work)
    assert found[0]["state"] == "completed"


async def test_the_end_of_a_job_is_told_without_a_look_at_the_store(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await api.submit()
    work = await api.checkout(await api.register())
    looks: list[JobId] = []
    stored, engine = api.services.engine._stored_job, api.services.engine

    async def stored_job(job_id: JobId) -> Any:
        looks.append(job_id)
        return await stored(job_id)

    monkeypatch.setattr(engine, "_stored_job", stored_job)
    found: list[Any] = []

    async def wait() -> None:
        found.append(await api.ok("GET", f"/job/{job['id']}?wait_s=30"))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await eventually(lambda: waits_of(api))
        await api.report(work)
    assert looks == []
    assert await api.ok("GET", f"/job/{job['id']}") == found[0]
    assert looks != []


async def test_waiting_for_another_revision_returns_at_the_next_change(api: Api) -> None:
    job = await api.submit()
    found: list[Any] = []

    async def wait() -> None:
        query = f"wait_s=30&revision={job['revision']}"
        found.append(await api.ok("GET", f"/job/{job['id']}?{query}"))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await eventually(lambda: waits_of(api))
        await api.ok("PUT", f"/job/{job['id']}?pipeline=p")
    assert found[0]["revision"] > job["revision"]
    assert found[0]["info"]["pipeline"] == "p"


@pytest.mark.parametrize("revision", [True, False])
async def test_a_job_that_ends_and_leaves_memory_during_the_first_look_is_not_waited_for(
    api: Api, monkeypatch: pytest.MonkeyPatch, revision: bool
) -> None:
    job = await api.submit()
    work = await api.checkout(await api.register())
    seen = await api.ok("GET", f"/job/{job['id']}")
    query = f"revision={seen['revision']}" if revision else ""
    engine, looks = api.services.engine, list[Any]()
    head = engine.job_head

    async def slow(job_id: JobId) -> Any:
        looks.append(await head(job_id))
        if len(looks) == 1:
            await api.report(work)
            await eventually(lambda: job_id not in engine.state.jobs)
        return looks[-1]

    monkeypatch.setattr(engine, "job_head", slow)
    with anyio.fail_after(5):
        shown = await api.ok("GET", f"/job/{job['id']}?wait_s=30&{query}")
    assert shown["state"] == "completed"


def whole_jobs(api: Api, monkeypatch: pytest.MonkeyPatch) -> list[JobId]:
    """Note each time all tasks of a job are asked for."""
    engine, asked = api.services.engine, list[JobId]()
    documents = engine.job_documents

    async def job_documents(job_id: JobId, *left: Any) -> Any:
        asked.append(job_id)
        return await documents(job_id, *left)

    monkeypatch.setattr(engine, "job_documents", job_documents)
    return asked


async def test_waiting_shows_the_job_once_however_often_it_changes(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await api.submit()
    asked = whole_jobs(api, monkeypatch)
    async with anyio.create_task_group() as group:
        group.start_soon(api.ok, "GET", f"/job/{job['id']}?wait_s=30")
        await eventually(lambda: waits_of(api))
        for name in "abc":
            await api.ok("PUT", f"/job/{job['id']}?pipeline={name}")
        assert asked == []
        await api.ok("PUT", f"/job/{job['id']}?suspend")
    assert asked == [job["id"]]


async def test_a_reader_of_revisions_sees_many_changes_as_one_and_the_end_at_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_look, "_pause_s", lambda tasks: 1000.0 * tasks)
    job = await api.submit()
    asked, found = whole_jobs(api, monkeypatch), list[Any]()

    async def wait() -> None:
        found.append(await api.ok("GET", f"/job/{job['id']}?wait_s=30&revision={job['revision']}"))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await eventually(lambda: waits_of(api))
        for name in "abc":
            await api.ok("PUT", f"/job/{job['id']}?pipeline={name}")
        assert (asked, found) == ([], [])
        await api.ok("PUT", f"/job/{job['id']}?suspend")
    assert (found[0]["state"], found[0]["info"]["pipeline"]) == ("suspend", "c")
    assert asked == [job["id"]]


def test_changes_of_larger_jobs_are_gathered_for_longer() -> None:
    pauses = [job_look._pause_s(tasks) for tasks in (1, 1_000, 20_000, 100_000)]
    assert pauses[0] < 0.1
    assert pauses == sorted(pauses)
    assert pauses[-1] == job_look.MAX_PAUSE_S


async def test_what_is_about_a_job_or_one_workunit_asks_for_no_other_task(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await api.submit()
    asked = whole_jobs(api, monkeypatch)
    for face in ("why", "position"):
        await api.ok("GET", f"/job/{job['id']}?{face}")
    await api.ok("PUT", f"/job/{job['id']}?priority=3")
    await api.ok("GET", f"/work/{job['id']}_0_0")
    await api.ok("GET", "/work")
    await api.ok("DELETE", f"/job/{job['id']}")
    await api.refused("DELETE", "/job/unknown", 404, "job_not_found")
    assert asked == []


async def test_waiting_ends_with_its_time_or_at_once_when_nothing_is_to_come(api: Api) -> None:
    job = await api.submit()
    assert (await api.ok("GET", f"/job/{job['id']}?wait_s=0.01"))["state"] == "queued"
    assert (await api.ok("GET", f"/job/{job['id']}?wait_s=30&revision=-5"))["state"] == "queued"
    await api.ok("PUT", f"/job/{job['id']}?suspend")
    assert (await api.ok("GET", f"/job/{job['id']}?wait_s=30"))["state"] == "suspend"


async def test_waiting_for_a_job_that_is_removed_ends_with_404(api: Api) -> None:
    job = await api.submit()
    statuses: list[int] = []

    async def wait() -> None:
        statuses.append((await api.http.get(f"/job/{job['id']}?wait_s=30")).status_code)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await eventually(lambda: waits_of(api))
        await api.ok("DELETE", f"/job/{job['id']}?full")
    assert statuses == [404]


async def test_why_names_what_is_missing(api: Api) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "bowtie2"}}, clientgroups="big")
    await api.register(group="small")
    rows = await api.ok("GET", f"/job/{job['id']}?why")
    assert {row["entity"] for row in rows} >= {"job", "task"}
    assert any("big" in row["reason"] for row in rows)
    [row, *_] = await api.ok("GET", f"/work/{job['id']}_0_0?why")
    assert row["reason"]
    await api.ok("DELETE", f"/job/{job['id']}")
    assert await api.ok("GET", f"/job/{job['id']}?why") == []


async def test_P_02_why_still_says_what_failed_for_good_when_the_job_has_left_memory(api: Api) -> None:
    job = await api.submit()
    client = await api.register()
    work = await api.checkout(client)
    query = {"status": "failed-permanent", "client": client["id"]}
    await api.ok("PUT", f"/work/{work['id']}", params=query)
    await eventually(lambda: job["id"] not in api.services.engine.state.jobs)
    [row] = await api.ok("GET", f"/job/{job['id']}?why")
    assert (row["entity"], row["id"], row["state"]) == ("job", job["id"], "failed-permanent")
    assert row["reason"].startswith(f"failed for good: workunit {work['id']}: ")


async def test_why_says_what_keeps_the_data_from_being_looked_at(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await api.submit()
    troubles = {f"{job['id']}_0": "looking at its inputs failed and is tried again: no answer"}
    monkeypatch.setattr(type(api.services.engine), "troubles", troubles)
    rows = await api.ok("GET", f"/job/{job['id']}?why")
    [reason] = [row["reason"] for row in rows if row["entity"] == "task"]
    assert reason.endswith("; looking at its inputs failed and is tried again: no answer")


async def test_position_counts_those_before_it_that_want_the_same_clients(api: Api) -> None:
    first = await api.submit(clientgroups="a")
    await api.submit(clientgroups="b")
    last = await api.submit(clientgroups="a,c")
    urgent = await api.submit(priority=9)
    positions = [
        (await api.ok("GET", f"/job/{job['id']}?position"))["position"] for job in (urgent, first, last)
    ]
    assert positions == [1, 2, 3]
    await api.ok("PUT", f"/job/{last['id']}?suspend")
    [text] = await api.refused("GET", f"/job/{last['id']}?position", 400, "invalid_request")
    assert text == "job is not queued or in-progress, job state:suspend"


async def test_the_report_has_the_logs_of_every_workunit(api: Api) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}, "totalwork": 2})
    client = await api.register()
    work = await api.checkout(client)
    files = {"stdout": ("o", b"out \xff"), "stderr": ("e", b"err"), "worknotes": ("n", b"note")}
    await api.ok("PUT", f"/work/{work['id']}?status=done&client={client['id']}&report", files=files)
    report = await api.ok("GET", f"/job/{job['id']}?report")
    assert shape_problems(recorded("job-get-report")["reply"]["body"]["data"], report) == []
    first, second = report["tasks"][0]["workunits"]
    assert first["logs"] == {"stdout": "out �", "stderr": "err", "worknotes": "note"}
    assert second["logs"] == {"stdout": "", "stderr": "", "worknotes": ""}


async def test_a_report_of_too_many_workunits_says_how_to_read_them(api: Api) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}, "totalwork": 5000})
    [text] = await api.refused("GET", f"/job/{job['id']}?report", 413, "too_large")
    assert "/log/stdout" in text


async def test_a_report_stays_bounded_by_showing_the_ends_of_logs(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_look, "MAX_REPORT_BYTES", 30)
    job = await api.submit()
    client = await api.register()
    work = await api.checkout(client)
    await api.ok(
        "PUT",
        f"/work/{work['id']}?status=done&client={client['id']}",
        files={"stdout": ("o", b"x" * 50 + b"end")},
    )
    report = await api.ok("GET", f"/job/{job['id']}?report")
    assert report["tasks"][0]["workunits"][0]["logs"]["stdout"] == "xxxxxxxend"


async def test_perf_is_there_once_the_job_has_ended(api: Api) -> None:
    job = await api.submit()
    await api.refused("GET", f"/job/{job['id']}?perf", 404, "not_found")
    client = await api.register()
    work = await api.checkout(client)
    api.hands.advance(5)
    perf = {"perf": ("p", b'{"runtime": 4, "max_mem_usage": 123, "deliver": 7}')}
    await api.ok(
        "PUT", f"/work/{work['id']}?status=done&client={client['id']}&computetime=4&report", files=perf
    )
    shown = await api.ok("GET", f"/job/{job['id']}?perf")
    assert shape_problems(recorded("job-get-perf")["reply"]["body"]["data"], shown) == []
    assert shown["resp"] == 5
    assert shown["work_stats"][work["id"]]["max_mem_usage"] == 123
    assert shown["work_stats"][work["id"]]["resp"] == 5
    assert shown["task_stats"][f"{job['id']}_0"]["end"] == shown["end"]


async def test_one_face_at_a_time(api: Api) -> None:
    job = await api.submit()
    await api.refused("GET", f"/job/{job['id']}?why&report", 400, "invalid_request")


async def test_a_job_shows_every_key_that_awe_shows(api: Api) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}}, noretry=True)
    client = await api.register()
    work = await api.checkout(client)
    files = {"stderr": ("e", b"boom\n"), "worknotes": ("n", b"note 3")}
    await api.ok("PUT", f"/work/{work['id']}?status=fail&client={client['id']}&report", files=files)
    shown = await api.state_of(job, "suspend")
    theirs = recorded("job-get-suspended-failed")["reply"]["body"]["data"]
    assert shape_problems(theirs, shown) == []
    assert shown["lastfailed"] == work["id"]
    assert shown["notes"]
    assert shown["error"]["apperror"] == "boom\n"
    assert shown["error"]["worknotes"] == "note 3"
    assert shown["error"]["clientfailed"] == client["id"]


async def test_a_job_of_many_tasks_is_shown_whole(api: Api) -> None:
    tasks = [{"taskid": str(i), "cmd": {"name": "x"}} for i in range(600)]
    job = await api.submit(*tasks)
    assert len(job["tasks"]) == 600
    [row] = await api.ok("GET", "/job")
    assert [task["task_name"] for task in row["tasks"]] == [str(i) for i in range(600)]
