"""The thread of a database connection."""

import asyncio
import gc
import threading
from collections.abc import Callable

import pytest

from awe_server.store.work_thread import WorkThread
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio

NAME = "under-test"


def running() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


async def test_what_was_asked_for_is_done_in_order_and_answered() -> None:
    thread, done = WorkThread(NAME), list[int]()

    def work(number: int) -> Callable[[], int]:
        return lambda: done.append(number) or number

    assert await asyncio.gather(*(thread.run(work(n)) for n in range(100))) == list(range(100))
    assert done == list(range(100))
    thread.end()


async def test_what_goes_wrong_is_raised_where_it_is_waited_for_and_the_thread_goes_on() -> None:
    thread = WorkThread(NAME)

    def fail() -> None:
        raise ZeroDivisionError("here")

    with pytest.raises(ZeroDivisionError, match="here"):
        await thread.run(fail)
    assert await thread.run(lambda: 1) == 1
    thread.end()


async def test_whoever_asks_an_ended_thread_is_told() -> None:
    thread = WorkThread(NAME)
    thread.end()
    with pytest.raises(RuntimeError, match="told to end"):
        await asyncio.wait_for(thread.run(lambda: 1), 20.0)


async def test_a_stop_iteration_is_told_too() -> None:
    thread = WorkThread(NAME)
    with pytest.raises(RuntimeError, match="StopIteration") as told:
        await asyncio.wait_for(thread.run(lambda: next(iter(()))), 20.0)
    assert isinstance(told.value.__cause__, StopIteration)
    thread.end()


async def test_what_nobody_waits_for_any_more_is_left_out_unless_it_runs() -> None:
    thread, go, done = WorkThread(NAME), threading.Event(), list[str]()
    began = threading.Event()

    def slow() -> None:
        began.set()
        go.wait(60)
        done.append("slow")

    first = asyncio.create_task(thread.run(slow))
    second = asyncio.create_task(thread.run(lambda: done.append("second")))
    await asyncio.to_thread(began.wait, 60)
    first.cancel()
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    go.set()
    await thread.run(lambda: done.append("third"))
    assert done == ["slow", "third"]
    thread.end()


async def test_it_ends_when_told_to_and_when_nobody_has_it_any_more() -> None:
    one, other = WorkThread(NAME), WorkThread(NAME)
    await asyncio.gather(one.run(lambda: None), other.run(lambda: None))
    one.end()
    one.end()
    del other
    gc.collect()
    await eventually(lambda: running() == 0, show=running)


def test_it_serves_one_loop_after_the_other_also_when_one_was_closed_before_its_answer() -> None:
    thread, go = WorkThread(NAME), threading.Event()

    async def give_up() -> None:
        task = asyncio.create_task(thread.run(lambda: go.wait(60)))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(give_up())
    go.set()
    assert asyncio.run(thread.run(lambda: 2)) == 2
    thread.end()
