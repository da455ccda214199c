"""Wherever a file lies or goes, whole or in parts: the result is what the command makes of it locally."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.support.env import AweEnv
from tests.support.http_files import HttpFiles
from tests.support.s3 import S3Server
from tests.support.shock import ShockServer
from tests.unit.data.samples import READS

COMPLEMENT = "awk 'NR % 4 == 2 { print; next } { print tolower($0) }' reads.fastq | tr ACGT TGCA > out"
PARTS = 3

Output = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """How a file is put there, how an output is sent there, and what is there of an output afterwards."""

    put: Callable[[bytes, str], dict[str, str]]
    sink: Callable[[str], dict[str, str]]
    read: Callable[[Output, str], bytes | None]


@dataclass(frozen=True)
class Site:
    """A server and a client that reach every place."""

    env: AweEnv
    places: dict[str, Place]
    answer: bytes

    def run(self, source: dict[str, str], sink: dict[str, str], parts: int) -> dict[str, Any]:
        """Run the command on what is there; the task when all is done."""
        task = {
            "taskid": "0",
            "cmd": {"cmd_script": ["set -e -o pipefail", COMPLEMENT, 'echo "$AWE_RANK" > ranks']},
            "inputs": [{"filename": "reads.fastq", **source}],
            "outputs": [{"filename": "out", **sink}, {"filename": "ranks"}],
            "totalwork": parts,
            **({"partinfo": {"input": "reads.fastq", "index": "record"}} if parts > 1 else {}),
        }
        done: dict[str, Any] = self.env.wait_for(self.env.submit({"tasks": [task]}))["tasks"][0]
        return done


def own_place(env: AweEnv) -> Place:
    def put(data: bytes, name: str) -> dict[str, str]:
        return {"node": env.data("POST", "/node", files={"upload": (name, data)})["id"]}

    def read(output: Output, _: str) -> bytes:
        return env.http.get(f"/node/{output['node']}?download").content

    return Place(put, lambda name: {}, read)


def shock_place(shock: ShockServer) -> Place:
    return Place(
        put=lambda data, name: {"host": shock.url, "node": shock.add(data, name)},
        sink=lambda name: {"host": shock.url, "shockfilename": name},
        read=lambda output, name: shock.content(output["node"]),
    )


def web_place(web: HttpFiles) -> Place:
    return Place(
        put=lambda data, name: {"url": web.put(name, data)},
        sink=lambda name: {"url": web.url_of(name)},
        read=lambda output, name: (web.folder / name).read_bytes(),
    )


def file_place(folder: Path) -> Place:
    def put(data: bytes, name: str) -> dict[str, str]:
        (folder / name).write_bytes(data)
        return {"url": f"file://{folder}/{name}"}

    return Place(
        put=put,
        sink=lambda name: {"url": f"file://{folder}/{name}"},
        read=lambda output, name: (folder / name).read_bytes(),
    )


def s3_place(s3: S3Server, bucket: str) -> Place:
    return Place(
        put=lambda data, name: {"url": s3.put(bucket, name, data)},
        sink=lambda name: {"url": f"s3://{bucket}/{name}"},
        read=lambda output, name: s3.get(bucket, name),
    )


@pytest.fixture(scope="module")
def site(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("places")
    shared, roots = home / "shared", ["--file-root", str(home / "shared")]
    shared.mkdir()
    (home / "reads.fastq").write_bytes(READS)
    subprocess.run(["bash", "-ec", COMPLEMENT], cwd=home, check=True)
    answer = (home / "out").read_bytes()
    assert (answer != READS, len(answer)) == (True, len(READS))
    env = AweEnv(home, flags=roots, server_env=s3_server.env(), client_env=s3_server.env())
    with env, HttpFiles(home / "web") as web, ShockServer(home / "shock") as shock:
        env.server.start()
        env.start_client(*roots, slots=3)
        places = {
            "own node": own_place(env),
            "Shock": shock_place(shock),
            "http": web_place(web),
            "file": file_place(shared),
            "s3": s3_place(s3_server, s3_server.bucket()),
        }
        yield Site(env, places, answer)


CASES = list(product(("own node", "Shock", "http", "file", "s3"), (1, PARTS), ("input", "output")))


@pytest.mark.parametrize(
    ("where", "parts", "direction"),
    CASES,
    ids=[f"{where}-{'part' if parts > 1 else 'whole'}-{direction}" for where, parts, direction in CASES],
)
def test_the_result_is_the_local_answer(site: Site, where: str, parts: int, direction: str) -> None:
    there, own = site.places[where], site.places["own node"]
    source, sink = (there, own) if direction == "input" else (own, there)
    name = f"result-{parts}-{direction}"
    task = site.run(source.put(READS, f"reads-{parts}-{direction}.fastq"), sink.sink(name), parts)
    out, ranks = task["outputs"]
    assert sink.read(out, name) == site.answer
    assert own.read(ranks, "") == (b"0\n" if parts == 1 else b"1\n2\n3\n"), task["notes"]
