"""Removing what is elsewhere: each place once, and nothing of a later run, whatever is away or dies."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from awe_server.data.sinks.base import SinkBusy, SinkRefused, SinkSilent
from awe_server.runtime.deletions import PLACES_PREFIX, PlaceDeleter, left_over
from awe_server.scheduler.jobs import recompute_job
from awe_server.scheduler.state import DeletePlaces
from awe_server.store.base import Delete, Operation, Put
from awe_server.store.memory import MemoryStore
from shared_models.ids import JobId
from tests.support.eventually import eventually
from tests.support.faults import ALWAYS
from tests.support.shock import ShockServer
from tests.unit.runtime.site import SharedSite, Site, stream
from tests.unit.runtime.workshop import Workshop, abandon, done, task

pytestmark = pytest.mark.anyio

STAGE = "file:///d/.awe-0123456789ab/"
GIVEN = ("file:///d/out", "s3://bucket/out")
NODE = "http://shock/node/n1"


class Documents:
    """A job, and the notes of what is to be deleted."""

    def __init__(self, resumed: int = 0) -> None:
        self.job: dict[str, Any] | None = {"resumed": resumed, "_datatoken": "not-a-secret"}
        self.notes: dict[str, Any] = {}

    async def get(self, collection: str, id: str) -> dict[str, Any] | None:
        return self.job

    async def put(self, *operations: Operation) -> None:
        for operation in operations:
            if isinstance(operation, Put):
                self.notes[operation.document["id"]] = operation.document
            elif isinstance(operation, Delete):
                self.notes.pop(operation.id, None)


class Places:
    """What is elsewhere, some of it away."""

    def __init__(self, *away: str) -> None:
        self.away = set(away)
        self.removed: Counter[str] = Counter()

    async def remove(self, place: str, token: str) -> None:
        if place in self.away:
            raise SinkBusy(f"{place} is away")
        self.removed[place] += 1


def deleter(documents: Documents, places: Places) -> PlaceDeleter:
    return PlaceDeleter(documents, places, None)  # type: ignore[arg-type]


def places_of(documents: Documents) -> list[list[str]]:
    return [note["places"] for note in documents.notes.values()]


async def test_only_what_is_left_is_tried_again() -> None:
    documents, places = Documents(), Places(NODE)
    delete, effect = deleter(documents, places), DeletePlaces("e", (STAGE, NODE), "j")
    for _ in range(3):
        with pytest.raises(SinkBusy):
            await delete(effect)
    assert places_of(documents) == [[NODE]]
    places.away.clear()
    await delete(effect)
    assert places.removed == {STAGE: 1, NODE: 1}
    assert not documents.notes


async def test_after_a_kill_only_what_is_left_is_tried_again() -> None:
    documents, places = Documents(resumed=3), Places(NODE)
    with pytest.raises(SinkBusy):
        await deleter(documents, places)(DeletePlaces("e", (STAGE, NODE), "j", 3))
    store = MemoryStore()
    await store.open()
    await store.commit([Put("meta", note) for note in documents.notes.values()])
    (effect,) = await left_over(store)
    assert effect == DeletePlaces("e", (NODE,), "j", 3)


async def test_what_a_job_that_began_anew_may_have_written_is_left_alone() -> None:
    places = Places()
    await deleter(Documents(resumed=1), places)(DeletePlaces("e", (STAGE, *GIVEN, NODE), "j", 0))
    assert places.removed == {STAGE: 1, NODE: 1}


@pytest.mark.parametrize("is_gone", [True, False])
async def test_what_nobody_can_have_written_anew_goes(is_gone: bool) -> None:
    documents, places = Documents(resumed=2), Places()
    if is_gone:
        documents.job = None
    await deleter(documents, places)(DeletePlaces("e", GIVEN, "j", 2))
    assert places.removed == dict.fromkeys(GIVEN, 1)


async def test_a_job_that_begins_anew_while_a_store_is_away_keeps_what_it_writes() -> None:
    documents, places = Documents(), Places(GIVEN[1])
    delete, effect = deleter(documents, places), DeletePlaces("e", GIVEN, "j", 0)
    with pytest.raises(SinkBusy):
        await delete(effect)
    documents.job = {"resumed": 1}
    places.away.clear()
    await delete(effect)
    assert places.removed == {GIVEN[0]: 1}
    assert not documents.notes


# ---- with real files, and a real Shock


@pytest.fixture
def other(tmp_path: Path) -> Iterator[ShockServer]:
    with ShockServer(tmp_path / "other") as server:
        yield server


async def upload(site: Site, grant: Any, data: bytes) -> list[dict[str, Any]]:
    """Upload the outputs that go to Shocks; what the report says of them."""
    said = []
    for io in grant.task.outputs:
        if io["host"]:
            fact = await site.nodes.put_part(io["_staging"], grant.rank, grant.attempt, stream(data))
            said.append({"filename": io["filename"], "size": fact.size, "md5": fact.md5})
    return said


async def attempt(site: SharedSite, job_id: JobId) -> tuple[Any, Path, dict[str, Any]]:
    """Check out, stage and upload; the grant, what was staged, and the report."""
    await site.until(job_id, "queued")
    (grant,) = await site.fetch()
    data = b"generation %d" % grant.task.generation
    staged = site.stage(job_id, grant.task.generation, grant.attempt, data)
    said = [{"filename": "out", "size": len(data), "md5": ""}, *await upload(site, grant, data)]
    return grant, staged, {**done(grant), "outputs": said}


async def recompute(site: Site, job_id: JobId) -> None:
    await site.engine.ensure_job(job_id)
    await site.engine.do(recompute_job, job_id, "0")


def to_file_and_shock(site: SharedSite, shock: ShockServer) -> dict[str, Any]:
    outputs = [
        {"filename": "out", "url": f"file://{site.shared}/out"},
        {"filename": "b", "host": shock.url},
    ]
    return task(outputs=outputs)


async def notes(site: Workshop) -> list[dict[str, Any]]:
    return [d async for d in site.engine.scan("meta") if d["id"].startswith(PLACES_PREFIX)]


async def test_a_shock_that_is_away_takes_nothing_of_what_is_staged_anew(
    site: SharedSite, shock: ShockServer
) -> None:
    job_id = await site.submit(to_file_and_shock(site, shock))
    _, _, report = await attempt(site, job_id)
    await site.exchange(reports=[report])
    old = (await site.until(job_id, "completed"))["outputs"][1]["node"]
    shock.faults.fail(503, ALWAYS, method="DELETE")
    await recompute(site, job_id)
    _, staged, report = await attempt(site, job_id)
    tries = len(shock.seen("DELETE"))
    await eventually(lambda: len(shock.seen("DELETE")) > tries + 1)
    assert staged.exists()
    await site.exchange(reports=[report])
    await site.until(job_id, "completed")
    assert (site.shared / "out").read_bytes() == b"generation 2"
    shock.faults.clear()
    await eventually(lambda: old not in shock.nodes)
    await eventually(lambda: [path.name for path in site.shared.iterdir()] == ["out"])


async def test_a_kill_between_the_removal_and_its_note_takes_nothing_of_what_is_staged_anew(
    site: SharedSite, shock: ShockServer, tmp_path: Path
) -> None:
    job_id = await site.submit(to_file_and_shock(site, shock))
    _, first, report = await attempt(site, job_id)
    await site.exchange(reports=[report])
    await site.until(job_id, "completed")
    shock.faults.fail(503, ALWAYS, method="DELETE")
    await recompute(site, job_id)
    _, staged, _ = await attempt(site, job_id)
    (note,) = await eventually_noted(site)
    await site.background.stop()
    # As if it had died before it could note that the folder of the first attempt had gone.
    await site.engine.put(Put("meta", {**note, "places": [f"file://{first.parent}/", *note["places"]]}))
    await abandon(site.engine)
    again = SharedSite(tmp_path, store=site.store, hands=site.hands)
    await again.start()
    shock.faults.clear()

    async def is_done() -> bool:
        return not await notes(again)

    await eventually(is_done)
    assert staged.exists()
    await again.engine.stop()


async def eventually_noted(site: Workshop) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    async def is_noted() -> bool:
        found[:] = [note for note in await notes(site) if len(note["places"]) == 1]
        return bool(found)

    await eventually(is_noted)
    return found


async def stopped(site: SharedSite, shock: ShockServer, other: ShockServer) -> tuple[JobId, list[str]]:
    """A job with an output that is delivered and one that is refused; its staging nodes."""
    other.token = "not-a-secret"
    outputs = [{"filename": "a", "host": shock.url}, {"filename": "b", "host": other.url}]
    job_id = await site.submit(task(outputs=outputs))
    await site.until(job_id, "queued")
    (grant,) = await site.fetch()
    staging = [io["_staging"] for io in grant.task.outputs]
    await site.exchange(reports=[{**done(grant), "outputs": await upload(site, grant, b"x")}])
    assert "answers 401" in (await site.until(job_id, "suspend"))["notes"]
    return job_id, staging


@pytest.mark.parametrize("is_away", [True, False])
async def test_what_was_delivered_of_a_task_that_did_not_end_goes_when_it_begins_anew(
    site: SharedSite, shock: ShockServer, other: ShockServer, is_away: bool
) -> None:
    job_id, staging = await stopped(site, shock, other)
    assert len(shock.nodes) == 1
    if is_away:
        shock.faults.fail(503, method="DELETE")
    await recompute(site, job_id)
    await eventually(lambda: not shock.nodes)

    async def is_clean() -> bool:
        return [await site.engine.get("nodes", node) for node in staging] == [None, None]

    await eventually(is_clean)


async def test_a_staging_node_goes_although_the_other_shock_refuses(
    site: SharedSite, shock: ShockServer, other: ShockServer
) -> None:
    job_id, staging = await stopped(site, shock, other)
    shock.token = "another"
    await recompute(site, job_id)

    async def is_clean() -> bool:
        gone = [await site.engine.get("nodes", node) for node in staging] == [None, None]
        return gone and not await notes(site)

    await eventually(is_clean)


async def test_a_staging_node_goes_when_the_other_shock_is_given_up(
    site: SharedSite, shock: ShockServer, other: ShockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awe_server.runtime.deletions.PLACE_TRIES", 2)
    job_id, staging = await stopped(site, shock, other)
    shock.faults.fail(503, ALWAYS, method="DELETE")
    await recompute(site, job_id)

    async def is_clean() -> bool:
        gone = [await site.engine.get("nodes", node) for node in staging] == [None, None]
        return gone and not await notes(site)

    await eventually(is_clean)


@pytest.mark.parametrize("odd", [{"file": 7}, {"_delivery": 7}], ids=["document", "delivery"])
async def test_what_a_node_that_makes_no_sense_delivered_is_given_up_and_said(
    site: SharedSite,
    shock: ShockServer,
    other: ShockServer,
    odd: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    job_id, staging = await stopped(site, shock, other)
    node = await site.engine.get("nodes", staging[0])
    assert node is not None
    await site.engine.put(Put("nodes", {**node, **odd}))
    await recompute(site, job_id)

    async def is_clean() -> bool:
        gone = [await site.engine.get("nodes", node) for node in staging] == [None, None]
        return gone and not await notes(site)

    await eventually(is_clean)
    said = [vars(record) for record in caplog.records if record.message == "not_deleted"]
    (line,) = (one for one in said if shock.url in one["place"])
    assert staging[0] in line["reason"]


async def test_a_refused_deletion_is_no_reason_to_try_again() -> None:
    class Refusing(Places):
        async def remove(self, place: str, token: str) -> None:
            raise SinkRefused("no")

    documents = Documents()
    await deleter(documents, Refusing())(DeletePlaces("e", (NODE,), "j"))
    assert not documents.notes


async def test_a_host_that_gives_no_answer_is_asked_for_one_place_at_a_time() -> None:
    class Hung(Places):
        async def remove(self, place: str, token: str) -> None:
            await super().remove(place, token)
            if place.startswith("file:///hung/"):
                raise SinkSilent("no answer")

    documents, places = Documents(), Hung()
    hung = tuple(f"file:///hung/d/.awe-{n}/" for n in range(3))
    with pytest.raises(SinkSilent):
        await deleter(documents, places)(DeletePlaces("e", (*hung, STAGE, NODE), "j"))
    assert places.removed == {hung[0]: 1, STAGE: 1, NODE: 1}
    assert places_of(documents) == [list(hung)]
