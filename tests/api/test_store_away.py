"""A store that does not answer: what was begun is told from what was not, and nothing is done twice."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from awe_server.scheduler.tick import tick
from awe_server.store.base import Operation
from awe_server.store.memory import MemoryStore
from shared_models.errors import StoreUnavailable
from tests.api.conftest import Api
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio

JOB = {"tasks": [{"taskid": "0", "cmd": {"name": "true"}}]}


class Away:
    """Whether the store is away."""

    def __init__(self) -> None:
        self.now = False


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    away, commit = Away(), MemoryStore.commit

    async def perhaps(self: MemoryStore, batch: Sequence[Operation]) -> None:
        if away.now:
            raise StoreUnavailable("disk full")
        await commit(self, batch)

    monkeypatch.setattr(MemoryStore, "commit", perhaps)
    return away


@pytest.fixture
def settings(away: Away) -> dict[str, Any]:
    return {"commit_wait_s": 0.1}


@pytest.fixture
async def api(api: Api, away: Away) -> AsyncIterator[Api]:
    yield api
    await back(api, away)


async def back(api: Api, away: Away) -> None:
    """The store is there again and has taken everything."""
    away.now = False
    await eventually(lambda: not api.services.engine.store_trouble, within_s=15)


async def post(api: Api, path: str, **more: Any) -> tuple[int, str, str, bool]:
    """Status, code, text, and whether it says to try again."""
    reply = await api.http.post(path, **more)
    body = reply.json()
    return reply.status_code, body["code"], body["error"][0], "retry-after" in reply.headers


async def test_the_first_submit_may_come_true_and_all_later_ones_have_begun_nothing(
    api: Api, away: Away
) -> None:
    away.now = True
    status, code, first, again = await post(api, "/job", json=JOB)
    assert (status, code, again) == (503, "not_confirmed", False)
    assert "has not confirmed it (disk full): it may still be carried out" in first
    for _ in range(2):
        status, code, text, again = await post(api, "/job", json=JOB)
        assert (status, code, again) == (503, "store_unavailable", True)
        assert text == "The store does not answer (disk full); try again."
    assert (await api.http.get("/job")).json()["error"] == [text]
    await back(api, away)
    [job] = (await api.http.get("/job")).json()["data"]
    assert f"GET /job/{job['id']}" in first


async def test_a_submit_with_a_key_may_be_repeated_at_any_time(api: Api, away: Away) -> None:
    headers = {"Idempotency-Key": "k"}
    away.now = True
    texts = set()
    for _ in range(3):
        status, code, text, _ = await post(api, "/job", json=JOB, headers=headers)
        assert (status, code) == (503, "not_confirmed")
        texts.add(text)
    await back(api, away)
    job = await api.ok("POST", "/job", json=JOB, headers=headers)
    assert (await api.http.get("/job")).json()["total_count"] == 1
    [text] = texts
    assert f"GET /job/{job['id']}" in text


@pytest.mark.parametrize("body", [{"files": {"upload": ("x", b"x")}}, {"content": b"x"}, {}])
async def test_the_first_node_may_come_true_and_all_later_ones_have_begun_nothing(
    api: Api, away: Away, body: dict[str, Any]
) -> None:
    away.now = True
    _, code, text, again = await post(api, "/node", **body)
    assert (code, again) == ("not_confirmed", False)
    assert "(disk full)" in text
    for _ in range(2):
        assert (await post(api, "/node", **body))[1] == "store_unavailable"
    await back(api, away)
    [node] = (await api.http.get("/node")).json()["data"]
    assert f"GET /node/{node['id']}" in text


async def test_a_report_may_be_repeated_until_it_is_confirmed(api: Api, away: Away) -> None:
    job = await api.submit()
    work = await api.checkout(await api.register())
    away.now = True
    path = f"/work/{work['id']}?status=done&client={work['client']}"
    for _ in range(2):
        reply = await api.http.put(path)
        assert reply.status_code == 503
        assert "has not confirmed it (disk full)" in reply.json()["error"][0]
    await back(api, away)
    assert await api.report(work) == "ok"
    assert (await api.ok("GET", f"/job/{job['id']}"))["state"] == "completed"


async def test_who_repeats_a_report_at_a_store_that_hangs_keeps_its_leases(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is durable and its job has ended, so only the store knows that it is a repeat."""
    await api.submit()
    await api.submit()
    profile = {"name": "n", "group": "default", "apps": ["*"], "cores": 4, "incarnation": "i"}
    client = await api.ok("POST", "/client", json=profile)
    path, asked = f"/client/{client['id']}/exchange", {"incarnation": "i", "want": 2}
    first, kept = (await api.ok("POST", path, json={**asked, "request_id": 1}))["work"]
    hold = [f"{kept['task']}_{kept['rank']}", kept["attempt"]]
    report = {
        "work": f"{first['task']}_{first['rank']}", "attempt": first["attempt"], "token": first["token"],
        "outcome": "done", "exit_code": 0, "outputs": [],
    }  # fmt: skip
    asked = {"incarnation": "i", "holds": [hold], "reports": [report]}
    assert (await api.ok("POST", path, json={**asked, "request_id": 2}))["results"][0]["result"] == "accepted"
    await eventually(lambda: len(api.services.engine.state.jobs) == 1)

    async def hang(*_: object) -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "get_many", hang)
        for _ in range(4):
            api.hands.advance(24)
            status, _, text, _ = await post(api, path, json={**asked, "request_id": 3})
            assert (status, text) == (503, "The store does not answer (no answer within 0.1 s); try again.")
            api.services.engine.run(tick)
    data = await api.ok("POST", path, json={**asked, "request_id": 3})
    assert data["results"][0]["result"] == "duplicate"
    assert data["discard"] == []
