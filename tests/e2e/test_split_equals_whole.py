"""Split equals whole: for every way to split and every input that has broken splitters elsewhere."""

import gzip
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.env import AweEnv
from tests.support.inputs import INPUTS

#: Fails unless the part holds whole records.
CHECKS = {
    "fastq": (
        "tr -d '\\r' < \"$IN\" | awk 'NR % 4 == 1 && !/^@/ { bad = 1 } NR % 4 == 3 && !/^\\+/ { bad = 1 } "
        "NR % 4 == 2 { n = length($0) } NR % 4 == 0 && length($0) != n { bad = 1 } "
        "END { exit bad || NR % 4 }'"
    ),
    "fasta": "tr -d '\\r' < \"$IN\" | awk 'NF { exit !/^>/ }'",
}


@dataclass(frozen=True)
class Split:
    """How a task asks to be split, and whether its parts hold whole records."""

    keys: dict[str, Any]
    whole_records: bool = True


SPLITS = {
    "totalwork": Split({"totalwork": 8}),
    "maxworksize": Split({"maxworksize": 1}),
    "partinfo-record": Split({"totalwork": 8, "partinfo": {"input": "IN", "index": "record"}}),
    "partinfo-line": Split(
        {"totalwork": 8, "partinfo": {"input": "IN", "index": "line"}}, whole_records=False
    ),
}

CASES = [(name, split) for name in INPUTS for split in SPLITS]


def document(filename: str, node: str, split: Split, check: str) -> dict[str, Any]:
    """One task that checks its part, copies it, and says which part it was."""
    keys = {**split.keys}
    if "partinfo" in keys:
        keys["partinfo"] = {**keys["partinfo"], "input": filename}
    script = [f"IN={filename}", 'cp "$IN" copy', 'echo "$AWE_RANK $(wc -c < "$IN")" > ranks']
    if split.whole_records:
        script.append(check)
    return {
        "info": {"name": f"split {filename}"},
        "tasks": [
            {
                "taskid": "0",
                **keys,
                "cmd": {"cmd_script": script},
                "inputs": [{"filename": filename, "node": node}],
                "outputs": [{"filename": "copy"}, {"filename": "ranks"}],
            }
        ],
    }


@pytest.fixture(scope="module")
def site(new_store: Callable[[], str]) -> Iterator[AweEnv]:
    """A server and two clients."""
    with AweEnv.temporary(store=new_store()) as env:
        env.server.start()
        env.start_client(slots=2)
        env.start_client(slots=2)
        yield env


@pytest.fixture(scope="module")
def jobs(site: AweEnv) -> dict[tuple[str, str], str]:
    """The job of each case, all submitted before the first is waited for."""
    submitted: dict[tuple[str, str], str] = {}
    for name, (make, suffix) in INPUTS.items():
        filename = f"{name}.{suffix}"
        node = site.data("POST", "/node", files={"upload": (filename, make())})["id"]
        for how, split in SPLITS.items():
            submitted[name, how] = site.submit(document(filename, node, split, CHECKS[suffix]))
    return submitted


@pytest.mark.parametrize(("name", "how"), CASES, ids=[f"{name}-{how}" for name, how in CASES])
def test_the_merged_output_is_the_input(
    site: AweEnv, jobs: dict[tuple[str, str], str], name: str, how: str
) -> None:
    job = site.wait_for(jobs[name, how], within_s=100)
    whole = INPUTS[name][0]()
    task = job["tasks"][0]
    outputs = {
        file["filename"]: site.http.get(f"/node/{file['node']}?download").content for file in task["outputs"]
    }
    assert outputs["copy"] == whole

    ranks = [tuple(map(int, line.split())) for line in outputs["ranks"].splitlines()]
    count = task["totalwork"]
    assert [rank for rank, _ in ranks] == ([0] if count == 1 else list(range(1, count + 1)))
    assert sum(size for _, size in ranks) == len(whole)
    expect_parts(name, how, count, len(whole))


def expect_parts(name: str, how: str, count: int, size: int) -> None:
    """How many workunits there have to be."""
    if name == "empty":
        assert count == 1
    elif how == "maxworksize":
        # Parts hold whole units of about 1 MiB; a giant record is a unit of its own.
        assert count == 1 if size < 1 << 20 else count > 1
    elif name == "fewer-records-than-parts" and how != "partinfo-line":
        assert count == 3
    elif name == "giant-record":
        assert count == (8 if how == "partinfo-line" else 4)
    else:
        assert count == 8


#: Inputs with nothing, or next to nothing, in them: their bytes, and what is in them.
NOTHING: dict[str, tuple[bytes, bytes]] = {
    "empty.fa": (b"", b""),
    "newline.fa": (b"\n", b"\n"),
    "blanks.fa": (b"  \n\n", b"  \n\n"),
    "comment.txt": (b"# c\n", b"# c\n"),
    "comment.fa": (b"; c\n", b"; c\n"),
    "empty.fa.gz": (gzip.compress(b""), b""),
    "record.fa": (b">r\nACGT\n", b">r\nACGT\n"),
}
HOW = ("totalwork", "maxworksize", "partinfo-record")
#: Where an input comes from: it was uploaded, or a task made it.
FROM = ("raw", "parent")


def reading(name: str, how: str, source: dict[str, Any]) -> dict[str, Any]:
    """One task that copies such an input, and makes an empty file beside it."""
    unpack = {"uncompress": "gzip"} if name.endswith(".gz") else {}
    [task] = document(name, "", SPLITS[how], "")["tasks"]
    return {
        **task,
        "taskid": f"{how}-{name}".replace(".", "-"),
        "cmd": {"cmd_script": [f"cp {name} copy", ": > nothing", "echo $AWE_RANK > ranks"]},
        "inputs": [{"filename": name, **source, **unpack}],
        "outputs": [{"filename": "copy"}, {"filename": "nothing"}, {"filename": "ranks"}],
    }


@pytest.fixture(scope="module")
def nothing_jobs(site: AweEnv) -> dict[str, str]:
    """Two jobs with a task for each input and each split: one of uploaded inputs, one of a parent's."""
    nodes = {
        name: site.data("POST", "/node", files={"upload": (name, packed)})["id"]
        for name, (packed, _) in NOTHING.items()
    }
    parent = {
        "taskid": "make",
        "cmd": {"cmd_script": [f"cp {name} made-{name}" for name in NOTHING]},
        "inputs": [{"filename": name, "node": node} for name, node in nodes.items()],
        "outputs": [{"filename": f"made-{name}"} for name in NOTHING],
    }
    cases = [(name, how) for name in NOTHING for how in HOW]
    raw = [reading(name, how, {"node": nodes[name]}) for name, how in cases]
    made = [reading(f"made-{name}", how, {"origin": "make"}) for name, how in cases]
    return {
        "raw": site.submit({"info": {"name": "nothing in it"}, "tasks": raw}),
        "parent": site.submit({"info": {"name": "nothing made"}, "tasks": [parent, *made]}),
    }


@pytest.mark.parametrize("source", FROM)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", NOTHING)
def test_F_04_an_input_with_nothing_in_it_is_one_workunit(
    site: AweEnv, nothing_jobs: dict[str, str], name: str, how: str, source: str
) -> None:
    """One that is gzipped is not cut at all; a single record is not cut either, whatever was asked for."""
    job = site.wait_for(nothing_jobs[source], within_s=100)
    id = f"{how}-{'made-' if source == 'parent' else ''}{name}".replace(".", "-")
    [task] = [task for task in job["tasks"] if task["task_name"] == id]
    assert (task["state"], task["totalwork"], task["remainwork"]) == ("completed", 1, 0)
    made = {file["filename"]: file for file in task["outputs"]}
    content = NOTHING[name][1]
    for filename, whole in (("copy", content), ("nothing", b""), ("ranks", b"0\n")):
        reply = site.http.get(f"/node/{made[filename]['node']}?download")
        assert (reply.status_code, reply.content, made[filename]["size"]) == (200, whole, len(whole))
    node = f"/node/{made['copy']['node']}"
    for window in ("bytes=0-", "bytes=-1", "bytes=7-"):
        reply = site.http.get(f"{node}?download", headers={"Range": window})
        assert reply.status_code in (200, 206, 416), reply.text
    for kind in ("record", "chunkrecord", "line", "size"):
        index = site.data("PUT", f"{node}/index/{kind}")
        assert index["total_units"] == (2 if kind == "line" and content.count(b"\n") > 1 else 1), kind
        reply = site.http.get(f"{node}?download&index={kind}&part=1")
        assert reply.status_code == 200, reply.text
        assert content.startswith(reply.content)


def test_F_04_no_request_for_nothing_was_an_error_of_the_server(
    site: AweEnv, nothing_jobs: dict[str, str]
) -> None:
    for job in nothing_jobs.values():
        site.wait_for(job, within_s=100)
    log = site.server.running.output()
    assert "incident" not in log
    assert "Traceback" not in log


def test_the_same_with_curl_and_a_document_in_a_file(site: AweEnv, tmp_path: Path) -> None:

    def curl(*arguments: str) -> Any:
        done = subprocess.run(["curl", "-sS", *arguments], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["data"]

    url = site.server.url
    reads = tmp_path / "reads.fastq"
    reads.write_bytes(INPUTS["real-reads"][0]())
    node = curl("-F", f"upload=@{reads}", f"{url}/node")["id"]
    path = tmp_path / "job.json"
    path.write_text(json.dumps(document("reads.fastq", node, SPLITS["totalwork"], CHECKS["fastq"])))
    job_id = curl("-F", f"upload=@{path}", f"{url}/job")["id"]
    job = curl(f"{url}/job/{job_id}?wait_s=60")
    assert job["state"] == "completed", job["notes"]
    merged = subprocess.run(
        ["curl", "-sS", f"{url}/node/{job['tasks'][0]['outputs'][0]['node']}?download"],
        capture_output=True,
        check=True,
    ).stdout
    assert merged == reads.read_bytes()
