"""What cannot be stored, or not as it was sent, is refused at the edge; the server goes on (X-01, X-10)."""

import json
from typing import Any

import pytest

from shared_models.limits import MAX_ATTRIBUTES_BYTES, MAX_DOCUMENT_BYTES, MAX_PROFILE_BYTES
from tests.api.conftest import Api

pytestmark = pytest.mark.anyio

TASK = {"taskid": "0", "cmd": {"name": "true"}}
#: Numbers that no store can keep, or not all of them.
BAD_NUMBERS = [
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e999",
    "NaN",
    "Infinity",
]


async def goes_on(api: Api) -> None:
    """A job still runs to its end, and nothing stopped the server."""
    job = await api.submit()
    await api.report(await api.checkout(await api.register("other")))
    await api.state_of(job, "completed")
    assert not api.deaths


def many_tasks(count: int, name: str) -> dict[str, Any]:
    return {"tasks": [{**TASK, "taskid": f"{i}{name}"} for i in range(count)]}


LARGE: dict[str, dict[str, Any]] = {
    "names": many_tasks(100_000, "n" * 249),
    "info": {"info": {"userattr": {"k": "v" * 300_000}}, "tasks": [TASK]},
    "info in signs that JSON escapes": {"info": {"userattr": {"k": "\n" * 200_000}}, "tasks": [TASK]},
    "info with each task": {"info": {"userattr": {"k": "v" * 200_000}}, **many_tasks(2_000, "n")},
    "userattr": {"tasks": [{**TASK, "userattr": {"k": "v" * 9_000_000}}]},
    "userattr as BSON": {"tasks": [{**TASK, "userattr": {"k": [[]] * 1_300_000}}]},
    "script": {"tasks": [{"taskid": "0", "cmd": {"cmd_script": [""] * 1_300_000 + ["true"]}}]},
}


@pytest.mark.parametrize("name", LARGE)
async def test_X_01_a_job_that_cannot_be_stored_is_refused_with_the_limit(api: Api, name: str) -> None:
    raw = json.dumps(LARGE[name]).encode()
    assert len(raw) < MAX_DOCUMENT_BYTES
    reply = await api.http.post("/job", files={"upload": ("job.json", raw)})
    assert reply.status_code in (400, 413), reply.text[:500]
    assert "the limit is" in reply.json()["error"][0]
    assert (await api.http.get("/job")).json()["total_count"] == 0
    await goes_on(api)


@pytest.mark.parametrize("number", BAD_NUMBERS)
async def test_X_10_numbers_that_cannot_be_kept_are_refused_everywhere(api: Api, number: str) -> None:
    client = await api.register()
    texts = {
        "/job": f'{{"tasks": [{json.dumps(TASK)[:-1]}, "userattr": {{"n": [{number}]}}}}]}}',
        "/client": f'{{"name": "w", "group": "g", "apps": ["*"], "memory_bytes": {number}}}',
        f"/client/{client['id']}/exchange": '{"incarnation": "i", "request_id": 1, "reports": [{"work": "'
        f'{"0" * 8}-0000-0000-0000-{"0" * 12}_0_0", "attempt": 1, "token": "t", "outcome": "done", '
        f'"perf": {{"n": {number}}}}}]}}',
    }
    for path, text in texts.items():
        reply = await api.http.post(path, content=text, headers={"Content-Type": "application/json"})
        assert 400 <= reply.status_code < 500, (path, reply.text)
    for value in (f'{{"n": {number}}}', f'{{"a": {{"n": [{number}]}}}}'):
        reply = await api.http.post("/node", files={"attributes_str": (None, value.encode())})
        assert reply.status_code == 400, reply.text
    await goes_on(api)


@pytest.mark.parametrize("number", BAD_NUMBERS)
async def test_a_stock_workers_odd_measurement_is_dropped_and_its_result_kept(api: Api, number: str) -> None:
    job = await api.submit()
    work = await api.checkout(client := await api.register())
    perf = f'{{"odd": {number}, "fine": 1}}'.encode()
    query = {"status": "done", "client": client["id"]}
    await api.ok("PUT", f"/work/{work['id']}", params=query, files={"perf": ("perf", perf)})
    await api.state_of(job, "completed")
    shown = await api.ok("GET", f"/work/{work['id']}")
    assert "odd" not in (shown["perf"] or {}) or shown["perf"]["odd"] == float(number)
    await goes_on(api)


async def test_attributes_that_are_too_large_are_refused(api: Api) -> None:
    attributes = json.dumps({"k": "v" * MAX_ATTRIBUTES_BYTES}).encode()
    reply = await api.http.post("/node", files={"attributes": ("a", attributes)})
    assert reply.status_code == 413, reply.text
    reply = await api.http.post("/node", files={"attributes": ("a", b'{"k": [' + b"0," * 500_000 + b"0]}")})
    assert reply.status_code == 200, reply.text
    await goes_on(api)


async def test_a_profile_that_is_too_large_is_refused(api: Api) -> None:
    for profile in ({"x": "v" * MAX_PROFILE_BYTES}, {"apps": ["a"] * 2_000}, {"host": "h" * 1_000}):
        reply = await api.http.post("/client", json={"name": "w", "group": "g", "apps": ["*"], **profile})
        assert reply.status_code in (400, 413), reply.text
    await goes_on(api)
