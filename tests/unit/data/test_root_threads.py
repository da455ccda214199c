"""Work below file roots: a file system that hangs holds up nobody else, and who asks for it not for ever."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import httpx
import pytest
from anyio import to_thread

from awe_server.data import root_threads
from awe_server.data.root_threads import MAX_PER_ROOT, NoAnswer, RootThreads
from awe_server.data.sinks import sinks
from awe_server.data.sinks.base import SinkBusy, SinkSilent
from tests.support.eventually import eventually
from tests.support.lead import leads

pytestmark = pytest.mark.anyio


@pytest.fixture
def answers() -> Iterator[threading.Event]:
    """When set, the file system below /hung answers."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def hanging() -> Callable[[], int]:
    """How many threads look at roots; those that an earlier test left hanging do not count."""
    earlier = frozenset(threading.enumerate())

    def count() -> int:
        return sum(thread.name == root_threads.NAME for thread in {*threading.enumerate()} - earlier)

    return count


async def test_results_and_errors_are_those_of_the_work() -> None:
    threads = RootThreads(["/a"])
    assert await threads.run("/a/x", lambda: 7, 5.0) == 7
    for error in (FileNotFoundError("/a/x"), TimeoutError(110, "Connection timed out"), SystemExit(3)):

        def fail(error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            await threads.run("/a/x", fail, 5.0)
        assert caught.value is error


async def test_so_many_hang_for_each_root_and_no_more_given_up_or_not(
    answers: threading.Event, hanging: Callable[[], int]
) -> None:
    threads = RootThreads(["/hung", "/fine"])
    for _ in range(3):
        looks = (threads.run("/hung/x", answers.wait, 0.05) for _ in range(2 * MAX_PER_ROOT))
        refused = await asyncio.gather(*looks, return_exceptions=True)
        assert {str(exc) for exc in refused} == {"the file system of /hung gives no answer in 0.05 s"}
        assert all(isinstance(exc, NoAnswer) for exc in refused)
        assert hanging() == MAX_PER_ROOT
    assert await threads.run("/fine/x", lambda: "here", 5.0) == "here"
    assert await to_thread.run_sync(lambda: "here") == "here"
    answers.set()
    found = await asyncio.gather(*(threads.run("/hung/x", answers.wait, 5.0) for _ in range(100)))
    assert found == [True] * 100
    await eventually(lambda: hanging() == 0)


async def test_who_goes_away_leaves_its_place_to_others_only_when_its_work_has_ended(
    answers: threading.Event, hanging: Callable[[], int]
) -> None:
    threads = RootThreads(["/hung"])
    begun = threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        answers.wait()

    gone = [asyncio.create_task(threads.run("/hung/x", hang)) for _ in range(MAX_PER_ROOT)]
    await eventually(lambda: hanging() == MAX_PER_ROOT)
    for task in gone:
        task.cancel()
    assert all(isinstance(end, asyncio.CancelledError) for end in await _ends(gone))
    with pytest.raises(NoAnswer):
        await threads.run("/hung/x", hang, 0.05)
    answers.set()
    await threads.run("/hung/x", hang, 5.0)


async def _ends(tasks: list["asyncio.Task[None]"]) -> list[object]:
    return list(await asyncio.gather(*tasks, return_exceptions=True))


async def test_a_thread_that_cannot_be_started_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = RootThreads(["/a"])

    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        for _ in range(MAX_PER_ROOT + 1):
            with pytest.raises(RuntimeError, match="can't start"):
                await threads.run("/a/x", lambda: 7, 5.0)
    assert await threads.run("/a/x", lambda: 7, 5.0) == 7


async def test_a_removal_on_a_file_system_that_hangs_is_told_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, answers: threading.Event, hanging: Callable[[], int]
) -> None:
    monkeypatch.setattr(sinks, "ANSWER_S", 0.05)
    monkeypatch.setattr(sinks.FileSink, "remove", lambda *_: answers.wait())
    monkeypatch.setattr(sinks.FileSink, "place", lambda *_: "placed")
    async with httpx.AsyncClient() as http:
        removing = sinks.Sinks(http, RootThreads(("/hung",)), leads)
        for _ in range(2 * MAX_PER_ROOT):
            with pytest.raises(SinkSilent, match=r"the file system of /hung gives no answer in 0\.05 s"):
                await removing.remove("file:///hung/out.txt", "")
        assert hanging() == 1
        with pytest.raises(SinkBusy, match="still being removed"):
            await removing.to_file(Mock(path="/hung/out.txt"))
        answers.set()
        await eventually(lambda: hanging() == 0)
        await removing.remove("file:///hung/out.txt", "")
        assert await removing.to_file(Mock(path="/hung/out.txt")) == "placed"


async def test_a_delivery_to_a_file_system_that_hangs_is_told_so(
    monkeypatch: pytest.MonkeyPatch, answers: threading.Event
) -> None:
    monkeypatch.setattr(sinks, "ANSWER_S", 0.05)
    monkeypatch.setattr(sinks.FileSink, "missing", lambda *_: answers.wait() and [])
    wanted = Mock(path="/hung/out.txt")
    async with httpx.AsyncClient() as http:
        delivering = sinks.Sinks(http, RootThreads(("/hung",)), leads)
        with pytest.raises(SinkBusy, match=r"the file system of /hung gives no answer in 0\.05 s"):
            await delivering.missing_parts(wanted)
        answers.set()
        assert await delivering.missing_parts(wanted) == []


ENDS = """
import asyncio, threading
from awe_server.data.root_threads import NoAnswer, RootThreads

async def main():
    threads = RootThreads(["/hung"])
    try:
        await threads.run("/hung/x", threading.Event().wait, 0.05)
    except NoAnswer:
        print("given up", flush=True)
    asyncio.ensure_future(threads.run("/hung/x", threading.Event().wait))
    await asyncio.sleep(0)

asyncio.run(main())
"""


def test_a_process_ends_although_its_threads_hang() -> None:
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    ended = subprocess.run(
        [sys.executable, "-c", ENDS], env=env, capture_output=True, text=True, check=True, timeout=30
    )
    assert (ended.stdout, ended.stderr) == ("given up\n", "")
