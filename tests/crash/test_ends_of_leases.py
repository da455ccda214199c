"""Reports that arrive at the very moment at which their lease ends: what was completed stays completed."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.crash.documents import plain
from tests.support.env import AweEnv
from tests.support.fake_client import FakeClient

RANKS, CLIENTS, AT_ONCE = 500, 6, 20
LEASE_S, AROUND_S = 1.0, 0.05


@pytest.fixture
def env(tmp_path: Path) -> Iterator[AweEnv]:
    """Leases are short, the sweep looks all the time, and a workunit may be lost as often as it happens."""
    server_env = {"AWE_TICK_S": "0.02", "AWE_MAX_LOST": "100000"}
    with AweEnv(tmp_path, flags=["--lease-s", str(LEASE_S)], server_env=server_env) as env:
        env.server.start()
        yield env


def work(url: str, number: int, results: list[tuple[str, str]], over: threading.Event) -> None:
    rng = random.Random(number)
    client = FakeClient(url, name=f"c{number}")
    client.register()
    while not over.is_set():
        began_s = time.monotonic()
        grants = client.fetch(AT_ONCE, wait_s=0)
        if not grants:
            time.sleep(0.05)
            continue
        due_s = began_s + LEASE_S + rng.uniform(-AROUND_S, AROUND_S)
        time.sleep(max(0.0, due_s - time.monotonic()))
        reply = client.exchange(reports=[client.done(grant) for grant in grants])
        results += [(row["work"], row["result"]) for row in reply["results"]]
        client.held.clear()  # whatever was not taken is somebody else's now
    client.close()


@pytest.mark.slow
def test_L_10_what_was_completed_stays_so_when_its_lease_ends_at_that_moment(env: AweEnv) -> None:
    job_id = env.submit(plain("wide", width=RANKS))
    results: list[tuple[str, str]] = []
    over = threading.Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(work, env.server.url, number, results, over) for number in range(CLIENTS)]
        try:
            job = env.wait_for(job_id, within_s=150)
        finally:
            over.set()
        for client in clients:
            client.result()
    assert job["tasks"][0]["remainwork"] == 0
    accepted = Counter(work for work, result in results if result == "accepted")
    assert (len(accepted), set(accepted.values())) == (RANKS, {1})
    assert {result for _, result in results} <= {"accepted", "lease_lost"}
    happened = env.events()
    assert any(event["code"] == "WR" for event in happened), "no lease ended: the test shows nothing"
    done: set[str] = set()
    for event in happened:
        work_id = event.get("workid", "")
        assert work_id not in done, event
        if event["code"] == "WD":
            done.add(work_id)
    assert len(done) == RANKS
    after = [event["code"] for event in happened if event.get("jobid") == job_id]
    assert after[-1] == "JD"
    assert after.count("JD") == after.count("TD") == 1
    counts = [client["total_completed"] for client in env.data("GET", "/client")]
    assert sum(counts) == RANKS
