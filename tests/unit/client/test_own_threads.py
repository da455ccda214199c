"""Threads that are there before this machine can start no more."""

import asyncio
import subprocess
import sys
import threading

import pytest

from awe_client.daemon.own_threads import OwnThreads

pytestmark = pytest.mark.anyio


async def test_they_need_no_more_threads_later(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = OwnThreads(3, "some")
    threads.start_all()
    monkeypatch.setattr(threading.Thread, "start", short_of_threads)
    for _ in range(9):
        assert (await threads.run(threading.current_thread)).name.startswith("some")
    threads.shutdown()


async def test_where_they_cannot_be_started_nothing_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, begin, started = OwnThreads(3, "some"), threading.Thread.start, 0

    def short_of_one(thread: threading.Thread) -> None:
        nonlocal started
        started += 1
        if started == 3:
            short_of_threads(thread)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", short_of_one)
    with pytest.raises(BlockingIOError, match="starts no more threads"):
        threads.start_all()
    threads.shutdown()


def short_of_threads(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_what_they_call_may_fail_or_be_given_up() -> None:
    threads, gate = OwnThreads(1, "some"), threading.Event()
    threads.start_all()
    with pytest.raises(ValueError, match="invalid literal"):
        await threads.run(int, "x")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(threads.run(gate.wait), 0.01)
    gate.set()
    assert await threads.run(int, "5") == 5
    threads.shutdown()


def test_one_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    script = """
import asyncio, threading
from awe_client.daemon.own_threads import OwnThreads
async def main():
    threads = OwnThreads(1, "some")
    threads.start_all()
    try:
        await asyncio.wait_for(threads.run(threading.Event().wait), 0.01)
    except TimeoutError:
        threads.shutdown(wait=False)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=30, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
