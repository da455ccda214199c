"""SIGSTOP: a server, a client or a database that stands still for a while and then goes on as if nothing was.

What a real client does that was thought dead is in e2e/test_lost_clients.py, what becomes of running work
while the database is away in e2e/test_database_away.py, of a standby in test_standby.py.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.crash.documents import plain
from tests.support import tally
from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.fake_client import FakeClient, Grant
from tests.support.mongo import MongoServer
from tests.support.warm_server import WarmServers

LEASE_S = 6
CLIENTS = 4


class Load:
    """Clients that hold one attempt each to the end, and work on others all the time; and who submits.

    What got 503 in a stall is sent again, and may have been taken the first time.
    """

    def __init__(self, env: AweEnv) -> None:
        self.env = env
        self.jobs: list[str] = []
        self.kept: dict[str, Grant] = {}  #: by client
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(CLIENTS + 1)
        self._running = [self._pool.submit(self._work, f"c{number}") for number in range(CLIENTS)]
        self._running.append(self._pool.submit(self._submit))

    def _work(self, name: str) -> None:
        client = FakeClient(self.env.server.url, name=name)
        client.register()
        while not self._over.is_set():
            client.exchange(want=3, wait_s=0.2)
            if name not in self.kept and client.held:
                self.kept[name] = next(iter(client.held.values()))
            self._report(client, but=self.kept.get(name))
        assert name in self.kept
        assert self.kept[name].work in client.held, "it has lost its lease"
        self._report(client)
        assert client.lost == 0
        client.close()

    def _report(self, client: FakeClient, but: Grant | None = None) -> None:
        done = [client.done(grant) for grant in client.held.values() if grant is not but]
        for result in client.exchange(reports=done)["results"]:
            assert result["result"] in ("accepted", "duplicate")

    def _submit(self) -> None:
        with httpx.Client(base_url=self.env.server.url, timeout=60, trust_env=False) as http:
            while not self._over.wait(0.05):
                reply = http.post("/job", json=plain("under load", tasks=2, width=2))
                if reply.status_code != 503:
                    self.jobs.append(reply.raise_for_status().json()["data"]["id"])

    def settle(self) -> None:
        """Wait until each has something to hold and there is some work."""
        eventually_sync(lambda: len(self.kept) == CLIENTS and len(self.jobs) > 5, show=lambda: self.kept)

    def end(self) -> None:
        """Let each of them finish; raises what one of them has met."""
        self._over.set()
        try:
            for one in self._running:
                one.result(120)
        finally:
            self._pool.shutdown()


def assert_all_is_there(env: AweEnv, load: Load) -> None:
    """Every acknowledged job ends, each of its workunits at its first attempt."""
    last = FakeClient(env.server.url, name="last")
    last.register()
    last.work_off()
    last.close()
    for job_id in load.jobs:
        assert env.wait_for(job_id)["remaintasks"] == 0
        units = env.data("GET", f"/work?query=&jobid={job_id}&limit=1000")
        assert [unit["attempt"] for unit in units] == [1] * 4
    assert not [event for event in env.events() if event["code"] in ("CU", "WR")]


@pytest.mark.slow
@pytest.mark.parametrize("stall_s", [LEASE_S / 4, LEASE_S * 1.5])
def test_nobody_loses_a_lease_by_the_servers_own_sleep(env: AweEnv, stall_s: float) -> None:
    env.server.stop()
    env.server.flags = ["--lease-s", str(LEASE_S)]
    env.server.start()
    load = Load(env)
    load.settle()
    for _ in range(2):
        env.server.running.pause()
        time.sleep(stall_s)
        env.server.running.resume()
        eventually_sync(lambda: env.http.get("/health").is_success)
    load.end()
    assert_all_is_there(env, load)


def test_what_a_client_brings_after_its_lease_is_refused_once_another_has_the_work(env: AweEnv) -> None:
    """Its report and its output; the other's count, and it gets new work."""
    env.server.stop()
    env.server.flags = ["--lease-s", "1"]
    env.server.start()
    document = plain("one")
    document["tasks"][0]["outputs"] = [{"filename": "out.txt"}]
    job_id = env.submit(document)
    asleep, other = (FakeClient(env.server.url, name=name) for name in ("asleep", "other"))
    asleep.register()
    (old,) = asleep.fetch()
    other.register()
    eventually_sync(lambda: bool(other.fetch(wait_s=0.5)))
    (new,) = other.held.values()
    assert (new.work, new.attempt) == (old.work, old.attempt + 1)
    with pytest.raises(AssertionError, match="409"):
        asleep.push(old, b"late")
    report = {**other.failed(old), "outcome": "done", "exit_code": 0, "outputs": []}
    asleep.held.clear()
    asleep.register()
    (result,) = asleep.exchange(reports=[report])["results"]
    assert result["result"] == "lease_lost"
    other.exchange(reports=[other.done(new, b"in time")])
    job = env.wait_for(job_id)
    node = job["tasks"][0]["outputs"][0]["node"]
    assert env.http.get(f"/node/{node}?download").content == b"in time"
    again = env.submit(plain("again"))
    assert asleep.work_off() == 1
    env.wait_for(again)
    asleep.close()
    other.close()


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoServer]:
    """One of its own, which may be stopped."""
    database = MongoServer(tmp_path_factory.mktemp("mongo"))
    database.start()
    yield database
    database.close()


@pytest.mark.slow
def test_a_database_that_stood_still_under_load_has_all_that_was_acknowledged(
    tmp_path: Path, database: MongoServer, warm: WarmServers
) -> None:
    flags = ["--lease-s", str(LEASE_S)]
    with AweEnv(tmp_path, store=database.url(), flags=flags) as env:
        env.server.spawn = warm.spawn
        env.server.start(AWE_COMMIT_WAIT_S="1")
        load = Load(env)
        load.settle()
        for stall_s in (1.0, LEASE_S * 1.5):
            tally.count("stall database")
            database.pause()
            time.sleep(stall_s)
            database.go_on()
            eventually_sync(lambda: env.http.get("/health").is_success)
        load.end()
        assert_all_is_there(env, load)
