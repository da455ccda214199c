"""GET /job: filters, order and pages fit together (field reports X-02, X-04)."""

from typing import Any

import pytest

from awe_server.api import job_list, job_min
from tests.api.conftest import Api
from tests.support.eventually import eventually
from tests.support.golden import recorded, shape_problems

pytestmark = pytest.mark.anyio

ORDERS = [
    "info.submittime", "info.startedtime", "info.completedtime", "info.name", "info.user", "info.project",
    "info.pipeline", "info.priority", "info.service", "state", "updatetime", "jid", "id",
]  # fmt: skip


async def get(api: Api, query: str = "") -> Any:
    reply = await api.http.get(f"/job?{query}")
    assert reply.status_code == 200, reply.text
    return reply.json()


async def walk(api: Api, query: str, limit: int) -> list[str]:
    """The ids of all pages; checks each page's numbers."""
    found: list[str] = []
    while True:
        page = await get(api, f"{query}&limit={limit}&offset={len(found)}")
        assert page["limit"] == limit
        assert page["offset"] == len(found)
        assert len(page["data"]) <= limit
        if not page["data"]:
            assert page["total_count"] == len(found)
            return found
        found += [row["id"] for row in page["data"]]


async def test_X_02_pages_of_jobs_of_one_moment_show_each_once_in_every_order(api: Api) -> None:
    ids = {(await api.submit(name=f"n{i % 3}", priority=i % 4 + 1))["id"] for i in range(60)}
    for order in ORDERS:
        for direction in ("asc", "desc"):
            query = f"order={order}&direction={direction}&verbosity=job"
            found = await walk(api, query, 7)
            assert len(found) == 60, query
            assert set(found) == ids, query


async def test_an_order_and_its_reverse_mirror_each_other(api: Api) -> None:
    for i in range(9):
        await api.submit(priority=i % 2 + 1)
    up = await walk(api, "order=info.priority&direction=asc", 4)
    down = await walk(api, "order=info.priority&direction=desc", 4)
    assert up == down[::-1]


@pytest.fixture
async def ninety(api: Api) -> list[dict[str, Any]]:
    """90 jobs of three users, five projects, three states."""
    made = []
    for i in range(90):
        made.append(
            await api.submit(
                user=("anna", "ben", "cleo")[i % 3],
                project=f"p{i % 5}",
                name=f"job {i % 7}",
                userattr={"sample": f"s{i % 4}", "bp": i % 6},
            )
        )
    for job in made[::4]:
        await api.ok("PUT", f"/job/{job['id']}?suspend")
        job["state"] = "suspend"
    for job in made[1::9]:
        if job["state"] != "suspend":
            await api.ok("DELETE", f"/job/{job['id']}")
            job["state"] = "deleted"
    for job in made:
        job["state"] = job["state"] if job["state"] in ("suspend", "deleted") else "queued"
    return made


FILTERS = [
    ("user=anna", lambda j: j["info"]["user"] == "anna"),
    ("user=anna,ben", lambda j: j["info"]["user"] in ("anna", "ben")),
    ("user=anna&user=ben", lambda j: j["info"]["user"] in ("anna", "ben")),
    ("state=suspend", lambda j: j["state"] == "suspend"),
    ("state=deleted", lambda j: j["state"] == "deleted"),
    ("state=deleted,suspend", lambda j: j["state"] in ("deleted", "suspend")),
    ("suspend", lambda j: j["state"] == "suspend"),
    ("active", lambda j: j["state"] == "queued"),
    ("registered&project=p1", lambda j: (j["info"]["project"], j["state"] != "deleted") == ("p1", True)),
    (
        "state=queued&user=cleo&project=p2",
        lambda j: (j["state"], j["info"]["user"], j["info"]["project"]) == ("queued", "cleo", "p2"),
    ),
    ("query&info.user=ben&state=suspend", lambda j: (j["info"]["user"], j["state"]) == ("ben", "suspend")),
    ("query&info.name=job 3", lambda j: j["info"]["name"] == "job 3"),
    ("info.userattr.sample=s2", lambda j: j["info"]["userattr"]["sample"] == "s2"),
    ("query&info.userattr.bp=5", lambda j: j["info"]["userattr"]["bp"] == 5),
    ("priority=2", lambda j: False),
    ("priority=1&name=job 1", lambda j: j["info"]["name"] == "job 1"),
]  # fmt: skip


async def test_X_04_filters_and_pages_together_give_what_filtering_everything_gives(
    api: Api, ninety: list[dict[str, Any]]
) -> None:
    for query, holds in FILTERS:
        wanted = {job["id"] for job in ninety if holds(job)}
        found = await walk(api, query + "&verbosity=job", 10)
        assert len(found) == len(set(found)), query
        assert set(found) == wanted, query


async def test_X_04_a_filter_that_is_changed_between_pages_counts_from_its_own_first(
    api: Api, ninety: list[dict[str, Any]]
) -> None:
    """An offset belongs to no filter: the next page is that of the filter it comes with."""
    order = "order=jid&direction=asc&verbosity=job&limit=10"
    assert len((await get(api, f"user=anna&{order}"))["data"]) == 10
    page = await get(api, f"user=ben&{order}&offset=10")
    found = await walk(api, f"user=ben&{order.removesuffix('&limit=10')}", 10)
    assert [row["id"] for row in page["data"]] == found[10:20]
    assert set(found) == {job["id"] for job in ninety if job["info"]["user"] == "ben"}
    assert page["total_count"] == len(found)


async def test_X_04_behind_the_last_page_is_an_empty_one_with_the_same_total(api: Api) -> None:
    for _ in range(3):
        await api.submit()
    page = await get(api, "limit=2&offset=50")
    assert page["data"] == []
    assert page["total_count"] == 3


async def test_X_02_jobs_that_come_finish_and_are_deleted_move_no_page_in_order_of_submission(
    api: Api,
) -> None:
    """Only what is put before a row, or removed (`?full`), moves it; see the wire contract."""
    there = [(await api.submit())["id"] for _ in range(60)]
    client = await api.register()
    found: list[str] = []
    while rows := (await get(api, f"order=jid&direction=asc&limit=7&offset={len(found)}"))["data"]:
        found += [row["id"] for row in rows]
        if len(found) < 60:
            await api.submit()
            await api.report(await api.checkout(client))
            await api.ok("DELETE", f"/job/{there.pop()}")
    assert len(found) == len(set(found))
    assert set(there) <= set(found)


@pytest.mark.parametrize(
    "query", ["limit=-1", "limit=x", "offset=-1", "limit=1e9", "direction=up", "order=acl"]
)
async def test_X_02_senseless_paging_is_refused(api: Api, query: str) -> None:
    await api.refused("GET", f"/job?{query}", 400, "invalid_request")


async def test_X_02_a_huge_limit_and_none_are_capped(api: Api) -> None:
    for limit in (0, 1_000_000):
        assert (await get(api, f"limit={limit}"))["limit"] == 1000
    assert (await get(api))["limit"] == 25


@pytest.mark.parametrize(
    ("query", "hint"),
    [("stat=x", "state"), ("query&info.usr=x", "info.user"), ("acl.owner=x", ""), ("query&datatoken=x", "")],
)
async def test_X_04_unknown_fields_are_refused_not_ignored(api: Api, query: str, hint: str) -> None:
    [text] = await api.refused("GET", f"/job?{query}", 400, "unknown_parameter")
    assert hint in text


async def test_an_unknown_state_is_refused(api: Api) -> None:
    [text] = await api.refused("GET", "/job?state=running", 400, "invalid_request")
    assert "in-progress" in text


async def test_dates_select_what_was_submitted_or_completed_between(api: Api) -> None:
    old = await api.submit(name="old")
    api.hands.advance(86_400)
    new = await api.submit(name="new")
    # The old one completes on the second day.
    client = await api.register()
    work = await api.checkout(client)
    assert work["jobid"] == old["id"]
    await api.report(work)
    first, second = old["info"]["submittime"][:10], new["info"]["submittime"][:10]
    assert [
        row["info"]["name"] for row in (await get(api, f"date_start={first}&date_end={second}"))["data"]
    ] == ["old"]
    both = await get(api, f"date_start={second}&order=info.name&direction=asc")
    assert [row["info"]["name"] for row in both["data"]] == ["new", "old"]
    moment = new["info"]["submittime"]
    assert (await get(api, f"date_start={moment}&name=new"))["total_count"] == 1
    [text] = await api.refused("GET", "/job?date_start=yesterday", 400, "invalid_request")
    assert text == "Invalid datetime format: yesterday"


async def test_counts_in_a_list_are_those_of_now(api: Api) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "x"}, "totalwork": 3})
    client = await api.register()
    await api.report(await api.checkout(client))
    [row] = (await get(api))["data"]
    assert row["tasks"][0]["remainwork"] == 2
    assert row["id"] == job["id"]
    assert row["registered"]


async def test_minimal_rows_are_awes(api: Api) -> None:
    await api.submit(name="m", userattr={"a": "b"})
    [row] = (await get(api, "verbosity=minimal"))["data"]
    [theirs] = recorded("job-list-verbosity")["reply"]["body"]["data"][:1]
    assert shape_problems(theirs, row) == []
    assert row["task"] == [0]
    assert row["state"] == ["queued"]


async def test_a_minimal_row_is_enough_for_a_list_of_jobs(api: Api) -> None:
    cut = {"cmd": {"name": "x"}, "partinfo": {"index": "none"}}
    tasks = [{"taskid": "a", "totalwork": 3, **cut}, {"taskid": "b", "totalwork": 1, **cut}]
    job = await api.submit(*tasks, user="anna", noretry=True)
    client = await api.register()
    works = [await api.checkout(client) for _ in range(4)]
    await api.report(works[0])
    facts = ("jid", "user", "job_state", "totalwork", "remainwork")
    [row] = (await get(api, "verbosity=minimal"))["data"]
    assert [row[key] for key in facts] == [job["jid"], "anna", "in-progress", 4, 3]
    await api.report(works[1], "failed-permanent")
    await eventually(lambda: job["id"] not in api.services.engine.state.jobs)
    [row] = (await get(api, "verbosity=minimal"))["data"]
    assert [row[key] for key in facts] == [job["jid"], "anna", "failed-permanent", 4, 3]


async def test_a_minimal_row_names_the_task_that_failed_and_none_that_begins_alike(api: Api) -> None:
    tasks = [{"taskid": name, "cmd": {"name": "x"}} for name in ("map", "map_reads")]
    job = await api.submit({**tasks[0], "cmd": {"name": "else"}}, tasks[1], noretry=True)
    await api.report(await api.checkout(await api.register(apps=["x"])), "fail")
    [row] = (await get(api, "verbosity=minimal"))["data"]
    assert (await api.ok("GET", f"/job/{job['id']}"))["lastfailed"] == f"{job['id']}_map_reads_0"
    assert (row["task"], row["state"]) == ([1], ["suspend"])


async def test_distinct_values_of_a_field(api: Api) -> None:
    for user in ("ben", "anna", "ben"):
        await api.submit(user=user)
    assert await api.ok("GET", "/job?distinct=user") == ["anna", "ben"]
    [text] = await api.refused("GET", "/job?distinct=secret", 400, "invalid_request")
    assert "non-indexed" in text


async def test_a_job_of_very_many_tasks_fails_no_list(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_list, "MAX_LISTED_TASKS", 3)
    for count in (1, 4, 2, 1):
        await api.submit(*({"taskid": str(i), "cmd": {"name": "x"}} for i in range(count)))
    rows = (await get(api, "order=jid&direction=asc"))["data"]
    assert [len(row.get("tasks", ())) for row in rows] == [1, 0, 2, 0]
    assert [row.get("tasks_omitted") for row in rows] == [None, 4, None, 1]
    assert "tasks" not in rows[1]
    assert len((await get(api, "verbosity=job"))["data"]) == 4
    rows = (await get(api, "verbosity=minimal&order=jid&direction=asc"))["data"]
    assert [row["task"] for row in rows] == [[0], [0, 1, 2, 3], [0, 1], [0]]


async def test_a_minimal_row_names_the_first_of_very_many_tasks(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_min, "MAX_NAMED_TASKS", 2)
    await api.submit(*({"taskid": str(i), "cmd": {"name": "x"}} for i in range(5)))
    [row] = (await get(api, "verbosity=minimal"))["data"]
    assert (row["task"], row["state"], row["tasks_omitted"]) == ([0, 1], ["queued", "queued"], 3)


async def test_minimal_rows_build_no_task_and_say_the_same_of_a_job_that_has_left_memory(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [{"taskid": name, "cmd": {"name": "x"}} for name in ("a", "b")]
    job = await api.submit(*tasks, name="n", noretry=True)
    client = await api.register()
    works = [await api.checkout(client) for _ in tasks]
    await api.report(works[0], computetime="7")
    shown = [await rows_without_tasks(api, monkeypatch)]
    await api.report(works[1], "failed-permanent")
    await eventually(lambda: job["id"] not in api.services.engine.state.jobs)
    shown.append(await rows_without_tasks(api, monkeypatch))
    kept = [{key: row[key] for key in ("name", "task", "state", "computetime")} for row in shown]
    assert kept[0] == {"name": "n", "task": [1], "state": ["in-progress"], "computetime": 7}
    assert kept[1] == {"name": "n", "task": [1], "state": ["failed-permanent"], "computetime": 7}


async def rows_without_tasks(api: Api, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The one short row; nobody may ask for all tasks of its job meanwhile."""
    with monkeypatch.context() as patched:
        patched.setattr(api.services.engine, "job_documents", None)
        patched.setattr(api.services.engine, "find", only_jobs(api))
        [row] = (await get(api, "verbosity=minimal"))["data"]
    return row


def only_jobs(api: Api) -> Any:
    find = api.services.engine.find

    async def of_jobs(collection: Any, query: Any) -> Any:
        assert collection == "jobs"
        return await find(collection, query)

    return of_jobs


async def test_numbers_of_jobs_are_sorted_as_numbers(api: Api) -> None:
    api.services.engine.state.last_jid = 99_998
    jids = [(await api.submit())["jid"] for _ in range(3)]
    assert jids == ["99999", "100000", "100001"]
    rows = (await get(api, "order=jid&verbosity=job"))["data"]
    assert [row["jid"] for row in rows] == jids[::-1]
