"""Cases from the field, as a user meets them: what is submitted by HTTP, and what the server does about it.

Each name begins with the case's number. docs/field-reports.md says of every case which tests show it, those
of single rooms and of whole systems, too.
"""

import errno
import gzip
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from awe_server.scheduler.tick import tick
from awe_server.store.base import Query
from shared_models.ids import TaskId
from tests.api.conftest import Api
from tests.api.test_exchange import Native, native
from tests.support.cost import cpu_below
from tests.support.eventually import eventually
from tests.support.trees import tree

pytestmark = pytest.mark.anyio
__all__ = ["native"]

READS = (Path(__file__).parents[1] / "data" / "emp_reads.fastq").read_bytes()


def task(name: str, *depends: str, **keys: Any) -> dict[str, Any]:
    return {"taskid": name, "cmd": {"name": "x"}, "dependsOn": list(depends), **keys}


async def post(api: Api, tasks: list[dict[str, Any]]) -> Any:
    with cpu_below(2.0):
        return await api.http.post("/job", content=json.dumps({"tasks": tasks}))


async def nothing_is_stored(api: Api) -> None:
    for collection in ("jobs", "tasks", "workunits"):
        assert (await api.services.engine.find(collection, Query())).total == 0
    assert not api.services.engine.state.jobs


# -- S-01 ------------------------------------------------------------------------------------------------


def chain(length: int, back: int | None = None) -> list[dict[str, Any]]:
    tasks = [task("t0"), *(task(f"t{i}", f"t{i - 1}") for i in range(1, length))]
    if back is not None:
        tasks[back]["dependsOn"].append(f"t{length - 1}")
    return tasks


def by_origin(name: str, origin: str) -> dict[str, Any]:
    inputs = [{"filename": origin, "origin": origin}] if origin else []
    return task(name, inputs=inputs, outputs=[{"filename": name}])


#: Documents that can never run, words of the refusal, and the same without the bad edge.
GRAPHS: dict[str, tuple[list[dict[str, Any]], list[str], list[dict[str, Any]]]] = {
    "itself": ([task("A", "A")], ["task 'A' depends on itself"], [task("A")]),
    "two": ([task("A", "B"), task("B", "A")], ["A -> B -> A"], [task("A"), task("B", "A")]),
    "three from a valid one": (
        [task("in"), task("A", "in", "C"), task("B", "A"), task("C", "B")],
        ["cycle", "A", "B", "C"],
        [task("in"), task("A", "in"), task("B", "A"), task("C", "B")],
    ),
    "origins only": (
        [by_origin("A", "B"), by_origin("B", "A")],
        ["A -> B -> A"],
        [by_origin("A", ""), by_origin("B", "A")],
    ),
    "2000 and a back edge": (chain(2_000, back=500), ["t500 -> t1999"], chain(2_000)),
    "5000 and a back edge": (chain(5_000, back=0), ["t0 -> t4999"], chain(5_000)),
    "the same name twice": ([task("A"), task("A")], ["'A' is the name of tasks[0]"], [task("A"), task("B")]),
    "an unknown name": ([task("A"), task("B", "C")], ["no task 'C'"], [task("A"), task("B", "A")]),
}


@pytest.mark.parametrize("name", GRAPHS)
async def test_S_01_a_graph_that_cannot_run_is_refused_and_runs_without_its_bad_edge(
    api: Api, name: str
) -> None:
    bad, words, good = GRAPHS[name]
    reply = await post(api, bad)
    assert (reply.status_code, reply.json()["code"]) == (400, "invalid_document")
    (text,) = reply.json()["error"]
    assert not [word for word in words if word not in text], text
    assert "in -> " not in text, "only tasks of the cycle are named"
    await nothing_is_stored(api)
    assert (await post(api, good)).status_code == 200


# -- S-02 ------------------------------------------------------------------------------------------------


async def test_S_02_an_input_that_its_origin_does_not_make_is_refused_once(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    reply = await post(
        api,
        [
            task("0", outputs=[{"filename": "protein.fna"}]),
            task("1", inputs=[{"filename": "protein.faa", "origin": "0"}]),
        ],
    )
    assert reply.status_code == 400
    assert reply.json()["error"] == [
        "tasks[1].inputs[0]: task '0' does not make 'protein.faa', it makes protein.fna; "
        "did you mean 'protein.fna'?"
    ]
    await nothing_is_stored(api)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        for _ in range(60):
            api.hands.advance(1)
            api.services.engine.run(tick)
    assert caplog.records == []


# -- X-01 ------------------------------------------------------------------------------------------------


async def test_X_01_20_000_tasks_with_1_kb_of_arguments_each_are_taken_and_stay_savable(api: Api) -> None:
    tasks = [{**task(str(i)), "cmd": {"name": "x", "args": "a" * 1024}} for i in range(20_000)]
    reply = await api.http.post("/job", content=json.dumps({"tasks": tasks}))
    assert reply.status_code == 200, reply.text[:300]
    path = f"/job/{reply.json()['data']['id']}"
    await api.report(await api.checkout(await api.register()))
    await api.ok("PUT", f"{path}?suspend")
    await api.ok("PUT", f"{path}?resume")
    assert api.services.engine.store_trouble == ""


async def test_X_01_a_task_of_50_000_workunits_runs_and_can_be_suspended(api: Api) -> None:
    job = await api.submit(task("0", totalwork=50_000))
    client = await api.register(cores=16)
    for _ in range(3):
        await api.report(await api.checkout(client))
    await api.ok("PUT", f"/job/{job['id']}?suspend")
    shown = await api.ok("GET", f"/job/{job['id']}")
    assert (shown["state"], shown["tasks"][0]["remainwork"]) == ("suspend", 49_997)


async def test_X_01_a_20_mb_argument_is_refused_with_the_limit(api: Api) -> None:
    reply = await post(api, [{**task("0"), "cmd": {"name": "x", "args": "a" * 20_000_000}}])
    assert reply.status_code in (400, 413)
    assert "is longer than" in reply.json()["error"][0] or "limit" in reply.json()["error"][0]
    await nothing_is_stored(api)


# -- X-10 ------------------------------------------------------------------------------------------------


async def test_X_10_a_body_of_200_mb_is_refused_and_the_server_goes_on(api: Api) -> None:
    async def body() -> Any:
        for _ in range(200):
            yield b" " * 1_000_000

    reply = await api.http.post("/job", content=body(), headers={"Content-Type": "application/json"})
    assert (reply.status_code, reply.json()["code"]) == (413, "too_large")
    await nothing_is_stored(api)
    await api.submit()


@pytest.mark.parametrize("name", ["Upload", "file", "", "awf", "upload\r\nx"])
async def test_X_10_a_form_with_wrong_names_is_refused(api: Api, name: str) -> None:
    document = json.dumps({"tasks": [task("0")]}).encode()
    reply = await api.http.post("/job", files={name: ("job.json", document)})
    assert 400 <= reply.status_code < 500, reply.text
    await nothing_is_stored(api)
    await api.submit()


# -- F-02 ------------------------------------------------------------------------------------------------

#: A last record that ends in the middle of each of its lines, and what is said of it.
CUT = {
    "header": (b"@last", "line 1001: the file ends after the header line"),
    "sequence": (b"@last\nACG", "line 1002: the file ends after the sequence"),
    "plus": (b"@last\nACGT\n+", "ends after 0 of 4 quality symbols"),
    "quality": (b"@last\nACGT\n+\nII", "line 1004: the quality has 2 symbols, the sequence has 4"),
}


@pytest.mark.parametrize("index", ["record", "chunkrecord"])
@pytest.mark.parametrize("where", CUT)
async def test_F_02_a_cut_record_fails_the_task_before_any_part_is_handed_out(
    api: Api, where: str, index: str
) -> None:
    last, says = CUT[where]
    node = await api.ok("POST", "/node", files={"upload": ("reads.fastq", READS + last)})
    split = {"totalwork": 4, "partinfo": {"input": "reads.fastq", "index": index}}
    inputs = [{"filename": "reads.fastq", "node": node["id"]}]
    job = await api.submit(
        task("0", inputs=inputs, outputs=[{"filename": "out"}], **split),
        task("1", inputs=[{"filename": "out", "origin": "0"}]),
    )
    shown = await api.state_of(job, "suspend")
    assert "reads.fastq: record 251, " in shown["notes"]
    assert says in shown["notes"]
    assert [t["state"] for t in shown["tasks"]] == ["suspend", "pending"]
    await nothing_was_handed_out(api)
    await api.ok("PUT", f"/node/{node['id']}", files={"upload": ("reads.fastq", READS)})
    await api.ok("PUT", f"/job/{job['id']}?resume")
    await runs_to_its_end(api, job, 4 if index == "record" else 1)


async def nothing_was_handed_out(api: Api) -> None:
    await api.refused("GET", f"/work?client={(await api.register())['id']}", 400, "no_work")
    assert (await api.services.engine.find("workunits", Query())).total == 0


async def runs_to_its_end(api: Api, job: dict[str, Any], ranks: int) -> dict[str, Any]:
    """Run a job's first task of so many workunits, then what follows, with outputs named `out`."""
    first = (await api.state_of(job, "queued"))["tasks"][0]
    assert first["totalwork"] == ranks
    client = await api.register()
    for done in range(1, 1 + ranks + len(job["tasks"][1:])):
        if done > ranks:
            await eventually(lambda: api.services.engine.state.demand_list[0].listed > 0)
        work = await api.checkout(client)
        for output in work["outputs"]:
            part = str(work["rank"]) if work["rank"] else "upload"
            await api.ok("PUT", f"/node/{output['node']}", files={part: ("out", b"7\n")})
        await api.report(work)
    return await api.state_of(job, "completed")


Mend = Callable[[], object]


def removed(blob: Path, monkeypatch: pytest.MonkeyPatch) -> Mend:
    away = blob.rename(blob.with_name("away"))
    return lambda: away.rename(blob)


def a_folder(blob: Path, monkeypatch: pytest.MonkeyPatch) -> Mend:
    away = blob.rename(blob.with_name("away"))
    blob.mkdir()
    return lambda: (blob.rmdir(), away.rename(blob))


def too_short(blob: Path, monkeypatch: pytest.MonkeyPatch) -> Mend:
    content = blob.read_bytes()
    blob.write_bytes(content[: len(content) * 9 // 10])
    return lambda: blob.write_bytes(content)


def failing(call: str) -> Callable[[Path, pytest.MonkeyPatch], Mend]:
    """A disk that answers EIO: to the first look, or to the scan. Permissions would not stop root."""

    def broken(*args: object, **more: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def fault(blob: Path, monkeypatch: pytest.MonkeyPatch) -> Mend:
        monkeypatch.setattr(call, broken)
        return monkeypatch.undo

    return fault


def scans_by(script: str) -> Callable[[Path, pytest.MonkeyPatch], Mend]:
    """Scans are started by this shell script."""

    def fault(blob: Path, monkeypatch: pytest.MonkeyPatch) -> Mend:
        python = blob.with_name("python")
        python.write_text("#!/bin/sh\n" + script.replace("PYTHON", sys.executable))
        python.chmod(0o755)
        monkeypatch.setattr("sys.executable", str(python))
        return monkeypatch.undo

    return fault


#: A worker that is killed after the first of its blocks.
KILLED = """exec PYTHON -c '
import os, signal
from awe_server.data import scan_fastq, worker

plain = scan_fastq.FastqScanner.feed

def feed(self, block):
    if self.records:
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(self, block)

scan_fastq.FastqScanner.feed = feed
worker.main()
'"""

FAULTS: dict[str, tuple[Callable[[Path, pytest.MonkeyPatch], Mend], str]] = {
    "removed": (removed, "is missing on the server's disk"),
    "a folder": (a_folder, "reads.fastq cannot be read: "),
    "too short": (too_short, "reads.fastq cannot be read: it has "),
    "EIO at the first look": (failing("os.pread"), "reads.fastq cannot be read: Input/output error"),
    "EIO in the scan": (
        failing("awe_server.data.build.FileSource.read_at"),
        "reads.fastq cannot be read: Input/output error",
    ),
    "no memory to scan": (
        scans_by('ulimit -v 20000\nexec PYTHON "$@"'),
        "reads.fastq cannot be read: the scan for index 'record' ended with ",
    ),
    "scan killed in the middle": (
        scans_by(KILLED),
        "reads.fastq cannot be read: the scan for index 'record' ended with -9",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_F_02_an_input_that_cannot_be_read_fails_the_task_and_resume_goes_on_once_it_can(
    api: Api, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault, says = FAULTS[name]
    content = READS if "EIO" in name else READS * 20  # small ones are scanned in this process
    node = await api.ok("POST", "/node", files={"upload": ("reads.fastq", content)})
    (blob,) = [path for path in (tmp_path / "data").rglob("*") if path.stat().st_size == len(content)]
    mend = fault(blob, monkeypatch)
    split = {"totalwork": 3, "partinfo": {"input": "reads.fastq", "index": "record"}}
    job = await api.submit(
        task(
            "0",
            inputs=[{"filename": "reads.fastq", "node": node["id"]}],
            outputs=[{"filename": "out"}],
            **split,
        ),
        task("1", inputs=[{"filename": "out", "origin": "0"}]),
    )
    shown = await api.state_of(job, "suspend")
    assert "input file reads.fastq not available: " in shown["notes"]
    assert says in shown["notes"]
    assert [t["state"] for t in shown["tasks"]] == ["suspend", "pending"]
    await nothing_was_handed_out(api)
    assert not list((tmp_path / "data").rglob("*.idx"))
    mend()
    await api.ok("PUT", f"/job/{job['id']}?resume")
    part = (await runs_to_its_end(api, job, 3))["tasks"][0]["partinfo"]
    records = content.count(b"\n") // 4
    assert (part["totalrecords"], part["donerecords"]) == (records, records)
    assert (await api.ok("GET", f"/node/{node['id']}"))["indexes"]["record"]["records"] == records


async def test_F_02_a_gzip_file_that_was_cut_is_never_cut_into_parts(api: Api) -> None:
    """Only who unpacks all of it can tell: the client does, before it starts the command."""
    packed = gzip.compress(READS)
    node = await api.ok(
        "POST", "/node", files={"upload": ("reads.fastq.gz", packed[: len(packed) * 9 // 10])}
    )
    inputs = [{"filename": "reads.fastq.gz", "node": node["id"], "uncompress": "gzip"}]
    job = await api.submit(task("0", inputs=inputs, totalwork=4))
    shown = (await api.state_of(job, "queued"))["tasks"][0]
    assert (shown["totalwork"], shown["remainwork"]) == (1, 1)
    assert shown["notes"].startswith("not split: ")


@pytest.mark.parametrize("content", [b"not_real_data\n", b"", b"\x1f"], ids=["text", "empty", "one byte"])
async def test_F_02_what_is_to_be_unpacked_and_is_no_gzip_file_fails_the_task(
    api: Api, content: bytes
) -> None:
    node = await api.ok("POST", "/node", files={"upload": ("reads.fastq.gz", content)})
    inputs = [{"filename": "reads.fastq", "node": node["id"], "uncompress": "gzip"}]
    job = await api.submit(task("0", inputs=inputs, totalwork=4))
    shown = await api.state_of(job, "suspend")
    assert "reads.fastq.gz cannot be read: it is not packed with gzip" in shown["notes"]
    await nothing_was_handed_out(api)
    await api.ok("PUT", f"/node/{node['id']}", files={"upload": ("reads.fastq.gz", gzip.compress(READS))})
    await api.ok("PUT", f"/job/{job['id']}?resume")
    await runs_to_its_end(api, job, 1)


@pytest.mark.parametrize("index", ["record", "size"])
async def test_F_02_an_input_that_was_replaced_between_two_parts_stops_the_task(api: Api, index: str) -> None:
    content = READS * 36  # four units of 1 MiB
    node = await api.ok("POST", "/node", files={"upload": ("reads.fastq", content)})
    inputs = [{"filename": "reads.fastq", "node": node["id"]}]
    job = await api.submit(task("0", inputs=inputs, totalwork=3, partinfo={"index": index}))
    await api.state_of(job, "queued")
    await api.report(await api.checkout(await api.register()))
    await api.ok("PUT", f"/job/{job['id']}?suspend")
    await api.ok("PUT", f"/node/{node['id']}", files={"upload": ("reads.fastq", content + READS)})
    await api.ok("PUT", f"/job/{job['id']}?resume")
    await api.refused("GET", f"/work?client={(await api.register())['id']}", 400, "no_work")
    shown = await api.state_of(job, "suspend")
    assert "input file reads.fastq was replaced after it was cut" in shown["notes"]
    await api.ok("PUT", f"/node/{node['id']}", files={"upload": ("reads.fastq", content)})
    await api.ok("PUT", f"/job/{job['id']}?resume")
    client = await api.register()
    for _ in range(2):
        await api.report(await api.checkout(client))
    part = (await api.state_of(job, "completed"))["tasks"][0]["partinfo"]
    assert part["doneindex"] == part["totalindex"] == (36 * 250 if index == "record" else 4)
    assert part["donerecords"] == part["totalrecords"] == (36 * 250 if index == "record" else None)


# -- F-08 ------------------------------------------------------------------------------------------------


NAMES = ["../../x", "/etc/x", "a/../../x", "a\0b", "n" * 300, "~", "C:\\x", "..", "."]

NOBODYS = "0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10"  #: a node that is not there

#: Where a document names a file.
PLACES = (
    "cmd.stdout",
    "cmd.stderr",
    "inputs[0].filename",
    "inputs[0].attrfile",
    "predata[0].filename",
    "outputs[0].filename",
    "outputs[0].directory",
    "outputs[0].attrfile",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", PLACES)
async def test_F_08_a_name_that_leaves_the_work_directory_is_refused_at_submit(
    api: Api, name: str, where: str
) -> None:
    files, key = where.replace("[0]", "").split(".")
    bad = task("0")
    if files == "cmd":
        bad["cmd"][key] = name
    else:
        bad[files] = [{"filename": "x", **({} if files == "outputs" else {"node": NOBODYS}), key: name}]
    reply = await post(api, [bad])
    assert (reply.status_code, reply.json()["code"]) == (400, "invalid_document"), reply.text
    assert [text.partition(": ")[0] for text in reply.json()["error"]] == [f"tasks[0].{where}"]
    await nothing_is_stored(api)


@pytest.mark.parametrize("name", ["sub/dir/ok.txt", "./ok", "%2e%2e%2f", "..a"])
async def test_F_08_an_honest_name_works_from_end_to_end(api: Api, name: str) -> None:
    job = await api.submit(task("0", outputs=[{"filename": name}]))
    await api.state_of(job, "queued")
    work = await api.checkout(await api.register())
    (output,) = work["outputs"]
    assert output["filename"] == name.removeprefix("./")
    await api.ok("PUT", f"/node/{output['node']}", files={"upload": (name, b"7\n")})
    await api.report(work)
    await api.state_of(job, "completed")
    assert (await api.http.get(f"/node/{output['node']}?download")).content == b"7\n"


@pytest.mark.parametrize("id", ["%2e%2e%2fcanary", "..%2F..%2Fcanary", "a%2Fb", "%00", "%2e%2e", "C:%5Cx"])
async def test_F_08_no_id_in_an_address_reaches_a_file_beside_the_store(
    api: Api, tmp_path: Path, id: str
) -> None:
    for folder in (tmp_path, tmp_path / "data"):
        folder.mkdir(exist_ok=True)
        (folder / "canary").write_text("alive")
    before = tree(tmp_path)
    upload = {"files": {"upload": ("x", b"evil")}}
    for method, path, more in (
        ("GET", f"/job/{id}", {}),
        ("DELETE", f"/job/{id}?full", {}),
        ("GET", f"/node/{id}?download", {}),
        ("PUT", f"/node/{id}", upload),
        ("DELETE", f"/node/{id}", {}),
        ("GET", f"/work/{id}_0_0/log/stdout", {}),
        ("GET", f"/work/{id}_0_0?report=stdout", {}),
    ):
        reply = await api.http.request(method, path, **more)
        assert 400 <= reply.status_code < 500, (method, path, reply.text)
        assert "alive" not in reply.text
    assert tree(tmp_path) == before


# -- F-10 ------------------------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A shared directory that is open to jobs."""
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(shared: Path) -> dict[str, Any]:
    """The usual ones, and what is shared."""
    return {"file_roots": (str(shared),)}


async def make_hits(api: Api, native: Native, grant: dict[str, Any]) -> dict[str, Any]:
    """Upload an attempt's output; the report."""
    node = api.services.engine.state.tasks[TaskId(grant["task"])].output("hits.txt")["node"]
    path = f"/node/{node}?work={grant['id']}&attempt={grant['attempt']}"
    fact = await api.ok("PUT", path, content=b"7\n", headers={"Awe-Lease": grant["token"]})
    return native.report(grant, outputs=[{"filename": "hits.txt", "size": 2, "md5": fact["md5"]}])


async def with_roots(api: Api, native: Native, *roots: Path) -> Native:
    """The same client, which opens these directories to jobs."""
    profile = {"id": native.id, "native": True, "cores": 64, "incarnation": "i2"}
    await api.register("w1", file_roots=[str(root) for root in roots], **profile)
    native.incarnation = "i2"
    return native


@pytest.mark.parametrize("place", ["node", "shared"])
async def test_F_10_an_optional_output_that_nobody_made_stops_who_needs_it_and_says_why(
    api: Api, native: Native, shared: Path, place: str
) -> None:
    """No input is optional, and what an older job left at the output's address is not this job's."""
    (shared / "hits.txt").write_text("of an older job")
    where = {"url": f"file://{shared}/hits.txt"} if place == "shared" else {}
    job = await api.submit(
        task("find", outputs=[{"filename": "hits.txt", "optional": True, **where}]),
        task("use", inputs=[{"filename": "hits.txt", "origin": "find"}]),
        task("tidy", "use"),
    )
    await with_roots(api, native, shared)
    grant = await next_of(native, "find")
    await native.exchange(reports=[native.report(grant, outputs=[])])
    for _ in range(2):
        shown = await api.state_of(job, "suspend")
        assert (
            "hits.txt not available: task 'find' was completed without making it (optional" in shown["notes"]
        )
        assert [t["state"] for t in shown["tasks"]] == ["completed", "suspend", "pending"]
        assert await native.take() == []
        await api.ok("PUT", f"/job/{job['id']}?resume")
    await api.state_of(job, "suspend")
    await api.ok("PUT", f"/job/{job['id']}?recompute=find")
    grant = await next_of(native, "find")
    if place == "node":
        await native.exchange(reports=[await make_hits(api, native, grant)])
        for name in ("use", "tidy"):
            await native.exchange(reports=[native.report(await next_of(native, name))])
        await api.state_of(job, "completed")


async def next_of(native: Native, name: str) -> dict[str, Any]:
    """The workunit of a task, once there is one."""
    grants: list[dict[str, Any]] = []

    async def came() -> bool:
        grants.extend(await native.take())
        return bool(grants)

    await eventually(came)
    [grant] = grants
    assert grant["task"].endswith(f"_{name}")
    return grant
