"""Inputs in a Shock that gives nothing without the job's token, however they are read."""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_server import FakeServer
from tests.support.shock import ShockServer
from tests.unit.client.conftest import MakeDaemon
from tests.unit.client.test_archive import made

pytestmark = pytest.mark.anyio


@pytest.fixture
def shock(tmp_path: Path) -> Iterator[ShockServer]:
    with ShockServer(tmp_path / "shock", token="secret") as served:
        yield served


def entry(shock: ShockServer, name: str, data: bytes, **more: Any) -> dict[str, Any]:
    node = shock.add(data, attributes={"sample": 7})
    return {"filename": name, "host": shock.url, "node": node, "url": shock.node_url(node), **more}


async def test_the_token_opens_whatever_a_command_reads(
    server: FakeServer, start: MakeDaemon, shock: ShockServer
) -> None:
    start()
    files = {
        "predata": [entry(shock, "db.txt", b"reference\n")],
        "inputs": [
            entry(shock, "whole.txt", b"whole\n", attrfile="attr.json"),
            entry(shock, "out/", made(("out/a", tarfile.REGTYPE, "unpacked\n"))),
            entry(shock, "in.txt", b"one\ntwo\n"),
        ],
    }
    works = await server.add_task(
        script=["cat db.txt whole.txt out/a in.txt attr.json"],
        ranks=2,
        grants=[{"part": "1-1", "pieces": [(0, 4)]}, {"part": "2-2", "pieces": [(4, 4)]}],
        part_inputs=["in.txt"],
        index="line",
        datatoken="secret",
        **files,
    )
    for work, piece in zip(works, ("one", "two"), strict=True):
        report = await server.result(work)
        assert report["stdout_tail"] == f'reference\nwhole\nunpacked\n{piece}\n{{"sample": 7}}'


@pytest.mark.parametrize("token", ["", "another"])
@pytest.mark.parametrize("given_as", ["predata", "inputs"])
async def test_what_one_job_may_read_the_cache_gives_to_no_other(
    server: FakeServer, start: MakeDaemon, shock: ShockServer, given_as: str, token: str
) -> None:
    start()
    files: dict[str, Any] = {given_as: [entry(shock, "db.txt", b"reference\n", cache=True)]}
    for _ in range(2):
        [work] = await server.add_task("cat", "db.txt", datatoken="secret", **files)
        assert (await server.result(work))["stdout_tail"] == "reference\n"
    assert len([seen for seen in shock.requests if "authorization" in seen.headers]) == 1
    more = {"datatoken": token} if token else {}
    [other] = await server.add_task("cat", "db.txt", jobid="another", **more, **files)
    report = await server.result(other)
    assert report["outcome"] == "failed"
    assert "secret" not in str(report)
