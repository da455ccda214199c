"""The server goes and comes back while a command runs: the command runs once, and its result is taken."""

import time
from pathlib import Path

import pytest

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync


@pytest.mark.parametrize(
    ("how", "lease_s", "down_s"),
    [("kill", 60, 1), ("stop", 60, 1), ("kill", 10, 11)],
    ids=["killed", "stopped", "killed, and away for longer than the lease"],
)
def test_D_07_work_that_runs_over_a_restart_runs_once(
    tmp_path: Path, how: str, lease_s: int, down_s: int
) -> None:
    """Every lease has its full length again after a start, so also a long outage costs no attempt."""
    log, go = tmp_path / "starts", tmp_path / "go"
    log.touch()
    script = [
        f'echo "$AWE_ATTEMPT $$" >> {log}',
        f"until [ -e {go} ]; do sleep 0.05; done",
        'echo "$AWE_ATTEMPT" > out',
    ]
    task = {"taskid": "0", "cmd": {"cmd_script": script}, "outputs": [{"filename": "out"}]}
    with AweEnv.temporary(flags=["--lease-s", str(lease_s)]) as env:
        env.server.start()
        client = env.start_client("--name", "holder", slots=1)
        job_id = env.submit({"tasks": [task]})
        eventually_sync(lambda: log.read_text().count("\n") == 1, show=client.output)
        [attempt, pid] = log.read_text().split()
        getattr(env.server, how)()
        time.sleep(down_s)
        env.server.start()
        env.start_client("--name", "idle", slots=1)  # who would take it
        time.sleep(1 if lease_s > down_s else lease_s + 1)
        assert Path(f"/proc/{pid}").exists(), client.output()
        go.touch()
        job = env.wait_for(job_id)
        assert log.read_text() == f"1 {pid}\n"
        assert attempt == "1"
        node = job["tasks"][0]["outputs"][0]["node"]
        assert env.http.get(f"/node/{node}?download").text == "1\n"
        work = env.data("GET", f"/work/{job_id}_0_0")
        assert (work["attempt"], work["failed"], work["lost"]) == (1, 0, 0)
