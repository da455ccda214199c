"""Threads that are there before this machine can start no more."""

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
