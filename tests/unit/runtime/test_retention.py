"""What has ended goes when its time has come, and never what somebody still needs."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from awe_server.runtime.expiry import Expiry
from awe_server.runtime.node_expiry import NodeExpiry
from awe_server.runtime.parts_removal import PartsRemover
from awe_server.scheduler.jobs import delete_job, recompute_job, resume_job, set_expiration, suspend_job
from awe_server.store.base import Delete, Document, Query
from shared_models.errors import Conflict, JobNotFound, NodeNotFound
from shared_models.ids import JobId
from tests.support.eventually import eventually
from tests.unit.runtime.site import Site, stream
from tests.unit.runtime.workshop import done, task

pytestmark = pytest.mark.anyio


@pytest.fixture
def site_type() -> type[Site]:
    return Site


async def sweep(site: Site) -> None:
    """One turn of all sweeps."""
    await Expiry(site.engine, site.remover, PartsRemover(site.engine), site.root / "logs", 60.0).once()
    await NodeExpiry(site.engine, site.nodes, 60.0).once()


async def exists(site: Site, node_id: str) -> bool:
    try:
        await site.nodes.get(node_id)
    except NodeNotFound:
        return False
    return True


def reading(node_id: str, **more: Any) -> dict[str, Any]:
    """A task that reads a node."""
    return task(inputs=[{"filename": "in.txt", "host": "", "node": node_id}], **more)


async def work_off(site: Site, content: bytes = b"x") -> None:
    """Do all there is to do."""
    for grant in await site.fetch(100):
        made = []
        for io in grant.task.outputs:
            fact = await site.nodes.put_part(io["node"], grant.unit.rank, grant.attempt, stream(content))
            made.append({"filename": io["filename"], "size": fact.size, "md5": fact.md5})
        await site.exchange(reports=[{**done(grant), "outputs": made}])


async def finished(site: Site, content: bytes = b"x") -> tuple[JobId, str]:
    """A completed job, and its output's node."""
    job_id = await site.submit(task(outputs=[{"filename": "out.txt"}]))
    await site.until(job_id, "queued")
    await work_off(site, content)
    seen = await site.until(job_id, "completed")
    return job_id, seen["outputs"][0]["node"]


async def waiting(site: Site, node_id: str) -> JobId:
    """An unfinished job that is given a node."""
    job_id = await site.submit(reading(node_id))
    await site.until(job_id, "queued")
    return job_id


async def expire(site: Site, job_id: JobId) -> None:
    await site.engine.ensure_job(job_id)
    await site.engine.do(set_expiration, job_id, "1M")
    site.hands.wall_s += 61


async def remove(site: Site, job_id: JobId) -> None:
    await site.engine.ensure_job(job_id)
    await site.engine.do(delete_job, job_id, full=True)
    await eventually(lambda: _no_notes(site))


async def do_again(site: Site, job_id: JobId) -> None:
    await site.engine.ensure_job(job_id)
    await site.engine.do(recompute_job, job_id, "0")
    await eventually(lambda: _no_notes(site))


async def _no_notes(site: Site) -> bool:
    notes = (await site.engine.find("meta", Query())).documents
    return not [note for note in notes if note["id"].startswith("delete-nodes-")]


@pytest.mark.parametrize("how", [expire, remove, do_again])
async def test_an_output_that_another_job_reads_stays_until_that_has_ended(site: Site, how: Any) -> None:
    first, node = await finished(site)
    second = await waiting(site, node)
    await how(site, first)
    await sweep(site)
    assert await site.text(node) == b"x"
    assert (await site.nodes.get(node))["job"] is None, "it has outlived what it was made for"
    await site.engine.do(suspend_job, second, "for now")
    site.hands.wall_s += 7200
    await sweep(site)
    assert await exists(site, node), "a suspended job may go on"
    await site.engine.do(delete_job, second)
    site.hands.wall_s += 61
    await sweep(site)
    assert not await exists(site, node)
    assert (await site.nodes.usage()).used_bytes == 0


async def test_an_output_to_be_deleted_with_the_end_of_its_job_waits_for_its_readers(site: Site) -> None:
    node = await site.node(b"given to two")
    reader = await waiting(site, node)
    io = {"filename": "in.txt", "host": "", "node": node, "delete": True}
    other = await site.submit(task(inputs=[io]), priority=9)
    await site.until(other, "queued")
    (grant,) = await site.fetch(1)
    assert grant.task.job.id == other
    await site.exchange(reports=[done(grant)])
    await site.until(other, "completed")
    await eventually(lambda: _no_notes(site))
    await sweep(site)
    assert await exists(site, node)
    await site.engine.do(delete_job, reader)
    site.hands.wall_s += 61
    await sweep(site)
    assert not await exists(site, node)


async def test_a_job_that_failed_for_good_goes_when_its_time_has_come(site: Site) -> None:
    """No verb brings it on any more, so the end that was waited for has come."""
    job_id = await site.submit(task())
    await expire(site, job_id)
    await sweep(site)
    assert await site.engine.get("jobs", job_id), "it has not ended"
    (grant,) = await site.fetch()
    report = {**done(grant), "outcome": "failed", "kind": "command", "exit_code": 42}
    await site.exchange(reports=[report])
    assert (await site.shown(job_id))[0]["state"] == "failed-permanent"
    await sweep(site)
    assert await site.engine.get("jobs", job_id) is None


async def test_a_download_goes_on_to_its_end_while_the_job_expires(site: Site) -> None:
    job_id, node = await finished(site, bytes(3 << 20))
    download = await site.nodes.open_range(node)
    size = len(await anext(download.chunks))
    await expire(site, job_id)
    await sweep(site)
    await site.nodes.collect_orphans(min_age_s=-1)
    assert not await exists(site, node)
    async for chunk in download.chunks:
        size += len(chunk)
    assert size == 3 << 20


async def test_what_an_upload_has_brought_so_far_is_nobodys_orphan(site: Site) -> None:
    half, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield bytes(2 << 20)
        half.set()
        await go_on.wait()
        yield b"end"

    upload = asyncio.create_task(site.nodes.create(slow()))
    await half.wait()
    job_id, node = await finished(site)
    await expire(site, job_id)
    site.hands.wall_s += 1e6  # whatever lies about is old by now
    await sweep(site)
    await site.nodes.collect_orphans(min_age_s=-1)
    go_on.set()
    made = await upload
    assert await site.text(made["id"]) == bytes(2 << 20) + b"end"
    assert not await exists(site, node)


async def test_a_node_that_a_job_names_at_that_very_moment_stays(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is submitted between the removal of the old job and that of its nodes."""
    first, node = await finished(site)
    await expire(site, first)
    plain, second = site.remover.remove, list[JobId]()

    async def meanwhile(node_id: str) -> None:
        second.append(await site.submit(reading(node)))
        await plain(node_id)

    monkeypatch.setattr(site.remover, "remove", meanwhile)
    await sweep(site)
    assert await site.engine.get("jobs", first) is None
    await site.until(second[0], "queued")
    await work_off(site)
    await site.until(second[0], "completed")


async def test_logs_stay_as_long_as_the_document_of_their_job(site: Site) -> None:
    """Also those of a deleted job: its document refers to them, and goes by `expiration` or `full`."""
    kept, gone = [(await finished(site))[0] for _ in range(2)]
    for job_id in (kept, gone):
        log = site.root / "logs" / job_id / "0.1.stdout"
        log.parent.mkdir(parents=True)
        log.write_text("hello")
        await site.engine.ensure_job(job_id)
        await site.engine.do(delete_job, job_id)
    await expire(site, gone)
    site.hands.wall_s += 1e6
    await sweep(site)
    assert [(site.root / "logs" / job_id).exists() for job_id in (kept, gone)] == [True, False]


async def test_blobs_that_no_document_names_are_collected_and_no_others(site: Site) -> None:
    """What a crash leaves between a document and its bytes."""
    kept = await site.node(b"named")
    lost = await site.node(b"not named any more")
    await site.engine.put(Delete("nodes", lost))
    assert await site.nodes.collect_orphans(min_age_s=-1) == 1
    assert await site.text(kept) == b"named"
    assert (await site.nodes.usage()).used_bytes == len(b"named")


async def needed(site: Site) -> set[str]:
    """The nodes that jobs which have not ended are given or make, by the documents alone."""
    states = {job["id"]: job["state"] for job in await everything(site, "jobs")}
    found: set[str] = set()
    for one in await everything(site, "tasks"):
        # Those of a removed job go a little after it.
        if states.get(one["jobid"], "deleted") not in ("completed", "deleted", "failed-permanent"):
            found.update(io["node"] for io in (*one["inputs"], *one["outputs"]))
    return found - {"", "-"}


async def everything(site: Site, collection: Any) -> list[Document]:
    return (await site.engine.find(collection, Query())).documents


class Life:
    """Random submissions, results, ends and expirations."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site, self.rng = site, random.Random(seed)
        self.jobs: list[JobId] = []

    async def submit(self) -> None:
        nodes = [node["id"] for node in await everything(self.site, "nodes") if node["file"]]
        inputs = [
            {"filename": f"{n}.txt", "host": "", "node": id, "delete": self.rng.random() < 0.3}
            for n, id in enumerate(self.rng.sample(nodes, min(len(nodes), self.rng.randint(0, 2))))
        ]
        outputs = [{"filename": "out.txt", "delete": self.rng.random() < 0.2}]
        second = task(
            "1",
            inputs=[{"filename": "out.txt", "origin": "0"}],
            outputs=[{"filename": "end.txt"}],
        )
        self.jobs.append(await self.site.submit(task("0", inputs=inputs, outputs=outputs), second))

    async def upload(self) -> None:
        text = self.rng.choice(["", "1M", "1H"])
        await self.site.nodes.create(stream(b"u" * self.rng.randint(1, 9)), expiration=text)

    async def work(self) -> None:
        await work_off(self.site, b"w" * self.rng.randint(1, 9))

    async def verb(self) -> None:
        job_id = self.rng.choice(self.jobs)
        if await self.site.engine.get("jobs", job_id) is None:
            return
        verb, more = self.rng.choice(VERBS)
        with contextlib.suppress(Conflict, JobNotFound):
            await self.site.engine.ensure_job(job_id)
            await self.site.engine.do(verb, job_id, **more)

    async def sweep(self) -> None:
        """Nothing goes that was needed before and is afterwards."""
        self.site.hands.wall_s += self.rng.choice([0, 61, 4000])
        before = {node["id"] for node in await everything(self.site, "nodes")}
        wanted = await needed(self.site)
        await sweep(self.site)
        after = {node["id"] for node in await everything(self.site, "nodes")}
        assert before & wanted & await needed(self.site) <= after


VERBS: list[tuple[Any, dict[str, Any]]] = [
    (delete_job, {"full": False}),
    (delete_job, {"full": True}),
    (suspend_job, {}),
    (resume_job, {}),
    (recompute_job, {"task_name": "0"}),
    (set_expiration, {"text": "1M"}),
    (set_expiration, {"text": "1H"}),
]


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_comes_in_between_nothing_goes_that_is_needed_and_in_the_end_all_goes(
    site: Site, seed: int
) -> None:
    life = Life(site, seed)
    steps = [life.submit] * 3 + [life.upload] * 2 + [life.work] * 3 + [life.verb] * 4 + [life.sweep] * 3
    await life.submit()
    while len(life.jobs) < 30:
        await life.rng.choice(steps)()
    for job_id in life.jobs:
        if await site.engine.get("jobs", job_id):
            await site.engine.ensure_job(job_id)
            await site.engine.do(set_expiration, job_id, "1M")
            await site.engine.ensure_job(job_id)
            await site.engine.do(delete_job, job_id)
    await eventually(lambda: _no_notes(site))
    for node in await everything(site, "nodes"):
        if node["job"] is None:
            await site.nodes.set_expiration(node["id"], "1M")
    for _ in range(2):
        site.hands.wall_s += 4000
        await sweep(site)
    await site.nodes.collect_orphans(min_age_s=-1)
    for collection in ("jobs", "tasks", "workunits", "nodes"):
        assert await everything(site, collection) == []
    assert (await site.nodes.usage()).used_bytes == 0
    assert [
        path for path in (site.root / "nodes").rglob("*") if path.is_file() and path.name != "server"
    ] == []
