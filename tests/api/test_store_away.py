"""A store that does not answer: what was begun is told from what was not, and nothing is done twice."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

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
