"""Where outputs are: what is set back, removed, and left alone."""

from typing import Any

import pytest

from awe_server.scheduler.places import (
    delivery_of,
    is_given,
    kept_here,
    left_behind,
    made_for,
    to_delete,
)
from awe_server.scheduler.state import Task
from shared_models.documents import IO_DEFAULTS
from shared_models.ids import TaskId
from shared_models.staging import stage_folder


class FakeTask:
    id = TaskId("job_t")
    generation = 2
    is_cut = True
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]


def a_task(*outputs: dict[str, Any], inputs: tuple[dict[str, Any], ...] = ()) -> Task:
    task = FakeTask()
    task.outputs = [{**IO_DEFAULTS, **io} for io in outputs]
    task.inputs = [{**IO_DEFAULTS, **io} for io in inputs]
    return task  # type: ignore[return-value]


OWN = {"filename": "own", "node": "n1"}
WAITING = {"filename": "waits", "url": "http://x/y", "_staging": "n2"}
SHOCK = {"filename": "shock", "host": "http://shock", "node": "n3", "url": "http://shock/node/n3?download"}
UPDATE = {"filename": "update", "type": "update", "node": "n4", "_staging": "n5"}
FILE = {"filename": "file", "url": "file:///d/out"}
S3 = {"filename": "s3", "url": "s3://bucket/key"}
STAGES = tuple(f"file://{stage_folder('/d/out', TaskId('job_t'), generation)}/" for generation in (1, 2))


def test_what_was_made_for_outputs_is_ours_and_nothing_else() -> None:
    things = made_for([a_task(OWN, WAITING, SHOCK, UPDATE, FILE, S3)])
    assert things.nodes == ("n1", "n2", "n5")
    assert things.places == ("http://shock/node/n3", *STAGES)


def test_a_delivery_to_a_shock_that_did_not_end_has_a_place_of_its_own() -> None:
    begun = a_task({"filename": "shock", "host": "http://shock", "_staging": "n6"}, OWN)
    things = made_for([begun])
    assert things.nodes == ("n1",)
    assert [delivery_of(place) for place in things.places if "shock" in place] == [("http://shock", "n6")]
    assert kept_here([begun]) == ("n1", "n6")
    assert delivery_of(f"file://{stage_folder('/node/?delivery=x', TaskId('job_t'), 1)}/") is None


@pytest.mark.parametrize(
    ("place", "given"),
    [(f"{STAGES[0]}", False), ("file:///d/out", True), ("s3://b/k", True), ("http://shock/node/n3", False)],
)
def test_addresses_that_a_document_gave_are_told_from_ours(place: str, given: bool) -> None:
    assert is_given(place) is given


def test_a_completed_task_leaves_only_the_way_behind() -> None:
    things = left_behind(a_task(OWN, WAITING, SHOCK, UPDATE, FILE))
    assert (things.nodes, things.places) == (("n2", "n5"), STAGES)


def test_what_is_to_be_deleted_is_deleted_where_it_is() -> None:
    marked = [{**io, "delete": True} for io in (OWN, SHOCK, FILE, S3)]
    given = {"filename": "in", "node": "n9", "delete": True}
    things = to_delete([a_task(*marked, WAITING, inputs=(given, {"filename": "kept", "node": "n8"}))])
    assert things.nodes == ("n9", "n1")
    assert things.places == ("http://shock/node/n3", "file:///d/out", "s3://bucket/key")


def test_what_is_at_the_address_of_an_output_that_was_not_made_is_not_deleted() -> None:
    shock = {**SHOCK, "node": "", "url": ""}
    not_made = [{**io, "delete": True, "_missing": True} for io in (OWN, shock, FILE, S3)]
    things = to_delete([a_task(*not_made)])
    assert (things.nodes, things.places) == (("n1",), ())
