"""kill -9 at random moments: every acknowledged job and result stays, each rank is accepted once."""

import random
import threading
import time

import httpx
import pytest

from tests.crash.documents import plain, split
from tests.support.env import AweEnv
from tests.support.fake_client import FakeClient

LINES = [b"line %d\n" % i for i in range(200)]


@pytest.mark.slow
def test_every_acknowledged_job_survives_and_none_is_half(env: AweEnv) -> None:
    """D-01: submit in a loop, kill at a random moment, start again, twenty times."""
    rng = random.Random(1)
    acknowledged: list[str] = []
    for cycle in range(20):
        killer = threading.Timer(rng.uniform(0.0, 0.15), env.server.running.kill)
        killer.start()
        try:
            for _ in range(50):
                acknowledged.append(env.submit(plain(f"cycle {cycle}", tasks=2)))
        except httpx.TransportError:
            pass
        killer.join()
        env.server.start()
        listed = {job["id"]: job for job in env.data("GET", "/job?limit=1000")}
        assert set(acknowledged) <= set(listed)
        assert all(len(job["tasks"]) == 2 for job in listed.values())
        assert len({job["jid"] for job in listed.values()}) == len(listed), "a job number was used twice"
    client = FakeClient(env.server.url)
    client.register()
    client.work_off(want=64)
    states = {job["state"] for job in env.data("GET", "/job?limit=1000")}
    assert states == {"completed"}
    client.close()


@pytest.mark.slow
def test_a_split_job_completes_with_each_rank_accepted_once(env: AweEnv, client: FakeClient) -> None:
    """The server is killed again and again while a split job runs; its client just repeats itself."""
    content = b"".join(LINES)
    node = env.data("POST", "/node", content=content)["id"]
    job_id = env.submit(split(node, parts=20))
    rng = random.Random(2)
    stop = threading.Event()

    def kill_again_and_again() -> None:
        while not stop.wait(rng.uniform(0.05, 0.3)):
            env.server.restart()

    killer = threading.Thread(target=kill_again_and_again)
    killer.start()
    accepted: dict[str, int] = {}
    deadline = time.monotonic() + 200
    try:
        while len(accepted) < 20 and time.monotonic() < deadline:
            for grant in client.fetch(3, wait_s=0.2):
                [(offset, length)] = grant.pieces
                part = content[offset : offset + length]
                reply = client.exchange(reports=[client.done(grant, part)])
                for result in reply["results"]:
                    assert result["result"] in ("accepted", "duplicate")
                    accepted[result["work"]] = accepted.get(result["work"], 0) + 1
    finally:
        stop.set()
        killer.join()
    job = env.wait_for(job_id)
    output = job["tasks"][0]["outputs"][0]
    assert env.http.get(f"/node/{output['node']}?download").content == content
    assert accepted == {f"{job_id}_0_{rank}": 1 for rank in range(1, 21)}
    assert client.lost == 0
    assert env.data("GET", f"/client/{client.id}")["total_completed"] == 20


@pytest.mark.slow
def test_D_05_no_job_stays_open_when_all_its_work_is_done(env: AweEnv, client: FakeClient) -> None:
    """D-05: kill within 50 ms after the last report, again and again."""
    rng = random.Random(3)
    for _ in range(15):
        document = plain("two", tasks=2)
        document["tasks"][1]["outputs"] = [{"filename": "out.txt"}]
        job_id = env.submit(document)
        client.exchange(reports=[client.done(grant) for grant in client.fetch()])
        (grant,) = client.fetch()
        report = client.done(grant, b"x")
        killer = threading.Timer(rng.uniform(0.0, 0.05), env.server.running.kill)
        killer.start()
        patience_s, client.patience_s = client.patience_s, 0.0
        try:
            client.exchange(reports=[report])
            answered = True
        except (httpx.TransportError, AssertionError):
            answered = False
        client.patience_s = patience_s
        killer.join()
        env.server.start()
        if not answered:
            client.request_id -= 1
            client.held = {grant.work: grant}
            client.exchange(reports=[report])
        job = env.wait_for(job_id, within_s=30)
        assert job["tasks"][1]["outputs"][0]["size"] == 1
