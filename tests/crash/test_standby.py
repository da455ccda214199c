"""Two servers, one store: whoever dies, stops or sleeps, the other one serves, and what was promised holds.

Each test ends with a look at what is stored (Pair.__exit__): every acknowledged job, result and upload is
there, once.
"""

import contextlib
import os
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from awe_server.store.lease import LEASE_S
from tests.crash.documents import plain
from tests.support import tally
from tests.support.eventually import PATIENCE_S
from tests.support.invariants import read_mongo
from tests.support.mongo import MongoServer
from tests.support.pair import Load, Pair, await_leader, is_ready, parked, within_lease

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

STATE_LOST = 70
WIDTH = 3


@pytest.fixture
def mongo(tmp_path: Path) -> Iterator[str]:
    """A database server of the pair's own: nobody else slows it down."""
    folder = tmp_path / "mongo"
    folder.mkdir()
    server = MongoServer(folder)
    server.start()
    yield server.url()
    server.close()


def document(number: int) -> dict[str, Any]:
    """A job whose output tells which workunits made it, whoever ran them."""
    task = {
        "taskid": "0",
        "totalwork": WIDTH,
        "cmd": {"cmd_script": ['printf %s "$AWE_WORK_ID" > out']},
        "outputs": [{"filename": "out"}],
    }
    return {"info": {"name": f"job {number}"}, "tasks": [task]}


def check_outputs(load: Load) -> None:
    """Every job has its merged output, each rank's bytes once and in order."""
    for id in load.jobs:
        [task] = load.submitter.call("GET", f"/job/{id}")["tasks"]
        node = task["outputs"][0]["node"]
        merged = load.submitter.line.get(f"/node/{node}?download").text
        assert merged == "".join(f"{id}_0_{rank}" for rank in range(1, WIDTH + 1))


@pytest.mark.parametrize("far", [False, True], ids=["seen to be dead", "on another machine"])
def test_D_07_the_standby_takes_over_when_the_leader_is_killed_under_load(
    tmp_path: Path, mongo: str, far: bool
) -> None:
    """Twice: the killed one stands by and leads again. Fake clients and real daemons know both addresses."""
    moments = random.Random(7)
    with Pair(tmp_path / "site", mongo, far=far).start() as pair, Load(pair, document) as load:
        for _ in range(2):
            pair.start_daemon()
        leader = pair.servers[0]
        for _ in range(2):
            load.first_after(load.accepted_at, time.monotonic())
            time.sleep(moments.uniform(0.2, 1.0))
            standby, killed_at = pair.other(leader), time.monotonic()
            leader.kill("kill server, the leader of a pair")
            await_leader(standby)
            took_s = time.monotonic() - killed_at
            assert within_lease(took_s), standby.running.output()
            if not far:
                assert took_s < LEASE_S, "nobody waits for the lease of a process that is seen to be dead"
            load.first_after(load.accepted_at, time.monotonic())
            pair.stand_by(leader)
            leader = standby
        load.work_off()
        check_outputs(load)
        assert pair.leader is leader


@pytest.mark.parametrize("is_busy", [True, False], ids=["busy", "idle"])
def test_a_leader_that_was_stopped_says_and_does_nothing_when_it_wakes(
    tmp_path: Path, mongo: str, is_busy: bool
) -> None:
    """What waits in its sockets, and on its loop, gets 503 or a cut line, nothing of yesterday; it exits.

    One that is busy learns of its loss by what it was writing; an idle one has to ask.
    """
    with Pair(tmp_path / "site", mongo).start() as pair, Load(pair, document) as load:
        old, new = pair.servers
        load.first_after(load.accepted_at, time.monotonic())
        elsewhere = plain("done elsewhere")
        elsewhere["info"]["clientgroups"] = "later"
        watched = load.submitter.submit(elsewhere, "watched")
        if not is_busy:
            load.work_off()
            time.sleep(1.0)  # what it writes of that is written
        stream = httpx.Client(base_url=old.url, timeout=PATIENCE_S, trust_env=False)
        polls = {"poll": lambda http: http.get(f"/job/{watched}?wait_s=60")}
        with (
            stream,
            stream.stream("GET", "/events", headers={"Accept": "text/event-stream"}) as events,
            parked(polls, old.url) as polled,
        ):
            time.sleep(0.5)  # it waits by now, or is one of those below
            old.running.pause()
            stopped_at = time.monotonic()
            await_leader(new)
            assert within_lease(time.monotonic() - stopped_at), new.running.output()
            load.work_off()
            load.end()
            client = pair.client("later", "later")
            client.register()
            assert client.work_off() == 1
            client.close()
            exchange = {
                "incarnation": client.incarnation, "request_id": client.request_id + 1, "want": 4,
                "wait_s": 0.0, "holds": [[f"{watched}_0_0", 1]], "reports": [],
                "free": {"cores": 4, "memory_bytes": 2**40, "disk_bytes": 2**40, "gpus": 0},
            }  # fmt: skip
            binary = {"Content-Type": "application/octet-stream"}
            calls = {
                "job": lambda http: http.get(f"/job/{watched}"),
                "wait": lambda http: http.get(f"/job/{watched}?wait_s=30"),
                "queue": lambda http: http.get("/queue?json"),
                "exchange": lambda http: http.post(f"/client/{client.id}/exchange", json=exchange),
                "submit": lambda http: http.post("/job", json=plain("late")),
                "upload": lambda http: http.post("/node", content=bytes(2**20), headers=binary),
                "delete": lambda http: http.delete(f"/job/{watched}?full"),
                "health": lambda http: http.get("/health"),
            }
            with parked(calls, old.url) as answers:
                time.sleep(1.0)
                before, files = stored(mongo), names(pair.data)
                old.running.resume()
                woken_at = time.monotonic()
                assert old.running.wait() == STATE_LOST
                tally.count("old leaders that woke and exited")
            assert time.monotonic() - woken_at < 15.0, old.running.output()
            assert not any("JD" in line and watched in line for line in until_cut(events))
        for name, answer in (*answers.items(), *polled.items()):
            assert isinstance(answer, httpx.TransportError) or answer.status_code == 503, (name, answer)
        said = old.running.stderr.read_text()
        [line] = [line for line in said.splitlines() if "server_stops" in line]
        assert "Another server took over this store" in line
        assert "Traceback" not in said
        assert stored(mongo) == before
        assert names(pair.data) == files
        assert is_ready(new)


def until_cut(reply: httpx.Response) -> list[str]:
    """The lines that came before the server was gone."""
    lines: list[str] = []
    with contextlib.suppress(httpx.TransportError):
        lines += reply.iter_lines()
    return lines


def stored(url: str) -> dict[str, Any]:
    """Every document; of the lease only whose it is, since it is renewed."""
    documents: dict[str, Any] = {
        name: {document["id"]: document for document in found} for name, found in read_mongo(url).items()
    }
    lease = documents["meta"]["lease"]
    documents["meta"]["lease"] = (lease["epoch"], lease["owner"])
    return documents


def names(folder: Path) -> set[str]:
    """Every file, those aside that were on their way when the server was stopped."""
    return {str(path) for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".tmp-")}


def test_a_rolling_restart_waits_for_no_lease(tmp_path: Path, mongo: str) -> None:
    """A leader that is told to stop gives its lease back: the standby leads at once, whatever it can see."""
    with Pair(tmp_path / "site", mongo, far=True).start() as pair, Load(pair, document) as load:
        leader = pair.servers[0]
        for _ in range(2):
            load.first_after(load.accepted_at, time.monotonic())
            leader.stop()
            stopped_at, standby = time.monotonic(), pair.other(leader)
            await_leader(standby)
            assert time.monotonic() - stopped_at < LEASE_S
            pair.stand_by(leader)
            leader = standby
        load.work_off()
        check_outputs(load)


def test_a_standby_that_dies_costs_nothing_and_both_may_start_anew(tmp_path: Path, mongo: str) -> None:
    with Pair(tmp_path / "site", mongo).start() as pair, Load(pair, document, clients=3) as load:
        leader, standby = pair.servers
        load.first_after(load.accepted_at, time.monotonic())
        standby.kill("kill server, the standby of a pair")
        load.first_after(load.accepted_at, time.monotonic())
        assert pair.leader is leader
        pair.stand_by(standby)
        leader.kill("kill server, the leader of a pair")
        standby.kill("kill server, the standby of a pair")
        for server in pair.servers:
            server.launch()
        load.first_after(load.accepted_at, time.monotonic())
        assert sum(map(is_ready, pair.servers)) == 1
        load.work_off()
        check_outputs(load)


def test_a_standby_leaves_the_data_directory_alone(tmp_path: Path, mongo: str) -> None:
    """It is another one's until it leads; then it clears up what that one left."""
    with Pair(tmp_path / "site", mongo) as pair:
        leader, standby = pair.servers
        leader.start()
        left = pair.data / "nodes" / "blobs" / ".tmp-left"
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(b"half")
        before = looks(pair.data)
        pair.stand_by(standby)
        time.sleep(2.0)
        assert looks(pair.data) == before
        health = httpx.get(f"{pair.urls[1]}/health", timeout=PATIENCE_S, trust_env=False)
        assert health.status_code == 503
        assert f"standing by: Another server owns this store: {socket.gethostname()}" in health.text
        leader.kill("kill server, the leader of a pair")
        await_leader(standby)
        assert not left.exists()


def looks(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of everything."""
    return {
        str(path): (about.st_size, about.st_mtime_ns)
        for path in (folder, *folder.rglob("*"))
        if (about := os.stat(path))
    }
