"""Commands that end who runs them: their jobs are suspended with the reason, and other work goes on."""

from pathlib import Path
from typing import Any

import pytest

from tests.crash.documents import plain
from tests.support.env import AweEnv, Process
from tests.support.eventually import eventually_sync

MAX_LOST = 3
#: A command is the child of an executor, that of the daemon.
KILL_DAEMON, KILL_EXECUTOR = "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat)", "kill -9 $PPID"


def poison(log: Path, kill: str) -> dict[str, Any]:
    """A job whose command says that it has begun, kills, and would be well."""
    script = f"echo $AWE_ATTEMPT >> {log}; {kill}; sleep 100"
    return {"tasks": [{"taskid": "0", "cmd": {"name": "bash", "args_array": ["-c", script]}}]}


def starts(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "starts"


def test_L_02_what_kills_its_client_is_suspended_though_that_comes_back_each_time(log: Path) -> None:
    with AweEnv.temporary(flags=["--lease-s", "60"], server_env={"AWE_MAX_LOST": str(MAX_LOST)}) as env:
        env.server.start()
        job_id = env.submit(poison(log, KILL_DAEMON))

        def supervised() -> Process:
            """What starts it again is bounded, too, should nothing else be."""
            client = env.start_client("--work", str(env.home / "work"), slots=1)
            eventually_sync(
                lambda: client.returncode is not None or env.job(job_id)["state"] == "suspend",
                every_s=0.2,
                show=client.output,
            )
            return client

        client = supervised()
        for _ in range(2 * MAX_LOST):
            if client.returncode is None:
                break
            assert client.wait() == -9
            client = supervised()
        job = env.wait_for(job_id, "suspend")
        work = env.data("GET", f"/work/{job_id}_0_0")
        assert (work["lost"], work["failed"], work["exit"]["kind"]) == (MAX_LOST, 0, "lost")
        assert f"was lost with its client {MAX_LOST} time(s)" in job["notes"]
        assert starts(log) == ["1", "2", "3"]
        env.wait_for(env.submit(plain("afterwards")))


def test_what_kills_the_executor_is_suspended_and_its_client_works_on(log: Path) -> None:
    with AweEnv.temporary(flags=["--lease-s", "60"], server_env={"AWE_MAX_LOST": str(MAX_LOST)}) as env:
        env.server.start()
        client = env.start_client("--executors", "1", slots=2)
        job_id = env.submit(poison(log, KILL_EXECUTOR))
        job = env.wait_for(job_id, "suspend")
        work = env.data("GET", f"/work/{job_id}_0_0")
        assert (work["lost"], work["failed"], work["exit"]["kind"]) == (MAX_LOST, 0, "node")
        assert f"given up after {MAX_LOST} attempts that ended with their client" in job["notes"]
        assert "the process that ran the command here was killed" in job["notes"]
        assert starts(log) == ["1", "2", "3"], client.output()
        [shown] = env.data("GET", "/client")
        assert (shown["Status"], shown["consecutive_failures"]) == ("active-idle", 0)
        env.wait_for(env.submit(plain("afterwards")))
