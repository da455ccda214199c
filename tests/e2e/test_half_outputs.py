"""What an attempt left that did not end well is never taken for an output, by nobody (F-11)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync

#: How the first attempt of each workunit ends after half an output, and the keys of its task.
ENDS: dict[str, tuple[str, dict[str, Any]]] = {
    "killed with its client": ("sleep 600", {}),
    "timed out": ("sleep 600", {"time_limit_s": 1.5}),
    "exit 1": ("exit 1", {}),
}


@pytest.fixture(scope="module")
def site(new_store: Callable[[], str]) -> Iterator[AweEnv]:
    """A server; each test starts a client of a group of its own."""
    with AweEnv.temporary(store=new_store()) as env:
        env.server.start()
        yield env


def submit(site: AweEnv, group: str, marks: Path, end: str, parts: int, **keys: Any) -> str:
    """A task whose first attempts leave half of `out.txt`, and one that needs it.

    An attempt says that it has begun, and a good one waits until it may go on: `marks` holds a file for that.
    """
    script = [
        "test -f out.txt && exit 9",
        "printf half > out.txt",
        f': > "{marks}/began.$AWE_RANK.$AWE_ATTEMPT"',
        f"[ $AWE_ATTEMPT -gt 1 ] || {end}",
        f'until [ -e "{marks}/go.$AWE_RANK" ]; do sleep 0.02; done',
        'echo "whole $AWE_RANK" > out.txt',
    ]
    make = {
        "taskid": "make",
        "cmd": {"cmd_script": script},
        "outputs": [{"filename": "out.txt"}],
        "totalwork": parts,
        "retry_delay_s": 0.05,
        "max_failures": 9,
        **keys,
    }
    use = {
        "taskid": "use",
        "cmd": {"cmd_script": ["cat out.txt > seen", "ls >> seen"]},
        "inputs": [{"filename": "out.txt", "origin": "make"}],
        "outputs": [{"filename": "seen"}],
    }
    return site.submit({"info": {"name": "half", "clientgroups": group}, "tasks": [make, use]})


@pytest.mark.parametrize("parts", [1, 3], ids=["whole", "3 parts"])
@pytest.mark.parametrize("how", ENDS)
def test_F_11_what_a_failed_attempt_left_is_never_used(
    site: AweEnv, tmp_path: Path, how: str, parts: int
) -> None:
    end, keys = ENDS[how]
    group, work = f"{how}-{parts}".replace(" ", "-"), tmp_path / "work"
    ranks = [0] if parts == 1 else list(range(1, parts + 1))
    client = site.start_client("--work", str(work), group=group, slots=4)
    job = submit(site, group, tmp_path, end, parts, **keys)

    def began(attempt: int) -> bool:
        return all(list(tmp_path.glob(f"began.{rank}.{attempt}")) for rank in ranks)

    eventually_sync(lambda: began(1), show=client.output)
    if how == "killed with its client":
        client.kill()
        client = site.start_client("--work", str(work), group=group, slots=4)
    eventually_sync(lambda: began(2), show=client.output)
    nobody_sees_it(site, job)
    for rank in ranks[:-1]:
        (tmp_path / f"go.{rank}").touch()
    eventually_sync(lambda: site.job(job)["tasks"][0]["remainwork"] == 1)
    nobody_sees_it(site, job)
    (tmp_path / f"go.{ranks[-1]}").touch()

    done = site.wait_for(job)
    whole = "".join(f"whole {rank}\n" for rank in ranks)
    assert text_of(site, done["tasks"][0]) == whole
    seen = text_of(site, done["tasks"][1])
    assert seen.startswith(whole)
    assert "out.txt" in seen.removeprefix(whole).split()
    client.end()


def nobody_sees_it(site: AweEnv, job: str) -> None:
    """The output has no file, no dependent begins, no workunit of it exists."""
    make, use = site.job(job)["tasks"]
    assert (use["state"], make["outputs"][0]["size"]) == ("pending", 0)
    path = f"/node/{make['outputs'][0]['node']}"
    assert site.data("GET", path)["file"]["size"] == 0
    for query in ("?download", "?download&seek=0&length=4", "?download&index=size&part=1"):
        reply = site.http.get(path + query)
        assert (reply.status_code, reply.json()["code"]) == (400, "no_file"), reply.text
    units = site.data("GET", "/work", params={"query": "", "jobid": job})
    assert {unit["taskid"] for unit in units} == {make["id"]}


def text_of(site: AweEnv, task: dict[str, Any]) -> str:
    """What a task's output holds."""
    return site.http.get(f"/node/{task['outputs'][0]['node']}?download").text
