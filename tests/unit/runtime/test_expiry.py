"""Finished jobs whose time has come leave nothing behind; nothing else goes."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from awe_server.runtime import expiry as expiry_module
from awe_server.runtime import node_removal, parts_removal
from awe_server.runtime.expiry import Expiry
from awe_server.runtime.parts_removal import PartsRemover
from awe_server.scheduler.jobs import delete_job, set_expiration, suspend_job
from awe_server.store.base import Collection, Document, Match, Operation, Page, Put, Query
from awe_server.store.errors import StoreCorrupt
from shared_models.errors import JobNotFound, StoreUnavailable
from shared_models.ids import JobId
from tests.support.eventually import eventually
from tests.support.staged import stage_path
from tests.unit.runtime.site import Site, stream
from tests.unit.runtime.workshop import done, task

pytestmark = pytest.mark.anyio


@pytest.fixture
def site_type() -> type[Site]:
    return Site


def sweep(site: Site) -> Expiry:
    return Expiry(site.engine, site.remover, PartsRemover(site.engine), site.root / "logs", 60.0)


async def finished_job(site: Site) -> JobId:
    """A completed job with an output node and a log."""
    job_id = await site.submit(task(outputs=[{"filename": "out.txt"}]))
    await site.until(job_id, "queued")
    (grant,) = await site.fetch()
    node = grant.task.outputs[0]["node"]
    fact = await site.nodes.put_part(node, 0, grant.attempt, stream(b"x"))
    output = {"filename": "out.txt", "size": fact.size, "md5": fact.md5}
    await site.exchange(reports=[{**done(grant), "outputs": [output]}])
    await site.until(job_id, "completed")
    log = site.root / "logs" / job_id / "0.stdout"
    log.parent.mkdir(parents=True)
    log.write_text("hello")
    return job_id


async def expire(site: Site, job_id: JobId, text: str = "1M") -> None:
    await site.engine.ensure_job(job_id)
    await site.engine.do(set_expiration, job_id, text)


async def left(site: Site, job_id: JobId) -> dict[str, int]:
    counts = {}
    for collection in ("jobs", "tasks", "workunits", "nodes"):
        page = await site.engine.find(collection, Query())
        key = {"jobs": "id", "nodes": "job"}.get(collection, "jobid")
        counts[collection] = sum(document.get(key) == job_id for document in page.documents)
    return counts


async def test_an_expired_job_leaves_nothing_behind(site: Site) -> None:
    job_id, other = await finished_job(site), await finished_job(site)
    await expire(site, job_id)
    assert await sweep(site).once() == 0, "its time has not come"
    site.hands.wall_s += 61
    assert await sweep(site).once() == 1
    assert await left(site, job_id) == {"jobs": 0, "tasks": 0, "workunits": 0, "nodes": 0}
    assert not (site.root / "logs" / job_id).exists()
    with pytest.raises(JobNotFound):
        await site.engine.job_documents(job_id)
    assert site.engine.events.since(0, job_id=job_id)[-1]["code"] == "JE"
    assert await left(site, other) == {"jobs": 1, "tasks": 1, "workunits": 1, "nodes": 1}
    assert (site.root / "logs" / other).exists()


async def test_what_attempts_staged_beside_shared_files_goes_with_the_job(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    site = Site(tmp_path, file_roots=(str(root),))
    await site.start()
    job_id = await site.submit(task(outputs=[{"filename": "out.txt"}]))
    await site.until(job_id, "queued")
    await site.engine.do(delete_job, job_id)
    await expire(site, job_id)
    site.hands.wall_s += 61
    _, (stored,) = await site.engine.job_documents(job_id)
    outputs = [{**stored["outputs"][0], "node": "", "url": f"file://{root}/out.txt"}]
    await site.engine.put(Put("tasks", {**stored, "outputs": outputs}))
    staged = root / stage_path(f"{root}/out.txt", stored["id"], 1, 0, 1)
    staged.parent.mkdir()
    staged.touch()
    assert await sweep(site).once() == 1
    await eventually(lambda: not list(root.iterdir()))
    await site.engine.stop()
    assert site.fatal == []


async def test_a_suspended_job_never_expires(site: Site) -> None:
    job_id = await site.submit(task())
    await site.engine.do(suspend_job, job_id, "for now")
    await site.engine.do(set_expiration, job_id, "1M")
    site.hands.wall_s += 3600
    assert await sweep(site).once() == 0
    assert job_id in site.engine.state.jobs


async def test_F_13_what_a_crash_left_of_a_log_goes_and_one_that_is_written_stays(site: Site) -> None:
    job_id = await finished_job(site)
    log, left, written = (site.root / "logs" / job_id / name for name in ("0.stdout", ".tmp-1", ".tmp-2"))
    site.hands.wall_s = time.time()
    with written.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        left.touch()
        for path in (left, written, log):
            os.utime(path, (0, 0))
        await sweep(site).once()
        assert [path.exists() for path in (left, written, log)] == [False, True, True]


async def test_files_of_a_job_that_is_gone_go_with_the_next_sweep(site: Site) -> None:
    """A crash came between the removal of a job and that of its files."""
    orphan = site.nodes.output_document("0" * 8, job="gone", task="gone_0", name="o")
    await site.engine.put(Put("nodes", orphan))
    (site.root / "logs" / "gone").mkdir(parents=True)
    mine = await site.node(b"uploaded by a person")
    await sweep(site).once()
    assert await site.engine.get("nodes", orphan["id"]) is None
    assert not (site.root / "logs" / "gone").exists()
    assert await site.engine.get("nodes", mine)


async def test_a_job_that_was_given_more_time_during_a_sweep_stays(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await finished_job(site)
    await expire(site, job_id)
    site.hands.wall_s += 61
    find, looks = site.engine.find, list[str]()

    async def slow(collection: Collection, query: Query) -> Page:
        page = await find(collection, query)
        if collection == "jobs" and not looks:
            looks.append(collection)
            await expire(site, job_id, "7D")
        return page

    monkeypatch.setattr(site.engine, "find", slow)
    assert await sweep(site).once() == 0
    assert looks
    assert await left(site, job_id) == {"jobs": 1, "tasks": 1, "workunits": 1, "nodes": 1}


async def test_a_job_that_somebody_brings_back_while_it_is_looked_at_stays(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await finished_job(site)
    await expire(site, job_id)
    site.hands.wall_s += 61
    scan = site.engine.scan

    async def slow(collection: Collection, where: Sequence[Match] = ()) -> AsyncIterator[Document]:
        async for document in scan(collection, where):
            yield document
        if collection == "tasks":
            await expire(site, job_id, "7D")

    monkeypatch.setattr(site.engine, "scan", slow)
    assert await sweep(site).once() == 0
    assert await left(site, job_id) == {"jobs": 1, "tasks": 1, "workunits": 1, "nodes": 1}


@pytest.mark.parametrize("dies", [False, True])
async def test_the_workunits_of_a_large_job_go_in_small_batches_after_the_job(
    site: Site, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """One transaction for all of them might take longer than the lease."""
    monkeypatch.setattr(parts_removal, "BATCH", 3)
    job_id = await finished_job(site)
    units = [{"id": f"{job_id}_0_{n}", "jobid": job_id, "taskid": f"{job_id}_0"} for n in range(1, 10)]
    await site.engine.put(*(Put("workunits", unit) for unit in units))
    await expire(site, job_id)
    site.hands.wall_s += 61
    put, before = site.engine.put, len(site.store.committed)

    async def and_die(*operations: Operation) -> None:
        if dies and len(site.store.committed) - before == 2:
            raise StoreUnavailable
        await put(*operations)

    with monkeypatch.context() as patch, pytest.raises(StoreUnavailable) if dies else nullcontext():
        patch.setattr(site.engine, "put", and_die)
        await sweep(site).once()
    if dies:
        assert (await left(site, job_id))["jobs"] == 0
        await sweep(site).once()
    batches = [
        [op for op in batch if op.collection == "workunits"] for batch in site.store.committed[before:]
    ]
    assert max(map(len, batches)) == 3
    assert await left(site, job_id) == {"jobs": 0, "tasks": 0, "workunits": 0, "nodes": 0}


async def test_no_look_at_the_workunits_is_open_while_they_are_removed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database keeps all that is written meanwhile for whoever still reads what was before."""
    monkeypatch.setattr(parts_removal, "BATCH", 2)
    monkeypatch.setattr(parts_removal, "READ_IDS", 5)
    units = [{"id": f"gone_0_{n:02}", "jobid": "gone", "taskid": "gone_0"} for n in range(12)]
    await site.engine.put(*(Put("workunits", unit) for unit in units))
    scan, put, looks, seen = site.store.scan, site.engine.put, list[str](), list[int]()

    async def watched(collection: Collection, where: Sequence[Match] = ()) -> AsyncIterator[Document]:
        looks.append(collection)
        try:
            async for document in scan(collection, where):
                yield document
        finally:
            looks.remove(collection)

    async def noted(*operations: Operation) -> None:
        seen.append(len(looks))
        await put(*operations)

    monkeypatch.setattr(site.store, "scan", watched)
    monkeypatch.setattr(site.engine, "put", noted)
    await sweep(site).once()
    assert len(seen) >= 6
    assert set(seen) == {0}
    assert await left(site, JobId("gone")) == {"jobs": 0, "tasks": 0, "workunits": 0, "nodes": 0}


async def test_a_node_that_cannot_be_removed_holds_up_no_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [site.nodes.output_document(f"node-{n}", job="gone", task="gone_0", name="o") for n in range(5)]
    await site.engine.put(*(Put("nodes", node) for node in made))
    await site.engine.put(
        Put("nodes", {**made[0], "id": "no id/"}), Put("nodes", {**made[0], "id": "zz id/"})
    )
    monkeypatch.setattr(node_removal, "PAGE", 2)
    plain, tries = site.remover.remove, list[str]()

    async def remove(node_id: str) -> None:
        tries.append(node_id)
        assert len(tries) < 20
        await plain(node_id)

    monkeypatch.setattr(site.remover, "remove", remove)
    await site.remover.remove_all_of("gone")
    page = await site.engine.find("nodes", Query())
    assert [node["id"] for node in page.documents] == ["no id/", "zz id/"]


@pytest.mark.parametrize("odd", [{"file": 7}, {}], ids=["of a job", "of none"])
async def test_a_node_that_makes_no_sense_and_is_still_needed_ends_no_sweep(
    site: Site, odd: dict[str, Any]
) -> None:
    node = await site.node(b"x")
    await site.submit(task(inputs=[{"filename": "in.txt", "node": node}]))
    job = {"job": "gone"} if odd else {}
    await site.engine.put(Put("nodes", {"id": node, **odd, **job}))
    other = site.nodes.output_document("zz", job="gone", task="gone_0", name="o")
    await site.engine.put(Put("nodes", other))
    await site.remover.remove(node)
    await sweep(site).once()
    page = await site.engine.find("nodes", Query())
    assert [document["id"] for document in page.documents] == [node]


async def test_a_folder_that_cannot_be_read_does_not_end_the_sweeps(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps = Expiry(site.engine, site.remover, PartsRemover(site.engine), site.root / "logs", 0.001)
    tries: list[Path] = []

    def refuse(folder: Path) -> list[str]:
        tries.append(folder)
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("awe_server.runtime.expiry._names", refuse)
    running = asyncio.create_task(sweeps.run())
    await eventually(lambda: len(tries) > 1)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("torn", ["tasks", "workunits"])
async def test_what_a_torn_batch_left_of_a_job_goes_with_the_next_sweep(site: Site, torn: Collection) -> None:
    """A store without transactions: the job was removed and the rest not, or the rest was written first."""
    kept = await site.submit(task(totalwork=2))
    await site.fetch()
    left_of_job = {"id": "gone_0_0", "jobid": "gone", "taskid": "gone_0"}
    await site.engine.put(Put(torn, left_of_job))
    await sweep(site).once()
    assert await left(site, JobId("gone")) == {"jobs": 0, "tasks": 0, "workunits": 0, "nodes": 0}
    assert await left(site, kept) == {"jobs": 1, "tasks": 1, "workunits": 1, "nodes": 0}


#: What somebody may have made of a task (or the expiration) of a job that has ended.
ODD_TASKS: list[dict[str, Any]] = [{"_is_cut": None}, {"outputs": [7]}, {"outputs": 7}, {"generation": "x"}]


@pytest.mark.parametrize("odd", ODD_TASKS, ids=str)
async def test_X_10_a_job_whose_documents_make_no_sense_stays_and_holds_up_no_other(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, odd: dict[str, Any]
) -> None:
    monkeypatch.setattr(expiry_module, "PAGE", 1)
    jobs = [await site.submit(task(outputs=[{"filename": "out.txt"}])) for _ in range(3)]
    for job_id in jobs:
        await site.until(job_id, "queued")
        await site.engine.do(delete_job, job_id)
        await expire(site, job_id)
        site.hands.wall_s += 1
    site.hands.wall_s += 61
    _, (stored,) = await site.engine.job_documents(jobs[0])
    changed = {key: value for key, value in {**stored, **odd}.items() if value is not None}
    await site.engine.put(Put("tasks", changed))
    assert await sweep(site).once() == 2
    assert (await left(site, jobs[0]))["jobs"] == 1
    [line] = [record.__dict__ for record in caplog.records if record.message == "document_skipped"]
    assert (line["collection"], line["id"]) == ("jobs", jobs[0])
    assert f"{jobs[0]}_0" in line["error"]


async def test_X_10_a_document_that_cannot_be_read_holds_up_no_other_job(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that has expired nor what is left of one that is gone."""
    job_id, other = await finished_job(site), await finished_job(site)
    for id in (job_id, other):
        await expire(site, id)
    site.hands.wall_s += 61
    for gone in ("gone-1", "gone-2"):
        await site.engine.put(Put("tasks", {"id": f"{gone}_0", "jobid": gone}))
    scan = site.engine.scan

    async def damaged(collection: Collection, where: Sequence[Match] = ()) -> AsyncIterator[Document]:
        if where and where[0].values[0] in (job_id, "gone-1"):
            raise StoreCorrupt(path="/data/awe.db", detail="a document in it is not JSON")
        async for document in scan(collection, where):
            yield document

    monkeypatch.setattr(site.engine, "scan", damaged)
    assert await sweep(site).once() == 1
    assert (await left(site, other))["jobs"] == 0
    assert (await left(site, JobId("gone-2")))["tasks"] == 0
    assert (await left(site, JobId("gone-1")))["tasks"] == 1


async def test_X_10_owners_that_are_no_ids_end_no_sweep(site: Site) -> None:
    await site.engine.put(Put("nodes", {"id": "a", "job": 7}), Put("nodes", {"id": "b", "job": True}))
    await site.engine.put(Put("tasks", {"id": "gone_0", "jobid": "gone"}))
    (site.root / "logs" / "\udcff").mkdir(parents=True)
    await sweep(site).once()
    assert (await left(site, JobId("gone")))["tasks"] == 0


async def test_X_10_an_expiration_that_is_a_list_ends_no_sweep(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database finds it by what is in the list."""
    job_id = await finished_job(site)
    stored = await site.engine.get("jobs", job_id) or {}
    odd = {**stored, "expiration": ["2001-01-01T00:00:00Z"]}
    await site.engine.put(Put("jobs", odd))
    find = site.engine.find

    async def found(collection: Collection, query: Query) -> Page:
        if collection == "jobs":
            return Page([odd][query.offset :], 1)
        return await find(collection, query)

    monkeypatch.setattr(site.engine, "find", found)
    assert await sweep(site).once() == 0


async def test_leftovers_are_looked_for_at_the_start_and_then_hourly(site: Site) -> None:
    sweeps = sweep(site)
    for passed_s, is_swept in ((0, True), (60, False), (3_600, True)):
        (site.root / "logs" / "gone").mkdir(parents=True)
        site.hands.monotonic_s += passed_s
        await sweeps.once()
        assert (site.root / "logs" / "gone").exists() is not is_swept
        if not is_swept:
            (site.root / "logs" / "gone").rmdir()
