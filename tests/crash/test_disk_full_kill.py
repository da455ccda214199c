"""The disk of the server is full, and it is killed: with room again all that was acknowledged is there."""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.crash.documents import plain
from tests.crash.survivor import Survivor
from tests.crash.test_every_commit import live_through
from tests.support import tally
from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.fake_client import FakeClient
from tests.support.tmpfs import fill, tmpfs
from tests.support.warm_server import WarmServers

MIB = 1024 * 1024
CONTENT = bytes(range(256)) * (MIB // 256)


@pytest.fixture
def env(tmp_path: Path, warm: WarmServers) -> Iterator[AweEnv]:
    """Its data directory has 48 MiB."""
    with tmpfs(tmp_path / "server", 48 * MIB), AweEnv(tmp_path) as env:
        env.server.spawn = warm.spawn
        env.server.start(**SMALL)
        yield env


SMALL = {"AWE_FREE_FLOOR_BYTES": "0", "AWE_COMMIT_WAIT_S": "0.5"}


class Writer:
    """Submits, uploads and reports until it is refused or gets no answer; keeps in mind what was answered."""

    def __init__(self, env: AweEnv, client: FakeClient) -> None:
        self.env, self.client = env, client
        self.jobs: list[str] = []
        self.nodes: list[str] = []
        self.done: list[str] = []
        self.refused = 0

    def write(self, times: int) -> None:
        """Each kind so often, whatever the answers; a server that is gone ends it."""
        with contextlib.suppress(httpx.TransportError):
            for _ in range(times):
                self._submit()
                self._upload()
                self._report()

    def kill_when_refused(self) -> None:
        """From another thread: who writes is refused for a while before the server dies."""
        try:
            eventually_sync(lambda: self.refused > 0)
            time.sleep(1.0)
        finally:
            self.env.server.kill("kill server, its disk full")

    def _submit(self) -> None:
        reply = self.env.http.post("/job", json=plain("x" * 2000, tasks=2))
        if reply.is_success:
            self.jobs.append(reply.json()["data"]["id"])
        self.refused += reply.status_code in (503, 507)

    def _upload(self) -> None:
        reply = self.env.http.post("/node", content=CONTENT)
        if reply.is_success:
            self.nodes.append(reply.json()["data"]["id"])
        self.refused += reply.status_code in (503, 507)

    def _report(self) -> None:
        """A refusal is an AssertionError of the client, which has patience for none here."""
        with contextlib.suppress(AssertionError):
            for grant in list(self.client.held.values()) or self.client.fetch(1, wait_s=0):
                reply = self.client.exchange(reports=[self.client.done(grant)])
                self.done += [r["work"] for r in reply["results"] if r["result"] in ("accepted", "duplicate")]

    def assert_all_is_there(self) -> None:
        listed = [job["id"] for job in self.env.data("GET", "/job?limit=1000")]
        assert len(listed) == len(set(listed))
        assert set(self.jobs) <= set(listed)
        for node in self.nodes:
            assert self.env.http.get(f"/node/{node}?download").content == CONTENT
        for work in self.done:
            assert self.env.data("GET", f"/work/{work}")["state"] == "completed"


@pytest.mark.slow
@pytest.mark.parametrize("leave_bytes", [0, 100_000, 3 * MIB])
def test_what_was_acknowledged_is_there_when_there_is_room_again(env: AweEnv, leave_bytes: int) -> None:
    """Full at once, within some commits, within some uploads; killed while everybody is being refused."""
    client = FakeClient(env.server.url, patience_s=0.0)
    client.register()
    writer = Writer(env, client)
    writer.write(3)
    assert [len(writer.jobs), len(writer.nodes), len(writer.done)] == [3, 3, 3]
    ballast = fill(env.server.data, leave_bytes)
    tally.count("fault disk of the server full")
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(writer.kill_when_refused)
        writer.write(10_000)
        killed.result()
    # It starts with a full disk, or says why it does not; nothing is the worse for it.
    env.server.launch(**SMALL)
    time.sleep(1)
    env.server.kill("kill server, its disk full")
    ballast.unlink()
    env.server.start(**SMALL)
    writer.assert_all_is_there()
    client.patience_s = 60.0
    client.register()
    client.work_off(want=64)
    eventually_sync(
        lambda: {job["state"] for job in env.data("GET", "/job?limit=1000")} == {"completed"}, every_s=0.2
    )
    with Survivor(env) as survivor:
        live_through(survivor, "afterwards")
    client.close()
