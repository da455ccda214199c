"""kill -9 at random moments: every acknowledged job and result stays, each rank is accepted once."""

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.crash.documents import Document, plain, split
from tests.crash.stores import on_both_stores
from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.fake_client import FakeClient

LINES = [b"line %d\n" % i for i in range(200)]
SUBMITS = 25  #: before each kill at most: all jobs fit on one page
KILL = "kill server, random moment"


def named(name: str) -> Document:
    """One task with an output, in which its client writes the name of the job."""
    document = plain(name)
    document["tasks"][0]["outputs"] = [{"filename": "out.txt"}]
    return document


class Worker:
    """A client that works all the time, in a thread; `settled` is what the server told it to have."""

    def __init__(self, url: str) -> None:
        self.settled: dict[str, str] = {}  #: workunit → name of its job
        self._client = FakeClient(url)
        self._over = threading.Event()

    def run(self) -> None:
        self._client.register()
        while not self._over.is_set():
            for grant in list(self._client.held.values()) or self._client.fetch(8, wait_s=0.2):
                name = grant.task["info"]["name"]
                reply = self._client.exchange(reports=[self._client.done(grant, name.encode())])
                for result in reply["results"]:
                    # "duplicate": it was stored, and its answer died with the server.
                    assert result["result"] in ("accepted", "duplicate")
                    assert result["work"] not in self.settled
                    self.settled[result["work"]] = name
        assert self._client.lost == 0
        self._client.close()

    def end(self) -> None:
        self._over.set()


@pytest.fixture
def worker(env: AweEnv) -> Iterator[Worker]:
    worker = Worker(env.server.url)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(worker.run)
        yield worker
        worker.end()
        working.result(120)


def whole_jobs(env: AweEnv) -> dict[str, Document]:
    """All jobs, each once and with its task."""
    listed = env.data("GET", "/job?limit=1000")
    jobs = {job["id"]: job for job in listed}
    assert len(jobs) == len(listed), "a job is there twice"
    assert len({job["jid"] for job in listed}) == len(listed), "a job number was used twice"
    assert all(len(job["tasks"]) == 1 for job in listed), "no job without its task"
    return jobs


@pytest.mark.slow
@pytest.mark.timeout(600)
@on_both_stores
def test_D_01_every_acknowledged_job_and_result_survives_and_none_is_half(
    env: AweEnv, worker: Worker
) -> None:
    """Jobs are submitted and worked on; kill at a random moment, start again, twenty times."""
    rng = random.Random(1)
    acknowledged: dict[str, str] = {}
    looked_at: set[str] = set()
    for cycle in range(20):
        killer = threading.Timer(rng.uniform(0.0, 0.3), env.server.kill, (KILL,))
        killer.start()
        with contextlib.suppress(httpx.TransportError):
            for number in range(SUBMITS):
                name = f"{cycle}.{number}"
                acknowledged[env.submit(named(name))] = name
        killer.join()
        settled = set(worker.settled)
        env.server.start()
        jobs = whole_jobs(env)
        assert {id: jobs[id]["info"]["name"] for id in acknowledged} == acknowledged
        for work in settled - looked_at:
            assert env.data("GET", f"/work/{work}")["state"] == "completed"
        looked_at |= settled
    eventually_sync(lambda: {job["state"] for job in whole_jobs(env).values()} == {"completed"}, every_s=0.2)
    for id, name in acknowledged.items():
        node = env.job(id)["tasks"][0]["outputs"][0]["node"]
        assert env.http.get(f"/node/{node}?download").text == name


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
            env.server.kill(KILL)
            env.server.start()

    accepted: dict[str, int] = {}
    deadline = time.monotonic() + 200
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_again_and_again)
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
        killing.result()
    job = env.wait_for(job_id)
    output = job["tasks"][0]["outputs"][0]
    assert env.http.get(f"/node/{output['node']}?download").content == content
    assert accepted == {f"{job_id}_0_{rank}": 1 for rank in range(1, 21)}
    assert client.lost == 0
    assert env.data("GET", f"/client/{client.id}")["total_completed"] == 20


@pytest.mark.slow
def test_D_05_no_job_stays_open_when_all_its_work_is_done(env: AweEnv, client: FakeClient) -> None:
    """Kill within 50 ms after the last report, again and again."""
    rng = random.Random(3)
    for _ in range(15):
        document = plain("two", tasks=2)
        document["tasks"][1]["outputs"] = [{"filename": "out.txt"}]
        job_id = env.submit(document)
        client.exchange(reports=[client.done(grant) for grant in client.fetch()])
        (grant,) = client.fetch()
        report = client.done(grant, b"x")
        killer = threading.Timer(rng.uniform(0.0, 0.05), env.server.kill, (KILL,))
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
        job = env.wait_for(job_id)
        assert job["tasks"][1]["outputs"][0]["size"] == 1
