"""Reading the state: everything as it was, a grace for all, one bad document does not spoil the rest."""

import asyncio
import contextlib
import gc
import json
import logging
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from awe_server.runtime import recovery
from awe_server.runtime.recovery import read_state
from awe_server.runtime.survey_documents import survey_documents
from awe_server.scheduler.invariants import check
from awe_server.scheduler.state import Context, FinishTask, PrepareTask
from awe_server.scheduler.tick import tick
from awe_server.settings import Settings
from awe_server.store.base import COLLECTIONS, Collection, Delete, Put, Query
from awe_server.store.errors import StoreCorrupt
from awe_server.store.open import open_store
from shared_models.errors import StoreUnavailable, UnreadableJob
from tests.bench.restart import handed_out, write
from tests.support.cost import cpu_below
from tests.support.eventually import eventually
from tests.support.faulty import FaultyStore
from tests.unit.runtime.workshop import CLIENT, Workshop, done, shape, task

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("crash", [True, False])
async def test_a_restart_finds_everything_as_it_was(crash: bool) -> None:
    shop = await Workshop().start()
    await shop.register()
    await shop.submit(task("0", totalwork=5), task("1", dependsOn=["0"]))
    await shop.submit(task("0"), task("1"))
    grants = await shop.fetch(4)
    await shop.exchange(holds=[(g.workunit_id, g.attempt) for g in grants[1:]], reports=[done(grants[0])])
    before = shape(shop.engine.state)
    uuid = shop.engine.server_uuid
    again = await shop.again(crash=crash)
    assert shape(again.engine.state) == before
    assert again.engine.server_uuid == uuid
    assert check(again.engine.state) == []
    again.request_id = shop.request_id
    reply = await again.exchange(reports=[done(grant) for grant in grants])
    assert [row["result"] for row in reply.results] == ["duplicate", *["accepted"] * 3]


async def test_finished_workunits_are_counted_not_read() -> None:
    shop = await Workshop().start()
    await shop.register()
    await shop.submit(task("0", totalwork=10))
    await shop.exchange(reports=[done(grant) for grant in await shop.fetch(6)])
    read: list[Any] = []
    scan = shop.store.scan

    def watched(collection: Any, where: Any = ()) -> Any:
        async def documents() -> Any:
            async for document in scan(collection, where):
                read.append(document)
                yield document

        return documents()

    shop.store.scan = watched  # type: ignore[method-assign]
    again = await shop.again()
    (job_task,) = again.engine.state.tasks.values()
    assert (job_task.done, job_task.remainwork) == (6, 4)
    assert not [document for document in read if "rank" in document]


async def test_ranks_whose_documents_a_torn_batch_lost_are_queued_again() -> None:
    shop = await Workshop().start()
    await shop.register()
    await shop.submit(task("0", totalwork=4))
    grants = await shop.fetch(3)
    await shop.exchange(reports=[done(grants[0])], holds=[(g.workunit_id, g.attempt) for g in grants[1:]])
    await shop.engine.stop()
    await shop.store.open()
    await shop.store.commit([Delete("workunits", grants[1].workunit_id)])
    again = await Workshop(shop.store, shop.hands).start()
    assert check(again.engine.state) == []
    (job_task,) = again.engine.state.tasks.values()
    assert (job_task.done, job_task.remainwork) == (1, 3)


async def test_D_07_leases_and_clients_get_a_full_grace_after_a_restart() -> None:
    shop = await Workshop(lease_s=30.0).start()
    await shop.register()
    await shop.submit(task())
    await shop.fetch()
    shop.hands.monotonic_s = 7.0  # another boot
    shop.hands.wall_s += 3600.0
    again = await shop.again()
    again.hands.monotonic_s += 29.0
    again.engine.run(tick)
    assert again.engine.state.clients[CLIENT].holds
    again.hands.monotonic_s += 2.0
    again.engine.run(tick)
    assert not again.engine.state.clients[CLIENT].holds


async def test_interrupted_effects_are_asked_for_again() -> None:
    shop = await Workshop().start()
    await shop.register()
    await shop.submit(task("0", outputs=[{"filename": "o"}]))
    again = await shop.again(crash=True)
    await eventually(lambda: bool(again.duties.begun))
    assert [type(effect) for effect in again.duties.begun] == [PrepareTask]
    assert not any(isinstance(effect, FinishTask) for effect in again.duties.begun)


async def test_D_02_a_slow_store_is_waited_for() -> None:
    """Never ready with an empty queue."""
    shop = await Workshop().start()
    job_id = await shop.submit(task())
    await shop.engine.stop()

    class Slow(FaultyStore):
        refusals = 3

        async def open(self) -> None:
            if self.refusals:
                self.refusals -= 1
                raise StoreUnavailable("not yet")
            await super().open()

    slow = Slow()
    slow._collections = shop.store._collections
    again = Workshop(slow, shop.hands)
    starting = asyncio.create_task(again.engine.start())
    await asyncio.sleep(0.05)
    assert not again.engine.ready
    await starting
    assert again.engine.ready
    assert job_id in again.engine.state.jobs


@pytest.mark.parametrize("collection", ["clients", "jobs", "tasks", "workunits"])
async def test_D_02_a_read_that_fails_after_the_store_was_opened_is_begun_anew(
    collection: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The store opens, then reading times out three times, in the midst of a collection: all is there."""
    monkeypatch.setattr(recovery, "FIRST_RETRY_S", 0.01)
    shop = await Workshop().start()
    await shop.register()
    jobs = {await shop.submit(task("0", totalwork=3)) for _ in range(2)}
    await shop.fetch(2)
    before = shape(shop.engine.state)
    await shop.engine.stop()

    class TimesOut(FaultyStore):
        refusals = 3

        async def scan(self, of: Any, where: Any = ()) -> Any:
            async for document in super().scan(of, where):
                if of == collection and self.refusals:
                    self.refusals -= 1
                    assert not again.engine.ready, "never ready with an empty queue"
                    raise StoreUnavailable("timed out")
                yield document

    store = TimesOut()
    store._collections = shop.store._collections
    again = Workshop(store, shop.hands)
    with caplog.at_level(logging.WARNING):
        await again.engine.start()
    told = [line.__dict__["during"] for line in caplog.records if line.message == "store_unavailable"]
    assert (store.refusals, told) == (0, ["recover"] * 3)
    assert set(again.engine.state.jobs) == jobs
    assert shape(again.engine.state) == before
    assert check(again.engine.state) == []
    await again.engine.stop()


async def test_D_04_a_damaged_store_is_refused() -> None:
    class Damaged(FaultyStore):
        async def open(self) -> None:
            raise StoreCorrupt(path="/data/awe.db", detail="malformed")

    shop = Workshop(Damaged())
    with pytest.raises(StoreCorrupt, match=r"/data/awe\.db is damaged"):
        await shop.engine.start()
    assert not shop.engine.ready
    await shop.engine.stop()


async def test_X_10_a_bad_document_is_skipped_and_its_job_shown_suspended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """X-10: a stored bad document is not fatal at start."""
    shop = await Workshop().start()
    await shop.register()
    good = await shop.submit(task())
    bad = await shop.submit(task())
    await shop.engine.stop()
    await shop.store.open()
    document = await shop.store.get("tasks", f"{bad}_0") or {}
    await shop.store.commit([Put("tasks", {**document, "state": "dancing"})])
    await shop.store.commit([Put("clients", {"id": "odd"})])
    with caplog.at_level(logging.ERROR):
        again = await Workshop(shop.store, shop.hands).start()
    assert list(again.engine.state.jobs) == [good]
    assert list(again.engine.state.clients) == [CLIENT]
    skipped = [record.__dict__["id"] for record in caplog.records if record.message == "document_skipped"]
    assert skipped == ["odd", bad]
    job, _ = await again.engine.job_documents(bad)
    assert job["state"] == "suspend"
    assert "dancing" in job["notes"]
    assert (await again.engine.find("jobs", Query())).total == 2


@pytest.mark.parametrize("odd", ["task", "workunit"])
async def test_X_10_a_document_without_what_it_needs_does_not_keep_the_server_down(odd: str) -> None:
    shop = await Workshop().start()
    good, bad = await shop.submit(task()), await shop.submit(task())
    await shop.engine.stop()
    await shop.store.open()
    if odd == "task":
        document = await shop.store.get("tasks", f"{bad}_0") or {}
        del document["fresh_rank"]
        await shop.store.commit([Put("tasks", document)])
    else:
        unit = {"id": f"{bad}_0_0", "taskid": f"{bad}_0", "state": "checkout"}
        await shop.store.commit([Put("workunits", unit)])
    again = await Workshop(shop.store, shop.hands).start()
    assert list(again.engine.state.jobs) == [good]
    job, _ = await again.engine.job_documents(bad)
    assert job["state"] == "suspend"


#: What somebody may have done to a workunit (0) or task of a job by hand; `ID` is the document's own id.
FOREIGN: dict[str, tuple[Collection, dict[str, Any]]] = {
    "workunit of a foreign id": ("workunits", {"id": "foreign"}),
    "workunit of another rank": ("workunits", {"id": "ID9"}),
    "workunit of a foreign id and a list": ("workunits", {"id": "foreign", "taskid": ["TASK", "x"]}),
    "workunit of a list": ("workunits", {"taskid": ["TASK"]}),
    "workunit of an unknown task and a list": ("workunits", {"id": "a_b_0", "taskid": ["x", "TASK"]}),
    "task of a foreign id": ("tasks", {"id": "foreign"}),
    "task of a foreign id and a list": ("tasks", {"id": "foreign", "jobid": ["JOB"]}),
    "task of another job's id": ("tasks", {"id": "a_b", "jobid": ["x", "JOB"]}),
}


@pytest.mark.parametrize("is_copied", [False, True], ids=["edited", "copied"])
@pytest.mark.parametrize("name", FOREIGN)
async def test_X_10_a_row_of_a_foreign_id_keeps_only_its_job_back_and_is_named(
    name: str, is_copied: bool, caplog: pytest.LogCaptureFixture
) -> None:
    shop = await Workshop().start()
    await shop.register()
    bad = await shop.submit(task(), task("1"))
    await shop.fetch(2)
    good = await shop.submit(task())
    await shop.engine.stop()
    await shop.store.open()
    collection, change = FOREIGN[name]
    id = f"{bad}_0_0" if collection == "workunits" else f"{bad}_0"
    row = await shop.store.get(collection, id) or {}
    text = json.dumps(change).replace("TASK", f"{bad}_0").replace("ID", id).replace("JOB", bad)
    odd = {**row, **json.loads(text)}
    await shop.store.commit(
        [Put(collection, odd)] if is_copied else [Delete(collection, id), Put(collection, odd)]
    )
    with caplog.at_level(logging.ERROR):
        again = await Workshop(shop.store, shop.hands).start()
    assert list(again.engine.state.jobs) == [good]
    job, _ = await again.engine.job_documents(bad)
    assert job["state"] == "suspend"
    [line] = [record.__dict__ for record in caplog.records if record.message == "document_skipped"]
    assert (line["collection"], line["id"]) == ("jobs", bad)
    assert f"{collection[:-1]} {odd['id']} " in line["error"], line["error"]
    assert line["error"] in job["notes"]
    with pytest.raises(UnreadableJob, match=odd["id"]):
        await again.engine.ensure_job(bad)
    lines = await survey_documents(again.store)
    assert [line for line in lines if f"{collection[:-1]} {odd['id']}" in line and " -> " in line], lines
    await again.engine.stop()


#: Edited in the database itself, behind the columns by which its rows are found.
EDITS = (
    "UPDATE workunits SET id = 'foreign' WHERE id = :unit",
    "UPDATE workunits SET doc = json_set(doc, '$.taskid', 'x') WHERE id = :unit",
    "UPDATE workunits SET doc = json_set(doc, '$.taskid', 5) WHERE id = :unit",
    "UPDATE workunits SET doc = json_remove(doc, '$.taskid', '$.rank'), id = 'foreign' WHERE id = :unit",
    "UPDATE workunits SET doc = '[]' WHERE id = :unit",
    "UPDATE tasks SET id = 'foreign' WHERE id = :task",
    "UPDATE tasks SET doc = json_set(doc, '$.jobid', 'x') WHERE id = :task",
    "UPDATE tasks SET doc = json_remove(doc, '$.jobid', '$.task_name'), id = 'foreign' WHERE id = :task",
    "UPDATE tasks SET doc = '5' WHERE id = :task",
)


@pytest.mark.parametrize("edit", EDITS)
async def test_X_10_a_row_that_was_edited_in_the_database_keeps_only_its_job_back(
    edit: str, tmp_path: Path
) -> None:
    shop = await Workshop().start()
    await shop.register()
    bad = await shop.submit(task(), task("1"))
    await shop.fetch(2)
    good = await shop.submit(task())
    await shop.engine.stop()
    await shop.store.open()
    store = open_store("sqlite", tmp_path)
    await store.open()
    for name in COLLECTIONS:
        await store.commit([Put(name, d) async for d in shop.store.scan(name) if d["id"] != "format"])
    await store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "awe.sqlite")) as db, db:
        assert db.execute(edit, {"task": f"{bad}_0", "unit": f"{bad}_0_0"}).rowcount == 1
    await store.open()
    state = await read_state(store, Settings(), lambda: Context(0.0, time.time(), str))
    assert list(state.jobs) == [good]
    job = await store.get("jobs", bad)
    assert job is not None
    assert job["state"] == "suspend"
    assert "says that it is" in job["notes"]
    assert [line for line in await survey_documents(store) if " -> " in line]
    await store.close()


@pytest.mark.parametrize("counters", [None, {"id": "counters", "jid": 10_001}], ids=["gone", "behind"])
@pytest.mark.parametrize("highest", ["99999", "100000"])
async def test_no_job_gets_the_number_of_one_that_has_ended(
    counters: dict[str, Any] | None, highest: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop = await Workshop().start()
    jobs = [await shop.submit(task()) for _ in range(4)]
    await shop.engine.stop()
    await shop.store.open()
    for id, jid in zip(jobs, ["9", "99998", highest, "odd"], strict=True):
        document = await shop.store.get("jobs", id) or {}
        changed = {"jid": jid, "_jid": int(jid) if jid.isdigit() else 0, "state": "deleted"}
        await shop.store.commit([Put("jobs", {**document, **changed})])
    await shop.store.commit([Put("meta", counters) if counters else Delete("meta", "counters")])
    with caplog.at_level(logging.WARNING):
        again = await Workshop(shop.store, shop.hands).start()
    assert [r.__dict__["jid"] for r in caplog.records if r.message == "job_numbers_raised"] == [int(highest)]
    assert await again.engine.get("meta", "counters") == {"id": "counters", "jid": int(highest)}
    new = again.engine.state.jobs[await again.submit(task())]
    assert new.jid == int(highest) + 1
    caplog.clear()
    once_more = await again.again()
    assert not [r for r in caplog.records if r.message == "job_numbers_raised"]
    await once_more.engine.stop()


async def test_a_start_reads_no_number_of_all_jobs_there_ever_were(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = await Workshop().start()
    count_by, asked = shop.store.count_by, list[str]()

    async def noted(collection: Collection, field: str, where: Any = ()) -> dict[str, int]:
        asked.append(field)
        return await count_by(collection, field, where)

    monkeypatch.setattr(shop.store, "count_by", noted)
    await (await shop.again()).engine.stop()
    assert asked
    assert "jid" not in asked


async def test_tasks_that_wait_to_be_cut_are_not_looked_at_one_by_one() -> None:
    shop = await Workshop().start()
    await shop.submit(task("0"), *(task(str(i), dependsOn=["0"], totalwork=8) for i in range(1, 40)))
    scan, asked = shop.store.scan, list[str]()

    def watched(collection: Any, where: Any = ()) -> Any:
        asked.append(collection)
        return scan(collection, where)

    shop.store.scan = watched  # type: ignore[method-assign]
    await shop.again()
    assert asked.count("workunits") == 1


@pytest.mark.parametrize("state", ["dancing", None, 7, True, ["queued"]])
async def test_X_10_a_job_in_a_state_that_nobody_knows_is_shown_suspended(state: Any) -> None:
    shop = await Workshop().start()
    good, bad = await shop.submit(task()), await shop.submit(task())
    await shop.engine.stop()
    await shop.store.open()
    document = await shop.store.get("jobs", bad) or {}
    await shop.store.commit([Put("jobs", {**document, "state": state})])
    again = await Workshop(shop.store, shop.hands).start()
    assert list(again.engine.state.jobs) == [good]
    job, _ = await again.engine.job_documents(bad)
    assert job["state"] == "suspend"
    assert "cannot read" in job["notes"]
    assert job["error"]["servernotes"] == job["notes"]
    once_more = await again.again()
    assert check(once_more.engine.state) == []


@pytest.mark.parametrize(
    "document",
    [
        {"id": "counters"},
        {"id": "counters", "jid": "many"},
        {"id": "queue", "suspended": "maybe"},
        {"id": "server"},
        {"id": "server", "uuid": 5},
    ],
)
async def test_damaged_documents_of_the_server_are_refused_in_one_line(document: dict[str, Any]) -> None:
    shop = await Workshop().start()
    await shop.submit(task())
    await shop.engine.stop()
    await shop.store.open()
    await shop.store.commit([Put("meta", document)])
    again = Workshop(shop.store, shop.hands)
    with pytest.raises(StoreCorrupt, match=f"memory is damaged .*'{document['id']}'") as refusal:
        await again.engine.start()
    assert "\n" not in refusal.value.message
    await again.engine.stop()
    await shop.store.open()
    assert await shop.store.get("meta", document["id"]) == document


@pytest.mark.parametrize(
    ("jobs", "clients"), [(100, 100), (1, 100), (2_000, 1)], ids=["a site", "one large job", "small jobs"]
)
async def test_a_start_costs_what_is_out_and_no_more(jobs: int, clients: int, tmp_path: Path) -> None:
    """A tenth of the site that tests/bench/restart.py measures; quadratic would be many times that."""
    await write(handed_out(jobs, clients, 10_000), tmp_path)
    store = open_store("sqlite", tmp_path)
    await store.open()
    with cpu_below(1.5):
        state = await read_state(store, Settings(data_dir=tmp_path), lambda: Context(0.0, time.time(), str))
    await store.close()
    assert gc.isenabled()
    assert (len(state.jobs), len(state.clients), len(state.workunits)) == (jobs, clients, 10_000)
    assert check(state) == []
