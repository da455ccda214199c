"""Nodes go when their time has come, and not before nobody needs them."""

from typing import Any
from unittest.mock import Mock

import pytest

from awe_server.runtime import node_expiry
from awe_server.runtime.node_expiry import NodeExpiry
from awe_server.scheduler.jobs import suspend_job
from shared_models.errors import BadRequest, NodeNotFound
from shared_models.ids import JobId
from tests.unit.runtime.site import Site, stream
from tests.unit.runtime.workshop import done, task

pytestmark = pytest.mark.anyio


@pytest.fixture
def site_type() -> type[Site]:
    return Site


async def sweep(site: Site) -> int:
    return await NodeExpiry(site.engine, site.nodes, 60.0).once()


async def node(site: Site, expiration: str = "") -> str:
    made = await site.nodes.create(stream(b"a\nb\n"), expiration=expiration)
    return str(made["id"])


async def exists(site: Site, node_id: str) -> bool:
    try:
        await site.nodes.get(node_id)
    except NodeNotFound:
        return False
    return True


async def test_a_node_goes_with_its_bytes_when_its_time_has_come(site: Site) -> None:
    short, long, never = await node(site, "1M"), await node(site, "2H"), await node(site)
    assert await sweep(site) == 0
    site.hands.wall_s += 61
    assert await sweep(site) == 1
    assert [await exists(site, id) for id in (short, long, never)] == [False, True, True]
    assert (await site.nodes.usage()).used_bytes == 8
    site.hands.wall_s += 7200
    assert await sweep(site) == 1
    assert [await exists(site, id) for id in (long, never)] == [False, True]


async def test_what_was_said_last_counts(site: Site) -> None:
    kept, later, sooner = await node(site, "1M"), await node(site, "1M"), await node(site)
    await site.nodes.set_expiration(kept, "")
    await site.nodes.set_expiration(later, "1D")
    await site.nodes.set_expiration(sooner, "0M")
    site.hands.wall_s += 61
    assert await sweep(site) == 1
    assert [await exists(site, id) for id in (kept, later, sooner)] == [True, True, False]


@pytest.mark.parametrize("text", ["3", "D", "3d", "-3D", "3W", " 3D", "1.5H", "99999999999D"])
async def test_what_makes_no_sense_is_refused_and_changes_nothing(site: Site, text: str) -> None:
    kept = await node(site)
    before = await site.nodes.get(kept)
    with pytest.raises(BadRequest, match="30M, 12H or 3D"):
        await site.nodes.set_expiration(kept, text)
    with pytest.raises(BadRequest, match="30M, 12H or 3D"):
        await site.nodes.create(stream(b"x"), expiration=text)
    assert await site.nodes.get(kept) == before


@pytest.mark.parametrize("use", ["inputs", "predata"])
async def test_a_node_that_an_unfinished_job_uses_stays(site: Site, use: str) -> None:
    used = await node(site, "1M")
    io: dict[str, Any] = {"filename": "in.txt", "host": "", "node": used}
    job_id = await site.submit({**task(), use: [io]})
    await site.until(job_id, "queued")
    site.hands.wall_s += 61
    assert await sweep(site) == 0
    await site.engine.do(suspend_job, job_id)
    assert await sweep(site) == 0, "a suspended job may go on"
    assert await exists(site, used)


async def test_it_goes_once_the_job_has_ended(site: Site) -> None:
    used = await node(site, "1M")
    io = {"filename": "in.txt", "host": "", "node": used}
    job_id = await site.submit(task(inputs=[io], outputs=[{"filename": "out.txt"}]))
    await site.until(job_id, "queued")
    site.hands.wall_s += 61
    (grant,) = await site.fetch()
    output = grant.task.outputs[0]["node"]
    await site.nodes.set_expiration(output, "0M")
    site.hands.wall_s += 1
    assert await sweep(site) == 0
    fact = await site.nodes.put_part(output, 0, grant.attempt, stream(b"x"))
    report = {**done(grant), "outputs": [{"filename": "out.txt", "size": fact.size, "md5": fact.md5}]}
    await site.exchange(reports=[report])
    await site.until(JobId(job_id), "completed")
    assert await sweep(site) == 2
    assert [await exists(site, id) for id in (used, output)] == [False, False]


async def test_many_that_stay_do_not_hide_those_that_go_and_cost_one_look_at_all_tasks(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = 5
    looks = Mock(side_effect=node_expiry.in_use)
    monkeypatch.setattr(node_expiry, "PAGE", page)
    monkeypatch.setattr(node_expiry, "in_use", looks)
    used = [await node(site, "1M") for _ in range(4 * page)]
    ios = [{"filename": f"{number}.txt", "host": "", "node": id} for number, id in enumerate(used)]
    job_id = await site.submit(task(inputs=ios))
    await site.until(job_id, "queued")
    unused = [await node(site, "2M") for _ in range(page + 1)]
    site.hands.wall_s += 121
    assert await sweep(site) == len(unused)
    assert looks.call_count == 1 + 2, "once for all that stay, and once for each page of those that go"
    assert await exists(site, used[0])


async def test_a_node_that_a_job_begins_to_use_during_the_sweep_stays(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = await node(site, "1M")
    site.hands.wall_s += 61
    plain = site.engine.find

    async def submit_meanwhile(*args: Any) -> Any:
        page = await plain(*args)
        monkeypatch.undo()
        await site.submit(task(inputs=[{"filename": "in.txt", "host": "", "node": used}]))
        return page

    monkeypatch.setattr(site.engine, "find", submit_meanwhile)
    assert await sweep(site) == 0
    assert await exists(site, used)
