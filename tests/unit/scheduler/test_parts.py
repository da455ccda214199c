"""Files that are cut together, and records that stay together."""

import time
from typing import Any

import pytest

from awe_server.scheduler.jobs import recompute_job
from awe_server.scheduler.parts import cut_names, group_size, is_grouped
from awe_server.scheduler.split import index_candidates, part_inputs
from awe_server.scheduler.state import Task
from shared_models.limits import MIB
from shared_models.states import JobState, TaskState
from tests.builders import World, a_job

PAIR = {"input": "r1", "inputs": ["r1", "r2"]}


def paired(world: World, *, parts: int = 3, maxworksize: int = 0, **partinfo: Any) -> Task:
    job = a_job().task("t", parts=parts, maxworksize=maxworksize, partinfo={**PAIR, **partinfo})
    return world.submit(job.reads("ref").reads("r2").reads("r1")).tasks[0]


def interleaved(world: World, *, parts: int = 3, together: int = 2, **keys: Any) -> Task:
    job = a_job().task("t", parts=parts, partinfo={"options": f"records={together}"}, **keys).reads("in")
    return world.submit(job).tasks[0]


def granted(world: World) -> list[str]:
    world.client()
    return [grant.part for grant in world.checkout(want=99)]


def test_what_partinfo_says() -> None:
    assert (cut_names(None), cut_names({"input": ""}), cut_names({"input": "a"})) == ([], [], ["a"])
    assert cut_names(PAIR) == ["r1", "r2"]
    assert [group_size(part) for part in (None, {"options": ""}, {"options": "records=12"})] == [1, 1, 12]
    assert [is_grouped(part) for part in (None, {"input": "a"}, {"options": "records=1"})] == [False] * 3
    assert is_grouped(PAIR)
    assert is_grouped({"options": "records=2"})


@pytest.mark.parametrize(
    ("named", "kinds"),
    [("", ("record",)), ("chunkrecord", ("record",)), ("record", ("record",)), ("line", ("line",))],
)
def test_single_records_are_counted(world: World, named: str, kinds: tuple[str, ...]) -> None:
    assert index_candidates(paired(world, index=named)) == kinds
    assert index_candidates(interleaved(world)) == ("record",)


def test_paired_inputs_are_cut_in_the_order_of_partinfo(world: World) -> None:
    task = paired(world)
    assert [io["filename"] for io in part_inputs(task)] == ["r1", "r2"]
    sizes = {"r1": 30, "r2": 60, "ref": 7}
    world.prepare(task, index="record", units=10, records=10, counts=(10, 10), sizes=sizes)
    assert task.partinfo == {
        **PAIR, "index": "record", "options": "", "totalindex": 10, "totalrecords": 10, "maxpartsize_mb": 0,
    }  # fmt: skip
    assert (task.totalwork, task.input_bytes) == (3, 10 + 20 + 7)
    assert granted(world) == ["1-4", "5-7", "8-10"]


def test_parts_are_bounded_by_the_bytes_of_all_that_is_cut(world: World) -> None:
    task = paired(world, parts=1, maxworksize=2)
    sizes = {"r1": 3 * MIB, "r2": 4 * MIB, "ref": 90 * MIB}
    world.prepare(task, index="record", units=1000, counts=(1000, 1000), sizes=sizes)
    assert task.totalwork == 4


def test_groups_are_never_torn(world: World) -> None:
    task = interleaved(world)
    world.prepare(task, index="record", units=14, records=14, counts=(14,))
    assert task.partinfo is not None
    assert (task.totalwork, task.partinfo["totalindex"], task.partinfo["totalrecords"]) == (3, 7, 14)
    assert granted(world) == ["1-6", "7-10", "11-14"]


def test_there_are_no_more_parts_than_groups(world: World) -> None:
    task = interleaved(world, parts=9, together=3)
    world.prepare(task, index="record", units=6, records=6, counts=(6,))
    assert granted(world) == ["1-3", "4-6"]


def test_pairs_in_groups_are_cut_between_groups_in_all_files(world: World) -> None:
    task = paired(world, parts=2, options="records=4")
    world.prepare(task, index="record", units=12, counts=(12, 12))
    assert granted(world) == ["1-8", "9-12"]


def test_what_was_processed_is_counted_in_groups_and_records(world: World) -> None:
    task = interleaved(world)
    world.prepare(task, index="record", units=14, records=14, counts=(14,))
    world.client()
    for _ in range(3):
        world.done(world.take())
    assert task.partinfo is not None
    assert task.state is TaskState.COMPLETED
    assert (task.partinfo["doneindex"], task.partinfo["donerecords"]) == (7, 14)


@pytest.mark.parametrize("count", [0, 2])
def test_one_group_or_none_is_one_workunit(world: World, count: int) -> None:
    task = interleaved(world)
    world.prepare(task, index="record", units=max(count, 1), records=count, counts=(count,))
    assert task.totalwork == 1
    assert granted(world) == [""]


@pytest.mark.parametrize(
    ("partinfo", "index", "counts", "reason"),
    [
        ({}, "record", (10, 9), "paired inputs differ: r1 has 10 records, r2 has 9 records"),
        ({}, "record", (0, 1), "paired inputs differ: r1 has 0 records, r2 has 1 records"),
        ({"index": "line"}, "line", (8, 9), "paired inputs differ: r1 has 8 lines, r2 has 9 lines"),
        (
            {"options": "records=4"},
            "record",
            (10, 10),
            "r1 has 10 records, no multiple of 4 (partinfo.options)",
        ),
    ],
)
def test_files_that_do_not_belong_together_suspend_the_task(
    world: World, partinfo: dict[str, Any], index: str, counts: tuple[int, ...], reason: str
) -> None:
    task = paired(world, **partinfo)
    world.prepare(task, index=index, units=max(counts[0], 1), counts=counts)
    assert (task.job.state, task.state, task.is_cut) == (JobState.SUSPEND, TaskState.SUSPEND, False)
    assert task.notes == reason
    assert granted(world) == []
    recompute_job(world.state, world.ctx, task.job.id, "t")
    world.prepare(task, index=index, units=12, counts=(12, 12))
    assert len(granted(world)) == 3


def test_an_odd_number_of_interleaved_records_is_refused_even_if_nothing_would_be_cut(world: World) -> None:
    task = interleaved(world)
    world.prepare(task, index="record", units=3, records=3, counts=(3,))
    assert task.notes == "in has 3 records, no multiple of 2 (partinfo.options)"


def test_a_million_groups_are_one_number(world: World) -> None:
    task = paired(world, parts=1_000_000, options="records=2")
    began = time.perf_counter()
    world.prepare(task, index="record", units=4_000_000, counts=(4_000_000, 4_000_000))
    assert time.perf_counter() - began < 0.1
    assert (task.totalwork, len(task.units)) == (1_000_000, 0)
    assert granted(world)[:2] == ["1-4", "5-8"]
