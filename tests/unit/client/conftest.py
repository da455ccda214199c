"""A fake server and daemons beside it, in this process."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon.daemon import Daemon
from awe_client.daemon.settings import Settings
from tests.support.fake_server import FakeServer

MakeDaemon = Callable[..., Daemon]
Launch = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    """A fake server that listens."""
    fake = FakeServer()
    await fake.start()
    yield fake
    await fake.close()


@pytest.fixture
async def start(server: FakeServer, tmp_path: Path) -> AsyncIterator[MakeDaemon]:
    """Start a daemon with some settings; all are released at the end."""
    running: list[tuple[Daemon, asyncio.Task[int]]] = []

    def make(**settings: Any) -> Daemon:
        daemon = Daemon(settings_for(server.url, tmp_path / "work", **settings))
        task = asyncio.ensure_future(daemon.run())
        daemon.task = task  # type: ignore[attr-defined]
        running.append((daemon, task))
        return daemon

    yield make
    for daemon, task in running:
        if not task.done():
            daemon.release("test is over")
        assert await asyncio.wait_for(task, 20) == 0


@pytest.fixture
async def launch(server: FakeServer, tmp_path: Path) -> AsyncIterator[Launch]:
    """Start `awe-client run` as a process of its own."""
    started: list[asyncio.subprocess.Process] = []

    async def run(
        *options: str, prefix: tuple[str, ...] = (), stdin: int = asyncio.subprocess.DEVNULL
    ) -> asyncio.subprocess.Process:
        command = [*prefix, sys.executable, "-m", "awe_client.daemon.main", "run", "--server", server.url]
        command += ["--work", str(tmp_path / "work"), "--slots", "2", "--grace", "0.3", "--free-floor", "0"]
        log = (tmp_path / "daemon.log").open("ab")
        with log:
            process = await asyncio.create_subprocess_exec(
                *command, *options, stdin=stdin, stderr=log, cwd=Path.cwd()
            )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


def settings_for(url: str, work: Path, **changes: Any) -> Settings:
    """Settings of a small daemon."""
    defaults: dict[str, Any] = {
        "slots": 2,
        "containers": "none",
        "grace_s": 0.5,
        "executors": 1,
        "free_floor_bytes": 0,
        "servers": (url,),
    }
    return Settings(work=work, **(defaults | changes))
