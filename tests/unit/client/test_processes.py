"""Nothing of a command survives it, its client, or the client's end (P-01)."""

import asyncio
import os
import secrets
import signal

import pytest

from awe_client.daemon.proc import descendants
from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import MakeDaemon
from tests.unit.client.processes import appears, marked, no_more, zombies_below

pytestmark = pytest.mark.anyio

#: Each starts a process with $MARK in its command line that outlives its parent in another way.
STUBBORN = {
    "background": "(trap '' TERM; sleep 1000 $MARK || exec -a $MARK sleep 1000) & wait",
    "ignores_term": "trap '' TERM; bash -c \"trap '' TERM; exec -a $MARK sleep 1000\" & wait; sleep 1000",
    "nohup": 'nohup bash -c "exec -a $MARK sleep 1000" >/dev/null 2>&1 & wait',
    "setsid": 'setsid bash -c "exec -a $MARK sleep 1000" & wait; sleep 1000',
    "double_fork": '(setsid bash -c "exec -a $MARK sleep 1000" &) ; sleep 1000',
    "python_child": "trap '' TERM; python3 -c \"import subprocess, time; "
    "subprocess.Popen(['bash', '-c', 'exec -a $MARK sleep 1000']); time.sleep(1000)\" & wait; sleep 1000",
    "stopped": "exec -a $MARK bash -c 'kill -STOP $$; sleep 1000'",
}


def script_of(kind: str, mark: str) -> list[str]:
    return [STUBBORN[kind].replace("$MARK", mark)]


@pytest.mark.parametrize("kind", sorted(STUBBORN))
async def test_P_01_a_discarded_attempt_leaves_no_process(
    server: FakeServer, start: MakeDaemon, kind: str
) -> None:
    zombies = zombies_below(os.getpid())  # of daemons that other tests killed
    mark = "mark" + secrets.token_hex(8)
    start(slots=1, grace_s=0.3)
    [work] = await server.add_task("bash", cmd={"args_array": ["-c", *script_of(kind, mark)]})
    await appears(mark)
    await server.discard(work)
    await no_more(mark, 5.0)
    assert work not in server.results
    # The slot is usable again.
    [work] = await server.add_task("true")
    assert (await server.result(work))["outcome"] == "done"
    assert zombies_below(os.getpid()) == zombies


@pytest.mark.parametrize("kind", sorted(STUBBORN))
async def test_P_01_a_timed_out_attempt_leaves_no_process(
    server: FakeServer, start: MakeDaemon, kind: str
) -> None:
    zombies = zombies_below(os.getpid())  # of daemons that other tests killed
    mark = "mark" + secrets.token_hex(8)
    start(slots=1, grace_s=0.2)
    [work] = await server.add_task(
        "bash", cmd={"args_array": ["-c", *script_of(kind, mark)]}, time_limit_s=0.5
    )
    assert (await server.result(work))["kind"] == "timeout"
    assert marked(mark) == []
    [work] = await server.add_task("true")
    assert (await server.result(work))["outcome"] == "done"
    assert zombies_below(os.getpid()) == zombies


@pytest.mark.parametrize("prefix", ["", "setsid ", "env -i setsid "])
async def test_P_01_what_a_command_leaves_behind_is_killed_before_its_end_is_told(
    server: FakeServer, start: MakeDaemon, prefix: str
) -> None:
    mark = "mark" + secrets.token_hex(8)
    start(slots=1)
    late = f"{prefix}bash -c 'exec -a {mark} sleep 1000' &"
    [work] = await server.add_task("bash", cmd={"args_array": ["-c", f"({late}); sleep 0.2; exit 0"]})
    report = await server.result(work)
    assert report["outcome"] == "done"
    assert report["perf"]["strays_killed"] >= 1 if prefix else True
    assert marked(mark) == []


async def test_P_01_who_hides_behind_another_that_hides_is_found_too(
    server: FakeServer, start: MakeDaemon
) -> None:
    """Sessions of their own, nothing of ours in their environment, elsewhere: each becomes the executor's
    child only when the one before it was killed, and no command ends after that."""
    zombies = zombies_below(os.getpid())  # of daemons that other tests killed
    mark = "mark" + secrets.token_hex(8)
    start(slots=1)
    hidden = f"env -i setsid bash -c 'cd /; bash -c \"exec -a {mark} sleep 1000\" & wait'"
    script = f"({hidden} </dev/null >/dev/null 2>&1 &); sleep 0.5; exit 0"
    [work] = await server.add_task("bash", cmd={"args_array": ["-c", script]})
    assert (await server.result(work))["outcome"] == "done"
    await no_more(mark, 5.0)
    assert zombies_below(os.getpid()) == zombies


async def test_an_output_written_after_the_exit_by_a_background_child_is_missing(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    out = server.output("late.txt")
    [work] = await server.add_task(script=["(sleep 0.3; echo late > late.txt) & exit 0"], outputs=[out])
    report = await server.result(work)
    assert report["kind"] == "output"
    assert "declared output late.txt missing" in report["message"]


async def test_P_01_releasing_ends_all_commands_and_gives_them_back(
    server: FakeServer, start: MakeDaemon
) -> None:
    mark = "mark" + secrets.token_hex(8)
    daemon = start(slots=2, grace_s=0.2)
    works = await server.add_task("bash", cmd={"args_array": ["-c", f"exec -a {mark} sleep 1000"]}, ranks=2)
    await appears(mark, 2)
    daemon.interrupt("first")
    daemon.interrupt("second")
    assert await asyncio.wait_for(daemon.task, 10) == 0  # type: ignore[attr-defined]
    assert {server.results[work]["outcome"] for work in works} == {"released"}
    assert marked(mark) == []


async def test_an_executor_that_is_killed_takes_its_commands_along_and_is_replaced(
    server: FakeServer, start: MakeDaemon
) -> None:
    mark = "mark" + secrets.token_hex(8)
    start(slots=1)
    [work] = await server.add_task("bash", cmd={"args_array": ["-c", f"exec -a {mark} sleep 1000"]})
    [pid] = await appears(mark)
    executor = next(p for p in descendants(os.getpid()) if pid in descendants(p))
    os.kill(executor, signal.SIGKILL)
    report = await server.result(work)
    assert (report["kind"], report["ran"], report["out_of_reach"]) == ("node", True, True)
    assert report["message"].startswith("the process that ran the command here was killed")
    await no_more(mark, 5.0)
    [work] = await server.add_task("true")
    assert (await server.result(work))["outcome"] == "done"
