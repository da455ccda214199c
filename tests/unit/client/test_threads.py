"""File work in threads: what is slow or hangs holds up nobody else, and nothing is closed under a thread."""
# ruff: noqa: ASYNC240 — a look at a temporary folder blocks nobody here

import asyncio
import io
import os
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon import fetch, looks, push, shared_files, staging, whole_files
from awe_client.daemon.cache import Cache
from awe_client.sdk import download, threads
from awe_client.sdk.bodies import FileBody
from awe_client.sdk.download import Asked, Download, Reply, Wanted
from awe_client.sdk.threads import ThreadFile, file_work, to_its_end
from tests.support.descriptors import open_below
from tests.support.eventually import eventually
from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import MakeDaemon

pytestmark = pytest.mark.anyio


class Gate:
    """Holds up threads until it is opened."""

    def __init__(self) -> None:
        self.waiting = 0
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    def wait(self) -> None:
        self.waiting += 1
        self._opened.wait(30)

    def before(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, behind the gate."""

        def held_up(*args: Any, **more: Any) -> Any:
            self.wait()
            return work(*args, **more)

        return held_up


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


# --- the exchange with the server ----------------------------------------------------------------


def blocked(what: str, server: FakeServer, shared: Path) -> tuple[Any, str, dict[str, Any]]:
    """Where long work is called, by which name, and a task that needs it."""
    if what == "copy":
        return whole_files, "copy_file", {"inputs": [server.input("in.txt", b"hello")]}
    if what == "unpack":
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("out/a"))
        return fetch, "unpack", {"inputs": [server.input("out/", file.getvalue())]}
    if what == "outputs":
        return push, "find_outputs", {"outputs": [server.output("out.txt", optional=True)]}
    shared.mkdir()
    (shared / "x").write_bytes(b"hello")
    entry = {"filename": "in.txt", "url": f"file://{shared}/x"}
    return shared_files, "open_allowed", {"inputs": [entry]}


@pytest.mark.parametrize("what", ["copy", "unpack", "outputs", "shared file system"])
async def test_L_05_a_result_is_reported_at_once_however_many_files_take_long(
    server: FakeServer,
    start: MakeDaemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gate: Gate,
    what: str,
) -> None:
    module, name, task = blocked(what, server, tmp_path / "shared")
    monkeypatch.setattr(module, name, gate.before(getattr(module, name)))
    # More than asyncio has threads.
    count = min(32, (os.cpu_count() or 1) + 4) + 1
    start(slots=count + 4, transfers=2 * count, file_roots=(str(tmp_path / "shared"),))
    works = await server.add_task(ranks=count, **task)
    await eventually(lambda: gate.waiting >= count - 1, within_s=20)
    [quick] = await server.add_task()
    assert (await server.result(quick, 5.0))["outcome"] == "done"
    gate.open()
    for work in works:
        assert (await server.result(work))["outcome"] == "done"


# --- cancelled -----------------------------------------------------------------------------------


def take_asyncios_threads(gate: Gate) -> None:
    """All of them wait for something else from now on."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    loop.run_in_executor(None, gate.wait)


async def test_L_05_what_could_not_be_fetched_is_removed_although_others_wait(
    tmp_path: Path, gate: Gate
) -> None:
    async def fetch(path: Path) -> None:
        path.touch()
        raise ConnectionError

    take_asyncios_threads(gate)
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(Cache(tmp_path, 100).use("url-1", 4, fetch), 10)
    assert not list(tmp_path.iterdir())
    gate.open()


async def test_L_05_a_client_registers_again_although_others_wait(
    server: FakeServer, start: MakeDaemon, gate: Gate
) -> None:
    start()
    await server.until(lambda: bool(server.exchanges))
    take_asyncios_threads(gate)
    server.lose_memory()
    [work] = await server.add_task()
    assert (await server.result(work, 10.0))["outcome"] == "done"
    assert len(server.profiles) == 2
    gate.open()


async def test_work_to_its_end_is_over_when_its_thread_is_however_often_it_is_cancelled(gate: Gate) -> None:
    done: list[str] = []
    task = asyncio.ensure_future(to_its_end(gate.before(done.append), "done"))
    await eventually(lambda: gate.waiting == 1)
    for _ in range(3):
        task.cancel()
        assert not (await asyncio.wait((task,), timeout=0.02))[0]
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["done"]


async def test_other_file_work_is_left_alone_when_it_is_cancelled(gate: Gate) -> None:
    done: list[str] = []
    task = asyncio.ensure_future(file_work(gate.before(done.append), "done"))
    await eventually(lambda: gate.waiting == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 1)
    gate.open()
    await eventually(lambda: done == ["done"])


async def test_a_client_gives_back_what_waits_for_a_file_system_that_hangs_and_ends(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    module, name, task = blocked("shared file system", server, tmp_path / "shared")
    monkeypatch.setattr(module, name, gate.before(getattr(module, name)))
    daemon = start(file_roots=(str(tmp_path / "shared"),))
    [whole] = await server.add_task(**task)
    entry = task["inputs"][0]
    [piece] = await server.add_task(
        grants=[{"part": "1", "pieces": [[0, 2]]}], inputs=[entry], part_inputs=["in.txt"], index="line"
    )
    await eventually(lambda: gate.waiting == 2)
    daemon.release("its time is over")
    for work in (whole, piece):
        assert (await server.result(work, 5.0))["outcome"] == "released"
    assert await asyncio.wait_for(daemon.task, 10) == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("way", ["in", "out"])
async def test_a_shared_file_system_that_hangs_takes_no_more_than_half_of_the_places(
    server: FakeServer,
    start: MakeDaemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gate: Gate,
    way: str,
) -> None:
    _, _, task = blocked("shared file system", server, tmp_path / "shared")
    module, name = (shared_files, "open_allowed") if way == "in" else (staging, "open_folder_of")
    if way == "out":
        task = {
            "outputs": [{"filename": "x", "url": f"file://{tmp_path}/shared/out"}],
            "script": ["echo > x"],
            "generation": 1,
        }
    monkeypatch.setattr(module, name, gate.before(getattr(module, name)))
    start(slots=8, transfers=4, file_roots=(str(tmp_path / "shared"),))
    works = await server.add_task(ranks=6, **task)
    await eventually(lambda: gate.waiting == 2)
    entry, out = server.input("in.txt", b"hello"), server.output("out.txt")
    [other] = await server.add_task("cp", "in.txt out.txt", inputs=[entry], outputs=[out])
    assert (await server.result(other, 10.0))["outcome"] == "done"
    assert gate.waiting == 2
    gate.open()
    for work in works:
        assert (await server.result(work))["outcome"] == "done"


async def test_a_command_that_is_told_to_end_and_ends_is_over_whatever_its_links_are(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    _, _, task = blocked("shared file system", server, tmp_path / "shared")
    daemon = start(slots=1, grace_s=0.1, file_roots=(str(tmp_path / "shared"),))
    running = tmp_path / "running"
    [work] = await server.add_task(script=[f"touch {running}; exec sleep 100"], **task)
    await eventually(running.exists)
    monkeypatch.setattr(looks, "_changed", gate.before(looks._changed))
    daemon.release("its time is over")
    assert (await server.result(work, 5.0))["outcome"] == "released"
    assert gate.waiting == 0


async def test_a_look_at_a_shared_file_system_that_hangs_is_given_up_and_blames_no_input(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    _, _, task = blocked("shared file system", server, tmp_path / "shared")
    monkeypatch.setattr(looks, "LOOK_S", 0.1)
    monkeypatch.setattr(looks, "_changed", gate.before(looks._changed))
    start(slots=1, file_roots=(str(tmp_path / "shared"),))
    [work] = await server.add_task(**task)
    report = await server.result(work, 5.0)
    assert (report["outcome"], report["kind"], report["out_of_reach"]) == ("failed", "node", True)
    assert "the shared file system does not answer" in report["message"]
    assert (await server.result((await server.add_task())[0]))["outcome"] == "done"


class Refusing:
    """Lets no thread of file work start, so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        real, self.left = threading.Thread.start, times

        def start(thread: threading.Thread) -> None:
            if thread.name == "file work" and self.left:
                self.left -= 1
                raise RuntimeError("can't start new thread")
            real(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
        monkeypatch.setattr(threads, "_PAUSES_S", (0.001,) * 4)


@pytest.mark.parametrize("way", [file_work, to_its_end])
async def test_a_thread_that_cannot_be_started_for_the_moment_is_started_later(
    monkeypatch: pytest.MonkeyPatch, way: Any
) -> None:
    refusing = Refusing(monkeypatch, 4)
    assert await way(len, "four") == 4
    assert refusing.left == 0


@pytest.mark.parametrize("what", ["copy", "shared file system", "outputs"])
async def test_a_machine_that_starts_no_more_threads_is_at_fault_and_nothing_else(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    _, _, task = blocked(what, server, tmp_path / "shared")
    start(file_roots=(str(tmp_path / "shared"),))
    Refusing(monkeypatch, 10_000)
    [work] = await server.add_task(**task)
    report = await server.result(work, 20.0)
    assert (report["outcome"], report["kind"]) == ("failed", "node")
    assert "this machine starts no more threads" in report["message"]
    assert "internal error" not in report["message"]


_HANGS = """
import asyncio, threading
from awe_client.sdk.threads import file_work
async def main():
    task = asyncio.ensure_future(file_work(threading.Event().wait))
    await asyncio.sleep(0.01)
    task.cancel()
asyncio.run(main())
"""


def test_the_end_of_a_program_waits_for_no_file_system_that_hangs() -> None:
    subprocess.run([sys.executable, "-c", _HANGS], timeout=20, check=True)


@pytest.mark.parametrize("during", ["open", "read", "nothing"])
async def test_a_file_that_is_closed_is_closed_by_the_last_who_uses_it(
    tmp_path: Path, gate: Gate, during: str
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"hello")
    opened: list[io.FileIO] = []

    def open_it() -> io.FileIO:
        opened.append(path.open("rb", buffering=0))
        return opened[0]

    file = ThreadFile(gate.before(open_it) if during == "open" else open_it)
    if during == "nothing":
        assert await file.use(io.FileIO.read, 4) == b"hell"
    else:
        work = gate.before(io.FileIO.read) if during == "read" else io.FileIO.read
        task = asyncio.ensure_future(file.use(work, 4))
        await eventually(lambda: gate.waiting == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 1)
    file.close()
    assert [one.closed for one in opened] == ([] if during == "open" else [during == "nothing"])
    gate.open()
    await eventually(lambda: [one.closed for one in opened] == [True])
    with pytest.raises(ValueError, match="closed"):
        await file.use(io.FileIO.read, 4)


class Slow(io.FileIO):
    """A file on a file system that hangs."""

    gate: Gate

    def readinto(self, buffer: Any) -> int:
        self.gate.wait()
        return super().readinto(buffer)

    def read(self, size: int = -1) -> bytes:
        self.gate.wait()
        return super().read(size) or b""

    def write(self, data: Any) -> int:
        self.gate.wait()
        return super().write(data)


async def read_a_body(path: Path) -> None:
    async for _ in FileBody(path):
        pass


async def read_a_shared_file(path: Path) -> None:
    opener = shared_files.SharedFiles([str(path.parent)]).opener(f"file://{path}")
    async with opener(Asked()) as reply:
        async for _ in reply.chunks:
            pass


@pytest.mark.parametrize("read", [read_a_body, read_a_shared_file])
async def test_who_stops_reading_a_file_that_hangs_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate, read: Callable[[Path], Any]
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"hello")
    slow = Slow(path)
    slow.gate = gate
    assert open_below(tmp_path) == [str(path)]
    # Buffered: closing such a file waits for who reads it.
    monkeypatch.setattr(os, "fdopen", lambda fd, *_, **__: os.close(fd) or io.BufferedReader(slow))
    monkeypatch.setattr(Path, "open", lambda *_, **__: io.BufferedReader(slow))
    task = asyncio.ensure_future(read(path))
    await eventually(lambda: gate.waiting == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 1)
    assert not slow.closed
    gate.open()
    await eventually(lambda: slow.closed)
    await eventually(lambda: open_below(tmp_path) == [], show=lambda: open_below(tmp_path))


@asynccontextmanager
async def some_bytes(_: Asked) -> AsyncIterator[Reply]:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"hello" * 10_000

    yield Reply(chunks())


@pytest.mark.parametrize("during", ["open", "write", "rename"])
async def test_a_download_that_is_stopped_ends_with_its_thread_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate, during: str
) -> None:
    def opened(path: Path, mode: str, **_: Any) -> io.BufferedWriter:
        slow = Slow(path, mode)
        slow.gate = gate
        return io.BufferedWriter(slow)

    if during == "write":
        monkeypatch.setattr(Path, "open", opened)
    else:
        module, name = (download, "check_replaceable") if during == "open" else (os, "rename")
        monkeypatch.setattr(module, name, gate.before(getattr(module, name)))
    one = Download(tmp_path / "x", Wanted())

    async def fetched() -> None:
        try:
            await one.attempt(some_bytes)
        finally:
            await one.close()

    task = asyncio.ensure_future(fetched())
    await eventually(lambda: gate.waiting == 1)
    task.cancel()
    begun = time.monotonic()
    assert not (await asyncio.wait((task,), timeout=0.05))[0]
    assert time.monotonic() - begun < 10, "the loop stood still"
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [path.name for path in tmp_path.iterdir()] == (["x"] if during == "rename" else [])
    await eventually(lambda: open_below(tmp_path) == [], show=lambda: open_below(tmp_path))
