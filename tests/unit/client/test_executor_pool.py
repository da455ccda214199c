"""Executors that are lost or cannot be started: every command's end is told, and nothing is left over."""

import asyncio
import contextlib
import errno
import os
import secrets
import signal
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon import executor
from awe_client.daemon.executor import ExecutorPool
from awe_client.daemon.identity import WorkRoot
from awe_client.daemon.outcome import CommandEnd, SpawnRefusal
from tests.support.eventually import eventually
from tests.unit.client.processes import appears, marked, sleeping

pytestmark = pytest.mark.anyio

LOST = SpawnRefusal("executor", errno.EIO, b"")


@pytest.fixture
def root(tmp_path: Path) -> WorkRoot:
    root = WorkRoot(tmp_path / "work")
    root.open()
    return root


@pytest.fixture
async def pool(root: WorkRoot) -> AsyncIterator[ExecutorPool]:
    """Two executors, each of which runs a command."""
    pool = ExecutorPool(2, root)
    await pool.start()
    yield pool
    if not pool._stopping:
        await pool.stop()
    assert (marked(str(root.fresh)), pool._pids) == ([], set())
    root.close()


async def run_two(pool: ExecutorPool, root: WorkRoot) -> list[CommandEnd | SpawnRefusal]:
    """The ends of two commands, of which each executor runs one."""
    ends: list[CommandEnd | SpawnRefusal] = []
    # Nobody else's processes have these names: another run of this test may be under way.
    for name in (secrets.token_hex(8), secrets.token_hex(8)):
        pool.run(sleeping(root, name), ends.append)
        await appears(f"AWE_WORK_ID={name}")
    return ends


def sockets() -> set[str]:
    """Those that this process has open."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return {name for name in found if name.startswith("socket:")}


async def test_executors_that_die_at_once_are_replaced_where_no_more_threads_can_be_started(
    pool: ExecutorPool, root: WorkRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = await run_two(pool, root)
    lost = {helper.pid for helper in pool._helpers}

    def short_of_threads(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", short_of_threads)
    for pid in lost:
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: ends == [LOST] * 2)
    await eventually(lambda: len({helper.pid for helper in pool._helpers} - lost) == 2)
    await pool.stop()


async def test_the_ends_of_commands_are_told_whatever_fails_when_an_executor_is_lost(
    pool: ExecutorPool, root: WorkRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "LOOK_S", 0.05)
    ends = await run_two(pool, root)
    lost = [helper.pid for helper in pool._helpers]

    def fails(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(executor, "_kill_orphans", fails)
        for pid in lost:
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: ends == [LOST] * 2)
    await eventually(lambda: len(pool._helpers) == 2)


@pytest.mark.parametrize("fails", ["process", "connection"])
async def test_an_executor_that_cannot_be_started_leaves_no_socket_and_no_process(
    pool: ExecutorPool, root: WorkRoot, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    tries = 0

    def refused(*_: Any, **__: Any) -> Any:
        nonlocal tries
        tries += 1
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    before, pids = sockets(), set(pool._pids)
    with monkeypatch.context() as patched:
        if fails == "process":
            patched.setattr(subprocess, "Popen", refused)
        else:
            patched.setattr(asyncio.get_running_loop(), "create_unix_connection", refused)
        await pool._start_another()
    assert (tries, sockets() - before, pool._pids) == (1, set(), pids)
    assert set(marked(str(root.fresh))) == pids
