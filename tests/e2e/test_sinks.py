"""Outputs to everywhere: whole, of a split task, many files as one; while sinks and the server fail."""

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.faults import ALWAYS
from tests.support.http_files import HttpFiles
from tests.support.s3 import S3Server
from tests.support.shock import ShockServer

RECORDS = b"".join(b">r%d\nACGT%d\n" % (i, i) for i in range(60))
SINKS = ("own", "shock", "http", "file", "s3")


class Site:
    """A server, a client, and every kind of sink."""

    def __init__(self, home: Path, s3: S3Server) -> None:
        self._stack = ExitStack()
        self.s3 = s3
        self.bucket = s3.bucket()
        self.shared = home / "shared"
        self.shared.mkdir()
        (home / "web").mkdir()
        self.web = self._stack.enter_context(HttpFiles(home / "web"))
        self.shock = self._stack.enter_context(ShockServer(home / "shock"))
        root = ["--file-root", str(self.shared)]
        env = AweEnv(home, flags=root, server_env=s3.env(), client_env=s3.env())
        self.env = self._stack.enter_context(env)
        self.env.server.start()
        self.env.start_client(*root, slots=2)

    def close(self) -> None:
        self._stack.close()

    def sink(self, kind: str, name: str) -> dict[str, Any]:
        """The keys of an output that goes there."""
        return {
            "own": {},
            "shock": {"host": self.shock.url},
            "http": {"url": self.web.url_of(f"made/{name}")},
            "file": {"url": f"file://{self.shared}/made/{name}"},
            "s3": {"url": f"s3://{self.bucket}/made/{name}"},
        }[kind]

    def content(self, output: dict[str, Any]) -> bytes | None:
        """What is at the place that a completed task shows."""
        url = output["url"]
        if url.startswith("file://"):
            path = Path(url.removeprefix("file://"))
            return path.read_bytes() if path.exists() else None
        if url.startswith("s3://"):
            return self.s3.get(self.bucket, url.removeprefix(f"s3://{self.bucket}/"))
        if url.startswith(self.shock.url):
            return self.shock.content(output["node"])
        return self.env.http.get(url).content

    def node(self, data: bytes) -> str:
        return str(self.env.data("POST", "/node", files={"upload": ("in.fna", data)})["id"])

    def submit(self, *tasks: dict[str, Any]) -> str:
        return self.env.submit({"info": {"name": "sinks"}, "tasks": list(tasks)})

    def why(self, job: str) -> str:
        return str(self.env.data("GET", f"/job/{job}?why"))


@pytest.fixture
def site(tmp_path: Path, s3_server: S3Server) -> Iterator[Site]:
    site = Site(tmp_path, s3_server)
    yield site
    site.close()


def task(name: str, script: str, **keys: Any) -> dict[str, Any]:
    return {"taskid": name, "cmd": {"cmd_script": [script]}, **keys}


def copying(site: Site, sink: str, parts: int) -> dict[str, Any]:
    """A task that copies its input to a sink."""
    inputs = [{"filename": "in.fna", "node": site.node(RECORDS)}]
    outputs = [{"filename": "out.fna", **site.sink(sink, f"{parts}.fna")}]
    split = {"totalwork": parts, "partinfo": {"input": "in.fna", "index": "record"}} if parts > 1 else {}
    return task("make", "cat in.fna > out.fna", inputs=inputs, outputs=outputs, **split)


def names_of(data: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return tar.getnames()


def test_outputs_go_everywhere_whole_split_and_as_archives(site: Site) -> None:
    jobs: dict[tuple[str, str], str] = {}
    reading = task(
        "read",
        "cat out.fna > seen",
        inputs=[{"filename": "out.fna", "origin": "make"}],
        outputs=[{"filename": "seen"}],
    )
    for sink in SINKS:
        jobs[sink, "whole"] = site.submit(copying(site, sink, 1), reading)
        jobs[sink, "split"] = site.submit(copying(site, sink, 3), reading)
        archive = [{"filename": "out/", **site.sink(sink, "folder.tar")}]
        script = "mkdir out; echo $AWE_RANK > out/$AWE_RANK"
        listing = task(
            "read",
            "ls out > seen",
            inputs=[{"filename": "out/", "origin": "make"}],
            outputs=[{"filename": "seen"}],
        )
        jobs[sink, "archive"] = site.submit(task("make", script, totalwork=3, outputs=archive), listing)
    for (sink, kind), job in jobs.items():
        done = site.env.wait_for(job, within_s=120)
        made, read = done["tasks"][0], done["tasks"][1]
        assert made["totalwork"] == (1 if kind == "whole" else 3), (sink, kind)
        data = site.content(made["outputs"][0])
        assert data is not None, (sink, kind)
        assert made["outputs"][0]["size"] == len(data), (sink, kind)
        seen = site.content(read["outputs"][0])
        if kind == "archive":
            assert [name for name in names_of(data) if name != "out"] == ["out/1", "out/2", "out/3"]
            assert seen == b"1\n2\n3\n", (sink, kind)
        else:
            assert (data, seen) == (RECORDS, RECORDS), (sink, kind)
    # Nothing of the way there is left, here or there.
    own = {site.env.job(job)["tasks"][n]["outputs"][0]["node"] for job in jobs.values() for n in (0, 1)}

    def is_clean() -> bool:
        nodes = {n["id"] for n in site.env.data("GET", "/node?limit=1000") if n["job"]}
        return nodes <= own and not list(site.shared.glob("made/.awe-*"))

    eventually_sync(is_clean)
    assert {path.name for path in (site.shared / "made").iterdir()} == {"1.fna", "3.fna", "folder.tar"}
    assert len(site.shock.nodes) == 3
    assert site.s3.uploads(site.bucket) == []


@pytest.mark.parametrize("sink", SINKS)
def test_a_server_that_dies_between_delivery_and_commit_delivers_once(site: Site, sink: str) -> None:
    site.env.server.kill_at("before-finished")
    job = site.submit(copying(site, sink, 3))
    assert site.env.server.running.wait(60) == -9
    site.env.server.start()
    output = site.env.wait_for(job)["tasks"][0]["outputs"][0]
    assert site.content(output) == RECORDS
    assert len(site.shock.nodes) == (sink == "shock")


def test_a_sink_that_is_down_for_a_while_is_waited_for(site: Site) -> None:
    site.web.faults.fail(503, ALWAYS, method="PUT")
    port = site.shock.port
    site.shock.stop()
    jobs = [site.submit(copying(site, sink, 1)) for sink in ("http", "shock")]
    eventually_sync(
        lambda: f"{site.web.url}/made/1.fna answers 503" in site.why(jobs[0]), show=lambda: site.why(jobs[0])
    )
    eventually_sync(lambda: "tried again" in site.why(jobs[1]), show=lambda: site.why(jobs[1]))
    # Others do not wait for it.
    own = site.env.wait_for(site.submit(copying(site, "own", 1)))
    assert site.content(own["tasks"][0]["outputs"][0]) == RECORDS
    site.web.faults.clear()
    site.shock.start(port)
    for job in jobs:
        assert site.content(site.env.wait_for(job)["tasks"][0]["outputs"][0]) == RECORDS


def test_a_refusal_suspends_with_the_reason_and_resume_goes_on(site: Site) -> None:
    site.web.stores = False
    site.shock.token = "not-a-secret"
    (site.shared / "made" / "1.fna").mkdir(parents=True)
    jobs = {sink: site.submit(copying(site, sink, 1)) for sink in ("http", "shock", "file")}
    says = {"http": "answers 405", "shock": "answers 401", "file": "1.fna: is a directory"}
    for sink, job in jobs.items():
        stopped = site.env.wait_for(job, "suspend")
        assert says[sink] in stopped["notes"], stopped["notes"]
        assert stopped["tasks"][0]["remainwork"] == 0
    site.web.stores = True
    site.shock.token = ""
    (site.shared / "made" / "1.fna").rmdir()
    for job in jobs.values():
        site.env.data("PUT", f"/job/{job}?resume")
        assert site.content(site.env.wait_for(job)["tasks"][0]["outputs"][0]) == RECORDS


def test_missing_credentials_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with AweEnv(tmp_path) as env:
        env.server.start()
        env.start_client()
        outputs = [{"filename": "out", "url": "s3://nobodys-bucket/out"}]
        job = env.submit({"info": {}, "tasks": [task("t", "echo x > out", outputs=outputs)]})
        stopped = env.wait_for(job, "suspend")
        assert "no credentials for s3:// addresses" in stopped["notes"]


def test_copies_subsets_and_updates_are_made_of_nodes(site: Site) -> None:
    parent = site.node(RECORDS)
    inputs = [{"filename": "in.fna", "node": parent, "shockindex": "record"}]
    made = task(
        "make",
        "printf '2\\n3\\n60\\n' > some; : > none; echo '{\"seen\": 1}' > attributes.json",
        inputs=inputs,
        outputs=[
            {
                "filename": "copied",
                "type": "copy",
                "formoptions": {"parent_name": "in.fna", "copy_indexes": "1"},
            },
            {
                "filename": "some",
                "type": "subset",
                "formoptions": {"parent_node": parent, "parent_index": "record"},
            },
            {
                "filename": "none",
                "type": "subset",
                "formoptions": {"parent_node": parent, "parent_index": "record"},
            },
            {"filename": "in.fna", "type": "update", "node": parent, "attrfile": "attributes.json"},
        ],
    )
    later = task("later", "true", outputs=[
        {"filename": "some", "type": "update", "origin": "make", "nodeattr": {"from": "later"}},
    ])  # fmt: skip
    done = site.env.wait_for(site.submit(made, later))
    copied, some, none, updated = done["tasks"][0]["outputs"]
    assert site.content(copied) == RECORDS
    node = site.env.data("GET", f"/node/{copied['node']}")
    assert "record" in node["indexes"]
    lines = RECORDS.splitlines(keepends=True)
    assert site.content(some) == b"".join(lines[2:6] + lines[118:])
    assert site.content(none) == b""
    assert updated["node"] == parent
    assert site.env.data("GET", f"/node/{parent}")["attributes"] == {"seen": 1}
    assert site.env.data("GET", f"/node/{some['node']}")["attributes"] == {"from": "later"}


def test_a_list_that_is_none_suspends_by_line(site: Site) -> None:
    options = {"parent_node": site.node(RECORDS), "parent_index": "record"}
    outputs = [{"filename": "some", "type": "subset", "formoptions": options}]
    stopped = site.env.wait_for(
        site.submit(task("t", "printf '3\\n2\\n' > some", outputs=outputs)), "suspend"
    )
    assert "output some: line 2: 2 comes after 3; the numbers must rise" in stopped["notes"]


def test_what_is_to_be_deleted_goes_with_the_end_of_the_job(site: Site) -> None:
    outputs = [
        {"filename": sink, "delete": True, **site.sink(sink, f"{sink}.txt")}
        for sink in ("own", "shock", "file", "s3")
    ]
    inputs = [{"filename": io["filename"], "origin": "make"} for io in outputs]
    job = site.submit(
        task("make", "for f in own shock file s3; do echo $f > $f; done", outputs=outputs),
        task("read", "cat own shock file s3 > all", inputs=inputs, outputs=[{"filename": "all"}]),
    )
    done = site.env.wait_for(job)
    assert site.content(done["tasks"][1]["outputs"][0]) == b"own\nshock\nfile\ns3\n"
    own = done["tasks"][0]["outputs"][0]["node"]

    def gone() -> bool:
        kept = list(site.shared.rglob("*.txt")), site.s3.keys(site.bucket), list(site.shock.nodes)
        return not any(kept) and site.env.http.get(f"/node/{own}").status_code == 404

    eventually_sync(gone)


def test_awe_show_says_where_outputs_are(site: Site) -> None:
    job = site.submit(copying(site, "http", 1))
    site.env.wait_for(job)
    assert site.web.url_of("made/1.fna") in site.env.awe("show", job).stdout


def test_recompute_replaces_what_was_delivered(site: Site) -> None:
    jobs = {sink: site.submit(copying(site, sink, 1)) for sink in ("shock", "file")}
    before = {sink: site.env.wait_for(job)["tasks"][0]["outputs"][0]["node"] for sink, job in jobs.items()}
    for job in jobs.values():
        site.env.data("PUT", f"/job/{job}?recompute=make")
    for sink, job in jobs.items():
        output = site.env.wait_for(job)["tasks"][0]["outputs"][0]
        assert site.content(output) == RECORDS
        assert (output["node"] != before[sink]) == (sink == "shock")
    eventually_sync(lambda: list(site.shock.nodes) == [output["node"] for output in [
        site.env.job(jobs["shock"])["tasks"][0]["outputs"][0]
    ]])  # fmt: skip
