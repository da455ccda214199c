"""Clocks that are wrong or step: nothing starts early or late, no lease is lost, no time is absurd."""

import time
from pathlib import Path
from typing import Any

import pytest

from shared_models.times import parse_rfc3339
from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.skew import Skew

LEASE_S = 8
TICKS_S = 4.0  #: in which the server looks several times for leases that ended, and its clients renew theirs
DAY_S = 86_400.0


def scripted(*lines: str, **keys: Any) -> dict[str, Any]:
    return {"taskid": "0", "cmd": {"cmd_script": list(lines)}, **keys}


def missed(env: AweEnv) -> list[dict[str, Any]]:
    """Who went offline, what was queued again."""
    return [event for event in env.events() if event["code"] in ("CU", "WR")]


@pytest.mark.parametrize("skew_s", [-600.0, 600.0, DAY_S])
def test_L_11_a_client_whose_clock_is_wrong_works_as_any_other(tmp_path: Path, skew_s: float) -> None:
    skew = Skew(tmp_path / "skew")
    skew.set(skew_s)
    with AweEnv.temporary(flags=["--lease-s", str(LEASE_S)], client_env=skew.env) as env:
        env.server.start()
        env.start_client(slots=1)
        began_s = time.time()
        reads = [{"filename": "a", "origin": "0"}]
        tasks = [
            scripted(f"sleep {LEASE_S + 1}", "echo 1 > a", outputs=[{"filename": "a"}]),
            scripted("cat a > b", taskid="1", inputs=reads, outputs=[{"filename": "b"}]),
        ]
        job_id = env.submit({"tasks": tasks})
        job = env.wait_for(job_id)
        ended_s = time.time()
        assert missed(env) == []
        for task, least_s in (("0", LEASE_S + 1), ("1", 0)):
            work = env.data("GET", f"/work/{job_id}_{task}_0")
            out, back = parse_rfc3339(work["checkout_time"]), parse_rfc3339(work["done_time"])
            assert began_s - 1 <= out <= back <= ended_s + 1
            assert least_s <= work["computetime"] <= back - out + 1
            assert work["attempt"] == 1
        [shown] = env.data("GET", "/client")
        assert began_s - 60 <= parse_rfc3339(shown["regtime"]) <= ended_s + 1
        assert job["tasks"][1]["outputs"][0]["size"] == 2


def test_L_11_steps_of_the_servers_clock_expire_nothing_and_freeze_nothing(
    mongo_url: str, tmp_path: Path
) -> None:
    """On MongoDB, whose clock is another one: the server keeps its own lease, too."""
    skew, log, go = Skew(tmp_path / "skew"), tmp_path / "starts", tmp_path / "go"
    log.touch()
    flags = ["--lease-s", str(LEASE_S)]
    with AweEnv.temporary(store=mongo_url, flags=flags, server_env=skew.env) as env:
        env.clock_steps = True
        env.server.start()
        client = env.start_client(slots=1)
        script = [f"echo $AWE_ATTEMPT >> {log}", f"until [ -e {go} ]; do sleep 0.05; done"]
        job_id = env.submit({"tasks": [scripted(*script)]})
        eventually_sync(lambda: log.read_text() == "1\n", show=client.output)
        for step_s in (-3_600.0, 3_600.0, DAY_S):
            skew.set(step_s)
            time.sleep(TICKS_S)
            assert missed(env) == []
            [shown] = env.data("GET", "/client")
            assert (shown["Status"], shown["idle_time"]) == ("active-busy", 0)
        # No retry is early or late: it waits for two seconds of real time.
        skew.set(3_600.0)
        go.touch()
        env.wait_for(job_id)
        began = tmp_path / "began"
        attempt = [f"cut -d' ' -f1 /proc/uptime >> {began}", "[ $AWE_ATTEMPT -gt 1 ]"]
        failing = env.submit({"tasks": [scripted(*attempt, retry_delay_s=2)]})
        eventually_sync(lambda: env.data("GET", f"/work/{failing}_0_0")["failed"] == 1)
        skew.set(-3_600.0)
        env.wait_for(failing)
        first_s, second_s = map(float, began.read_text().split())
        assert 2.0 <= second_s - first_s < 60.0
        # The sweep goes on: who is gone is missed.
        go.unlink()
        last = env.submit({"tasks": [scripted(*script)]})
        eventually_sync(lambda: env.data("GET", f"/work/{last}_0_0")["state"] == "checkout")
        client.kill()
        eventually_sync(lambda: env.data("GET", f"/work/{last}_0_0")["state"] == "queued")
        spans = env.data("GET", f"/job/{job_id}?perf")["work_stats"]
        assert all(span["resp"] >= 0 and 0 <= span["runtime"] < 600 for span in spans.values())


def test_L_11_a_restart_after_the_clock_went_back_delays_nothing(tmp_path: Path) -> None:
    """What was written with the time of another clock: retries, and the numbers of events."""
    skew = Skew(tmp_path / "skew")
    skew.set(3_600.0)
    with AweEnv.temporary(server_env=skew.env) as env:
        env.clock_steps = True
        env.server.start()
        env.start_client(slots=1)
        flaky = scripted("[ $AWE_ATTEMPT -gt 1 ]", retry_delay_s=5)
        job_id = env.submit({"tasks": [flaky]})
        eventually_sync(lambda: env.data("GET", f"/work/{job_id}_0_0")["failed"] == 1)
        last = env.events()[-1]["seq"]
        env.server.kill()
        skew.set(0.0)
        env.server.start()
        env.wait_for(job_id)
        codes = [event["code"] for event in env.data("GET", f"/events?since={last}&wait_s=5")]
        assert "JD" in codes
