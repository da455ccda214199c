"""Split equals whole, wherever the input is: real servers, real clients, and what may go wrong on the way."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.http_files import HttpFiles
from tests.support.s3 import S3Server
from tests.support.shock import ShockServer
from tests.unit.data.samples import READS

LARGE = READS * 60
Kind = Literal["web", "shock", "file", "s3"]
KINDS: tuple[Kind, ...] = ("web", "shock", "file", "s3")


@dataclass
class Site:
    """A server with two clients, and files everywhere."""

    env: AweEnv
    shared: Path
    web: HttpFiles
    shock: ShockServer
    s3: S3Server
    bucket: str

    def put(self, kind: Kind, data: bytes, name: str = "reads.fastq") -> str:
        """Store or replace a file; its URL."""
        if kind == "web":
            return self.web.put(name, data)
        if kind == "shock":
            return self.shock.node_url(self.shock.add(data))
        if kind == "s3":
            return self.s3.put(self.bucket, name, data)
        (self.shared / name).write_bytes(data)
        return f"file://{self.shared}/{name}"

    def copy(self, url: str, parts: int, index: str = "record", script: str = "") -> str:
        """A job that copies a file in so many parts."""
        task: dict[str, Any] = {
            "taskid": "0",
            "cmd": {"cmd_script": [script, "cat reads.fastq > out", 'echo "$AWE_RANK" > ranks']},
            "inputs": [{"filename": "reads.fastq", "url": url}],
            "outputs": [{"filename": "out"}, {"filename": "ranks"}],
            "totalwork": parts,
        }
        if parts > 1:
            task["partinfo"] = {"input": "reads.fastq", "index": index}
        return self.env.submit({"info": {"name": "copy"}, "tasks": [task]})

    def outputs(self, job_id: str) -> list[bytes]:
        task = self.env.wait_for(job_id)["tasks"][0]
        return [self.env.http.get(f"/node/{io['node']}?download").content for io in task["outputs"]]


@pytest.fixture(scope="module")
def site(
    new_store: Callable[[], str], s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    shared = tmp_path_factory.mktemp("shared")
    env = AweEnv.temporary(
        store=new_store(), flags=["--file-root", str(shared)], server_env=s3_server.env(),
        client_env=s3_server.env(),
    )  # fmt: skip
    with env, HttpFiles(shared.with_name("web")) as web, ShockServer(shared.with_name("shock")) as shock:
        env.server.start()
        for _ in range(2):
            env.start_client("--file-root", str(shared), slots=2)
        yield Site(env, shared, web, shock, s3_server, s3_server.bucket())


@pytest.mark.parametrize("index", ["record", "chunkrecord"])
@pytest.mark.parametrize("kind", KINDS)
def test_split_equals_whole(site: Site, kind: Kind, index: str) -> None:
    url = site.put(kind, LARGE)
    whole, split = site.copy(url, 1), site.copy(url, 5, index)
    assert site.outputs(whole) == [LARGE, b"0\n"]
    assert site.outputs(split) == [LARGE, b"1\n2\n3\n4\n5\n"]


def test_without_ranges_it_is_not_split_and_that_is_said(site: Site) -> None:
    site.web.ranges = False
    try:
        job_id = site.copy(site.put("web", LARGE), 5)
        assert site.outputs(job_id) == [LARGE, b"0\n"]
    finally:
        site.web.ranges = True
    notes = site.env.job(job_id)["tasks"][0]["notes"]
    assert notes == "not split: the host of reads.fastq sends no pieces of it"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_there_is_refused_with_the_reason(site: Site, kind: Kind) -> None:
    url = site.put(kind, READS)
    if kind == "shock":
        del site.shock.nodes[url.partition("?")[0].rpartition("/")[2]]
    else:
        url += ".old"
    job = site.env.wait_for(site.copy(url, 1), "suspend")
    assert "input file reads.fastq not available: there is no such file" in job["notes"]


TOKEN = "canary-4711"


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShockServer]:
    with ShockServer(tmp_path_factory.mktemp("private"), token=TOKEN) as shock:
        yield shock


def private_job(private: ShockServer, parts: int) -> dict[str, Any]:
    """One that reads nodes as a whole or cut input, as predata, and attributes; and writes there."""
    url = private.node_url(private.add(LARGE, attributes={"sample": 7}))
    task: dict[str, Any] = {
        "taskid": "0",
        "cmd": {"cmd_script": ["cat reads.fastq > out; cat ref.txt attr.json > seen"]},
        "inputs": [{"filename": "reads.fastq", "url": url, "attrfile": "attr.json"}],
        "predata": [{"filename": "ref.txt", "url": private.node_url(private.add(b"reference"))}],
        "outputs": [{"filename": "out", "host": private.url}, {"filename": "seen"}],
        "totalwork": parts,
    }
    if parts > 1:
        task["partinfo"] = {"input": "reads.fastq", "index": "record"}
    return {"tasks": [task]}


@pytest.mark.parametrize("parts", [1, 3])
def test_private_nodes_are_read_with_the_jobs_data_token(
    site: Site, private: ShockServer, parts: int
) -> None:
    headers = {"Datatoken": TOKEN}
    job_id = site.env.data("POST", "/job", json=private_job(private, parts), headers=headers)["id"]
    out, seen = site.env.wait_for(job_id)["tasks"][0]["outputs"]
    assert private.content(out["node"]) == LARGE
    text = site.env.http.get(f"/node/{seen['node']}?download").content
    assert text == b'reference{"sample": 7}' * parts
    logs = "".join(path.read_text(errors="replace") for path in site.env.home.rglob("std*") if path.is_file())
    assert "canary" not in logs + str(site.env.job(job_id))


def test_without_a_token_the_job_says_which_host_refused_it(site: Site, private: ShockServer) -> None:
    job = site.env.wait_for(site.env.submit(private_job(private, 3)), "suspend")
    assert f"cannot fetch {private.url}/node/" in job["notes"]
    assert "it answers 401 and the job has no data token" in job["notes"]


class Gate:
    """Two workunits go through it, the others wait until it is opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.script = (
            f"mkdir {folder}/1 2>/dev/null || mkdir {folder}/2 2>/dev/null || "
            f"while [ ! -e {folder}/open ]; do sleep 0.05; done"
        )

    def open(self) -> None:
        (self._folder / "open").touch()

    def await_two(self, env: AweEnv, job_id: str) -> None:
        """Wait until two workunits are done."""

        def they_are() -> bool:
            task = env.job(job_id)["tasks"][0]
            return bool(task["state"] != "pending" and task["remainwork"] <= task["totalwork"] - 2)

        eventually_sync(they_are, show=lambda: env.job(job_id))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


@pytest.mark.parametrize("kind", ["web", "file", "s3"])
def test_F_02_a_file_that_changes_in_the_middle_is_never_mixed(site: Site, gate: Gate, kind: Kind) -> None:
    name = f"changing-{kind}.fastq"
    job_id = site.copy(site.put(kind, LARGE, name), 60, script=gate.script)
    gate.await_two(site.env, job_id)
    site.put(kind, READS[: len(READS) // 2] + LARGE, name)
    gate.open()
    job = site.env.wait_for(job_id, "suspend")
    assert "changed" in job["notes"], job["notes"]
    assert "reads.fastq" in job["notes"] or name in job["notes"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_killed_in_the_middle_goes_on_with_the_same_cut(
    site: Site, gate: Gate, kind: Kind
) -> None:
    job_id = site.copy(site.put(kind, LARGE, f"restart-{kind}.fastq"), 40, script=gate.script)
    gate.await_two(site.env, job_id)
    site.env.server.restart()
    gate.open()
    ranks = b"".join(b"%d\n" % rank for rank in range(1, 41))
    assert site.outputs(job_id) == [LARGE, ranks]
