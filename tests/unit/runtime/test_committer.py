"""Group commit: one batch for all of a moment, answered once durable, retried while the store is away."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from awe_server.runtime import committer
from awe_server.runtime.committer import Batch, Committer, compact
from awe_server.store.base import Delete, DeleteWhere, Operation, Put
from awe_server.store.errors import LeaseGone, StoreCorrupt
from shared_models.errors import AweError, StoreUnavailable
from tests.support.eventually import eventually
from tests.support.faulty import FaultyStore

pytestmark = pytest.mark.anyio


class Bench:
    """A committer over a faulty store, and what it did."""

    def __init__(self, commit_wait_s: float = 5.0) -> None:
        self.store = FaultyStore()
        self.marked: list[Operation] = []
        self.applied: list[Batch[str]] = []
        self.heard: list[str] = []  #: who was answered
        self.told: list[Any] = []  #: batches applied, and who was answered, when a batch was called answered
        self.fatal: list[BaseException] = []
        self.committer: Committer[str] = Committer(
            self.store,
            take=self.take,
            applied=self.applied.append,
            answered=lambda batch: self.told.append((list(self.applied), list(self.heard))),
            fatal=self.fatal.append,
            commit_wait_s=commit_wait_s,
        )

    def take(self) -> Batch[str]:
        ops, self.marked = self.marked, []
        return Batch(ops, [f"after {len(ops)}"])

    def mark(self, id: str, **fields: Any) -> None:
        self.marked.append(Put("jobs", {"id": id, **fields}))
        self.committer.touch()

    async def change(self, id: str) -> None:
        self.mark(id)
        await self.committer.settled()
        self.heard.append(id)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.store.open()
    runner = asyncio.create_task(bench.committer.run())
    yield bench
    runner.cancel()
    await asyncio.gather(runner, return_exceptions=True)


async def test_what_nobody_waits_for_comes_after_the_answers(bench: Bench) -> None:
    await asyncio.gather(bench.change("a"), bench.change("b"))
    await eventually(lambda: bool(bench.told))
    assert bench.told == [(bench.applied, ["a", "b"])]


async def test_all_changes_of_one_moment_are_one_transaction(bench: Bench) -> None:
    await asyncio.gather(*(bench.change(f"j{i}") for i in range(50)))
    assert len(bench.store.committed) == 1
    assert len(bench.store.committed[0]) == 50


async def test_changes_during_a_write_form_the_next_batch(bench: Bench) -> None:
    bench.store.gate.clear()
    first = asyncio.create_task(bench.change("a"))
    await eventually(lambda: bench.store.attempts == 1)
    later = [asyncio.create_task(bench.change(id)) for id in "bcd"]
    await asyncio.sleep(0)
    bench.store.gate.set()
    await asyncio.gather(first, *later)
    assert [len(batch) for batch in bench.store.committed] == [1, 3]


async def test_nothing_is_answered_before_its_batch_is_durable(bench: Bench) -> None:
    bench.store.gate.clear()
    change = asyncio.create_task(bench.change("a"))
    await eventually(lambda: bench.store.attempts == 1)
    repeat = asyncio.create_task(bench.committer.settled())
    await asyncio.sleep(0.01)
    assert not change.done()
    assert not repeat.done(), "a repeat must not be answered before its original is durable"
    bench.store.gate.set()
    await asyncio.gather(change, repeat)


async def test_with_nothing_marked_nobody_waits(bench: Bench) -> None:
    await bench.committer.settled()
    assert bench.store.attempts == 0


async def test_a_store_that_is_away_gets_everything_when_it_is_back(bench: Bench) -> None:
    bench.store.failures = [StoreUnavailable("disk full")] * 3
    first = asyncio.create_task(bench.change("a"))
    await eventually(lambda: bench.committer.trouble == "disk full")
    second = asyncio.create_task(bench.change("b"))
    await asyncio.gather(first, second)
    assert bench.committer.trouble == ""
    assert [op.document["id"] for op in bench.store.committed[0] if isinstance(op, Put)] == ["a", "b"]
    assert [batch.after for batch in bench.applied] == [["after 1", "after 1"]]


async def test_requests_give_up_after_a_while_but_the_change_stays() -> None:
    bench = Bench(commit_wait_s=0.05)
    await bench.store.open()
    bench.store.failures = [StoreUnavailable("away")] * 3
    runner = asyncio.create_task(bench.committer.run())
    with pytest.raises(StoreUnavailable):
        await bench.change("a")
    await eventually(lambda: len(bench.store.committed) == 1)
    await bench.committer.settled()
    runner.cancel()


async def test_a_store_that_only_hangs_is_in_trouble_too_until_it_goes_on() -> None:
    bench = Bench(commit_wait_s=0.05)
    await bench.store.open()
    runner = asyncio.create_task(bench.committer.run())
    bench.store.gate.clear()
    with pytest.raises(StoreUnavailable):
        await bench.change("a")
    assert bench.committer.trouble == "no answer within 0.05 s"
    bench.store.gate.set()
    await eventually(lambda: not bench.committer.trouble)
    assert len(bench.store.committed) == 1
    runner.cancel()


async def test_a_cancelled_request_disturbs_nobody(bench: Bench) -> None:
    bench.store.gate.clear()
    gone = asyncio.create_task(bench.change("a"))
    stays = asyncio.create_task(bench.change("b"))
    await eventually(lambda: bench.store.attempts == 1)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    bench.store.gate.set()
    await stays


async def test_an_error_the_store_cannot_explain_stops_the_server(bench: Bench) -> None:
    bench.store.failures = [TypeError("not JSON")]
    with pytest.raises(StoreUnavailable):
        await bench.change("a")
    assert isinstance(bench.fatal[0], TypeError)
    with pytest.raises(StoreUnavailable):
        await bench.committer.settled()
    assert bench.store.committed == []


def test_the_last_word_on_a_document_is_kept() -> None:
    a1, a2, b = Put("jobs", {"id": "a", "n": 1}), Put("jobs", {"id": "a", "n": 2}), Put("jobs", {"id": "b"})
    wipe, gone = DeleteWhere("jobs", "state", "x"), Delete("jobs", "b")
    assert compact([a1, b, wipe, a2, gone]) == [wipe, gone, a2]


def test_a_job_comes_after_its_tasks_also_when_batches_are_joined() -> None:
    """A store without transactions may keep only the beginning of what is written."""
    job, task, cut = Put("jobs", {"id": "j"}), Put("tasks", {"id": "t"}), Put("tasks", {"id": "t", "n": 1})
    wipe, unit = DeleteWhere("workunits", "taskid", "t"), Put("workunits", {"id": "u"})
    assert compact([task, job, wipe, unit, cut]) == [wipe, unit, cut, job]


@pytest.mark.parametrize("error", [LeaseGone(), StoreCorrupt(path="awe.sqlite", detail="page 3")])
async def test_a_server_with_nothing_to_write_notices_that_it_may_not(
    monkeypatch: pytest.MonkeyPatch, bench: Bench, error: AweError
) -> None:
    monkeypatch.setattr(committer, "LOOK_S", 0.01)
    await bench.change("j")  # whose end begins the next wait

    async def refuse(batch: Sequence[Operation]) -> None:
        raise error

    monkeypatch.setattr(bench.store, "commit", refuse)
    await eventually(lambda: bench.fatal == [error])
    with pytest.raises(StoreUnavailable):
        await bench.change("k")
