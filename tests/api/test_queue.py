"""/queue: the numbers, AWE's text block, and the switch."""

import re

import pytest

from tests.api.conftest import Api
from tests.support.golden import recorded, shape_problems

pytestmark = pytest.mark.anyio


async def test_the_numbers_are_those_of_awe(api: Api) -> None:
    await api.submit({"taskid": "0", "cmd": {"name": "x"}, "totalwork": 3})
    client = await api.register()
    await api.checkout(client)
    counts = await api.ok("GET", "/queue?json")
    assert shape_problems(recorded("queue-json")["reply"]["body"]["data"], counts) == []
    assert counts["jobs"] == {"total": 1, "active": 1, "suspended": 0}
    assert counts["workunits"] == {"total": 3, "queuing": 2, "checkout": 1, "suspended": 0}
    assert counts["clients"]["busy"] == 1


async def test_the_text_block_has_awes_labels(api: Api) -> None:
    await api.submit()
    text = await api.ok("GET", "/queue")
    lines = text.splitlines()
    assert lines[0] == "++++++++AWE server queue status++++++++"
    assert "total jobs ............... 1" in lines
    assert "    active:           (1)" in lines
    assert "    failed & skipped: (0)" in lines
    assert re.fullmatch(r"---last update: .+", lines[-1])


async def test_a_suspended_queue_refuses_checkouts_only(api: Api) -> None:
    assert await api.ok("PUT", "/queue?suspend") == "work queue suspended"
    assert (await api.http.get("/")).json()["queue_status"] == "suspended"
    await api.submit()
    client = await api.register()
    await api.refused("GET", f"/work?client={client['id']}", 400, "queue_suspended")
    assert await api.ok("PUT", "/queue?resume") == "work queue resumed"
    work = await api.checkout(client)
    await api.ok("PUT", "/queue?suspend")
    assert await api.report(work) == "ok"


async def test_anything_else_is_refused(api: Api) -> None:
    await api.refused("GET", "/queue?job", 400, "unknown_parameter")
    await api.refused("PUT", "/queue", 400, "invalid_request")
    await api.refused("POST", "/queue", 405, "method_not_allowed")
    await api.refused("DELETE", "/queue/x", 404, "not_found")
