"""Commands that are lined up in an executor, to start in the place of the next one that ends."""

import asyncio
import errno
import os
import resource
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from awe_client.daemon import helper as helper_module
from awe_client.daemon import workshop as workshop_module
from awe_client.daemon.begun import NEXT, RUN, Begun
from awe_client.daemon.daemon import Daemon
from awe_client.daemon.disk import DiskWatch
from awe_client.daemon.executor import ONE_CORE, ExecutorPool
from awe_client.daemon.executor_main import Executor
from awe_client.daemon.frames import CommandSpec, Size, take_messages
from awe_client.daemon.helper import OnEnd
from awe_client.daemon.homes import Homes
from awe_client.daemon.identity import WorkRoot
from awe_client.daemon.outcome import CommandEnd, SpawnRefusal
from awe_client.daemon.running import Command
from awe_client.daemon.spawn import Refused
from awe_client.daemon.workshop import Workshop
from tests.support.eventually import eventually
from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import MakeDaemon
from tests.unit.client.processes import marked

pytestmark = pytest.mark.anyio
LONG = "sleep 1000"


class Told(NamedTuple):
    """Hears of a command that is lined up."""

    begins: Callable[[], None]
    returned: Callable[[], None]
    ended: OnEnd


class Bench:
    """One executor; everything that is told of its commands, in order."""

    def __init__(self, root: WorkRoot) -> None:
        self.root = root
        self.pool = ExecutorPool(1, root)
        self.said: list[tuple[str, Any]] = []

    def run(self, name: str, script: str, size: Size = ONE_CORE) -> int:
        return self.pool.run(self._spec(name, script), self._on_end(name), size)

    def line_up(self, name: str, script: str, size: Size = ONE_CORE, limit_s: float = 0.0) -> int:
        told = Told(
            lambda: self.said.append((name, "begins")),
            lambda: self.said.append((name, "returned")),
            self._on_end(name),
        )
        return self.pool.line_up(self._spec(name, script, limit_s), told, size)

    async def told(self, *what: tuple[str, Any]) -> None:
        await eventually(lambda: len(self.said) >= len(what), show=lambda: self.said)
        assert self.said == list(what)

    def _on_end(self, name: str) -> Callable[[CommandEnd | SpawnRefusal], None]:
        def ended(what: CommandEnd | SpawnRefusal) -> None:
            if isinstance(what, SpawnRefusal):
                self.said.append((name, what.errno))
            else:
                self.said.append((name, what.reason or f"exit {what.exit_code}"))

        return ended

    def _spec(self, name: str, script: str, limit_s: float = 0.0) -> CommandSpec:
        env = {b"AWE_WORK_ID": name.encode(), b"PATH": os.environb[b"PATH"]}
        words = [b"sh", b"-c", script.encode()]
        folder = os.fsencode(self.root.attempts / name)
        return CommandSpec(words, env, folder, True, None, b"o", b"e", limit_s, 0.2, 100, True)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    root = WorkRoot(tmp_path / "work")
    root.open()
    bench = Bench(root)
    await bench.pool.start()
    yield bench
    await bench.pool.stop()
    assert marked(str(root.fresh)) == []
    root.close()


async def test_each_starts_when_the_one_before_it_is_over(bench: Bench) -> None:
    bench.run("a", "exit 0")
    bench.line_up("b", "exit 3")
    bench.line_up("c", "exit 0")
    await bench.told(("b", "begins"), ("a", "exit 0"), ("c", "begins"), ("b", "exit 3"), ("c", "exit 0"))


async def test_one_that_cannot_be_started_makes_room_for_the_next(bench: Bench) -> None:
    (bench.root.attempts / "b" / "of another").mkdir(parents=True)
    bench.run("a", "exit 0")
    bench.line_up("b", "exit 0")
    bench.line_up("c", "exit 0")
    refused = ("b", errno.ENOTEMPTY)
    await bench.told(("b", "begins"), ("a", "exit 0"), ("c", "begins"), refused, ("c", "exit 0"))


@pytest.mark.parametrize("how", ["kill", "recall"])
async def test_one_that_has_not_begun_comes_back(bench: Bench, how: str) -> None:
    first = bench.run("a", LONG)
    key = bench.line_up("b", "exit 0")
    getattr(bench.pool, how)(key)
    await bench.told(("b", "returned"))
    bench.pool.kill(first)
    await bench.told(("b", "returned"), ("a", "killed"))


async def test_one_that_has_begun_does_not_come_back_and_can_be_killed(bench: Bench) -> None:
    bench.run("a", "exit 0")
    key = bench.line_up("b", LONG)
    await bench.told(("b", "begins"), ("a", "exit 0"))
    bench.pool.recall(key)
    bench.pool.kill(key)
    await bench.told(("b", "begins"), ("a", "exit 0"), ("b", "killed"))


@pytest.mark.parametrize("name", ["CHLD", "IO", "CONT", "TERM"])
async def test_a_command_that_signals_its_executor_without_end_can_be_killed(bench: Bench, name: str) -> None:
    key = bench.run("a", f"touch ../on; while :; do kill -{name} $PPID; done")
    await eventually((bench.root.attempts / "on").exists)
    bench.pool.kill(key)
    await bench.told(("a", "killed"))


async def test_one_comes_back_where_nothing_runs(bench: Bench) -> None:
    bench.line_up("a", "exit 0")
    await bench.told(("a", "returned"))


async def test_one_of_another_size_does_not_start(bench: Bench) -> None:
    bench.run("a", "exit 0", (1, 0))
    key = bench.line_up("b", "exit 0", (2, 0))
    await bench.told(("a", "exit 0"))
    bench.pool.recall(key)
    await bench.told(("a", "exit 0"), ("b", "returned"))


async def test_a_time_limit_counts_from_the_start(bench: Bench) -> None:
    bench.run("a", "sleep 1")
    bench.line_up("b", "sleep 0.01", limit_s=0.9)
    bench.line_up("c", LONG, limit_s=0.1)
    await bench.told(("b", "begins"), ("a", "exit 0"), ("c", "begins"), ("b", "exit 0"), ("c", "timeout"))


async def test_what_a_killed_executor_had_not_begun_comes_back_in_order(bench: Bench) -> None:
    first = bench.run("a", LONG)
    keys = [bench.line_up(name, "exit 0") for name in "bcd"]
    [helper] = bench.pool._helpers
    await eventually(lambda: helper._begun.has(RUN, first))
    helper._begun.note(NEXT, keys[0])  # and the message that says so is lost
    os.kill(helper.pid, signal.SIGKILL)
    gone = [("b", "begins"), ("a", errno.EIO), ("b", errno.EIO)]
    await bench.told(*gone, ("d", "returned"), ("c", "returned"))


async def test_nothing_is_lined_up_behind_commands_that_take_long_or_are_of_another_size(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = bench.pool
    assert not pool.can_line_up(ONE_CORE)
    bench.run("a", LONG)
    assert not pool.can_line_up(ONE_CORE)
    [helper] = pool._helpers
    helper._ends.extend([time.monotonic() + 1000.0] * 12)  # so many in the window
    assert helper.room_for(ONE_CORE, time.monotonic()) == 3
    assert not pool.can_line_up((2, 0))
    bench.line_up("b", "exit 0")
    assert helper.room_for(ONE_CORE, time.monotonic()) == 2
    monkeypatch.setattr(helper_module, "RATE_WINDOW_S", -2000.0)
    assert not pool.can_line_up(ONE_CORE)


# --- in the executor itself ----------------------------------------------------------------------


def plain_spec(folder: Path) -> CommandSpec:
    return CommandSpec([b"x"], {}, os.fsencode(folder), False, None, b"o", b"e", 0.0, 0.2, 100, False)


def ended_well(key: int, folder: Path) -> Command:
    command = Command(key, plain_spec(folder), ONE_CORE, 1, time.monotonic())
    command.end = 0, resource.getrusage(resource.RUSAGE_CHILDREN)
    return command


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Executor]:
    """One that has two commands lined up."""
    ours, theirs = socket.socketpair()
    fd = Begun.new_file()
    executor = Executor(theirs, Homes(os.fsencode(tmp_path / "fresh")), DiskWatch(tmp_path), Begun(fd))
    for key in (2, 3):
        executor._lined[key] = (plain_spec(tmp_path), ONE_CORE)
    here = os.getcwd()
    yield executor
    os.chdir(here)
    for socket_ in (ours, theirs):
        socket_.close()
    os.close(fd)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_a_machine_short_of_something_gets_all_back(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    def refuse(_: Any) -> int:
        raise Refused("spawn", number, b"x")

    monkeypatch.setattr(executor._spawner, "spawn", refuse)
    executor._end(ended_well(1, tmp_path), is_alone=True)
    told = [(kind, key, next_key) for kind, key, _, next_key in executor._outgoing]
    assert told == [("ended", 1, 2), ("returned", 3, 0), ("refused", 2, 0)]


def test_a_full_disk_gets_all_back(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(executor._disk, "is_full", lambda: True)
    executor._end(ended_well(1, tmp_path), is_alone=True)
    told = [(kind, key, next_key) for kind, key, _, next_key in executor._outgoing]
    assert told == [("returned", 3, 0), ("returned", 2, 0), ("ended", 1, 0)]


def listened(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """All that it tells and begins, in order; every start but that of 4 is refused."""
    heard: list[tuple[str, int]] = []

    def send(frame: bytes) -> None:
        heard.extend((kind, key) for kind, key, *_ in take_messages(bytearray(frame)))

    def spawn(_: Any) -> int:
        key = executor._begun.last(NEXT)
        heard.append(("begins", key))
        if key == 4:
            return 1
        raise Refused("spawn", errno.ENOENT, b"x")

    executor._connection = type("", (), {"sendall": staticmethod(send)})()  # type: ignore[assignment]
    monkeypatch.setattr(executor._spawner, "spawn", spawn)
    return heard


def test_who_will_not_begin_is_told_before_a_later_one_begins(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else it would count as begun, if this process is killed then."""
    heard = listened(executor, monkeypatch)
    executor._lined[4] = (plain_spec(tmp_path), ONE_CORE)
    executor._obey("recall", 2)
    executor._end(ended_well(1, tmp_path), is_alone=True)
    assert heard == [("returned", 2), ("ended", 1), ("begins", 3), ("refused", 3), ("begins", 4)]


def test_a_start_that_was_refused_has_not_begun(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listened(executor, monkeypatch)
    executor._begun.note(RUN, 7)
    executor._obey("run", 8, plain_spec(tmp_path), (2, 0))
    assert [executor._begun.last(order) for order in (RUN, NEXT)] == [7, 0]


def test_ends_travel_together_only_while_nobody_waits_for_them(executor: Executor) -> None:
    sent: list[Any] = []
    executor._connection = type("", (), {"sendall": staticmethod(sent.append)})()  # type: ignore[assignment]
    executor._tell("ended", 1, (), 2)
    executor._send()
    assert not sent
    executor._tell("ended", 2, (), 0)
    executor._send()
    assert (len(sent), executor._outgoing) == (1, [])
    executor._tell("ended", 3, (), 4)
    executor._send_at = time.monotonic()
    executor._send()
    assert (len(sent), executor._outgoing) == (2, [])


def test_what_began_is_known_for_each_order(tmp_path: Path) -> None:
    fd = Begun.new_file()
    mine, theirs = Begun(fd), Begun(fd)
    os.close(fd)
    assert not mine.has(RUN, 1)
    theirs.note(RUN, 7)
    theirs.note(NEXT, 5)
    assert [mine.has(RUN, key) for key in (6, 7, 8)] == [True, True, False]
    assert [mine.has(NEXT, key) for key in (5, 6)] == [True, False]


# --- in a daemon ---------------------------------------------------------------------------------


@pytest.fixture
def lined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The attempts that were lined up."""
    lined: list[str] = []
    real = Workshop._line_up

    def line_up(self: Workshop, holding: Any, instruction: Any) -> None:
        lined.append(holding.attempt.id)
        real(self, holding, instruction)

    monkeypatch.setattr(Workshop, "_line_up", line_up)
    # Also where this machine is so busy that commands end slowly.
    monkeypatch.setattr(helper_module, "LINE_S", 1.0)
    monkeypatch.setattr(helper_module, "RATE_WINDOW_S", 1.0)
    return lined


def note(path: Path) -> list[str]:
    return [f'echo "$AWE_WORK_ID" >> {path}']


def with_lined(daemon: Daemon) -> list[Any]:
    """Its executors in which commands are lined up."""
    return [helper for helper in daemon._executors._helpers if helper._lined]


def noted(path: Path) -> Counter[str]:
    return Counter(path.read_text().split())


async def test_all_of_many_short_commands_run_once(
    server: FakeServer, start: MakeDaemon, lined: list[str], tmp_path: Path
) -> None:
    start(slots=2, executors=2)
    works = await server.add_task(script=note(tmp_path / "ran"), ranks=150)
    for work in works:
        assert (await server.result(work))["outcome"] == "done"
    assert noted(tmp_path / "ran") == Counter(works)
    assert lined


async def test_nobody_waits_behind_a_long_command_while_a_slot_is_free(
    server: FakeServer, start: MakeDaemon, lined: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workshop_module, "RECALL_S", 1000.0)  # not for its age
    start(slots=2, executors=1)
    script = f'case "$AWE_RANK" in 40) exec {LONG};; esac'
    works = await server.add_task(script=[script], ranks=80)
    long = works.pop(39)
    for work in works:
        assert (await server.result(work))["outcome"] == "done"
    assert long not in server.results
    assert lined


async def test_nobody_waits_long_behind_long_commands(
    server: FakeServer, start: MakeDaemon, lined: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = start(slots=2, executors=2)
    script = f'case "$AWE_RANK" in 4?) exec {LONG};; esac'
    await server.add_task(script=[script], ranks=120)
    await server.until(lambda: len(server.results) >= 30)  # who comes again may wait at the end of the line
    shop = daemon._workshop
    # Two long ones run, and all others, long ones at least, wait for their slots and behind nobody.
    await eventually(
        lambda: not shop._lined and 8 <= len(shop._line) == len(shop.held_keys()) - 2,
        show=lambda: (shop._lined, len(shop._line), len(shop.held_keys())),
    )


async def test_a_drain_gives_back_what_is_lined_up_and_kills_nothing(
    server: FakeServer, start: MakeDaemon, lined: list[str], tmp_path: Path
) -> None:
    daemon = start(slots=2, executors=2)
    works = await server.add_task(script=note(tmp_path / "ran"), ranks=150)
    await server.until(lambda: len(server.results) >= 20)
    await eventually(lambda: bool(daemon._workshop._lined))
    daemon.drain("test")
    await asyncio.wait_for(daemon.task, 30)  # type: ignore[attr-defined]
    outcomes = {work: server.results[work]["outcome"] for work in works if work in server.results}
    assert set(outcomes.values()) == {"done", "released"}
    assert noted(tmp_path / "ran") == Counter(work for work, what in outcomes.items() if what == "done")


async def test_a_release_ends_what_is_lined_up(
    server: FakeServer, start: MakeDaemon, lined: list[str]
) -> None:
    daemon = start(slots=2, executors=2)
    await server.add_task("true", ranks=150)
    await eventually(lambda: bool(daemon._workshop._lined))
    daemon.release("test")
    await asyncio.wait_for(daemon.task, 30)  # type: ignore[attr-defined]
    assert {report["outcome"] for report in server.results.values()} <= {"done", "released"}
    assert daemon._capacity.free_slots == 2


async def test_a_killed_executor_makes_nothing_run_twice_and_blames_nobody(
    server: FakeServer, start: MakeDaemon, lined: list[str], tmp_path: Path
) -> None:
    daemon = start(slots=2, executors=2)
    works = await server.add_task(script=note(tmp_path / "ran"), ranks=200)
    for _ in range(2):
        await eventually(lambda: bool(with_lined(daemon)))
        os.kill(with_lined(daemon)[0].pid, signal.SIGKILL)
        await eventually(lambda: len(daemon._executors._helpers) == 2)
    for work in works:
        report = await server.result(work)
        if report["outcome"] == "failed":
            assert (report["kind"], report["ran"], report["out_of_reach"]) == ("node", True, True)
    assert max(noted(tmp_path / "ran").values()) == 1
    assert daemon._capacity.free_slots == 2
