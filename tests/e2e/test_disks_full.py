"""The client's disk is full, or the server's and the client's: clear words, and work goes on with room.

What a full disk of the server alone does is in test_node_store_full.py.
"""

import contextlib
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.env import AweEnv, Process
from tests.support.eventually import eventually_sync
from tests.support.tmpfs import fill, tmpfs

MIB = 1024 * 1024
INPUT = bytes(range(256)) * (4 * MIB // 256)
#: Its disk is called low when there is less than a MiB.
CLIENT_FLAGS = ("--free-floor", "1M", "--keep-failed", "0", "--cache-bytes", "0")
WHY_NOT = "no space left"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The client's work directory has 32 MiB."""
    with tmpfs(tmp_path / "client-1", 32 * MIB):
        yield tmp_path


@pytest.fixture
def site(home: Path) -> Iterator[AweEnv]:
    """Only the client's disk is small."""
    with AweEnv(home, server_env={"AWE_LEASE_S": "120"}) as env:
        env.server.start()
        yield env


@pytest.fixture
def both(home: Path) -> Iterator[AweEnv]:
    """The server's disk is small, too."""
    with (
        tmpfs(home / "server", 48 * MIB),
        AweEnv(home, server_env={"AWE_FREE_FLOOR_BYTES": "0", "AWE_COMMIT_WAIT_S": "1"}) as env,
    ):
        env.server.start()
        yield env


def fill_up(folder: Path) -> Path:
    """Take all the room there is, beside a process that takes and gives some at the same time."""
    ballast = fill(folder, MIB)
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


def upload(env: AweEnv, data: bytes = INPUT) -> str:
    return str(env.data("POST", "/node", files={"upload": ("in.bin", data)})["id"])


def submit(env: AweEnv, node: str, script: str = "cat in.bin in.bin > out.bin") -> str:
    task = {
        "taskid": "0",
        "cmd": {"cmd_script": ["set -e", script]},
        "inputs": [{"filename": "in.bin", "node": node}],
        "outputs": [{"filename": "out.bin"}],
    }
    return env.submit({"tasks": [task]})


def why(env: AweEnv, job_id: str) -> str:
    return env.awe("why", job_id).stdout


def trouble(env: AweEnv) -> str:
    [client] = env.data("GET", "/client")
    return str(client["trouble"])


def unit(env: AweEnv, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = env.data("GET", f"/work/{job_id}_0_0")
    return found


def done(env: AweEnv, job_id: str, within_s: float = 60) -> bytes:
    output = env.wait_for(job_id, within_s=within_s)["tasks"][0]["outputs"][0]
    return env.http.get(f"/node/{output['node']}?download").content


def nothing_went_wrong_for_good(env: AweEnv, client: Process) -> None:
    """Both still run, nobody was blamed, and the client may take work."""
    assert (env.server.running.returncode, client.returncode) == (None, None)
    [known] = env.data("GET", "/client")
    assert (known["suspended"], known["trouble"]) == (False, "")


def test_F_13_a_full_disk_of_the_client_is_said_and_work_goes_on_with_room(site: AweEnv) -> None:
    node = upload(site)
    client = site.start_client(*CLIENT_FLAGS)
    assert done(site, submit(site, node)) == INPUT * 2
    ballast = fill_up(site.home / "client-1")
    waiting = submit(site, node)
    eventually_sync(lambda: "disk nearly full: " in trouble(site), show=client.output)
    eventually_sync(lambda: "disk nearly full: " in why(site, waiting), every_s=0.5)
    assert "1048576 must stay" in why(site, waiting)
    assert "has trouble: disk nearly full: " in site.awe("clients").stderr
    # It may have got the workunit before it knew.
    assert unit(site, waiting)["failed"] == 0
    ballast.unlink()
    assert done(site, waiting) == INPUT * 2
    nothing_went_wrong_for_good(site, client)


def test_F_13_a_disk_that_fills_while_a_command_runs_blames_the_client_not_the_work(site: AweEnv) -> None:
    node, gate, begun = upload(site), site.home / "gate", site.home / "begun"
    client = site.start_client(*CLIENT_FLAGS)
    wait = f"touch {begun}; while [ ! -e {gate} ]; do sleep 0.05; done"
    job_id = submit(site, node, f"{wait}; cat in.bin in.bin > out.bin")
    eventually_sync(begun.exists)
    ballast = fill_up(site.home / "client-1")
    gate.touch()
    eventually_sync(lambda: unit(site, job_id)["exit"] is not None)
    failed = unit(site, job_id)
    assert (failed["exit"]["kind"], failed["failed"]) == ("node", 0)
    assert "no space left on the client's disk while the command ran" in failed["exit"]["message"]
    assert WHY_NOT in why(site, job_id)
    ballast.unlink()
    # Sooner than a request ends that waits for work.
    assert done(site, job_id, within_s=20) == INPUT * 2
    nothing_went_wrong_for_good(site, client)


def test_F_13_an_input_that_fits_on_no_client_waits_and_that_is_said(site: AweEnv) -> None:
    client = site.start_client(*CLIENT_FLAGS)
    job_id = submit(site, upload(site, INPUT * 10), "true > out.bin")
    says = "its inputs take 41.9 MB of disk; of the clients that could run it, "
    eventually_sync(lambda: says in why(site, job_id), every_s=0.5)
    assert unit(site, job_id)["attempt"] == 0
    # Others that fit do not wait behind it.
    assert done(site, submit(site, upload(site))) == INPUT * 2
    nothing_went_wrong_for_good(site, client)


def test_F_13_both_disks_full_lose_nothing_and_work_goes_on_with_room(both: AweEnv) -> None:
    node, gate, begun = upload(both), both.home / "gate", both.home / "begun"
    client = both.start_client(*CLIENT_FLAGS)
    before = submit(both, node)
    assert done(both, before) == INPUT * 2
    wait = f"touch {begun}; while [ ! -e {gate} ]; do sleep 0.05; done"
    running = submit(both, node, f"{wait}; cat in.bin in.bin > out.bin")
    eventually_sync(begun.exists)
    waiting = submit(both, node)
    ballasts = [fill_up(both.home / "client-1"), fill_up(both.server.data)]
    gate.touch()
    reply = both.http.post("/node", content=INPUT)
    assert reply.status_code in (503, 507)
    assert reply.json()["error"]
    eventually_sync(lambda: WHY_NOT in client.output(), show=client.output)
    eventually_sync(lambda: "disk is full" in both.http.get("/health").text)
    refused = both.http.get(f"/job/{running}")
    assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
    assert "disk is full" in refused.json()["error"][0]
    for ballast in ballasts:
        ballast.unlink()
    eventually_sync(lambda: both.http.get("/health").status_code == 200)
    assert [done(both, job_id) for job_id in (running, waiting)] == [INPUT * 2] * 2
    output = both.job(before)["tasks"][0]["outputs"][0]["node"]
    assert both.http.get(f"/node/{output}?download").content == INPUT * 2
    assert both.http.get(f"/node/{node}?download").content == INPUT
    nothing_went_wrong_for_good(both, client)
    both.server.restart()
    assert {both.job(job_id)["state"] for job_id in (before, running, waiting)} == {"completed"}


def test_F_13_an_input_that_unpacks_beyond_the_disk_ends_its_job_and_no_other(site: AweEnv) -> None:
    """Ten tries of it; what runs beside them is done again, and the client goes on."""
    packed, script = upload(site, gzip.compress(bytes(300 * MIB), 1)), "cat in.bin > out.bin; sleep 0.2"
    client = site.start_client(*CLIENT_FLAGS, slots=3)
    entry = {"filename": "z", "node": packed, "uncompress": "gzip"}
    task = {"taskid": "0", "cmd": {"name": "true"}, "inputs": [entry], "retry_delay_s": 0.02}
    bad = site.submit({"tasks": [task]})
    small = upload(site, INPUT[:100_000])
    jobs = [submit(site, small, script) for _ in range(10)]
    for job_id in jobs:
        assert done(site, job_id) == INPUT[:100_000]
    eventually_sync(
        lambda: site.job(bad)["state"] == "suspend", within_s=120, every_s=0.5, show=client.output
    )
    assert "no space left" in site.job(bad)["notes"]
    assert all(unit(site, job_id)["failed"] == 0 for job_id in jobs)
    nothing_went_wrong_for_good(site, client)
