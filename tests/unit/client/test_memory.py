"""What a task says of memory is a limit for all processes of its command together."""
# ruff: noqa: ASYNC240 — a look at a temporary folder blocks nobody here

import asyncio
import os
import secrets
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon import memory
from awe_client.daemon.memory import MemoryWatch
from awe_client.daemon.proc import state_of
from tests.support.eventually import eventually_sync
from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import MakeDaemon
from tests.unit.client.processes import appears, marked

pytestmark = pytest.mark.anyio

MIB = 2**20
#: Takes and uses so many MiB.
TAKE = "def take(mib): return b'x' * (mib << 20)"


def limited(script: str, limit_mib: int, mark: str = "") -> dict[str, Any]:
    """A Python command under a limit."""
    source = "import os, sys, time\n" + TAKE + "\n" + textwrap.dedent(script)
    return {
        "name": sys.executable,
        "cmd": {"args_array": ["-c", source, mark]},
        "resources": {"cores": 1, "memory_bytes": limit_mib * MIB, "disk_bytes": 0, "gpus": 0},
    }


def numbers(message: str) -> tuple[float, float]:
    """The two sizes that a message names, in MiB."""
    used, limit = [float(part.split()[-1]) for part in message.split(" MiB")[:2]]
    return used, limit


GREEDY = {
    "itself": "data = take(200); time.sleep(60)",
    "a grandchild": """
        if not os.fork() and not os.fork():
            data = take(200)
        time.sleep(60)
    """,
    "an adopted one in a session of its own": """
        if not os.fork():
            os.setsid()
            if os.fork():
                os._exit(0)
            time.sleep(0.2)
            data = take(200)
        time.sleep(60)
    """,
    "many together": """
        for _ in range(12):
            if not os.fork():
                data = take(15)
                break
        time.sleep(60)
    """,
    "shared memory": """
        import mmap
        shared = mmap.mmap(-1, 200 << 20)
        for at in range(0, 200 << 20, 4096):
            shared[at] = 1
        time.sleep(60)
    """,
}


@pytest.mark.parametrize("who", sorted(GREEDY))
async def test_a_command_above_its_limit_is_killed_with_all_its_processes(
    server: FakeServer, start: MakeDaemon, who: str
) -> None:
    mark = "mark" + secrets.token_hex(8)
    start(grace_s=30.0)
    [work] = await server.add_task(**limited(GREEDY[who], 64, mark))
    report = await server.result(work)
    assert (report["outcome"], report["kind"]) == ("failed", "oom")
    used, limit = numbers(report["message"])
    assert limit == 64
    assert used > 64
    assert report["perf"]["peak_memory_bytes"] > 64 * MIB
    assert marked(mark) == []


async def test_a_fast_allocator_does_not_get_far(server: FakeServer, start: MakeDaemon) -> None:
    start()
    [work] = await server.add_task(**limited("data = [take(8) for _ in range(300)]; time.sleep(60)", 64))
    report = await server.result(work)
    assert report["kind"] == "oom"
    assert numbers(report["message"])[0] < 1200


async def test_a_command_that_ignores_signals_is_killed_at_once(
    server: FakeServer, start: MakeDaemon
) -> None:
    start(grace_s=30.0)
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); data = take(200); time.sleep(60)"
    [work] = await server.add_task(**limited(script, 64))
    assert (await server.result(work, 10.0))["kind"] == "oom"


MODEST = {
    "uses little": "data = take(30); time.sleep(0.6)",
    "reserves much and uses little": "import mmap; m = mmap.mmap(-1, 8 << 30); m[0] = 1; time.sleep(0.6)",
    "reads a file through a mapping": """
        import mmap
        with open("big", "wb") as file:
            for _ in range(200): file.write(take(1))
        with open("big", "rb") as file:
            big = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            total = sum(big[at] for at in range(0, len(big), 4096))
        time.sleep(0.6)
    """,
    "shares what it has with its children": """
        data = take(60)
        for _ in range(6):
            if not os.fork():
                time.sleep(0.6); os._exit(0)
        time.sleep(0.6)
    """,
    "is starting a child, which shares all until it runs its own program": """
        data = take(60)
        os.mkfifo("blocks")
        import subprocess
        subprocess.Popen(["sh", "-c", "sleep 0.6; : > blocks"])
        # The child opens the pipe between vfork and exec.
        os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "blocks", 0, 0)])
    """,
}


@pytest.mark.parametrize("how", sorted(MODEST))
async def test_a_command_that_keeps_its_limit_is_left_alone(
    server: FakeServer, start: MakeDaemon, how: str
) -> None:
    start()
    [work] = await server.add_task(**limited(MODEST[how], 100))
    report = await server.result(work)
    assert report["outcome"] == "done", report


async def test_the_peak_is_that_of_all_processes_together(server: FakeServer, start: MakeDaemon) -> None:
    start()
    script = """
        ready = os.pipe()
        for _ in range(4):
            if not os.fork():
                data = take(40)
                os.write(ready[1], b"x")
                time.sleep(60)
        for _ in range(4):
            os.read(ready[0], 1)
        time.sleep(0.6)
    """
    [work] = await server.add_task(**limited(script, 1000))
    report = await server.result(work)
    assert report["outcome"] == "done"
    assert report["perf"]["peak_memory_bytes"] > 160 * MIB


async def test_beside_a_greedy_command_others_go_on(server: FakeServer, start: MakeDaemon) -> None:
    start(slots=3)
    [modest] = await server.add_task(**limited("time.sleep(1.0)", 64))
    [free] = await server.add_task(**limited("data = take(200); time.sleep(1.0)", 0))
    [greedy] = await server.add_task(**limited("data = take(200); time.sleep(60)", 64))
    assert (await server.result(greedy))["kind"] == "oom"
    assert (await server.result(modest))["outcome"] == "done"
    assert (await server.result(free))["outcome"] == "done"


async def test_an_attempt_that_is_given_back_stays_given_back(server: FakeServer, start: MakeDaemon) -> None:
    mark = "mark" + secrets.token_hex(8)
    daemon = start(grace_s=20.0)
    script = """
        import signal
        def late(*_):
            global data
            data = take(200); time.sleep(60)
        signal.signal(signal.SIGTERM, late)
        print("ready", flush=True)
        time.sleep(60)
    """
    [work] = await server.add_task(**limited(script, 64, mark))
    [pid] = await appears(mark)
    log = Path(f"/proc/{pid}/cwd/awe_stdout.txt")
    while not log.read_text():  # noqa: ASYNC110 — a file tells nobody that it grew
        await asyncio.sleep(0.02)
    daemon.release("test")
    # The grace would be long: memory ends it.
    assert (await server.result(work, 10.0))["outcome"] == "released"
    assert marked(mark) == []


# --- the watch by itself -------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes whose memory was read."""
    seen: list[int] = []
    original = memory.usage_of

    def recording(pid: int) -> Any:
        seen.append(pid)
        return original(pid)

    monkeypatch.setattr(memory, "usage_of", recording)
    return seen


@pytest.fixture
def child() -> Any:
    """Start processes that sleep; they are gone at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def sleeper() -> int:
        started.append(subprocess.Popen(["sleep", "60"]))
        return started[-1].pid

    yield sleeper
    for process in started:
        process.kill()
        process.wait()


def test_only_processes_of_limited_commands_are_read(reads: list[int], child: Callable[[], int]) -> None:
    limited_pid, free_pid = child(), child()
    watch = MemoryWatch(lambda pid: {limited_pid: 1, free_pid: 2}.get(pid))
    watch.add(1, 64 * MIB)
    assert watch.look() == []
    assert reads == [limited_pid]


def test_without_limited_commands_there_is_nothing_to_do(reads: list[int], child: Callable[[], int]) -> None:
    pid = child()
    watch = MemoryWatch({pid: 1}.get)
    assert watch.next_at is None
    watch.add(1, MIB)
    assert watch.next_at is not None
    assert watch.next_at <= time.monotonic() + 0.25
    watch.look()
    assert watch.remove(1) > 0
    assert watch.next_at is None
    assert reads == [pid]


def test_what_is_above_is_told_with_its_number(child: Callable[[], int]) -> None:
    pid = child()
    watch = MemoryWatch({pid: 7}.get)
    watch.add(7, 4096)
    [(key, used)] = watch.look()
    assert key == 7
    assert 4096 < used < 50 * MIB


def test_a_process_once_known_keeps_its_owner(child: Callable[[], int], reads: list[int]) -> None:
    pid = child()
    owners = {pid: 1}
    watch = MemoryWatch(owners.get)
    watch.add(1, 64 * MIB)
    watch.look()
    owners.clear()
    watch.look()
    assert reads == [pid, pid]
    assert os.getpid() not in reads


@pytest.mark.parametrize("ends", ["before it is read", "after it was read"])
def test_who_ends_while_a_command_is_looked_at_is_not_counted_twice(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Seven processes share 60 MB and end one after the other: the share of those that are left grows."""
    alive = set(range(1, 8))

    def share(pid: int) -> int | None:
        if ends == "before it is read" and len(alive) > 1:
            alive.discard(pid)
        if pid not in alive:
            return 0
        shared = 60 * MIB // len(alive)
        if ends == "after it was read" and len(alive) > 1:
            alive.discard(pid)
        return shared

    monkeypatch.setattr(memory, "share_of", share)
    monkeypatch.setattr(memory, "share_memory", lambda *_: False)
    watched = memory._Watched(1, 100 * MIB)
    members = {pid: memory.Usage(0, 60 * MIB) for pid in sorted(alive)}
    assert memory._assess(watched, members) <= 100 * MIB


def test_who_has_ended_uses_nothing() -> None:
    process = subprocess.Popen(["true"])
    eventually_sync(lambda: state_of(process.pid) == "Z")
    assert memory.share_of(process.pid) == 0
    process.wait()
    assert memory.share_of(process.pid) == 0
