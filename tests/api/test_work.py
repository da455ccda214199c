"""/work: checkout, reports, lists, secrets."""

from collections.abc import Collection
from typing import Any

import pytest

from shared_models.errors import JobNotFound
from shared_models.ids import JobId, TaskId
from shared_models.limits import MAX_LOG_BYTES
from tests.api.conftest import Api
from tests.support.eventually import eventually
from tests.support.golden import encoded, recorded, shape_problems

pytestmark = pytest.mark.anyio

ARRAY = {"taskid": "0", "cmd": {"name": "x"}, "totalwork": 30}


async def get(api: Api, query: str) -> Any:
    reply = await api.http.get(f"/work?{query}")
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_a_checkout_gives_one_object_with_every_key_of_awe(api: Api) -> None:
    await api.submit({"taskid": "0", "cmd": {"name": "x", "args": "@in"}}, name="n")
    work = await api.checkout(await api.register())
    theirs = recorded("work-checkout")["reply"]["body"]["data"]
    assert shape_problems(theirs, work) == []
    assert work["state"] == "checkout"
    assert work["id"] == work["wuid"] == f"{work['jobid']}_0_0"
    assert all(isinstance(work[key], list) for key in ("inputs", "outputs", "predata"))
    assert not [key for key in work if key.startswith("_") or "token" in key]


async def test_a_checkout_that_gives_nothing_is_400_with_a_bare_text(api: Api) -> None:
    client = await api.register(apps=["blast"])
    path = f"/work?client={client['id']}"
    assert await api.refused("GET", path, 400, "no_work") == ["Server queue is empty"]
    await api.submit()
    assert await api.refused("GET", path, 400, "no_work") == ["No eligible workunit found"]
    assert (await api.http.get(path)).json()["skipped"]
    await api.ok("PUT", "/queue?suspend")
    assert await api.refused("GET", path, 400, "queue_suspended") == ["Server queue is suspended"]
    await api.ok("PUT", "/queue?resume")
    await api.ok("PUT", f"/client/{client['id']}?suspend")
    assert await api.refused("GET", path, 400, "client_suspended") == ["Client suspended"]
    assert await api.refused("GET", "/work?client=nobody", 400, "client_not_found") == ["Client not found"]


async def test_available_bytes_bound_what_is_given(api: Api) -> None:
    node = await api.ok("POST", "/node", files={"upload": ("in", b"x" * 1000)})
    task = {"taskid": "0", "cmd": {"name": "x"}, "inputs": [{"filename": "in", "node": node["id"]}]}
    job = await api.submit(task)
    client = await api.register()
    await api.state_of(job, "queued")
    path = f"/work?client={client['id']}"
    await api.refused("GET", f"{path}&available=1000", 400, "no_work")
    work = await api.ok("GET", f"{path}&available=1001&server_uuid=x")
    assert work["inputs"][0]["size"] == 1000
    assert work["inputs"][0]["url"] == f"http://127.0.0.1:8001/node/{node['id']}?download"


async def test_available_bytes_that_are_no_number_are_not_checked(api: Api) -> None:
    client = await api.register()
    for odd in ("-1", "1e9", "9" * 5_000):
        await api.submit()
        await api.ok("GET", f"/work?client={client['id']}&available={odd}")


async def test_a_report_is_evaluated_before_it_is_answered(api: Api) -> None:
    job = await api.submit()
    work = await api.checkout(await api.register())
    assert await api.report(work) == "ok"
    assert (await api.ok("GET", f"/job/{job['id']}"))["state"] == "completed"
    shown = await api.ok("GET", f"/work/{work['id']}")
    assert shown["state"] == "completed"
    assert shown["computetime"] == 1


async def test_the_repeat_of_a_report_is_ok_and_changes_nothing(api: Api) -> None:
    await api.submit(ARRAY)
    client = await api.register()
    work = await api.checkout(client)
    await api.report(work)
    before = await api.ok("GET", f"/client/{client['id']}")
    assert await api.report(work) == "ok"
    assert await api.ok("GET", f"/client/{client['id']}") == before
    assert before["total_completed"] == 1


async def test_L_01_a_late_report_of_a_stock_worker_is_told_so_and_lets_it_go_on(api: Api) -> None:
    job = await api.submit()
    first, second = await api.register("a"), await api.register("b")
    late = await api.checkout(first)
    api.hands.advance(120)
    await api.ok("PUT", f"/client/{second['id']}?heartbeat", json={})
    await _tick(api)
    work = await api.checkout(second)
    assert (work["id"], work["attempt"]) == (late["id"], 2)
    reply = await api.http.put(f"/work/{encoded(late['id'])}?status=done&client={first['id']}&computetime=1")
    envelope = reply.json()
    assert (reply.status_code, envelope["status"], envelope["error"]) == (200, 200, None)
    assert envelope["code"] == "lease_lost"
    assert "dropped" in envelope["data"]
    assert (await api.ok("GET", f"/job/{job['id']}"))["state"] == "in-progress"
    await api.report(work)
    assert (await api.ok("GET", f"/work/{work['id']}"))["client"] == second["id"]


async def _tick(api: Api) -> None:
    """Let the scheduler notice that time has passed."""
    from awe_server.scheduler.tick import tick

    await api.services.engine.do(tick)


async def test_L_01_a_report_with_a_wrong_lease_is_409(api: Api) -> None:
    await api.submit()
    client = await api.register()
    work = await api.checkout(client)
    path = f"/work/{work['id']}?status=done&client={client['id']}&attempt=1"
    await api.refused("PUT", path, 409, "lease_lost", headers={"Awe-Lease": "wrong"})
    token = api.services.engine.state.workunits[work["id"]].token
    assert await api.ok("PUT", path, headers={"Awe-Lease": token}) == "ok"
    assert await api.ok("PUT", path, headers={"Awe-Lease": token}) == "ok"
    other = path.replace("done", "fail")
    await api.refused("PUT", other, 409, "lease_lost", headers={"Awe-Lease": token})


async def test_a_report_by_another_client_is_dropped(api: Api) -> None:
    job = await api.submit()
    await api.checkout(await api.register("a"))
    other = await api.register("b")
    text = await api.ok("PUT", f"/work/{job['id']}_0_0?status=done&client={other['id']}")
    assert "dropped" in text
    assert (await api.ok("GET", f"/job/{job['id']}"))["state"] == "in-progress"


async def test_a_report_for_unknown_work_is_dropped_and_told_so(api: Api) -> None:
    client = await api.register()
    path = "/work/0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10_0_0"
    reply = await api.http.put(f"{path}?status=done&client={client['id']}")
    assert reply.status_code == 200
    assert reply.json()["code"] == "workunit_not_found"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("status=done", "client=clientid"),
        ("status=done&client=nobody", "Client not found"),
        ("status=foo&client={}", "is not one of done"),
        ("client={}", "is not one of done"),
        ("status=done&client={}&computetime=-1", "computetime"),
    ],
)
async def test_reports_that_make_no_sense_are_refused(api: Api, query: str, text: str) -> None:
    await api.submit()
    work = await api.checkout(await api.register())
    reply = await api.http.put(f"/work/{work['id']}?{query.format(work['client'])}")
    assert reply.status_code == 400
    assert text in reply.json()["error"][0]
    assert (await api.ok("GET", f"/work/{work['id']}"))["state"] == "checkout"


@pytest.mark.parametrize(
    ("status", "then"),
    [
        ("done", "completed"),
        ("fail", "queued"),
        ("failed-permanent", "failed-permanent"),
        ("discarded", "queued"),
        ("suspend", "queued"),
    ],
)
async def test_every_status_of_a_worker_is_understood(api: Api, status: str, then: str) -> None:
    await api.submit(ARRAY)
    work = await api.checkout(await api.register())
    assert await api.report(work, status) == "ok"
    shown = await api.ok("GET", f"/work/{work['id']}")
    assert shown["state"] == then
    assert shown["failed"] == (1 if status in ("fail", "failed-permanent", "suspend") else 0)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content": b""},
        {"content": b"text", "headers": {"Content-Type": "text/plain"}},
        {"files": {"x": (None, b"")}},
        {"files": {"perf": ("p", b"{broken")}},
        {"files": {"perf": ("p", b"[1]")}},
    ],
)
async def test_side_data_never_stands_in_the_way_of_a_result(api: Api, body: dict[str, Any]) -> None:
    await api.submit()
    work = await api.checkout(await api.register())
    path = f"/work/{work['id']}?status=done&client={work['client']}&computetime=1"
    assert await api.ok("PUT", path, **body) == "ok"


async def test_a_log_that_is_too_long_is_kept_from_its_end(api: Api) -> None:
    await api.submit()
    work = await api.checkout(await api.register())
    log = b"a" * MAX_LOG_BYTES + b"the end"
    await api.ok(
        "PUT", f"/work/{work['id']}?status=done&client={work['client']}", files={"stdout": ("o", log)}
    )
    kept = await api.http.get(f"/work/{work['id']}/log/stdout")
    assert len(kept.content) == MAX_LOG_BYTES
    assert kept.content.endswith(b"the end")


async def test_one_workunit_by_plain_and_by_base64_id(api: Api) -> None:
    job = await api.submit(
        {"taskid": "0", "cmd": {"name": "x"}, "userattr": {"t": 1}},
        name="n",
        userattr={"k1": "v", "submission": "s"},
    )
    id = f"{job['id']}_0_0"
    plain = await api.ok("GET", f"/work/{id}")
    assert await api.ok("GET", f"/work/{encoded(id)}") == plain
    assert shape_problems(recorded("work-get")["reply"]["body"]["data"], plain) == []
    assert plain["state"] == "queued"
    assert plain["userattr"] == {"t": 1, "k1": "v", "submission": "s"}
    assert plain["info"]["name"] == "n"


@pytest.mark.parametrize(
    ("id", "status", "code"),
    [
        ("0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10_0_0", 404, "workunit_not_found"),
        ("xx", 400, "invalid_request"),
        ("base64:!!", 400, "invalid_request"),
        ("base64:/w==", 400, "invalid_request"),
    ],
)
async def test_unknown_work_is_404_and_no_id_is_400(api: Api, id: str, status: int, code: str) -> None:
    await api.refused("GET", f"/work/{id}", status, code)


async def test_a_rank_that_does_not_exist_is_404(api: Api) -> None:
    job = await api.submit(ARRAY)
    await api.ok("GET", f"/work/{job['id']}_0_30")
    for rank in (0, 31):
        await api.refused("GET", f"/work/{job['id']}_0_{rank}", 404, "workunit_not_found")


async def test_secrets_are_for_the_holder_alone(api: Api) -> None:
    task = {"taskid": "0", "cmd": {"name": "x", "environ": {"private": {"KEY": "s3 ü"}}}}
    document = {"tasks": [task]}
    job = await api.ok("POST", "/job", json=document, headers={"Datatoken": "tok-abc"})
    holder, other = await api.register("a"), await api.register("b")
    id = f"{job['id']}_0_0"
    await api.refused("GET", f"/work/{id}?datatoken&client={holder['id']}", 409, "lease_lost")
    work = await api.checkout(holder)
    assert work["cmd"]["has_private_env"]
    assert work["info"]["auth"]
    token = await api.http.get(f"/work/{encoded(id)}?datatoken&client={holder['id']}")
    assert token.headers["Datatoken"] == "tok-abc"
    assert token.json() == recorded("work-get-datatoken-set")["reply"]["body"]
    env = await api.http.get(f"/work/{id}?privateenv&client={holder['id']}")
    assert env.headers["Privateenv"] == '{"KEY": "s3 \\u00fc"}'
    for flag in ("datatoken", "privateenv"):
        for asker in (other["id"], "nobody"):
            reply = await api.http.get(f"/work/{id}?{flag}&client={asker}")
            assert reply.json()["code"] == "lease_lost"
            assert "tok-abc" not in str(reply.headers) + reply.text
        await api.refused("GET", f"/work/{id}?{flag}", 400, "invalid_request")
    await api.report(work)
    await api.refused("GET", f"/work/{id}?privateenv&client={holder['id']}", 409, "lease_lost")


async def test_pages_of_never_handed_out_work_cost_what_they_show(api: Api) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}, "totalwork": 1_000_000})
    page = await get(api, "state=queued&offset=999995&limit=10")
    assert page["total_count"] == 1_000_000
    assert [row["rank"] for row in page["data"]] == list(range(999_996, 1_000_001))
    [text] = await api.refused("GET", "/work?order=rank", 413, "too_large")
    assert "wuid" in text
    assert (await get(api, f"jobid={job['id']}&limit=1"))["total_count"] == 1_000_000


async def test_lists_walk_over_handed_out_and_fresh_work_without_gaps(api: Api) -> None:
    for _ in range(3):
        await api.submit(ARRAY, {"taskid": "1", "cmd": {"name": "y"}, "totalwork": 4})
    client = await api.register(cores=64)
    held = [(await api.checkout(client))["id"] for _ in range(5)]
    for order in (
        "info.submittime",
        "wuid",
        "cmd.name",
        "rank",
        "state",
        "client",
        "checkout_time",
        "failed",
    ):
        for direction in ("asc", "desc"):
            found: list[str] = []
            while True:
                page = await get(api, f"order={order}&direction={direction}&limit=13&offset={len(found)}")
                assert page["total_count"] == 3 * 34
                if not page["data"]:
                    break
                found += [row["id"] for row in page["data"]]
            assert len(found) == len(set(found)) == 3 * 34, order
    assert {row["id"] for row in (await get(api, "state=checkout"))["data"]} == set(held)
    assert {row["id"] for row in (await get(api, f"query&client={client['id']}"))["data"]} == set(held)


async def test_the_work_of_one_job_shows_finished_work_too(api: Api) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}, "totalwork": 5})
    client = await api.register(cores=64)
    works = [await api.checkout(client) for _ in range(3)]
    await api.report(works[0])
    page = await get(api, f"jobid={job['id']}")
    assert [row["state"] for row in page["data"]] == ["completed", "checkout", "checkout", "queued", "queued"]
    assert (await get(api, f"jobid={job['id']}&state=completed"))["total_count"] == 1
    assert (await get(api, f"jobid={job['id']}&state=queued"))["total_count"] == 2
    page = await get(api, f"taskid={job['id']}_0&limit=2&offset=1")
    assert [row["rank"] for row in page["data"]] == [2, 3]
    await api.refused("GET", "/work?state=completed", 400, "invalid_request")
    await api.refused("GET", "/work?state=done", 400, "invalid_request")
    for work in works[1:]:
        await api.report(work)
    for _ in range(2):
        await api.report(await api.checkout(client))
    await api.state_of(job, "completed")
    page = await get(api, f"jobid={job['id']}")
    assert [(row["rank"], row["state"]) for row in page["data"]] == [(r, "completed") for r in range(1, 6)]
    assert page["total_count"] == 5


async def test_the_work_of_one_job_is_filtered_and_sorted_as_all_work_is(api: Api) -> None:
    job = await api.submit({**ARRAY, "totalwork": 5}, {"taskid": "1", "cmd": {"name": "a"}, "totalwork": 2})
    ann, bob = await api.register("ann", cores=64), await api.register("bob", cores=64)
    anns = [await api.checkout(ann) for _ in range(3)]
    await api.checkout(bob)
    await api.report(anns[0])

    async def ranks(query: str) -> list[str]:
        page = await get(api, f"query&jobid={job['id']}&{query}")
        assert page["total_count"] == len(page["data"])
        return [row["id"].removeprefix(f"{job['id']}_") for row in page["data"]]

    everything = ["0_1", "0_2", "0_3", "0_4", "0_5", "1_1", "1_2"]
    assert await ranks("") == everything
    assert await ranks(f"client={ann['id']}") == ["0_1", "0_2", "0_3"]
    assert await ranks(f"client={ann['id']}&state=completed") == ["0_1"]
    assert await ranks(f"client={ann['id']}&state=checkout&order=rank&direction=desc") == ["0_3", "0_2"]
    assert await ranks(f"client={bob['id']}&state=completed") == []
    assert await ranks("order=rank&direction=desc") == ["0_5", "0_4", "0_3", "0_2", "1_2", "0_1", "1_1"]
    assert await ranks("order=cmd.name&direction=asc") == ["1_1", "1_2", *everything[:5]]
    assert await ranks("order=wuid&direction=desc") == ["1_1", "1_2", *everything[:5]]
    assert await ranks("order=state&direction=asc&state=checkout,completed") == ["0_2", "0_3", "0_4", "0_1"]
    assert await ranks(f"taskid={job['id']}_1") == ["1_1", "1_2"]
    page = await get(api, f"jobid={job['id']}&order=rank&direction=asc&limit=2&offset=2")
    assert ([row["rank"] for row in page["data"]], page["total_count"]) == ([2, 2], 7)


async def test_work_of_an_ended_job_that_was_never_handed_out_is_still_shown(api: Api) -> None:
    tasks = [{**ARRAY, "totalwork": 4}, {"taskid": "1", "cmd": {"name": "a"}, "totalwork": 2}]
    job = await api.submit(*tasks, {"taskid": "2", "cmd": {"name": "x"}, "dependsOn": ["0"]})
    client = await api.register(cores=64)
    works = [await api.checkout(client) for _ in range(2)]
    await api.report(works[0])
    await api.report(works[1], "failed-permanent")
    await eventually(lambda: job["id"] not in api.services.engine.state.jobs)

    async def ranks(query: str) -> list[tuple[str, str]]:
        page = await get(api, f"query&jobid={job['id']}&{query}")
        assert page["total_count"] == len(page["data"])
        return [(row["id"].removeprefix(f"{job['id']}_"), row["state"]) for row in page["data"]]

    done, lost = [("0_1", "completed")], "failed-permanent"
    rest = [(id, lost) for id in ("0_2", "0_3", "0_4", "1_1", "1_2")]
    assert await ranks("") == done + rest
    assert await ranks(f"state={lost}") == rest
    assert await ranks("state=completed") == done
    assert await ranks(f"client={client['id']}") == [*done, rest[0]]
    assert await ranks("order=cmd.name&direction=asc") == [*rest[3:], *done, *rest[:3]]
    assert [id for id, _ in await ranks("order=rank&direction=desc")] == [
        "0_4",
        "0_3",
        "0_2",
        "1_2",
        "0_1",
        "1_1",
    ]
    page = await get(api, f"jobid={job['id']}&state={lost}&limit=2&offset=2")
    assert [row["rank"] for row in page["data"]] == [4, 1]
    assert page["total_count"] == 5
    assert (await api.ok("GET", f"/work/{job['id']}_1_2"))["state"] == lost
    assert (await api.ok("GET", f"/work/{job['id']}_0_2"))["attempt"] == 1
    for absent in ("1_3", "1_0", "2_0", "3_0"):
        await api.refused("GET", f"/work/{job['id']}_{absent}", 404, "workunit_not_found")
    await api.refused("GET", "/work/nobody_0_0", 404, "workunit_not_found")


async def test_a_workunit_whose_job_is_gone_is_left_out_of_the_list(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, gone = await api.submit(), await api.submit()
    part = api.services.engine.job_part

    async def job_part(job_id: JobId, task_ids: Collection[TaskId]) -> Any:
        if job_id == gone["id"]:
            raise JobNotFound(job_id=job_id)
        return await part(job_id, task_ids)

    monkeypatch.setattr(api.services.engine, "job_part", job_part)
    assert [row["jobid"] for row in (await get(api, ""))["data"]] == [kept["id"]]
