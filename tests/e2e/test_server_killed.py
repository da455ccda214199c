"""kill -9 of the server in the middle of a split job: it completes, and each rank ran once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync

RANKS = 24


@pytest.mark.parametrize("kills", [1, 3])
def test_D_07_a_split_job_completes_with_each_rank_run_once(
    new_store: Callable[[], str], tmp_path: Path, kills: int
) -> None:
    log = tmp_path / "starts.log"
    log.touch()
    script = [f'echo "$AWE_RANK $AWE_ATTEMPT" >> {log}', "sleep 0.3", 'echo "rank $AWE_RANK" > out']
    task = {
        "taskid": "0",
        "totalwork": RANKS,
        "cmd": {"cmd_script": script},
        "outputs": [{"filename": "out"}],
    }
    with AweEnv.temporary(store=new_store()) as env:
        env.server.start()
        env.start_client(slots=2)
        env.start_client(slots=2)
        job_id = env.submit({"info": {"name": "survivor"}, "tasks": [task]})
        for kill in range(kills):
            wanted = (kill + 1) * RANKS // (kills + 1)
            eventually_sync(lambda n=wanted: len(log.read_text().splitlines()) >= n, within_s=60)  # type: ignore[misc]
            env.server.restart()
        job = env.wait_for(job_id, within_s=90)
        # The attempt may be the second: the reply that handed out the first can die with the server.
        ranks = [int(line.split()[0]) for line in log.read_text().splitlines()]
        assert sorted(ranks) == list(range(1, RANKS + 1))
        node = job["tasks"][0]["outputs"][0]["node"]
        merged = env.http.get(f"/node/{node}?download").text
        assert merged == "".join(f"rank {rank}\n" for rank in range(1, RANKS + 1))
        assert job["tasks"][0]["remainwork"] == 0
        assert job["remaintasks"] == 0
