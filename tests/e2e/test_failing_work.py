"""What fails is tried elsewhere, suspended at the threshold with its reason, and goes on when told to."""

import gzip
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.inputs import real_reads


@pytest.fixture
def site(new_store: Callable[[], str]) -> Iterator[AweEnv]:
    """A server; clients are the tests' business."""
    with AweEnv.temporary(store=new_store()) as env:
        env.server.start()
        yield env


def scripted(*lines: str, **keys: Any) -> dict[str, Any]:
    """A task of a few script lines."""
    return {"taskid": "0", "cmd": {"cmd_script": list(lines)}, **keys}


def test_Q_01_what_fails_on_one_client_succeeds_on_another(site: AweEnv) -> None:
    bad = site.start_client("--name", "bad", slots=1)
    eventually_sync(lambda: len(site.data("GET", "/client")) == 1)
    task = scripted('case "$PWD" in */client-1/*) echo broken node >&2; exit 3;; esac', "echo fine > out")
    job_id = site.submit({"tasks": [{**task, "outputs": [{"filename": "out"}], "retry_delay_s": 5}]})
    wuid = f"{job_id}_0_0"

    def skipped() -> bool:
        return bool(site.data("GET", "/client")[0]["skip_work"])

    # Only the bad client is there; by the single-client rule it would try again once the delay is over.
    eventually_sync(skipped, show=lambda: site.data("GET", "/client"))
    bad.pause()
    site.start_client("--name", "good", slots=1)
    eventually_sync(lambda: len(site.data("GET", "/client")) == 2)
    bad.resume()
    job = site.wait_for(job_id)
    clients = {client["name"]: client for client in site.data("GET", "/client")}
    assert clients["bad"]["skip_work"] == [wuid]
    assert clients["good"]["skip_work"] == []
    assert clients["good"]["total_completed"] == 1
    work = site.data("GET", f"/work/{wuid}")
    assert work["failed"] == 1
    assert work["client"] == clients["good"]["id"]
    node = job["tasks"][0]["outputs"][0]["node"]
    assert site.http.get(f"/node/{node}?download").text == "fine\n"


@pytest.fixture
def switch(tmp_path: Path) -> Path:
    """A file; while it exists the command of `fragile` succeeds."""
    return tmp_path / "mended"


def fragile(switch: Path, log: Path) -> dict[str, Any]:
    """first → middle (4 ranks, rank 3 fails while the switch is off) → last."""
    note = f'echo "$AWE_TASK_ID $AWE_RANK" >> {log}'
    tasks = [
        scripted(note, "echo first > first", outputs=[{"filename": "first"}]),
        scripted(
            note,
            f'if [ "$AWE_RANK" = 3 ] && [ ! -e {switch} ]; then echo no luck >&2; exit 7; fi',
            'echo "part $AWE_RANK" > middle',
            taskid="1",
            totalwork=4,
            retry_delay_s=0,
            partinfo={"index": "none"},
            inputs=[{"filename": "first", "origin": "0"}],
            outputs=[{"filename": "middle"}],
        ),
        scripted(
            note,
            "cat middle > last",
            taskid="2",
            inputs=[{"filename": "middle", "origin": "1"}],
            outputs=[{"filename": "last"}],
        ),
    ]
    return {"info": {"name": "fragile"}, "tasks": tasks}


def runs(log: Path) -> list[str]:
    """Every start of a command so far: `<task> <rank>`, without the job's id."""
    return [line.partition("_")[2] for line in log.read_text().splitlines()]


def content(site: AweEnv, job: dict[str, Any], task: int) -> str:
    """The output of a task."""
    node = job["tasks"][task]["outputs"][0]["node"]
    return site.http.get(f"/node/{node}?download").text


WHOLE = "part 1\npart 2\npart 3\npart 4\n"


def test_always_failing_work_suspends_and_each_verb_does_what_it_says(
    site: AweEnv, switch: Path, tmp_path: Path
) -> None:
    log = tmp_path / "runs.log"
    log.touch()
    site.start_client(slots=2)
    site.start_client(slots=2)
    job_id = site.submit(fragile(switch, log))

    # Suspended at the threshold, with everything that a person needs to know.
    job = site.wait_for(job_id, "suspend")
    culprit = f"{job_id}_1_3"
    assert "failed 3 time(s)" in job["notes"]
    assert culprit in job["notes"]
    assert job["lastfailed"] == culprit
    error = job["error"]
    assert error["workfailed"] == culprit
    assert error["taskfailed"] == f"{job_id}_1"
    assert error["clientfailed"]
    assert "no luck" in error["apperror"]
    assert error["status"] == "suspend"
    assert [task["state"] for task in job["tasks"]] == ["completed", "suspend", "pending"]
    work = site.data("GET", f"/work/{culprit}")
    assert work["state"] == "suspend"
    assert work["failed"] == 3
    assert runs(log).count("1 3") == 3
    report = site.data("GET", f"/work/{culprit}?report=stderr")
    assert "no luck" in report

    # Refused while it cannot be done.
    refused = site.http.put(f"/job/{job_id}?recompute=nosuch")
    assert refused.status_code in (400, 404)
    assert "nosuch" in refused.text

    # Resume: finished ranks are kept, the rest runs.
    finished = set(runs(log)) - {"1 3"}
    switch.touch()
    site.data("PUT", f"/job/{job_id}?resume")
    job = site.wait_for(job_id)
    assert content(site, job, 2) == WHOLE
    assert job["resumed"] == 1
    for run in finished:
        assert runs(log).count(run) == 1, run
    assert runs(log).count("1 3") == 4

    # Recompute: that task and all that depend on it, nothing before.
    assert site.http.put(f"/job/{job_id}?resume").status_code == 400
    log.write_text("")
    site.data("PUT", f"/job/{job_id}?recompute=1")
    job = site.wait_for(job_id)
    assert sorted(runs(log)) == ["1 1", "1 2", "1 3", "1 4", "2 0"]
    assert content(site, job, 2) == WHOLE

    # Resubmit: everything, under the same id.
    log.write_text("")
    site.data("PUT", f"/job/{job_id}?resubmit")
    job = site.wait_for(job_id)
    assert sorted(runs(log)) == ["0 0", "1 1", "1 2", "1 3", "1 4", "2 0"]
    assert content(site, job, 2) == WHOLE
    assert job["resumed"] == 3


def test_P_02_exit_code_42_is_final(site: AweEnv) -> None:
    site.start_client(slots=1)
    job_id = site.submit({"tasks": [scripted("echo never again >&2", "exit 42")]})
    job = site.wait_for(job_id, "failed-permanent")
    assert job["error"]["status"] == "failed-permanent"
    assert job["tasks"][0]["state"] == "failed-permanent"
    assert site.http.put(f"/job/{job_id}?resume").status_code == 400


@pytest.mark.parametrize("verb", ["resume", "recompute=0"])
def test_F_02_a_gzip_input_cut_at_90_percent_suspends_the_job_and_no_child_runs(
    site: AweEnv, tmp_path: Path, verb: str
) -> None:
    started = tmp_path / "started"
    packed = gzip.compress(real_reads())
    node = site.data("POST", "/node", files={"upload": ("reads.fastq.gz", packed[: len(packed) * 9 // 10])})
    reads = {"filename": "reads.fastq", "node": node["id"], "uncompress": "gzip"}
    parent = scripted(
        f"echo parent >> {started}",
        "cp reads.fastq copy",
        inputs=[reads],
        outputs=[{"filename": "copy"}],
        retry_delay_s=0,
    )
    child = scripted(f"echo child >> {started}", taskid="1", inputs=[{"filename": "copy", "origin": "0"}])
    for _ in range(2):
        site.start_client(slots=2)
    job_id = site.submit({"tasks": [parent, child]})
    job = site.wait_for(job_id, "suspend")
    assert "reads.fastq" in job["notes"]
    assert "the gzip file ends in the middle" in job["notes"]
    assert [task["state"] for task in job["tasks"]] == ["suspend", "pending"]
    assert site.data("GET", f"/work/{job_id}_0_0")["exit"]["kind"] == "input"
    assert not started.exists()

    site.data("PUT", f"/node/{node['id']}", files={"upload": ("reads.fastq.gz", packed)})
    site.data("PUT", f"/job/{job_id}?{verb}")
    job = site.wait_for(job_id)
    assert started.read_text() == "parent\nchild\n"
    assert content(site, job, 0).encode() == real_reads()


@pytest.mark.parametrize("clients", [1, 2])
def test_a_wrong_command_ends_its_job_and_suspends_no_client(
    site: AweEnv, clients: int, tmp_path: Path
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("x\n" * 40)
    for _ in range(clients):
        site.start_client(slots=2)
    eventually_sync(lambda: len(site.data("GET", "/client")) == clients)
    began_s = monotonic()
    ran = site.awe("run", "--watch", "--parts", "8", "--input", str(lines), "--", "grepp", "x", "@lines.txt")
    assert monotonic() - began_s < 60, "retries wait a second or two"
    assert ran.returncode != 0
    assert "failed 3 time(s). msg from client: " in ran.stdout + ran.stderr
    (job,) = site.data("GET", "/job")
    assert job["state"] == "suspend"

    def idle() -> bool:
        return [client["Status"] for client in site.data("GET", "/client")] == ["active-idle"] * clients

    eventually_sync(idle, show=lambda: site.data("GET", "/client"))
    assert [client["suspended"] for client in site.data("GET", "/client")] == [False] * clients


def test_P_02_work_above_its_memory_ends_as_oom_and_suspends_its_job_with_both_numbers(site: AweEnv) -> None:
    for name in ("one", "two"):
        site.start_client("--name", name, slots=1)
    # A grandchild takes it, 200 MiB at least.
    greedy = scripted(
        f"{sys.executable} -c 'import time; data = bytes(1) * (200 << 20); time.sleep(60)' & wait",
        taskid="greedy",
        resources={"memory_bytes": 64 << 20},
        retry_delay_s=0,
    )
    modest = scripted("true", taskid="modest", resources={"memory_bytes": 64 << 20})
    job_id = site.submit({"tasks": [greedy, modest]})
    job = site.wait_for(job_id, "suspend")
    culprit = f"{job_id}_greedy_0"
    assert job["lastfailed"] == culprit
    used, limit = re.findall(r"used ([\d.]+) MiB, its limit is ([\d.]+) MiB", job["notes"])[0]
    assert float(used) > float(limit) == 64
    assert [task["state"] for task in job["tasks"]] == ["suspend", "completed"]
    work = site.data("GET", f"/work/{culprit}")
    assert (work["failed"], work["exit"]["kind"]) == (3, "oom")
    assert work["perf"]["peak_memory_bytes"] > 64 << 20
