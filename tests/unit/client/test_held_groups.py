"""A command's end is told, whatever a process that hides keeps of it."""

import secrets
from pathlib import Path

import pytest

from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import MakeDaemon
from tests.unit.client.processes import appears, marked

pytestmark = pytest.mark.anyio

#: Leaves a process of its own session that shows nothing of whose it is, with a child in the command's group
#: that it does not reap.
HOLDER = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(1000)
    os.setsid()
    os.chdir("/")
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.execve("/bin/bash", ["bash", "-c", "exec -a MARK sleep 1000"], {})
while not os.path.exists("GO"):
    time.sleep(0.02)
"""


@pytest.mark.parametrize("end", ["by itself", "time limit", "cancel"])
async def test_a_zombie_in_a_commands_group_does_not_hold_up_its_end(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, end: str
) -> None:
    """While another command runs beside it: else who hides is ended in any case."""
    mark, go = "mark" + secrets.token_hex(8), tmp_path / "go"
    start(slots=2, grace_s=0.1)
    await server.add_task("sleep", "1000")
    script = HOLDER.replace("MARK", mark).replace("GO", str(go))
    limit_s = 1.0 if end == "time limit" else 0.0
    [work] = await server.add_task("python3", cmd={"args_array": ["-c", script]}, time_limit_s=limit_s)
    await appears(mark)
    if end == "cancel":
        await server.discard(work)
    else:
        if end == "by itself":
            go.touch()
        report = await server.result(work)
        assert report.get("kind") == ("timeout" if limit_s else None)
        assert marked(mark) == [], "the parent of a process of the command is of the command"
    [work] = await server.add_task("true")
    assert (await server.result(work))["outcome"] == "done"
    assert marked(mark) == []
