"""Transitions become durable, then are answered; memory and store tell one story."""

import asyncio
from typing import Any, NoReturn

import pytest

from awe_server.runtime import job_documents
from awe_server.scheduler.jobs import delete_job, resubmit_job, suspend_job
from awe_server.scheduler.queue import queue_counts
from awe_server.scheduler.state import Context, FinishTask, State
from awe_server.store.base import Put, Query
from awe_server.store.errors import LeaseGone
from shared_models.errors import (
    Conflict,
    InvalidDocument,
    JobNotFound,
    NotConfirmed,
    ShuttingDown,
    Starting,
    StoreUnavailable,
)
from shared_models.ids import JobId
from tests.support.eventually import eventually
from tests.unit.runtime.workshop import CLIENT, Workshop, done, shape, task

pytestmark = pytest.mark.anyio


async def test_a_submit_is_answered_once_its_documents_are_stored() -> None:
    shop = await Workshop().start()
    shop.store.gate.clear()
    submit = asyncio.create_task(shop.submit(task("0"), task("1", dependsOn=["0"])))
    await eventually(lambda: shop.store.attempts == 1)
    assert not submit.done()
    shop.store.gate.set()
    job_id = await submit
    assert (await shop.store.get("jobs", job_id) or {})["task_names"] == ["0", "1"]
    assert (await shop.store.get("meta", "counters")) is not None


async def test_work_wakes_a_waiting_client_into_the_batch_that_brings_it() -> None:
    shop = await Workshop().start()
    await shop.register()
    shop.store.gate.clear()

    async def wait_and_fetch() -> list[Any]:
        assert await shop.engine.waiters.work(CLIENT, 60.0)
        return await shop.fetch()

    fetch = asyncio.create_task(wait_and_fetch())
    await eventually(lambda: shop.engine.waiters.counts[0] == 1)
    before, attempts = shop.engine.commits[0], shop.store.attempts
    submit = asyncio.create_task(shop.submit(task()))
    await eventually(lambda: shop.store.attempts > attempts)
    assert not fetch.done()
    assert not submit.done()
    shop.store.gate.set()
    (grant,) = await fetch
    assert grant.task.job.id == await submit
    assert shop.engine.commits[0] == before + 1


async def test_documents_of_a_batch_come_in_an_order_that_may_be_torn() -> None:
    shop = await Workshop().start()
    await shop.submit(task())
    collections = [op.collection for op in shop.store.committed[-1]]
    assert collections[-1] == "jobs"
    assert collections.index("tasks") < collections.index("jobs")


async def test_a_refusal_commits_nothing() -> None:
    shop = await Workshop().start()
    before = len(shop.store.committed)
    with pytest.raises(JobNotFound):
        await shop.engine.do(suspend_job, JobId("none"), "x")
    assert len(shop.store.committed) == before


async def test_a_repeat_waits_for_the_original() -> None:
    shop = await Workshop().start()
    await shop.submit(task())
    await shop.register()
    (grant,) = await shop.fetch()
    shop.store.gate.clear()
    first = asyncio.create_task(shop.exchange(reports=[done(grant)]))
    await eventually(lambda: not shop.engine.state.workunits)
    again = asyncio.create_task(shop.exchange(reports=[done(grant)]))
    await asyncio.sleep(0.02)
    assert not first.done()
    assert not again.done()
    shop.store.gate.set()
    assert (await first).results[0]["result"] == "accepted"
    assert (await again).results[0]["result"] == "duplicate"


async def test_a_result_that_is_not_durable_yet_is_known_as_finished() -> None:
    shop = await Workshop().start()
    await shop.submit(task())
    await shop.register()
    (grant,) = await shop.fetch()
    id = grant.workunit_id
    shop.store.gate.clear()
    report = asyncio.create_task(shop.exchange(reports=[done(grant)]))
    await eventually(lambda: id not in shop.engine.state.workunits)
    assert (await shop.engine.finished([id]))[id]["state"] == "completed"
    shop.store.gate.set()
    await report
    assert (await shop.engine.finished([id]))[id]["state"] == "completed"


async def test_reads_see_what_was_written_before_them() -> None:
    shop = await Workshop().start()
    shop.store.gate.clear()
    write = asyncio.create_task(shop.engine.put(Put("users", {"id": "u", "name": "x"})))
    await asyncio.sleep(0)
    read = asyncio.create_task(shop.engine.get("users", "u"))
    await asyncio.sleep(0.01)
    assert not read.done()
    shop.store.gate.set()
    await write
    assert (await read or {})["name"] == "x"


async def test_other_documents_share_the_batch_of_a_transition() -> None:
    shop = await Workshop().start()
    await shop.register()
    await shop.submit(task())
    node = Put("nodes", {"id": "n"})
    count = len(shop.store.committed)
    await shop.engine.do_with([node], lambda state, ctx: state.touch_client(state.clients[CLIENT]))
    assert len(shop.store.committed) == count + 1
    assert {op.collection for op in shop.store.committed[-1]} == {"nodes", "clients"}


async def test_a_doubt_that_begins_in_a_transition_parts_it_from_no_document(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fence of the lease looks at a clock: it may fall between the change and what goes with it."""
    shop = await Workshop().start()
    await shop.register()
    node = Put("nodes", {"id": "n"})

    def change(state: State, ctx: Context) -> None:
        state.touch_client(state.clients[CLIENT])
        monkeypatch.setattr(type(shop.store), "in_doubt", True)

    await shop.engine.do_with([node], change)
    assert {op.collection for op in shop.store.committed[-1]} == {"nodes", "clients"}


async def test_a_finished_job_leaves_memory_and_is_still_shown() -> None:
    shop = await Workshop().start()
    job_id = await shop.submit(task())
    await shop.register()
    (grant,) = await shop.fetch()
    await shop.exchange(reports=[done(grant)])
    assert job_id not in shop.engine.state.jobs
    job, tasks = await shop.engine.job_documents(job_id)
    assert (job["state"], tasks[0]["remainwork"]) == ("completed", 0)
    with pytest.raises(JobNotFound):
        await shop.engine.job_documents(JobId("unknown"))


async def test_who_looks_at_a_job_long_after_it_left_memory_is_given_what_is_stored() -> None:
    shop = await Workshop().start()
    await shop.register()
    job_id = await shop.submit(task())
    job = shop.engine.state.jobs[job_id]
    (grant,) = await shop.fetch()
    await shop.exchange(reports=[done(grant)])
    assert job_id not in shop.engine.state.jobs
    soon = await shop.engine.job_documents(job_id, job)
    shop.engine.state.take_apart()
    shop.engine.state.take_apart()
    late = await shop.engine.job_documents(job_id, job)
    assert (soon[0]["state"], [task["state"] for task in soon[1]]) == ("completed", ["completed"])
    assert late == soon


async def test_a_finished_job_is_brought_back_for_a_verb_and_leaves_again() -> None:
    shop = await Workshop().start()
    job_id = await shop.submit(task())
    await shop.register()
    (grant,) = await shop.fetch()
    await shop.exchange(reports=[done(grant)])
    await shop.engine.ensure_job(job_id)
    shop.engine.see_off()
    assert job_id in shop.engine.state.jobs
    await shop.engine.do(resubmit_job, job_id)
    (grant,) = await shop.fetch()
    assert grant.attempt == 2
    await shop.exchange(reports=[done(grant)])
    assert job_id not in shop.engine.state.jobs
    await shop.engine.ensure_job(job_id)
    shop.hands.monotonic_s += 61
    shop.engine.see_off()
    assert job_id not in shop.engine.state.jobs
    with pytest.raises(JobNotFound):
        await shop.engine.ensure_job(JobId("unknown"))


async def test_two_who_bring_back_the_same_job_get_the_same_one() -> None:
    """The slower of two reads must not bring back what the faster has changed, and what has left again."""
    shop = await Workshop().start()
    job_id = await shop.submit(task())
    await shop.register()
    (grant,) = await shop.fetch()
    await shop.exchange(reports=[done(grant)])
    held, gate, scan = asyncio.Event(), asyncio.Event(), shop.store.scan

    def slow(collection: Any, where: Any = ()) -> Any:
        async def documents() -> Any:
            found = [document async for document in scan(collection, where)]
            if collection == "tasks" and not held.is_set():
                held.set()
                await gate.wait()
            for document in found:
                yield document

        return documents()

    shop.store.scan = slow  # type: ignore[method-assign]
    slower = asyncio.create_task(shop.engine.ensure_job(job_id))
    await held.wait()
    assert not shop.engine.retire(job_id), "a sweep must not remove it now"

    async def delete() -> None:
        await shop.engine.ensure_job(job_id)
        await shop.engine.do(delete_job, job_id, full=True)

    faster = asyncio.create_task(delete())
    await asyncio.sleep(0.01)
    gate.set()
    await asyncio.gather(slower, faster)
    assert job_id not in shop.engine.state.jobs
    with pytest.raises(JobNotFound):
        await shop.engine.ensure_job(job_id)


async def test_a_finished_job_whose_documents_make_no_sense_is_refused_and_nothing_of_it_stays() -> None:
    shop = await Workshop().start()
    job_id = await shop.submit(task())
    await shop.register()
    (grant,) = await shop.fetch()
    await shop.exchange(reports=[done(grant)])
    odd = {**(await shop.store.get("tasks", f"{job_id}_0") or {}), "state": "dancing"}
    await shop.engine.put(Put("tasks", odd))
    for _ in range(2):
        with pytest.raises(Conflict, match="dancing"):
            await shop.engine.ensure_job(job_id)
    assert shape(shop.engine.state) == {"jobs": {}, "tasks": {}, "workunits": {}}


async def test_while_the_store_is_away_requests_give_up_and_nothing_is_lost() -> None:
    shop = await Workshop(commit_wait_s=0.05).start()
    shop.store.failures = [StoreUnavailable("disk full")] * 4
    with pytest.raises(NotConfirmed):
        await shop.submit(task(), key="k")
    assert shop.engine.store_trouble == "disk full"
    await eventually(lambda: not shop.engine.store_trouble)
    jobs = await shop.engine.find("jobs", Query())
    assert jobs.total == 1
    assert jobs.documents[0]["id"] == await shop.submit(task(), key="k"), "the retry finds it"


async def test_who_only_reads_while_the_store_is_away_is_not_told_of_a_change() -> None:
    shop = await Workshop(commit_wait_s=0.05).start()
    await shop.engine.answering()
    shop.store.failures = [StoreUnavailable("disk full")] * 9
    with pytest.raises(NotConfirmed):
        await shop.engine.put(Put("nodes", {"id": "n"}))
    for read in (shop.engine.answering, lambda: shop.engine.get("nodes", "n"), shop.engine.settled):
        with pytest.raises(StoreUnavailable) as refusal:
            await read()
        assert not isinstance(refusal.value, NotConfirmed)
    with pytest.raises(NotConfirmed):
        await shop.engine.confirmed()
    shop.store.failures.clear()
    await eventually(lambda: not shop.engine.store_trouble)
    await shop.engine.answering()
    assert await shop.engine.get("nodes", "n")


async def test_a_broken_transition_begins_again_from_the_store() -> None:
    shop = await Workshop().start()
    job_id = await shop.submit(task())
    await shop.register()
    before = shape(shop.engine.state)

    def broken(state: State, ctx: Context) -> NoReturn:
        job = state.jobs[job_id]
        job.notes = "half"
        state.touch_job(job)
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await shop.engine.do(broken)
    with pytest.raises(Starting):
        shop.engine.run(lambda state, ctx: None)
    await eventually(lambda: shop.engine.ready)
    assert shape(shop.engine.state) == before
    assert shop.engine.state.jobs[job_id].notes == ""
    assert shop.duties.abandoned == 1
    assert await shop.fetch()
    assert shop.fatal == []


async def test_a_bug_that_strikes_again_leaves_nothing_half_changed_either() -> None:
    shop = await Workshop().start()
    job_id = await shop.submit(task())

    def broken(state: State, ctx: Context) -> NoReturn:
        job = state.jobs[job_id]
        job.notes = "half"
        state.touch_job(job)
        raise KeyError("bug")

    for _ in range(3):
        with pytest.raises(KeyError):
            await shop.engine.do(broken)
        await eventually(lambda: shop.engine.ready)
        await shop.engine.settled()
        assert shop.engine.state.jobs[job_id].notes == ""
        assert (await shop.store.get("jobs", job_id) or {})["notes"] == ""
    assert shop.fatal == []


async def test_those_who_shared_a_batch_with_a_bug_are_told_to_try_again() -> None:
    shop = await Workshop().start()
    shop.store.gate.clear()
    first = asyncio.create_task(shop.submit(task()))
    await eventually(lambda: shop.store.attempts > 1 and not shop.engine.state.changes.jobs)
    second = asyncio.create_task(shop.submit(task()))
    await asyncio.sleep(0.01)

    def broken(state: State, ctx: Context) -> NoReturn:
        raise RuntimeError("bug")

    with pytest.raises(RuntimeError):
        await shop.engine.do(broken)
    with pytest.raises(Starting):
        await second
    shop.store.gate.set()
    assert await first
    await eventually(lambda: shop.engine.ready)
    assert len(shop.engine.state.jobs) == 1


async def test_documents_that_cannot_be_written_stop_the_server() -> None:
    shop = await Workshop().start()
    job_id = await shop.submit(task())

    def poison(state: State, ctx: Context) -> None:
        job: Any = state.jobs[job_id]
        job.state = None
        state.touch_job(job)

    with pytest.raises(StoreUnavailable):
        await shop.engine.do(poison)
    assert isinstance(shop.fatal[0], AttributeError)


async def test_a_server_that_lost_its_store_to_another_stops_and_writes_no_more() -> None:
    shop = await Workshop().start()
    shop.store.failures = [LeaseGone()]
    count = len(shop.store.committed)
    with pytest.raises(StoreUnavailable):
        await shop.submit(task())
    with pytest.raises(StoreUnavailable):
        await shop.submit(task())
    assert isinstance(shop.fatal[0], LeaseGone)
    assert len(shop.store.committed) == count


async def test_events_of_a_server_that_stood_by_are_newer_than_those_of_the_leader_before() -> None:
    shop = Workshop()
    shop.hands.wall_s += 3600.0  # for so long it stood by
    leaders_last = int(shop.hands.wall_s * 1e6)
    await shop.start()
    await shop.submit(task())
    assert shop.engine.events.since(leaders_last)[0]["seq"] == leaders_last + 1


async def test_effects_start_once_their_batch_is_durable() -> None:
    shop = await Workshop().start()
    shop.store.gate.clear()
    submit = asyncio.create_task(shop.submit(task(outputs=[{"filename": "o"}])))
    await eventually(lambda: shop.store.attempts > 1)
    assert shop.duties.begun == []
    shop.store.gate.set()
    job_id = await submit
    assert [type(effect).__name__ for effect in shop.duties.begun] == ["PrepareTask"]
    assert not any(isinstance(effect, FinishTask) for effect in shop.duties.begun)
    assert shop.engine.events.since(0, job_id=job_id)[0]["code"] == "JQ"


async def test_a_stop_writes_what_was_marked_and_refuses_the_rest() -> None:
    shop = await Workshop().start()
    shop.store.gate.clear()
    submit = asyncio.create_task(shop.submit(task()))
    await eventually(lambda: shop.store.attempts > 1)
    stopping = asyncio.create_task(shop.engine.stop())
    await asyncio.sleep(0)
    with pytest.raises(ShuttingDown):
        await shop.submit(task())
    shop.store.gate.set()
    job_id = await submit
    await stopping
    await shop.engine.stop()
    await shop.store.open()
    assert await shop.store.get("jobs", job_id)


async def test_before_it_has_read_the_state_it_shows_none() -> None:
    shop = Workshop()
    for _ in range(2):
        with pytest.raises(Starting):
            await shop.engine.look(queue_counts)
        with pytest.raises(Starting):
            await shop.engine.find("jobs", Query())
    await shop.engine.stop()


async def test_a_document_that_cannot_be_stored_is_refused_alone() -> None:
    shop = await Workshop().start()
    with pytest.raises(InvalidDocument):
        await shop.engine.put(Put("nodes", {"id": "n", "size": 2**63}))
    with pytest.raises(InvalidDocument):
        await shop.engine.do_with([Put("nodes", {"id": "n", "x": 2**63})], suspend_job, JobId("none"), "x")
    await shop.engine.put(Put("nodes", {"id": "n"}))
    assert await shop.store.get("nodes", "n") == {"id": "n"}
    await shop.submit(task())


async def test_others_are_served_while_the_documents_of_a_wide_job_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_documents, "SLICE_TASKS", 2)
    shop = await Workshop().start()
    job_id = await shop.submit(*(task(str(i)) for i in range(5)))
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    turn()
    job, tasks = await shop.engine.job_documents(job_id)
    assert turns >= 3
    assert [document["task_name"] for document in tasks] == job["task_names"] == list("01234")
