"""A database that is down or hangs: a start waits for it, and work that runs meanwhile does not notice."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.crash.documents import plain
from tests.support.env import LISTENING, AweEnv
from tests.support.eventually import PATIENCE_S, eventually_sync
from tests.support.fake_client import FakeClient
from tests.support.gate import Gate
from tests.support.mongo import MongoServer


@pytest.fixture
def database(tmp_path: Path) -> Iterator[MongoServer]:
    """A server of our own: it is stopped."""
    folder = tmp_path / "mongo"
    folder.mkdir()
    server = MongoServer(folder)
    server.start()
    yield server
    server.close()


def take_away(database: MongoServer, how: str) -> None:
    if how == "down":
        database.stop()
    else:
        database.pause()


def bring_back(database: MongoServer, how: str) -> None:
    if how == "down":
        database.start()
    else:
        database.go_on()


def status(env: AweEnv) -> int:
    """Of /health; 0 while nobody listens."""
    try:
        return httpx.get(f"{env.server.url}/health", timeout=PATIENCE_S, trust_env=False).status_code
    except httpx.TransportError:
        return 0


@pytest.mark.parametrize("how", ["down", "hangs"])
def test_D_02_a_start_waits_for_the_database_and_brings_all_jobs_back(
    database: MongoServer, how: str
) -> None:
    with AweEnv.temporary(store=database.url()) as env:
        env.server.start()
        jobs = {env.submit(plain(f"job {i}")) for i in range(20)}
        env.server.kill()
        take_away(database, how)
        process = env.server.launch()
        eventually_sync(lambda: status(env) == 503, show=process.output)
        eventually_sync(lambda: "store_waits" in process.stderr.read_text(), show=process.output)
        for _ in range(20):
            assert status(env) == 503, "never ready with an empty queue"
            assert process.returncode is None, process.output()
            assert LISTENING not in process.stdout.read_text()
        bring_back(database, how)
        env.server.await_ready()
        assert {job["id"] for job in env.data("GET", "/job?limit=100")} == jobs
        client = FakeClient(env.server.url)
        client.register()
        assert client.work_off() == 20
        client.close()
        assert {job["state"] for job in env.data("GET", "/job?limit=100")} == {"completed"}


def test_D_02_a_recovery_read_that_times_out_after_the_database_was_opened_is_repeated(
    mongo_url: str,
) -> None:
    """It opens, and is gone when the clients are to be read: for several times as long as a read may take."""
    where = urlsplit(mongo_url)
    first_read = b"find\0\x08\0\0\0clients\0"  # of read_state, as the driver writes it
    with (
        Gate((where.hostname or "", where.port or 0), first_read) as gate,
        AweEnv.temporary(store=mongo_url) as env,
    ):
        env.server.start()
        jobs = {env.submit(plain(f"job {i}")) for i in range(20)}
        env.server.kill()
        env.server.store = (
            f"mongodb://127.0.0.1:{gate.port}{where.path}?directConnection=true&serverSelectionTimeoutMS=300"
        )
        process = env.server.launch()
        eventually_sync(gate.is_shut.is_set, show=process.output)

        def told() -> list[str]:
            lines = process.stderr.read_text().splitlines()
            return [line for line in lines if "store_unavailable" in line and "recover" in line]

        eventually_sync(lambda: len(told()) >= 3, show=process.output)
        assert status(env) == 503, "never ready with an empty queue"
        assert process.returncode is None, process.output()
        gate.open()
        env.server.await_ready()
        assert {job["id"] for job in env.data("GET", "/job?limit=100")} == jobs
        client = FakeClient(env.server.url)
        client.register()
        assert client.work_off() == 20
        client.close()
        env.server.store = mongo_url  # what is stored is read past the gate


@pytest.mark.parametrize("how", ["down", "hangs"])
def test_D_07_an_outage_of_the_database_harms_no_running_work(
    database: MongoServer, tmp_path: Path, how: str
) -> None:
    log, go = tmp_path / "starts", tmp_path / "go"
    log.touch()
    script = [
        f'echo "$AWE_ATTEMPT" >> {log}',
        f"until [ -e {go} ]; do sleep 0.05; done",
        'echo "$AWE_ATTEMPT" > out',
    ]
    task = {"taskid": "0", "cmd": {"cmd_script": script}, "outputs": [{"filename": "out"}]}
    with AweEnv.temporary(store=database.url(), server_env={"AWE_COMMIT_WAIT_S": "1"}) as env:
        env.server.start()
        client = env.start_client(slots=1)
        job_id = env.submit({"tasks": [task]})
        eventually_sync(lambda: log.read_text() == "1\n", show=client.output)
        take_away(database, how)
        # The result comes while nothing can be stored: it is not confirmed, and told again.
        elsewhere = {"name": "meanwhile", "clientgroups": "nobody"}
        assert env.http.post("/job", json={**plain(""), "info": elsewhere}).status_code == 503
        go.touch()
        eventually_sync(lambda: "exchange_failed" in client.output(), show=client.output)
        assert status(env) == 503
        bring_back(database, how)
        eventually_sync(lambda: status(env) == 200, show=env.server.running.output)
        job = env.wait_for(job_id)
        node = job["tasks"][0]["outputs"][0]["node"]
        assert (log.read_text(), env.http.get(f"/node/{node}?download").text) == ("1\n", "1\n")
        work = env.data("GET", f"/work/{job_id}_0_0")
        assert (work["state"], work["attempt"], work["failed"], work["lost"]) == ("completed", 1, 0, 0)
        [shown] = env.data("GET", "/client")
        assert (shown["suspended"], shown["total_completed"]) == (False, 1)
        assert client.returncode is None
