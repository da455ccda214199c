"""What a failed attempt left of its outputs is kept for its owner, and only for them (keep_failed; F-11)."""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync


@pytest.fixture(scope="module")
def site(new_store: Callable[[], str]) -> Iterator[AweEnv]:
    with AweEnv.temporary(store=new_store()) as env:
        env.server.start()
        env.start_client(slots=4)
        yield env


def submit(site: AweEnv, script: str, *outputs: str, **keys: Any) -> str:
    task = {
        "taskid": "t",
        "cmd": {"cmd_script": [script]},
        "outputs": [{"filename": name} for name in outputs],
        "keep_failed": True,
        "max_failures": 1,
        **keys,
    }
    return site.submit({"info": {"name": "keep failed"}, "tasks": [task]})


def kept(site: AweEnv, work: str) -> dict[str, bytes | None]:
    node = site.data("GET", f"/work/{work}")["kept"]
    with tarfile.open(fileobj=io.BytesIO(site.http.get(f"/node/{node}?download").content)) as archive:
        return {m.name: None if m.isdir() else archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]


HALF = "mkdir out; echo half > out/a; echo x > table.1.txt; echo half > one.txt; echo other > other.txt"


@pytest.mark.parametrize(
    ("script", "keys", "kind"),
    [
        (f"{HALF}; exit 1", {}, "command"),
        (f"{HALF}; kill -9 $$", {}, "signal"),
        (f"{HALF}; sleep 60", {"time_limit_s": 4}, "timeout"),
        (HALF, {}, "output"),
    ],
)
def test_what_is_there_of_the_outputs_is_kept(
    site: AweEnv, script: str, keys: dict[str, Any], kind: str
) -> None:
    job = submit(site, script, "out/", "table.*.txt", "one.txt", "missing.txt", **keys)
    site.wait_for(job, "suspend")
    work = f"{job}_t_0"
    unit = site.data("GET", f"/work/{work}")
    assert (unit["exit"]["kind"], unit["outputs"][0]["size"]) == (kind, 0)
    assert kept(site, work) == {"out": None, "out/a": b"half\n", "table.1.txt": b"x\n", "one.txt": b"half\n"}
    node = site.data("GET", f"/node/{unit['kept']}")
    assert node["attributes"] == {"type": "failed-attempt", "work": work, "attempt": 1}
    assert (node["job"], node["task"], node["tags"]) == (job, None, ["archive:tar"])


def test_the_last_failed_attempt_is_kept_and_goes_with_the_job(site: AweEnv) -> None:
    job = submit(site, "echo $AWE_ATTEMPT > one.txt; exit 1", "one.txt", max_failures=2, retry_delay_s=0.05)
    site.wait_for(job, "suspend")
    assert kept(site, f"{job}_t_0") == {"one.txt": b"2\n"}
    nodes = site.data("GET", "/node", params={"job": job, "attributes.type": "failed-attempt"})
    assert nodes[0]["attributes"]["attempt"] == 2
    eventually_sync(lambda: len(site.data("GET", "/node", params={"job": job})) == 2)
    site.data("DELETE", f"/job/{job}?full")
    eventually_sync(lambda: not site.data("GET", "/node", params={"job": job}))


def test_F_11_dependents_get_what_the_good_attempt_made(site: AweEnv) -> None:
    script = (
        "test -f out.txt && exit 9; echo half > out.txt; [ $AWE_ATTEMPT = 2 ] || exit 1; echo whole > out.txt"
    )
    tasks = [
        {
            "taskid": "make",
            "cmd": {"cmd_script": [script]},
            "outputs": [{"filename": "out.txt"}],
            "keep_failed": True,
            "retry_delay_s": 0.05,
        },
        {
            "taskid": "use",
            "cmd": {"cmd_script": ["cp out.txt seen"]},
            "inputs": [{"filename": "out.txt", "origin": "make"}],
            "outputs": [{"filename": "seen"}],
        },
    ]
    job = site.submit({"info": {"name": "good attempt"}, "tasks": tasks})
    done = site.wait_for(job)
    seen = site.http.get(f"/node/{done['tasks'][1]['outputs'][0]['node']}?download").content
    assert seen == b"whole\n"
    assert kept(site, f"{job}_make_0") == {"out.txt": b"half\n"}


def test_nothing_is_kept_that_nobody_asked_for_or_that_is_not_there(site: AweEnv) -> None:
    unasked = submit(site, "echo x > one.txt; exit 1", "one.txt", keep_failed=False)
    nothing = submit(site, "exit 1", "one.txt")
    for job in (unasked, nothing):
        site.wait_for(job, "suspend")
        assert site.data("GET", f"/work/{job}_t_0")["kept"] == ""
        assert len(site.data("GET", "/node", params={"job": job})) == 1


def test_what_cannot_be_kept_does_not_change_why_it_failed(site: AweEnv) -> None:
    job = submit(site, "mkdir out; mkfifo out/p; ln -s /etc out/l; echo x > out/a; exit 7", "out/")
    stopped = site.wait_for(job, "suspend")
    assert stopped["error"]["worknotes"].startswith("exit code 7")
    assert kept(site, f"{job}_t_0") == {"out": None, "out/a": b"x\n"}


def test_the_command_line_says_where_what_was_kept_is(site: AweEnv, tmp_path: Path) -> None:
    job = submit(site, "echo half > one.txt; exit 1", "one.txt")
    site.wait_for(job, "suspend")
    work = f"{job}_t_0"
    node = site.data("GET", f"/work/{work}")["kept"]
    told = f"what attempt 1 of {work} left of its outputs is kept, as a tar: awe node get {node}"
    for words in (("watch", job), ("why", job), ("why", work)):
        assert told in site.awe(*words).stderr.splitlines()
    assert f"\n{work}\t1\t" in site.awe("show", job).stdout
    assert f"\t{node}\n" in site.awe("show", job).stdout
    assert site.awe("node", "get", node, "-o", str(tmp_path / "left.tar")).returncode == 0
    assert tarfile.is_tarfile(tmp_path / "left.tar")
