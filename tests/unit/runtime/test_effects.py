"""Effects on a real node store: inputs looked at, outputs made whole, failures told or tried again."""

import asyncio
import shutil
from typing import Any

import httpx
import pytest

from awe_server.data.nodes import NodeStore
from awe_server.runtime.deletions import PREFIX
from awe_server.runtime.effects import MAX_LOOKS, Effects
from awe_server.runtime.folder_mark import WrongFolder
from awe_server.runtime.random_ids import Uuids
from awe_server.scheduler.jobs import recompute_job, resume_job
from awe_server.scheduler.state import DeletePlaces, PrepareTask
from awe_server.store.base import Delete, Put, Query
from shared_models.errors import NoSpace, UnreadableNode
from shared_models.ids import JobId, TaskId
from shared_models.limits import MIB
from tests.support.eventually import eventually
from tests.unit.runtime.site import Site, stream
from tests.unit.runtime.workshop import Workshop, abandon, done, task

pytestmark = pytest.mark.anyio


@pytest.fixture
def site_type() -> type[Site]:
    return Site


PACKED = b"\x1f\x8b" + bytes(3 * MIB)


def reads(node: str, **keys: Any) -> dict[str, Any]:
    return task(inputs=[{"filename": "in.txt", "node": node}], outputs=[{"filename": "out.txt"}], **keys)


def by_line(parts: int) -> dict[str, Any]:
    return {"totalwork": parts, "partinfo": {"input": "in.txt", "index": "line"}}


async def test_an_input_is_looked_at_and_its_output_gets_a_node(site: Site) -> None:
    job_id = await site.submit(reads(await site.node(b"a\nb\n")))
    shown = await site.until(job_id, "queued")
    assert shown["inputs"][0]["size"] == 4
    assert shown["totalwork"] == 1
    node = await site.nodes.get(shown["outputs"][0]["node"])
    assert (node["job"], node["task"], node["parts"], node["file"]) == (job_id, f"{job_id}_0", None, None)


async def test_a_split_gets_its_units_and_its_output_waits_for_as_many_parts(site: Site) -> None:
    job_id = await site.submit(reads(await site.node(b"a\nb\nc\nd\ne\n"), **by_line(3)))
    shown = await site.until(job_id, "queued")
    assert shown["totalwork"] == 3
    assert (shown["partinfo"]["index"], shown["partinfo"]["totalindex"]) == ("line", 5)
    assert (await site.nodes.get(shown["outputs"][0]["node"]))["parts"] == {"count": 3}


async def test_too_few_chunks_are_cut_by_record(site: Site) -> None:
    reads_ = b"".join(b">r%d\nACGT\n" % i for i in range(6))
    job_id = await site.submit(reads(await site.node(reads_, "in.fasta"), totalwork=3))
    shown = await site.until(job_id, "queued")
    assert (shown["totalwork"], shown["partinfo"]["index"]) == (3, "record")


async def test_what_cannot_be_cut_is_one_workunit_with_a_note(site: Site) -> None:
    node = await site.node(b"\x1f\x8b\x08\x00" + bytes(30), "in.gz")
    job_id = await site.submit(reads(node, **by_line(4)))
    shown = await site.until(job_id, "queued")
    assert shown["totalwork"] == 1
    assert shown["notes"].startswith("not split: ")


async def test_what_the_client_unpacks_is_never_cut_packed(site: Site) -> None:
    inputs = [{"filename": "in.txt", "node": await site.node(PACKED), "uncompress": "gzip"}]
    job_id = await site.submit(task(inputs=inputs, totalwork=2, partinfo={"index": "size"}))
    shown = await site.until(job_id, "queued")
    assert (shown["totalwork"], shown["notes"]) == (1, "not split: in.txt is unpacked only by the client")


async def test_an_input_is_indexed_before_the_task_starts(site: Site) -> None:
    node = await site.node(b"a\nb\n")
    inputs = [{"filename": "in.txt", "node": node, "shockindex": "line"}]
    await site.until(await site.submit(task(inputs=inputs)), "queued")
    assert (await site.nodes.get(node))["indexes"]["line"]["total_units"] == 2


async def test_an_index_that_cannot_be_built_is_no_talk_of_a_split_that_nobody_wanted(site: Site) -> None:
    node = await site.node(b"\x1f\x8b\x08\x00" + bytes(30), "in.gz")
    inputs = [{"filename": "in.gz", "node": node, "shockindex": "record"}]
    shown = await site.until(await site.submit(task(inputs=inputs)), "queued")
    assert shown["notes"].startswith("no index 'record' for in.gz: ")


async def test_an_output_node_has_the_name_and_attributes_that_the_document_gives(site: Site) -> None:
    output = {"filename": "out.txt", "shockfilename": "sample7.txt", "nodeattr": {"kind": "count"}}
    job_id = await site.submit(task(outputs=[output]))
    await run(site, job_id, {0: b"7\n"})
    shown = await site.until(job_id, "completed")
    node = await site.nodes.get(shown["outputs"][0]["node"])
    assert (node["file"]["name"], node["attributes"]) == ("sample7.txt", {"kind": "count"})


async def test_a_whole_output_is_indexed(site: Site) -> None:
    inputs = [{"filename": "in.txt", "node": await site.node(b"a\nb\nc\n")}]
    outputs = [{"filename": "out.txt", "shockindex": "record"}]
    job_id = await site.submit(task(inputs=inputs, outputs=outputs, **by_line(2)))
    await run(site, job_id, {1: b">a\nAC\n>b\nGT\n", 2: b">c\nAA\n"})
    shown = await site.until(job_id, "completed")
    index = (await site.nodes.get(shown["outputs"][0]["node"]))["indexes"]["record"]
    assert (index["total_units"], index["format"]) == (3, "fasta")


async def test_an_output_that_cannot_be_indexed_is_kept_with_a_note(site: Site) -> None:
    job_id = await site.submit(task(outputs=[{"filename": "out.txt", "shockindex": "record"}]))
    await run(site, job_id, {0: b"@r1\nACGT\n+\nII"})
    shown = await site.until(job_id, "completed")
    assert shown["notes"].startswith("no index 'record' for output out.txt: ")
    assert await site.text(shown["outputs"][0]["node"]) == b"@r1\nACGT\n+\nII"


async def copied(site: Site, parent: str, kind: str) -> dict[str, Any]:
    """A completed task whose output is a copy that is to be indexed."""
    output = {"filename": "copied", "type": "copy", "formoptions": {"parent_node": parent}}
    job_id = await site.submit(task(outputs=[{**output, "shockindex": kind}]))
    await run(site, job_id, {})
    return await site.until(job_id, "completed")


async def test_a_copy_is_indexed(site: Site) -> None:
    shown = await copied(site, await site.node(b"a\nb\n"), "line")
    assert (await site.nodes.get(shown["outputs"][0]["node"]))["indexes"]["line"]["total_units"] == 2


async def test_a_copy_that_cannot_be_indexed_is_kept_with_a_note(site: Site) -> None:
    shown = await copied(site, await site.node(b"\x1f\x8b\x08\x00" + bytes(30), "in.gz"), "record")
    assert shown["notes"].startswith("no index 'record' for output copied: ")


async def test_an_index_of_what_is_no_node_is_not_built_and_that_is_said(site: Site) -> None:
    site.foreign = lambda request: httpx.Response(200, headers={"content-length": "5"})
    page = {"filename": "in.txt", "url": "http://data.example/in.txt", "shockindex": "line"}
    shown = await site.until(await site.submit(task(inputs=[page])), "queued")
    assert shown["notes"] == "no index 'line' for in.txt: only a Shock's node can have one"


async def test_files_that_ask_for_it_are_gone_when_the_job_has_completed(site: Site) -> None:
    node, kept = await site.node(b"x"), await site.node(b"y")
    inputs = [
        {"filename": "in.txt", "node": node, "delete": True},
        {"filename": "kept.txt", "node": kept},
    ]
    job_id = await site.submit(task(inputs=inputs, outputs=[{"filename": "out.txt", "delete": True}]))
    await run(site, job_id, {0: b"7\n"})
    shown = await site.until(job_id, "completed")
    gone = {node, shown["outputs"][0]["node"]}

    async def is_gone() -> bool:
        page = await site.nodes.list(Query())
        return {document["id"] for document in page.documents} == {kept}

    await eventually(is_gone, show=lambda: gone)


@pytest.mark.parametrize("kind", ["unknown", "empty"])
async def test_a_missing_input_suspends_the_job_with_the_reason(site: Site, kind: str) -> None:
    node = Uuids()() if kind == "unknown" else str((await site.nodes.create(None))["id"])
    job_id = await site.submit(reads(node))
    shown = await site.until(job_id, "suspend")
    reason = "does not exist" if kind == "unknown" else "has no file yet"
    assert shown["notes"] == f"input file in.txt not available: node {node} {reason}"
    job, _ = await site.shown(job_id)
    assert job["state"] == "suspend"
    assert shown["notes"] in job["notes"]


@pytest.mark.parametrize("use", ["input", "indexed", "cut", "copied", "updated"])
async def test_a_node_that_makes_no_sense_suspends_the_job_with_the_reason(site: Site, use: str) -> None:
    node = await site.node(b"a\nb\n")
    await site.engine.put(Put("nodes", {"id": node, "file": 7}))
    shown = await site.until(await site.submit(uses(node, use)), "suspend")
    assert f"cannot read the document of node {node}" in shown["notes"]
    name = "output out.txt: " if use in ("copied", "updated") else "input file in.txt not available: "
    assert shown["notes"].startswith(name)


@pytest.mark.parametrize("use", ["indexed", "cut"])
async def test_so_does_one_that_makes_no_sense_from_the_middle_of_a_look_on(
    site: Site, use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def odd(self: NodeStore, node_id: str, *args: Any, **kw: Any) -> Any:
        raise UnreadableNode(node_id=node_id, problem="it has no file")

    monkeypatch.setattr(NodeStore, "build_index", odd)
    node = await site.node(b"a\nb\n")
    shown = await site.until(await site.submit(uses(node, use)), "suspend")
    assert f"cannot read the document of node {node}" in shown["notes"]


async def test_an_output_node_that_makes_no_sense_suspends_the_job_with_the_reason(site: Site) -> None:
    job_id = await site.submit(task(outputs=[{"filename": "out.txt"}]))
    await site.until(job_id, "queued")
    (grant,) = await site.fetch()
    node = grant.task.outputs[0]["node"]
    fact = await site.nodes.put_part(node, 0, grant.attempt, stream(b"x"))
    await site.engine.put(Put("nodes", {"id": node, "file": 7}))
    output = {"filename": "out.txt", "size": fact.size, "md5": fact.md5}
    await site.exchange(reports=[{**done(grant), "outputs": [output]}])
    shown = await site.until(job_id, "suspend")
    assert f"cannot read the document of node {node}" in shown["notes"]


def uses(node: str, use: str) -> dict[str, Any]:
    """A task that takes a node in one of the ways there are."""
    output = {"filename": "out.txt"}
    if use == "copied":
        return task(outputs=[{**output, "type": "copy", "formoptions": {"parent_node": node}}])
    if use == "updated":
        return task(outputs=[{**output, "type": "update", "node": node, "nodeattr": {"a": 1}}])
    if use == "indexed":
        return task(inputs=[{"filename": "in.txt", "node": node, "shockindex": "line"}], outputs=[output])
    return reads(node, **(by_line(2) if use == "cut" else {}))


async def test_a_foreign_input_is_asked_for_its_size(site: Site) -> None:
    site.foreign = lambda request: httpx.Response(200, headers={"content-length": "77"})
    url = "http://data.example/x.txt"
    job_id = await site.submit(task(inputs=[{"filename": "in.txt", "url": url}], totalwork=4))
    shown = await site.until(job_id, "queued")
    assert shown["inputs"][0]["size"] == 77
    assert shown["notes"] == "not split: the host of in.txt sends no pieces of it"


async def test_a_foreign_host_that_does_not_tell_stops_nobody(site: Site) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    site.foreign = handler
    job_id = await site.submit(task(inputs=[{"filename": "in.txt", "url": "http://data.example/x"}]))
    shown = await site.until(job_id, "queued")
    assert (shown["inputs"][0]["size"], shown["notes"]) == (
        0,
        "size of in.txt is not known: data.example cannot be reached: refused",
    )


async def run(site: Site, job_id: JobId, contents: dict[int, bytes], **output: Any) -> None:
    """Check out all ranks, upload, report."""
    await site.until(job_id, "queued")
    grants = await site.fetch(64)
    reports = []
    for grant in grants:
        report = done(grant)
        node = grant.task.outputs[0]["node"]
        if grant.rank in contents:
            fact = await site.nodes.put_part(node, grant.rank, grant.attempt, stream(contents[grant.rank]))
            report["outputs"] = [{"filename": "out.txt", "size": fact.size, "md5": fact.md5}]
        else:
            report["outputs"] = []
        reports.append(report)
    await site.exchange(reports=reports)


async def test_parts_become_one_file_in_rank_order(site: Site) -> None:
    job_id = await site.submit(reads(await site.node(b"l\n" * 12), **by_line(12)))
    await run(site, job_id, {rank: b"part %d\n" % rank for rank in range(1, 13)})
    shown = await site.until(job_id, "completed")
    output = shown["outputs"][0]
    whole = b"".join(b"part %d\n" % rank for rank in range(1, 13))
    assert await site.text(output["node"]) == whole
    assert output["size"] == len(whole)


async def test_an_optional_output_takes_the_parts_there_are(site: Site) -> None:
    document = task(outputs=[{"filename": "out.txt", "optional": True}], totalwork=3)
    job_id = await site.submit(document)
    await run(site, job_id, {1: b"one\n", 3: b"three\n"})
    shown = await site.until(job_id, "completed")
    assert await site.text(shown["outputs"][0]["node"]) == b"one\nthree\n"


async def test_an_optional_output_that_nobody_made_stays_empty(site: Site) -> None:
    job_id = await site.submit(task(outputs=[{"filename": "out.txt", "optional": True}]))
    await run(site, job_id, {})
    shown = await site.until(job_id, "completed")
    assert (await site.nodes.get(shown["outputs"][0]["node"]))["file"] is None


async def test_a_full_disk_is_waited_for_and_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assemble, refusals = NodeStore.assemble, [2]

    async def full(self: NodeStore, *args: Any, **kw: Any) -> Any:
        if refusals[0]:
            refusals[0] -= 1
            raise NoSpace()
        return await assemble(self, *args, **kw)

    monkeypatch.setattr(NodeStore, "assemble", full)
    job_id = await site.submit(task(outputs=[{"filename": "out.txt"}]))
    await run(site, job_id, {0: b"x"})
    await eventually(lambda: bool(site.engine.troubles))
    assert "No space left" in site.engine.troubles[f"{job_id}_0"]
    await site.until(job_id, "completed")
    await eventually(lambda: not site.engine.troubles)


async def upload(site: Site, grant: Any, **contents: bytes) -> dict[str, Any]:
    """Upload outputs by name; the report of success."""
    outputs = []
    for io in grant.task.outputs:
        if (content := contents.get(io["filename"])) is not None:
            fact = await site.nodes.put_part(io["node"], grant.rank, grant.attempt, stream(content))
            outputs.append({"filename": io["filename"], "size": fact.size, "md5": fact.md5})
    return {**done(grant), "outputs": outputs}


async def test_lost_parts_suspend_by_name_and_resume_makes_those_again_and_no_others(site: Site) -> None:
    job_id = await site.submit(task(outputs=[{"filename": "a"}, {"filename": "b"}], totalwork=4))
    await site.until(job_id, "queued")
    grants = await site.fetch(4)
    reports = [await upload(site, grant, a=b"a%d" % grant.rank, b=b"b%d" % grant.rank) for grant in grants]
    a, b = [io["node"] for io in grants[0].task.outputs]
    for node, rank in ((b, 2), (b, 3), (a, 3)):
        for path in (site.root / "nodes" / "parts" / node).glob(f"{rank}.*"):
            path.unlink()
    await site.exchange(reports=reports)
    shown = await site.until(job_id, "suspend")
    assert shown["notes"] == "output a: part 3 is missing; output b: parts 2, 3 are missing"
    assert shown["remainwork"] == 2
    await site.engine.do(resume_job, job_id)
    grants = await site.fetch(9)
    assert [(grant.rank, grant.attempt) for grant in grants] == [(2, 2), (3, 2)]
    await site.exchange(reports=[await upload(site, g, a=b"A%d" % g.rank, b=b"B%d" % g.rank) for g in grants])
    await site.until(job_id, "completed")
    assert (await site.text(a), await site.text(b)) == (b"a1A2A3a4", b"b1B2B3b4")


async def test_many_lost_parts_are_named_in_short(site: Site) -> None:
    job_id = await site.submit(task(outputs=[{"filename": "out"}], totalwork=40))
    await site.until(job_id, "queued")
    reports = [await upload(site, grant, out=b"x") for grant in await site.fetch(40)]
    shutil.rmtree(site.root / "nodes" / "parts")
    await site.exchange(reports=reports)
    shown = await site.until(job_id, "suspend")
    assert shown["notes"].startswith("output out: parts 1, 2, 3, ")
    assert shown["notes"].endswith(" 10 and 30 more are missing")
    assert shown["remainwork"] == 40


async def test_what_was_made_whole_before_a_crash_is_not_missed_afterwards(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemble = NodeStore.assemble

    async def full(self: NodeStore, node_id: str, *args: Any, **kw: Any) -> Any:
        if node_id == b and refusing:
            raise NoSpace()
        return await assemble(self, node_id, *args, **kw)

    monkeypatch.setattr(NodeStore, "assemble", full)
    job_id = await site.submit(task(outputs=[{"filename": "a"}, {"filename": "b"}], totalwork=2))
    await site.until(job_id, "queued")
    grants, refusing = await site.fetch(2), [True]
    a, b = [io["node"] for io in grants[0].task.outputs]
    await site.exchange(reports=[await upload(site, grant, a=b"a", b=b"b") for grant in grants])
    await eventually(lambda: bool(site.engine.troubles))
    refusing.clear()
    await site.until(job_id, "completed")
    assert (await site.text(a), await site.text(b)) == (b"aa", b"bb")


async def test_F_02_a_result_that_the_store_lost_is_missed_before_outputs_are_made_whole(site: Site) -> None:
    job_id = await site.submit(task(outputs=[{"filename": "out.txt", "optional": True}], totalwork=3))
    await site.until(job_id, "queued")
    reports = [{**done(grant), "outputs": []} for grant in await site.fetch(3)]
    await site.exchange(reports=reports[:2])
    await site.engine.put(Delete("workunits", f"{job_id}_0_2"))
    await site.exchange(reports=reports[2:])
    shown = await site.until(job_id, "suspend")
    assert shown["notes"] == "the store has results of 2 workunits, of 3: that of rank 2 is missing"
    await site.engine.do(resume_job, job_id)
    (grant,) = await site.fetch(9)
    assert grant.rank == 2
    await site.exchange(reports=[{**done(grant), "outputs": []}])
    await site.until(job_id, "completed")


async def test_recompute_makes_new_nodes_and_drops_the_old(site: Site) -> None:
    job_id = await site.submit(task(outputs=[{"filename": "out.txt"}]))
    await run(site, job_id, {0: b"first"})
    old = (await site.until(job_id, "completed"))["outputs"][0]["node"]
    await site.engine.ensure_job(job_id)
    await site.engine.do(recompute_job, job_id, "0")
    await run(site, job_id, {0: b"second"})
    new = (await site.until(job_id, "completed"))["outputs"][0]["node"]
    assert new != old
    assert await site.text(new) == b"second"

    async def gone() -> bool:
        return await site.engine.get("nodes", old) is None

    await eventually(gone)


async def test_files_of_another_store_are_left_alone(site: Site) -> None:
    other = Site(site.root)
    with pytest.raises(WrongFolder, match="holds the files of another store"):
        await other.start()
    await other.engine.stop()


async def crashed(site: Site) -> Site:
    """The same store and files after a kill."""
    await site.background.stop()
    await abandon(site.engine)
    again = Site(site.root, store=site.store, hands=site.hands)
    await again.start()
    return again


async def noted(site: Site) -> list[dict[str, Any]]:
    return [d async for d in site.engine.scan("meta") if d["id"].startswith(PREFIX)]


@pytest.mark.parametrize("why", ["recompute", "input"])
async def test_nodes_that_became_useless_go_after_a_crash_as_well(
    site: Site, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    async def never(self: NodeStore, node_id: str) -> None:
        await asyncio.Event().wait()

    useless = await site.node(b"x")
    inputs = [{"filename": "in.txt", "node": useless, "delete": why == "input"}]
    with monkeypatch.context() as patch:
        patch.setattr(NodeStore, "delete", never)
        job_id = await site.submit(task(inputs=inputs, outputs=[{"filename": "out.txt"}]))
        await run(site, job_id, {0: b"first"})
        shown = await site.until(job_id, "completed")
        if why == "recompute":
            useless = shown["outputs"][0]["node"]
            await site.engine.ensure_job(job_id)
            await site.engine.do(recompute_job, job_id, "0")
        again = await crashed(site)
        assert [note["node_ids"] for note in await noted(again)] == [[useless]]
        again = await crashed(again)

    async def gone() -> bool:
        return await again.engine.get("nodes", useless) is None and not await noted(again)

    await eventually(gone)
    await again.engine.stop()


async def test_a_note_that_cannot_be_read_stops_nobody(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    await site.engine.put(Put("meta", {"id": f"{PREFIX}odd", "node_ids": 7}))
    await abandon(site.engine)
    again = await Workshop(site.store, site.hands).start()
    assert again.engine.ready
    assert [r.__dict__["id"] for r in caplog.records if r.message == "document_skipped"] == [f"{PREFIX}odd"]
    await again.engine.stop()


async def test_a_silent_data_host_holds_up_nobody_else_and_is_named(site: Site) -> None:
    release = asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "silent.example":
            await release.wait()
        return httpx.Response(200, headers={"content-length": "7"})

    site.foreign = answer  # type: ignore[assignment]
    urls = [f"http://silent.example/{i}" for i in range(MAX_LOOKS + 8)]
    stuck = await site.submit(
        *(task(str(i), inputs=[{"filename": "a", "url": url}]) for i, url in enumerate(urls))
    )
    local = await site.submit(reads(await site.node(b"x\n")))
    other = await site.submit(task(inputs=[{"filename": "a", "url": "http://quick.example/a"}]))
    await site.until(local, "queued")
    await site.until(other, "queued")
    assert (await site.shown(stuck))[1]["state"] == "pending"
    last = f"{stuck}_{len(urls) - 1}"
    assert site.engine.troubles[last] == "silent.example is asked, or will be, how big they are"
    release.set()
    await site.until(stuck, "queued")
    await eventually(lambda: not site.engine.troubles)


async def test_the_foreign_inputs_of_a_task_are_asked_for_together(site: Site) -> None:
    asked, together = list[str](), asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if len(asked) == 3:
            together.set()
        await together.wait()
        return httpx.Response(200, headers={"content-length": "7"})

    site.foreign = answer  # type: ignore[assignment]
    inputs = [{"filename": name, "url": f"http://data.example/{name}"} for name in "abc"]
    shown = await site.until(await site.submit(task(inputs=inputs)), "queued")
    assert [io["size"] for io in shown["inputs"]] == [7, 7, 7]


async def test_an_effect_that_was_abandoned_while_it_paused_is_not_done_beside_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("awe_server.runtime.effects.FIRST_RETRY_S", 0.02)
    tries, blocked = list[str](), asyncio.Event()

    class Prepare:
        def host(self, effect: PrepareTask) -> str:
            return ""

        async def __call__(self, effect: PrepareTask) -> None:
            tries.append(effect.task_id)
            if len(tries) == 1:
                raise NoSpace
            await blocked.wait()

    prepare = Prepare()
    effects = Effects(prepare, prepare, prepare, prepare)  # type: ignore[arg-type]
    effects.start()
    effect = PrepareTask(TaskId("t"), 1)
    effects.begin([effect])
    await eventually(lambda: bool(effects.troubles))
    effects.abandon()
    effects.begin([effect])
    await eventually(lambda: len(tries) == 2)
    await asyncio.sleep(0.1)
    await effects.stop()
    assert len(tries) == 2


async def test_deletions_on_a_host_that_hangs_hold_up_no_others() -> None:
    class Delete:
        async def __call__(self, effect: DeletePlaces) -> None:
            if effect.places[0].startswith("file:///hung/"):
                await asyncio.Event().wait()
            done.append(effect.id)

    done: list[str] = []
    delete = Delete()
    effects = Effects(delete, delete, delete, delete)  # type: ignore[arg-type]
    effects.start()
    effects.begin(DeletePlaces(f"hung{n}", (f"file:///hung/{n}",), "j") for n in range(9))
    effects.begin([DeletePlaces("fine", ("file:///fine/x",), "j"), DeletePlaces("s3", ("s3://b/x",), "j")])
    await eventually(lambda: sorted(done) == ["fine", "s3"])
    await effects.stop()
