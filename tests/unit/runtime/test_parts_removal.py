"""What a removed job leaves in the store goes in small batches, whoever removed the job and whatever dies."""

import asyncio
from pathlib import Path

import pytest

from awe_server.runtime import parts_removal
from awe_server.runtime.expiry import Expiry
from awe_server.runtime.survey_documents import survey_documents
from awe_server.scheduler.jobs import delete_job, remove_unreadable
from awe_server.store.base import Delete, Operation, Query
from shared_models.ids import JobId
from tests.support.eventually import eventually
from tests.unit.runtime.site import Site
from tests.unit.runtime.workshop import Workshop, abandon, done, task

pytestmark = pytest.mark.anyio

PARTS = 10


@pytest.fixture
def site_type() -> type[Site]:
    return Site


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches, and no sweep that would do the same."""

    async def nothing(expiry: Expiry) -> None:
        return

    monkeypatch.setattr(Expiry, "_sweep_leftovers", nothing)
    monkeypatch.setattr(parts_removal, "BATCH", 3)
    monkeypatch.setattr(parts_removal, "READ_IDS", 7)


async def worked_on(site: Workshop) -> JobId:
    """A job of many workunits, of which some are done and some are out."""
    job_id = await site.submit(task(totalwork=PARTS))
    grants = await site.fetch(PARTS)
    await site.exchange(reports=[done(grant) for grant in grants[: PARTS // 2]], holds=held(grants))
    return job_id


def held(grants: list[object]) -> list[tuple[str, int]]:
    return [(g.unit.id, g.attempt) for g in grants[PARTS // 2 :]]  # type: ignore[attr-defined]


async def left(site: Workshop, job_id: JobId) -> int:
    pages = [(await site.engine.find(name, Query())).documents for name in ("jobs", "tasks", "workunits")]
    return sum(job_id in (document.get("jobid"), document["id"]) for page in pages for document in page)


async def notes(site: Workshop) -> list[str]:
    page = await site.engine.find("meta", Query())
    return [document["id"] for document in page.documents if document["id"].startswith("delete-")]


async def test_the_workunits_of_a_deleted_job_go_in_small_batches(site: Site) -> None:
    job_id = await worked_on(site)
    before = len(site.store.committed)
    await site.engine.do(delete_job, job_id, full=True)
    assert await site.engine.get("jobs", job_id) is None

    async def is_clean() -> bool:
        return await left(site, job_id) == 0 and not await notes(site)

    await eventually(is_clean)
    sizes = [sum(op.collection == "workunits" for op in batch) for batch in site.store.committed[before:]]
    assert max(sizes) == 3
    assert sum(sizes) == PARTS


async def test_after_a_kill_between_two_batches_the_next_start_removes_the_rest(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await worked_on(site)
    put, removed = site.engine.put, list[str]()
    is_dead = asyncio.Event()

    async def and_die(*operations: Operation) -> None:
        if removed:
            is_dead.set()
            await asyncio.Event().wait()
        removed.extend(op.id for op in operations if isinstance(op, Delete) and op.collection == "workunits")
        await put(*operations)

    monkeypatch.setattr(site.engine, "put", and_die)
    await site.engine.do(delete_job, job_id, full=True)
    await asyncio.wait_for(is_dead.wait(), 30)
    assert await left(site, job_id) == PARTS - len(removed) + 1
    assert await notes(site)
    found = await survey_documents(site.store)
    assert found == [], "what is noted to go is nothing wrong"
    await site.background.stop()
    await abandon(site.engine)
    again = Site(tmp_path, store=site.store, hands=site.hands)
    await again.start()

    async def is_clean() -> bool:
        return await left(again, job_id) == 0 and not await notes(again)

    await eventually(is_clean)
    assert job_id not in again.engine.state.jobs
    await again.engine.stop()
    assert again.fatal == []


async def test_a_job_of_which_nothing_can_be_read_goes_the_same_way(site: Site) -> None:
    job_id = await worked_on(site)
    await site.engine.do(delete_job, job_id)
    assert site.engine.retire(job_id)
    await site.engine.do(remove_unreadable, job_id, [])

    async def is_clean() -> bool:
        return await left(site, job_id) == 0 and not await notes(site)

    await eventually(is_clean)
