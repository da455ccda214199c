"""However a process hides, and however its attempt or its client ends: it ends too (P-01)."""

import asyncio
import contextlib
import os
import secrets
import signal
from pathlib import Path

import pytest

from tests.support import tally
from tests.support.eventually import eventually
from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import Launch, MakeDaemon
from tests.unit.client.processes import appears, marked, no_more

pytestmark = pytest.mark.anyio

#: Each leaves a process with $MARK as its name behind, in another way. The last one shows nothing of whose
#: it is: not by its parent, session, environment, directory, or open files.
KINDS = {
    "plain": 'bash -c "exec -a $MARK sleep 1000" &',
    "nohup": 'nohup bash -c "exec -a $MARK sleep 1000" >/dev/null 2>&1 &',
    "setsid": 'setsid bash -c "exec -a $MARK sleep 1000" &',
    "double fork": '(setsid bash -c "exec -a $MARK sleep 1000" &)',
    "double fork, new directory": '(cd /; env -i setsid bash -c "exec -a $MARK sleep 1000" &)',
    "hidden": '(cd /; env -i setsid bash -c "exec -a $MARK sleep 1000" </dev/null >/dev/null 2>&1 &)',
}


def leaving(kind: str, go: Path) -> tuple[str, list[str]]:
    """A mark, and a script that leaves such a process and ends once there is a file."""
    mark = "mark" + secrets.token_hex(8)
    return mark, [KINDS[kind].replace("$MARK", mark), f"until [ -e {go} ]; do sleep 0.05; done"]


@pytest.mark.parametrize("end", ["cancel", "time limit", "end of command"])
@pytest.mark.parametrize("kind", KINDS)
async def test_P_01_no_process_survives_its_attempt(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, kind: str, end: str
) -> None:
    go = tmp_path / "go"
    mark, script = leaving(kind, go)
    start(slots=1, grace_s=0.2)
    limit_s = 1.0 if end == "time limit" else 0.0
    [work] = await server.add_task(cmd={"cmd_script": script}, time_limit_s=limit_s)
    await appears(mark)
    if end == "cancel":
        await server.discard(work)
    elif end == "end of command":
        go.touch()
    if end != "cancel":
        assert (await server.result(work)).get("kind") == ("timeout" if limit_s else None)
        # What shows whose it is was ended before the end was told.
        assert kind == "hidden" or marked(mark) == []
    await no_more(mark, 10.0)


@pytest.mark.parametrize("end", ["TERM", "kill -9", "kill -9 with its executors"])
async def test_P_01_no_process_survives_its_client(
    server: FakeServer, launch: Launch, tmp_path: Path, end: str
) -> None:
    """In the last case, the next start of the client."""
    marks = {}
    daemon = await launch("--slots", str(len(KINDS)), "--executors", "2")
    for kind in KINDS:
        marks[kind], script = leaving(kind, tmp_path / "never")
        await server.add_task(cmd={"cmd_script": script})
    pids = {kind: (await appears(mark))[0] for kind, mark in marks.items()}
    finds_all = (tmp_path / "work" / "control-group").exists()
    if end == "TERM":
        daemon.send_signal(signal.SIGTERM)
        await server.until(lambda: server.exchanges[-1]["draining"])
        daemon.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(daemon.wait(), 30) == 0
        assert [mark for mark in marks.values() if marked(mark)] == []
    elif end == "kill -9":
        daemon.kill()
        tally.count("kill client, while it runs commands")
        await daemon.wait()
        for mark in marks.values():
            await no_more(mark, 10.0)
    else:
        await kill_all(daemon, tmp_path)
        assert all(marked(mark) for mark in marks.values())
        await started_anew(server, launch)
        left = [kind for kind, mark in marks.items() if marked(mark)]
        assert left == ([] if finds_all else ["hidden"])
        end_and_reap(pids, marks)


async def test_P_01_without_a_control_group_the_next_start_ends_what_shows_whose_it_is(
    server: FakeServer, launch: Launch, tmp_path: Path
) -> None:
    """ARCHITECTURE.md names this limit: what hides from everything stays."""
    daemon = await launch("--slots", str(len(KINDS)))
    marks, pids = {}, {}
    for kind in KINDS:
        marks[kind], script = leaving(kind, tmp_path / "never")
        await server.add_task(cmd={"cmd_script": script})
        pids[kind] = (await appears(marks[kind]))[0]
    await kill_all(daemon, tmp_path)
    (tmp_path / "work" / "control-group").unlink(missing_ok=True)
    try:
        await started_anew(server, launch)
        assert [kind for kind, mark in marks.items() if marked(mark)] == ["hidden"]
    finally:
        end_and_reap(pids, marks)


async def test_P_01_who_hides_while_another_command_runs_ends_with_that_one(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    """ARCHITECTURE.md names this limit: nobody can say whose it is, so it is nobody's while there are two."""
    go, other = tmp_path / "go", tmp_path / "other"
    mark, script = leaving("hidden", go)
    start(slots=2)
    [running] = await server.add_task(cmd={"cmd_script": [f"until [ -e {other} ]; do sleep 0.05; done"]})
    [work] = await server.add_task(cmd={"cmd_script": script})
    await appears(mark)
    go.touch()
    assert (await server.result(work))["outcome"] == "done"
    assert len(marked(mark)) == 1
    other.touch()
    assert (await server.result(running))["outcome"] == "done"
    await no_more(mark, 10.0)


async def test_P_01_somebody_who_looks_at_the_directories_of_attempts_is_left_alone(
    server: FakeServer, launch: Launch, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    daemon = await launch()
    [_] = await server.add_task("sleep", "1000")
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    await eventually(lambda: any(path.is_dir() for path in work.glob("attempts/*")))
    await kill_all(daemon, tmp_path)
    folder = next(path for path in work.glob("attempts/*") if path.is_dir())
    person = await asyncio.create_subprocess_exec("tail", "-f", work / "lock", cwd=folder)
    try:
        await started_anew(server, launch)
        assert person.returncode is None
    finally:
        person.kill()
        await person.wait()


async def kill_all(daemon: asyncio.subprocess.Process, tmp_path: Path) -> None:
    """Daemon and executors in one moment, as the kernel does that is out of memory, or `pkill -9`."""
    executors = marked(str(tmp_path / "work" / "fresh"))
    assert executors
    os.kill(daemon.pid, signal.SIGSTOP)
    for executor in executors:
        os.kill(executor, signal.SIGKILL)
    daemon.kill()
    tally.count("kill client and executors, while they run commands")
    await daemon.wait()


async def started_anew(server: FakeServer, launch: Launch) -> None:
    """A daemon on the same work directory, which gets no work."""
    server.suspended = True
    await launch()
    await server.until(lambda: len(server.profiles) == 2)


def end_and_reap(pids: dict[str, int], marks: dict[str, str]) -> None:
    """They may have become children of ours, if there was a daemon in this process before."""
    for kind, pid in pids.items():
        if pid in marked(marks[kind]):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
