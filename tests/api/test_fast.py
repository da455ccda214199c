"""Requests that are served past the router get what the router would say.

A slash at the end of a path means nothing, and leads through the router.
"""

import uuid
from typing import Any

import httpx
import pytest

from awe_server.api.fast import find
from tests.api.conftest import Api

pytestmark = pytest.mark.anyio

DOCUMENT = b'{"tasks": [{"taskid": "0", "cmd": {"name": "true"}}]}'
PLAIN = {"content-type": "application/json"}


def shape(reply: httpx.Response) -> Any:
    """What may be compared of two jobs: not their ids and times."""
    data = reply.json()["data"]
    return (reply.status_code, sorted(reply.headers), reply.json()["error"], data and sorted(data))


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (DOCUMENT, PLAIN),
        (DOCUMENT, {**PLAIN, "datatoken": "secret", "idempotency-key": "k"}),
        (DOCUMENT, {**PLAIN, "datatoken": "x" * 10_000}),
        (DOCUMENT, {**PLAIN, "host": "elsewhere.example"}),
        (DOCUMENT, {**PLAIN, "origin": "http://elsewhere.example"}),
        (b'{"tasks": 1}', PLAIN),
        (b"{", PLAIN),
        (b"", {}),
    ],
)
async def test_a_submission_is_answered_as_the_router_would(
    api: Api, body: bytes, headers: dict[str, str]
) -> None:
    fast = await api.http.post("/job", content=body, headers=headers)
    slow = await api.http.post("/job/", content=body, headers=headers)
    assert shape(fast) == shape(slow)
    if "idempotency-key" in headers:
        assert fast.json()["data"] == slow.json()["data"]


@pytest.mark.parametrize(
    "query", ["", "?wait_s=0", "?wait_s=1&revision=-1", "?wait_s=x", "?why", "?nonsense"]
)
async def test_a_job_is_shown_as_the_router_would(api: Api, query: str) -> None:
    job = await api.submit()
    for id in (job["id"], str(uuid.UUID(int=0)), "%C3%A4"):
        fast, slow = [await api.http.get(f"/job/{id}{slash}{query}") for slash in ("", "/")]
        assert fast.status_code == slow.status_code
        assert fast.json() == slow.json()
        assert sorted(fast.headers) == sorted(slow.headers)


@pytest.mark.parametrize(
    ("method", "path", "query", "is_fast"),
    [
        ("POST", "/job", b"", True),
        ("POST", "/job", b"x", False),
        ("POST", "/job/", b"", False),
        ("GET", "/job", b"", False),
        ("GET", "/job/1", b"wait_s=60", True),
        ("GET", "/job/1", b"wait_s=60&revision=7", True),
        ("GET", "/job/1", b"wait_s=60&wait_s=7", False),
        ("GET", "/job/1", b"wait_s=0.5", False),
        ("GET", "/job/1", b"perf", False),
        ("HEAD", "/job/1", b"", False),
        ("DELETE", "/job/1", b"", False),
        ("GET", "/job/1/2", b"", False),
        ("POST", "/client/1/exchange", b"", True),
        ("GET", "/client/1/exchange", b"", False),
    ],
)
def test_only_the_plain_form_is_served_past_the_router(
    method: str, path: str, query: bytes, is_fast: bool
) -> None:
    scope = {"type": "http", "method": method, "path": path, "query_string": query}
    assert (find(scope) is not None) is is_fast
