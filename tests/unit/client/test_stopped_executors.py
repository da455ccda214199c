"""A command can stop the executor that started it: the client goes on, and so does its end."""

import asyncio
import contextlib
import errno
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon import daemon as daemon_module
from awe_client.daemon import executor as executor_module
from awe_client.daemon import helper as helper_module
from awe_client.daemon.executor import ExecutorPool
from awe_client.daemon.helper import executor_command
from awe_client.daemon.identity import WorkRoot
from awe_client.daemon.leftovers import kill_leftovers
from awe_client.daemon.proc import parents, state_of
from tests.support import tally
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import Launch, MakeDaemon
from tests.unit.client.processes import appears, marked, no_more, sleeping

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "LOOK_S", 0.05)


def bash(script: str) -> dict[str, list[str]]:
    return {"args_array": ["-c", script]}


async def test_an_executor_that_was_stopped_goes_on(server: FakeServer, start: MakeDaemon) -> None:
    start(slots=1)
    [work] = await server.add_task("bash", cmd=bash("kill -STOP $PPID; exit 0"))
    assert (await server.result(work))["outcome"] == "done"
    [work] = await server.add_task("true")
    assert (await server.result(work))["outcome"] == "done"


async def test_the_time_limit_holds_for_who_stops_its_executor(server: FakeServer, start: MakeDaemon) -> None:
    start(slots=1, grace_s=0.1)
    [work] = await server.add_task("bash", cmd=bash("kill -STOP $PPID; sleep 1000"), time_limit_s=0.3)
    assert (await server.result(work))["kind"] == "timeout"


async def test_an_executor_that_is_stopped_again_and_again_is_replaced(
    server: FakeServer, start: MakeDaemon
) -> None:
    mark = "mark" + secrets.token_hex(8)
    start(slots=1)
    script = f"while :; do kill -STOP $PPID; done # {mark}"
    [work] = await server.add_task("bash", cmd=bash(script))
    report = await server.result(work)
    assert (report["outcome"], report["kind"]) == ("failed", "node")
    assert marked(mark) == []
    [work] = await server.add_task("true")
    assert (await server.result(work))["outcome"] == "done"


async def test_what_a_stopped_executor_never_began_is_tried_again_and_nobody_is_blamed(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "LOOK_S", 1000.0)
    daemon = start(slots=2)
    [ran] = await server.add_task("sleep", "1000")
    await appears(f"AWE_WORK_ID={ran}")
    [executor] = marked(str(tmp_path / "work" / "fresh"))
    os.kill(executor, signal.SIGSTOP)
    await eventually(lambda: state_of(executor) == "T")
    [innocent] = await server.add_task("true")
    await eventually(lambda: len(daemon._executors._helpers[0].commands) == 2)
    os.kill(executor, signal.SIGKILL)
    report = await server.result(ran)
    assert (report["kind"], report["ran"], report["out_of_reach"]) == ("node", True, True)
    report = await server.result(innocent)
    assert (report["outcome"], report["attempt"]) == ("done", 1)
    assert not any("trouble" in exchange for exchange in server.exchanges)


async def test_an_executor_that_cannot_be_replaced_at_once_is_later(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(slots=1)
    [work] = await server.add_task("true")
    await server.result(work)
    starts, original = 0, helper_module.Helper.start

    def refused(*args: Any) -> Any:
        nonlocal starts
        starts += 1
        if starts < 3:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return original(*args)

    monkeypatch.setattr(helper_module.Helper, "start", refused)
    os.kill(marked(str(tmp_path / "work" / "fresh"))[0], signal.SIGKILL)
    await eventually(lambda: starts == 3)
    [work] = await server.add_task("true")
    assert (await server.result(work))["outcome"] == "done"


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
async def test_a_client_that_can_start_no_executor_asks_for_nothing_says_so_and_goes_on_later(
    server: FakeServer,
    start: MakeDaemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """Nor can it start a thread: fork and threads are short of the same."""
    monkeypatch.setattr(daemon_module, "SUSPENDED_WAIT_S", 0.1)
    start(slots=1)
    [work] = await server.add_task("sleep", "1000")
    await appears(f"AWE_WORK_ID={work}")
    is_short, popen, begin = [True], subprocess.Popen, threading.Thread.start

    def short_of_processes(*args: Any, **keys: Any) -> Any:
        if is_short[0]:
            raise OSError(number, os.strerror(number))
        return popen(*args, **keys)

    def short_of_threads(thread: threading.Thread) -> None:
        if is_short[0]:
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(helper_module.subprocess, "Popen", short_of_processes)
    monkeypatch.setattr(threading.Thread, "start", short_of_threads)
    os.kill(marked(str(tmp_path / "work" / "fresh"))[0], signal.SIGKILL)
    assert (await server.result(work))["ran"]
    said = "could not be started again"
    await server.until(lambda: said in server.exchanges[-1].get("trouble", ""))
    assert server.exchanges[-1]["want"] == 0
    [later] = await server.add_task("true")
    seen = len(server.exchanges)
    await server.until(lambda: len(server.exchanges) >= seen + 5)
    assert later not in server.leased
    is_short[0] = False
    assert (await server.result(later))["outcome"] == "done"
    assert said not in server.exchanges[-1].get("trouble", "")


async def test_threads_that_wait_for_a_disk_hold_up_no_executor(tmp_path: Path) -> None:
    """Those of asyncio's own pool look at files of attempts, and may all hang: of executors nothing does."""
    root = WorkRoot(tmp_path / "work")
    root.open()
    pool = ExecutorPool(2, root)
    await pool.start()
    free = threading.Event()
    hanging = [asyncio.ensure_future(asyncio.to_thread(free.wait)) for _ in range(40)]
    try:
        [lost, _] = await appears(str(root.fresh), 2)
        os.kill(lost, signal.SIGKILL)
        await eventually(lambda: len(set(marked(str(root.fresh))) - {lost}) == 2, within_s=20)
        await asyncio.wait_for(pool.stop(), 20)
        assert marked(str(root.fresh)) == []
    finally:
        free.set()
        await asyncio.gather(*hanging)
    root.close()


async def test_an_executor_found_stopped_gets_no_commands_while_another_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be stopped again, and at last be killed with all that it runs."""
    monkeypatch.setattr(executor_module, "LOOK_S", 1000.0)  # we look ourselves
    root = WorkRoot(tmp_path / "work")
    root.open()
    pool = ExecutorPool(2, root)
    await pool.start()
    first, second = pool._helpers

    async def runs_at(name: str) -> int:
        pool.run(sleeping(root, name), lambda _: None)
        [command] = await appears(f"AWE_WORK_ID={name}")
        return parents()[command]

    os.kill(first.pid, signal.SIGSTOP)
    await eventually(lambda: state_of(first.pid) == "T")
    first.let_go_on()
    assert [await runs_at("w1"), await runs_at("w2")] == [second.pid] * 2
    await eventually(lambda: state_of(first.pid) != "T")
    first.let_go_on()
    assert await runs_at("w3") == first.pid
    await pool.stop()
    root.close()


async def test_a_second_TERM_ends_a_daemon_whose_executor_does_not_answer(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not stopped, but with a disk that hangs, say: nobody can make it go on."""
    monkeypatch.setattr(executor_module, "LOOK_S", 1000.0)
    monkeypatch.setattr(helper_module, "END_S", 0.1)
    monkeypatch.setattr(daemon_module, "RELEASE_S", 0.1)
    mark = "mark" + secrets.token_hex(8)
    daemon = start(slots=1, grace_s=0.1)
    await server.add_task("bash", cmd=bash(f"trap '' TERM; exec -a {mark} sleep 1000"))
    await appears(mark)
    [executor] = marked(str(tmp_path / "work" / "fresh"))
    stopped = stop_for_good(executor)
    try:
        daemon.interrupt("first")
        daemon.interrupt("second")
        assert await asyncio.wait_for(daemon.task, 20) == 0  # type: ignore[attr-defined]
        assert marked(mark) == []
    finally:
        stopped.cancel()


def stop_for_good(pid: int) -> "asyncio.Task[None]":
    async def stop() -> None:
        while True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(0.001)

    os.kill(pid, signal.SIGSTOP)
    return asyncio.ensure_future(stop())


async def test_a_stopped_executor_ends_with_its_client(
    server: FakeServer, launch: Launch, tmp_path: Path
) -> None:
    mark = "mark" + secrets.token_hex(8)
    client = await launch("--executors", "1")
    await server.add_task("bash", cmd=bash(f"exec -a {mark} sleep 1000"))
    await appears(mark)
    [executor] = marked(str(tmp_path / "work" / "fresh"))
    os.kill(client.pid, signal.SIGSTOP)  # else it lets the executor go on
    os.kill(executor, signal.SIGSTOP)
    await eventually(lambda: state_of(executor) == "T")
    client.kill()
    tally.count("kill client, while it runs commands")
    await client.wait()
    await no_more(mark, 20.0)
    await no_more(str(tmp_path / "work" / "fresh"), 20.0)


def test_the_next_start_ends_an_executor_that_is_stopped(tmp_path: Path) -> None:
    """As one whose command went on to stop it when the client was killed."""
    ours, theirs = socket.socketpair()
    command = executor_command((str(tmp_path / "fresh"), str(tmp_path / "attempts")), 0)
    with ours, theirs, subprocess.Popen(command, stdin=theirs.fileno(), cwd="/") as executor:
        other = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(1000)", tmp_path / "attempts"]
        )
        for process in (executor, other):
            process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE_S
        while not state_of(executor.pid) == state_of(other.pid) == "T":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        kill_leftovers(tmp_path / "attempts", tmp_path / "control-group")
        assert executor.wait(20) == -signal.SIGKILL
        assert state_of(other.pid) == "T"
        other.kill()
        other.wait()
