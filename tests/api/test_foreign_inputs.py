"""Inputs that are not in the node store: cut where they are, handed out piece by piece, never mixed."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from awe_server.data.source_indexes import YOUNG_S
from awe_server.runtime import cuts
from awe_server.runtime.index_sweep import needed
from shared_models.versions import file_version
from tests.api.conftest import Api
from tests.support.eventually import eventually
from tests.support.http_files import HttpFiles
from tests.support.lead import leads
from tests.support.s3 import S3Server
from tests.support.shock import ShockServer
from tests.unit.data.samples import READS

pytestmark = pytest.mark.anyio

LARGE = READS * 60
Kind = Literal["web", "shock", "file", "s3"]
KINDS: tuple[Kind, ...] = ("web", "shock", "file", "s3")


@dataclass
class Places:
    """Where files may be, besides the node store."""

    shared: Path
    web: HttpFiles
    shock: ShockServer
    s3: S3Server
    bucket: str

    def put(self, kind: Kind, data: bytes) -> str:
        """Store or replace the file; its URL."""
        if kind == "web":
            return self.web.put("reads.fastq", data)
        if kind == "shock":
            return self.shock.node_url(self.shock.add(data))
        if kind == "s3":
            return self.s3.put(self.bucket, "reads.fastq", data)
        (self.shared / "reads.fastq").write_bytes(data)
        return f"file://{self.shared}/reads.fastq"

    def read(self, kind: Kind, io: dict[str, Any], piece: tuple[int, int], index: str, part: str) -> bytes:
        """What a client gets for a piece."""
        whole = LARGE
        if piece == (-1, -1):
            assert kind == "shock"
            node = self.shock.nodes[io["node"]]
            offset, length = node.units(index, part)
        else:
            offset, length = piece
        return whole[offset : offset + length]


@pytest.fixture
def places(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Places]:
    for name, value in s3_server.env().items():
        monkeypatch.setenv(name, value)
    (tmp_path / "shared").mkdir()
    with HttpFiles(tmp_path / "web") as web, ShockServer(tmp_path / "shock") as shock:
        yield Places(tmp_path / "shared", web, shock, s3_server, s3_bucket)


@pytest.fixture
def settings(places: Places) -> dict[str, Any]:
    return {"file_roots": (str(places.shared),), "source_wait_s": 5.0}


def a_task(url: str, index: str = "record", parts: int = 4, **keys: Any) -> dict[str, Any]:
    return {
        "taskid": "0",
        "cmd": {"name": "cat"},
        "inputs": [{"filename": "reads.fastq", "url": url}],
        "outputs": [{"filename": "out"}],
        "totalwork": parts,
        "partinfo": {"input": "reads.fastq", "index": index},
        **keys,
    }


async def queued(api: Api, job: dict[str, Any]) -> dict[str, Any]:
    """The job's task, once it was looked at."""
    found = await api.state_of(job, "queued")
    task: dict[str, Any] = found["tasks"][0]
    return task


class Native:
    """Our own client, as far as it fetches work."""

    def __init__(self, api: Api, places: Places) -> None:
        self.api, self.places = api, places
        self.number = 0
        self.id = ""

    async def fetch(self, want: int = 64) -> dict[str, Any]:
        if not self.id:
            profile: dict[str, Any] = {
                "native": True,
                "incarnation": "one",
                "file_roots": [str(self.places.shared)],
            }
            self.id = (await self.api.register(cores=64, **profile))["id"]
        self.number += 1
        body = {
            "incarnation": "one", "request_id": self.number, "holds": [], "reports": [], "want": want,
            "wait_s": 0.0,
        }  # fmt: skip
        data: dict[str, Any] = await self.api.ok("POST", f"/client/{self.id}/exchange", json=body)
        return data


@pytest.fixture
def native(api: Api, places: Places) -> Native:
    return Native(api, places)


def index_files(api: Api) -> list[Path]:
    return sorted((api.services.settings.data_dir / "memory" / "indexes").glob("*.idx"))


@pytest.mark.parametrize("index", ["record", "line", "chunkrecord", "size"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_pieces_of_a_file_elsewhere_are_the_file(
    api: Api, places: Places, native: Native, kind: Kind, index: str
) -> None:
    url = places.put(kind, LARGE)
    task = await queued(api, await api.submit(a_task(url, index)))
    assert (task["totalwork"], task["partinfo"]["index"], task["notes"]) == (4, index, "")
    assert task["inputs"][0]["size"] == len(LARGE)
    data = await native.fetch()
    shown = data["tasks"][task["id"]]
    io = shown["inputs"][0]
    pieces = [
        places.read(kind, io, tuple(grant["pieces"][0]), shown["index"], grant["part"])
        for grant in sorted(data["work"], key=lambda grant: grant["rank"])
    ]
    assert len(pieces) == 4
    assert b"".join(pieces) == LARGE
    assert bool(io.get("etag")) == (kind != "shock")
    assert not any(key.startswith("_") for key in task["inputs"][0])


async def test_clients_are_told_the_version_that_was_cut(api: Api, places: Places, native: Native) -> None:
    job = await api.submit(a_task(places.put("file", LARGE)))
    task = await queued(api, job)
    shown = (await native.fetch())["tasks"][task["id"]]
    assert shown["inputs"][0]["etag"] == file_version((places.shared / "reads.fastq").stat())


async def test_another_shock_that_builds_no_index_is_read_by_stretches(
    api: Api, places: Places, native: Native
) -> None:
    places.shock.no_index.add("record")
    await queued(api, await api.submit(a_task(places.put("shock", LARGE))))
    work = (await native.fetch())["work"]
    spans = sorted(tuple(grant["pieces"][0]) for grant in work)
    assert spans[0][0] == 0
    assert sum(length for _, length in spans) == len(LARGE)


@pytest.mark.parametrize("how", ["their index", "our index", "without a token"])
async def test_a_private_node_is_cut_with_the_jobs_data_token(
    api: Api, places: Places, native: Native, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    places.shock.token = "canary"
    if how == "our index":
        places.shock.no_index.add("record")
    document = {"tasks": [a_task(places.put("shock", LARGE))]}
    headers = {} if how == "without a token" else {"Datatoken": "canary"}
    job = await api.ok("POST", "/job", json=document, headers=headers)
    task = await queued(api, job)
    if how == "without a token":
        host = places.shock.url.partition("://")[2]
        why = f"{host}: it cannot be read from the server: its host answers 401 and the job has no data token"
        assert task["notes"] == (
            f"size of reads.fastq is not known: {why}; not split: nothing is known of reads.fastq: {why}"
        )
        assert task["totalwork"] == 1
        return
    assert (task["totalwork"], task["notes"]) == (4, "")
    work = (await native.fetch())["work"]
    pieces = [grant["pieces"][0] for grant in work]
    if how == "their index":
        assert pieces == [[-1, -1]] * 4
    else:
        assert sum(length for _, length in pieces) == len(LARGE)
        assert len(index_files(api)) == 1
    assert "canary" not in str(task) + str(index_files(api)) + caplog.text


async def test_what_only_our_clients_can_fetch_is_not_for_stock_workers(
    api: Api, places: Places, native: Native
) -> None:
    await queued(api, await api.submit(a_task(places.put("web", LARGE))))
    worker = await api.register("stock")
    texts = await api.refused("GET", f"/work?client={worker['id']}", 400, "no_work")
    assert texts == ["No eligible workunit found"]
    await queued(api, await api.submit(a_task(places.put("shock", LARGE))))
    assert (await api.checkout(worker))["id"]


async def test_a_host_without_ranges_is_not_cut_and_that_is_said(api: Api, places: Places) -> None:
    url = places.put("web", LARGE)
    places.web.ranges = False
    task = await queued(api, await api.submit(a_task(url)))
    assert (task["totalwork"], task["notes"]) == (
        1,
        "not split: the host of reads.fastq sends no pieces of it",
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_not_there_refuses_the_task_by_name(api: Api, places: Places, kind: Kind) -> None:
    url = places.put(kind, READS)
    if kind == "shock":
        places.shock.nodes.clear()
    else:
        url += ".old"
    job = await api.state_of(await api.submit(a_task(url, parts=1)), "suspend")
    assert "input file reads.fastq not available: there is no such file: " in job["notes"]
    assert job["notes"].endswith(f"({url.partition('?')[0]})")


async def test_the_address_of_what_is_not_there_is_named_without_its_secrets(
    api: Api, places: Places
) -> None:
    url = places.put("web", READS) + ".old?key=canary"
    job = await api.state_of(await api.submit(a_task(url, parts=1)), "suspend")
    assert job["notes"].endswith(".fastq.old)")
    assert "canary" not in job["notes"]


@pytest.mark.parametrize("kind", KINDS)
async def test_F_02_broken_records_suspend_the_job_with_their_place(
    api: Api, places: Places, kind: Kind
) -> None:
    places.shock.no_index.add("record")
    job = await api.submit(a_task(places.put(kind, READS + b"@r\nACGT\n+\nII")))
    job = await api.state_of(job, "suspend")
    assert "reads.fastq: record 251, line 1004: the quality has 2 symbols, the sequence has 4" in job["notes"]


async def test_a_host_that_is_away_is_asked_again_and_then_the_task_is_refused(
    api: Api, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awe_server.runtime.effects.MAX_RETRY_S", 0.05)
    url = places.put("web", LARGE)
    places.web.faults.fail(503, times=4, method="HEAD|GET")
    task = await queued(api, await api.submit(a_task(url)))
    assert task["totalwork"] == 4

    places.web.faults.fail(503, times=1e9, method="HEAD|GET")
    job = await api.submit(a_task(url))
    await eventually(lambda: "503" in str(api.services.engine.troubles))
    why = await api.ok("GET", f"/job/{job['id']}?why")
    assert "its host answers 503" in str(why)
    assert re.search(r"it is asked again until [\dT:-]{19}Z, then the job is suspended", str(why))
    api.hands.advance(6.0)
    job = await api.state_of(job, "suspend")
    assert "input file reads.fastq: 127.0.0.1" in job["notes"]
    assert job["notes"].endswith("its host answers 503; tried for 5 s")

    places.web.faults.clear()
    await api.ok("PUT", f"/job/{job['id']}?resume")
    assert (await queued(api, job))["totalwork"] == 4


async def test_a_host_that_is_away_stops_nobody_who_wants_all(api: Api, places: Places) -> None:
    url = places.put("web", LARGE)
    places.web.faults.fail(503, times=1e9, method="HEAD|GET")
    task = await queued(api, await api.submit(a_task(url, parts=1)))
    assert (task["inputs"][0]["size"], task["totalwork"]) == (0, 1)


@pytest.mark.parametrize("how", ["changed", "gone"])
@pytest.mark.parametrize("kind", ["web", "file", "s3"])
async def test_a_file_that_changes_after_it_was_cut_suspends_the_job(
    api: Api, places: Places, native: Native, kind: Kind, how: str
) -> None:
    job = await api.submit(a_task(places.put(kind, LARGE)))
    await queued(api, job)
    assert len((await native.fetch(1))["work"]) == 1
    if how == "changed":
        places.put(kind, LARGE[:-1] + b"x")
    elif kind == "web":
        (places.web.folder / "reads.fastq").unlink()
    elif kind == "file":
        (places.shared / "reads.fastq").unlink()
    else:
        places.s3._http.delete(f"{places.s3.endpoint}/{places.bucket}/reads.fastq").raise_for_status()
    api.hands.advance(cuts.LOOK_AGAIN_S)
    await native.fetch(1)
    job = await api.state_of(job, "suspend")
    reason = "was changed after it was cut" if how == "changed" else "cannot be used any more"
    assert reason in job["notes"]
    assert "input file reads.fastq" in job["notes"]


async def test_an_index_that_was_lost_is_built_again(api: Api, places: Places, native: Native) -> None:
    await queued(api, await api.submit(a_task(places.put("web", LARGE))))
    (path,) = index_files(api)
    content = path.read_bytes()
    path.unlink()
    spans = [grant["pieces"][0] for grant in (await native.fetch())["work"]]
    assert sum(length for _, length in spans) == len(LARGE)
    assert path.read_bytes() == content


async def test_while_a_lost_index_is_built_nothing_is_handed_out_and_nothing_lost(
    api: Api, places: Places, native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuts, "REBUILD_S", 0.1)
    await queued(api, await api.submit(a_task(places.put("web", LARGE))))
    index_files(api)[0].unlink()
    places.web.faults.stall(times=1e9)
    assert (await native.fetch())["work"] == []
    places.web.faults.clear()

    async def is_whole() -> bool:
        api.hands.advance(1.0)  # what is given back at once again and again is paused
        work = (await native.fetch())["work"]
        return sum(int(grant["pieces"][0][1]) for grant in work) == len(LARGE)

    await eventually(is_whole, within_s=20.0)


async def test_two_jobs_share_the_index_of_a_file_and_it_goes_when_nobody_needs_it(
    api: Api, places: Places
) -> None:
    url = places.put("web", LARGE)
    jobs = [await api.submit(a_task(url)) for _ in range(2)]
    await asyncio.gather(*(queued(api, job) for job in jobs))
    (path,) = index_files(api)
    duties: Any = api.services.engine._duties

    async def swept() -> int:
        later_s = path.stat().st_mtime + 2 * YOUNG_S
        return int(
            await duties.indexes.collect(needed(api.services.engine.state), later_s, require_lead=leads)
        )

    assert await swept() == 0
    await api.ok("DELETE", f"/job/{jobs[0]['id']}")
    assert (await swept(), index_files(api)) == (0, [path])
    await api.ok("DELETE", f"/job/{jobs[1]['id']}")
    assert (await swept(), index_files(api)) == (1, [])


async def test_an_index_of_a_node_elsewhere_is_shared_by_who_may_read_the_node(
    api: Api, places: Places
) -> None:
    places.shock.no_index.add("record")
    places.shock.token = "canary"
    document = {"tasks": [a_task(places.put("shock", LARGE))]}
    for _ in range(2):
        job = await api.ok("POST", "/job", json=document, headers={"Datatoken": "canary"})
        assert (await queued(api, job))["totalwork"] == 4
    assert len(index_files(api)) == 1
    for headers in ({}, {"Datatoken": "another"}):
        job = await api.ok("POST", "/job", json=document, headers=headers)
        assert (await queued(api, job))["totalwork"] == 1
    other = {"tasks": [a_task(places.put("shock", LARGE))]}
    job = await api.ok("POST", "/job", json=other, headers={"Datatoken": "canary"})
    await queued(api, job)
    assert len(index_files(api)) == 2


async def test_a_young_index_is_left_alone(api: Api, places: Places) -> None:
    job = await api.submit(a_task(places.put("web", LARGE)))
    await queued(api, job)
    await api.ok("DELETE", f"/job/{job['id']}")
    duties: Any = api.services.engine._duties
    assert await duties.index_sweep.once() == 0
    assert len(index_files(api)) == 1


async def test_a_file_without_a_version_has_an_index_of_its_own_each_time(api: Api, places: Places) -> None:
    places.web.etags = places.web.dates = False
    url = places.put("web", LARGE)
    for _ in range(2):
        await queued(api, await api.submit(a_task(url)))
    assert len(index_files(api)) == 2


async def test_paired_files_of_two_kinds_are_cut_at_the_same_records(
    api: Api, places: Places, native: Native
) -> None:
    inputs = [
        {"filename": "a.fastq", "url": places.put("s3", LARGE)},
        {"filename": "b.fastq", "url": places.put("shock", LARGE)},
    ]
    partinfo = {"input": ["a.fastq", "b.fastq"], "index": "record"}
    task = await queued(api, await api.submit(a_task("", inputs=inputs, partinfo=partinfo)))
    assert (task["totalwork"], task["notes"]) == (4, "")
    work = (await native.fetch())["work"]
    assert {tuple(grant["pieces"][1]) for grant in work} == {(-1, -1)}
    assert sum(grant["pieces"][0][1] for grant in work) == len(LARGE)
