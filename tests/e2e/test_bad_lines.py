"""Slow, silent and lossy lines between client, server and data: no lease is lost, nothing starts twice."""

import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.fault_proxy import FaultProxy
from tests.support.http_files import HttpFiles
from tests.support.served import Seen

#: A client may stand still for a while, as on a machine that is busy with other things.
LEASE_S = 8


def nobody_was_missed(env: AweEnv, job_id: str) -> None:
    """No client went offline, no workunit was queued again."""
    assert not [event for event in env.events() if event["code"] in ("CU", "WR")]
    units = env.data("GET", "/work", params={"query": "", "jobid": job_id})
    assert {(unit["attempt"], unit["lost"], unit["failed"]) for unit in units} == {(1, 0, 0)}


def one(**task: Any) -> dict[str, Any]:
    return {"tasks": [{"taskid": "0", "cmd": {"name": "true"}, **task}]}


@pytest.fixture
def flags() -> list[str]:
    return ["--lease-s", str(LEASE_S)]


@pytest.mark.slow
def test_L_05_a_slow_input_costs_no_lease(flags: list[str], tmp_path: Path) -> None:
    with AweEnv.temporary(flags=flags) as env, HttpFiles(tmp_path / "www") as files:
        env.server.start()
        url = files.put("in.bin", bytes(8_000_000))
        files.block_delay_s = 0.15  # 18 seconds for all of it
        env.start_client(slots=1)
        began_s = time.monotonic()
        job_id = env.submit(one(inputs=[{"filename": "in.bin", "url": url}]))
        env.wait_for(job_id)
        assert time.monotonic() - began_s > 2 * LEASE_S
        nobody_was_missed(env, job_id)


@pytest.mark.slow
def test_L_05_an_upload_that_stalls_costs_no_lease(flags: list[str]) -> None:
    with AweEnv.temporary(flags=flags) as env:
        env.server.start()
        with FaultProxy(env.server.url) as proxy:
            proxy.faults.stall(method="PUT", where="/node/")
            client = env.start_client(slots=1, server=proxy.url)
            script = ["head -c 3000000 /dev/zero > out.bin"]
            job_id = env.submit(one(cmd={"cmd_script": script}, outputs=[{"filename": "out.bin"}]))
            eventually_sync(lambda: proxy.faults.stalled == 1, show=client.output)
            time.sleep(2 * LEASE_S + 1)
            assert env.data("GET", f"/work/{job_id}_0_0")["state"] == "checkout"
            proxy.faults.release()
            job = env.wait_for(job_id)
        assert job["tasks"][0]["outputs"][0]["size"] == 3_000_000
        nobody_was_missed(env, job_id)


@pytest.mark.slow
def test_L_05_more_busy_commands_than_cores_cost_no_lease() -> None:
    lease_s = 15
    with AweEnv.temporary(flags=["--lease-s", str(lease_s)]) as env:
        env.server.start()
        env.start_client(slots=4)
        script = [f"timeout {2 * lease_s + 1} sh -c 'while :; do :; done'", "test $? = 124"]
        job_id = env.submit(one(cmd={"cmd_script": script}, totalwork=4))
        env.wait_for(job_id)
        nobody_was_missed(env, job_id)


@pytest.mark.slow
def test_L_05_a_data_server_that_never_answers_is_the_inputs_failure_and_costs_no_lease(
    flags: list[str],
) -> None:
    with AweEnv.temporary(flags=flags) as env, socket.create_server(("127.0.0.1", 0)) as silent:
        env.server.start()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/in.bin"
        client = env.start_client("--transfer-timeout", "1", slots=1)
        job_id = env.submit(one(inputs=[{"filename": "in.bin", "url": url}], max_failures=1))
        job = env.wait_for(job_id, "suspend")
        assert f"cannot fetch {url}" in job["notes"]
        work = env.data("GET", f"/work/{job_id}_0_0")
        assert (work["exit"]["kind"], work["failed"], work["lost"]) == ("input", 1, 0)
        [shown] = env.data("GET", "/client")
        assert (shown["Status"], shown["suspended"]) == ("active-idle", False), client.output()
        assert not [event for event in env.events() if event["code"] == "CU"]


@pytest.mark.slow
def test_L_07_every_third_grant_is_lost_on_its_way_and_none_is_started_twice_or_forgotten(
    tmp_path: Path,
) -> None:
    lease_s, count = 60, 0  # nobody waits for it: that is shown
    starts = tmp_path / "starts"
    starts.mkdir()

    def lose(seen: Seen, reply: httpx.Response) -> bool:
        nonlocal count
        if not seen.path.endswith("/exchange") or not reply.is_success or not reply.json()["data"]["work"]:
            return False
        count += 1
        return count % 3 == 0

    script = [f"echo x >> {starts}/$AWE_WORK_ID.$AWE_ATTEMPT"]
    with AweEnv.temporary(flags=["--lease-s", str(lease_s)]) as env:
        env.server.start()
        with FaultProxy(env.server.url) as proxy:
            proxy.drops = lose
            env.start_client(slots=1, server=proxy.url)
            # One after the other: each takes at least one reply with work.
            jobs = []
            for _ in range(10):
                jobs.append(env.submit(one(cmd={"cmd_script": script}, totalwork=3)))
                env.wait_for(jobs[-1])
            assert proxy.dropped == count // 3 >= 3
        assert {path.read_text() for path in starts.iterdir()} == {"x\n"}
        ranks = {path.name.rpartition(".")[0] for path in starts.iterdir()}
        assert ranks == {f"{job_id}_0_{rank}" for job_id in jobs for rank in (1, 2, 3)}
        for job_id in jobs:
            spans = env.data("GET", f"/job/{job_id}?perf")["work_stats"]
            assert len(spans) == 3
            assert max(span["resp"] for span in spans.values()) < lease_s
        assert {env.data("GET", f"/work/{rank}")["lost"] for rank in ranks} == {0}
        [client] = env.data("GET", "/client")
        assert client["total_completed"] == 30
