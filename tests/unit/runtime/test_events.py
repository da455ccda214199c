"""The ring of events, and those who follow it."""

import asyncio

import pytest

from awe_server.runtime.clock import Clock
from awe_server.runtime.events import EventLog
from awe_server.scheduler.changes import Event

pytestmark = pytest.mark.anyio

CLOCK = Clock(lambda: 0.0, lambda: 1000.0)


def log(size: int = 100) -> EventLog:
    return EventLog(CLOCK, size)


def test_events_are_numbered_from_the_wall_clock_on() -> None:
    events = log()
    events.publish([Event("JQ", {"jobid": "a"}), Event("TQ", {"jobid": "b"})])
    first, second = events.since(0)
    assert (first["seq"], second["seq"], first["code"]) == (1_000_000_001, 1_000_000_002, "JQ")
    assert first["time"] == "1970-01-01T00:16:40.000000Z"


def test_after_a_restart_numbers_go_on_also_of_a_server_that_was_busy() -> None:
    """20,000 workunits a second are as many events and more."""
    before = log()
    before.publish(Event("WD", {}) for _ in range(40_000))
    after = EventLog(Clock(lambda: 0.0, lambda: 1001.0))
    assert after.last > before.last


def test_a_reader_gets_what_is_newer_of_its_job_and_at_most_so_many() -> None:
    events = log()
    events.publish(Event("X", {"jobid": "ab"[i % 2], "n": i}) for i in range(10))
    assert [e["n"] for e in events.since(1_000_000_006)] == [6, 7, 8, 9]
    assert [e["n"] for e in events.since(0, job_id="b", limit=2)] == [1, 3]
    assert events.since(events.last) == []


def test_L_11_who_knows_numbers_of_a_clock_that_was_ahead_gets_all_there_is() -> None:
    """The wall clock went back before a restart: the numbers began below those that were told."""
    events = log()
    events.publish(Event("X", {"n": i}) for i in range(3))
    assert [e["n"] for e in events.since(events.last + 3_600_000_000)] == [0, 1, 2]


async def test_L_11_who_waits_with_such_a_number_is_woken_by_what_comes() -> None:
    events = log()
    events.publish([Event("X", {})])
    assert await events.wait(events.last + 3_600_000_000, 5.0)


async def test_L_11_who_follows_with_such_a_number_gets_all_and_then_each_once() -> None:
    events = log()
    events.publish([Event("X", {"n": 0})])
    followed = events.follow(events.last + 3_600_000_000)
    assert [(await anext(followed) or {})["n"]] == [0]
    events.publish([Event("X", {"n": 1})])
    assert [(await anext(followed) or {})["n"]] == [1]


def test_the_ring_forgets_the_oldest() -> None:
    events = log(size=3)
    events.publish(Event("X", {"n": i}) for i in range(10))
    assert [e["n"] for e in events.since(0)] == [7, 8, 9]


async def test_a_wait_ends_with_the_next_event_or_the_time() -> None:
    events = log()
    waiting = asyncio.create_task(events.wait(events.last, 5.0))
    await asyncio.sleep(0)
    events.publish([Event("X", {})])
    assert await waiting
    assert not await events.wait(events.last, 0.01)


async def test_a_follower_misses_nothing_and_ends_with_the_server() -> None:
    events = log()
    start, seen = events.last, list[int]()

    async def follow() -> None:
        async for event in events.follow(start):
            assert event is not None
            seen.append(event["n"])
            await asyncio.sleep(0)  # meanwhile more is published

    follower = asyncio.create_task(follow())
    for n in range(50):
        events.publish([Event("X", {"n": n})])
        await asyncio.sleep(0)
    events.close()
    await follower
    assert seen == list(range(50))
