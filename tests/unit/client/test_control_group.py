"""The control group of the executors: what it takes, what it leaves, and who is never ended with it."""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon import cgroup, executor, helper
from awe_client.daemon.cgroup import Added, ControlGroup
from awe_client.daemon.executor import ExecutorPool
from awe_client.daemon.identity import WorkRoot
from awe_client.daemon.outcome import CommandEnd, SpawnRefusal
from awe_client.daemon.proc import parents, state_of
from tests.support.eventually import eventually, eventually_sync
from tests.unit.client.processes import appears, marked, sleeping

pytestmark = pytest.mark.anyio


class Group(ControlGroup):
    """One that takes so many processes and then no more, as a kernel without memory; counts its ends."""

    def __init__(self, takes: int) -> None:
        self.takes, self.members, self.ends = takes, set[int](), 0
        self.add_s = 0.0
        self.has_seen_end = True

    def add(self, pid: int) -> Added:
        if not self.has_seen_end:
            self.has_seen_end = True
            return "ended"
        if len(self.members) == self.takes:
            return "refused"
        self.members.add(pid)
        time.sleep(self.add_s)
        return "in"

    def pids(self) -> set[int]:
        return set(self.members)

    def end(self) -> int:
        self.ends += 1
        for pid in self.members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(self.members)


@pytest.fixture
def root(tmp_path: Path) -> WorkRoot:
    root = WorkRoot(tmp_path / "work")
    root.open()
    return root


def taking(monkeypatch: pytest.MonkeyPatch, takes: int) -> Group:
    group = Group(takes)
    monkeypatch.setattr(ControlGroup, "make", lambda *_: group)
    return group


async def test_a_helper_that_the_group_does_not_take_costs_no_command_of_the_others(
    root: WorkRoot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    group = taking(monkeypatch, 2)
    pool = ExecutorPool(2, root)
    await pool.start()
    helpers = set(await appears(str(root.fresh), 2))
    ends: list[CommandEnd | SpawnRefusal] = []
    pool.run(sleeping(root, "w1"), ends.append)
    [command] = await appears("AWE_WORK_ID=w1")
    [idle] = helpers - {parents()[command]}
    os.kill(idle, signal.SIGKILL)
    await eventually(
        lambda: len(set(marked(str(root.fresh))) - {idle}) == 2 and "executor_not_in_group" in caplog.text
    )
    assert (ends, marked("AWE_WORK_ID=w1"), group.ends) == ([], [command], 0)
    await pool.stop()
    root.close()


async def test_a_group_that_takes_nobody_is_given_up(root: WorkRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    group = taking(monkeypatch, 0)
    pool = ExecutorPool(2, root)
    await pool.start()
    await appears(str(root.fresh), 2)
    assert group.ends == 1
    await pool.stop()
    assert group.ends == 1
    root.close()


async def test_a_group_that_has_only_missed_one_that_ended_is_given_up(
    root: WorkRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = taking(monkeypatch, 0)
    group.has_seen_end = False
    pool = ExecutorPool(2, root)
    await pool.start()
    assert group.ends == 1
    await pool.stop()
    root.close()


def test_one_that_has_ended_is_not_said_to_be_in_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise ProcessLookupError(errno.ESRCH, "No such process")

    monkeypatch.setattr(cgroup, "_write", gone)
    assert ControlGroup(tmp_path, tmp_path / "note").add(1) == "ended"


def test_one_that_has_ended_and_is_not_reaped_is_not_said_to_be_in_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes it, without effect."""
    path = a_group(tmp_path, "some")
    with subprocess.Popen(["true"]) as zombie:
        eventually_sync(lambda: state_of(zombie.pid) == "Z")
        monkeypatch.setattr(cgroup, "_write", lambda *_: None)
        assert ControlGroup(path, tmp_path / "note").add(zombie.pid) == "ended"


async def test_an_executor_that_cannot_be_asked_into_the_group_is_ended(
    root: WorkRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one more would stay each second that this goes on."""
    group = taking(monkeypatch, 1000)
    pool = ExecutorPool(1, root)
    await pool.start()
    [lost], begun, start = await appears(str(root.fresh)), list[int](), helper.Helper.start

    def started(*args: Any) -> Any:
        helper = start(*args)
        begun.append(helper.pid)
        return helper

    def fails(_: int) -> Added:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(executor, "LOOK_S", 0.05)
    monkeypatch.setattr(helper.Helper, "start", started)
    with monkeypatch.context() as patched:
        patched.setattr(group, "add", fails)
        os.kill(lost, signal.SIGKILL)
        await eventually(lambda: len(begun) >= 3)
    await eventually(lambda: len(pool._helpers) == 1)
    assert pool._pids == {begun[-1]}
    assert [state_of(pid) for pid in begun[:-1]] == [""] * (len(begun) - 1)
    await pool.stop()
    root.close()


async def test_a_group_whose_note_lies_on_a_disk_that_hangs_does_not_hold_up_the_end(
    root: WorkRoot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    group, free = taking(monkeypatch, 1000), threading.Event()
    monkeypatch.setattr(group, "end", free.wait)
    monkeypatch.setattr(executor, "GROUP_END_S", 0.1)
    pool = ExecutorPool(1, root)
    await pool.start()
    try:
        await asyncio.wait_for(pool.stop(), 20)
    finally:
        free.set()
    assert "control_group_not_ended" in caplog.text
    root.close()


async def test_executors_that_die_at_once_are_replaced_once(
    root: WorkRoot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of one, heard while another is put into the group, must not take that one for a command."""
    group = taking(monkeypatch, 1000)
    pool = ExecutorPool(2, root)
    await pool.start()
    first, second = await appears(str(root.fresh), 2)
    group.add_s = 0.3
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: len(group.members) == 3)
    os.kill(second, signal.SIGKILL)
    await eventually(lambda: len(group.members) == 4)
    ends: list[CommandEnd | SpawnRefusal] = []
    await eventually(lambda: len(pool._helpers) == 2, within_s=20)
    for name in ("w1", "w2"):
        pool.run(sleeping(root, name), ends.append)
        await appears(f"AWE_WORK_ID={name}")
    assert set(marked(str(root.fresh))) == group.members - {first, second}
    assert ([r.message for r in caplog.records].count("executor_lost"), ends) == (2, [])
    await pool.stop()
    assert pool._pids == set()
    root.close()


def a_group(tmp_path: Path, name: str, *pids: int) -> Path:
    """A directory that looks like a group with these processes."""
    path = tmp_path / f"awe-client-{name}"
    path.mkdir(exist_ok=True)
    (path / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    (path / "cgroup.kill").write_text("")
    return path


def test_who_runs_in_the_group_of_the_daemon_before_ends_the_others_and_not_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a daemon that is started again by a command of its own."""
    monkeypatch.setattr(cgroup, "_GONE_S", 0.1)
    other = subprocess.Popen(["sleep", "1000"])
    path = a_group(tmp_path, "old", os.getpid(), other.pid)
    note = tmp_path / "control-group"
    note.write_bytes(os.fsencode(path) + b"\n")
    [group] = ControlGroup.left(note)
    assert group.end() == 1
    assert other.wait(20) == -signal.SIGKILL
    assert (path / "cgroup.kill").read_text() == ""


def test_a_group_that_stays_is_still_known_beside_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "control-group"
    monkeypatch.setattr(cgroup, "_own_group", lambda: tmp_path)
    first = a_group(tmp_path, "first")
    note.write_bytes(os.fsencode(first))  # as older versions wrote it
    assert ControlGroup.make("second", note) is not None
    second = a_group(tmp_path, "second")
    groups = ControlGroup.left(note)
    assert len(groups) == 2
    for path in (first, second):
        for file in path.iterdir():
            file.unlink()
    assert groups[0].end() == 0
    assert not first.exists()
    assert note.read_bytes().split() == [os.fsencode(second)]
    groups[1].end()
    assert not note.exists()
