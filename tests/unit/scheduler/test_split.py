"""How many workunits, and which units each one gets."""

import pytest

from awe_server.scheduler.split import (
    enough,
    index_candidates,
    part_bounds,
    part_inputs,
    part_range,
    plan,
    processed,
    uncovered,
)
from awe_server.scheduler.state import Task
from shared_models.limits import MIB
from tests.builders import JobBuilder, World, a_job


def a_task(world: World, job: JobBuilder) -> Task:
    return world.submit(job).tasks[0]


@pytest.mark.parametrize(
    ("totalwork", "maxworksize", "units", "expected"),
    [
        (4, 50, 187, 4),
        (1, 20, 187, 10),
        (16, 50, 187, 16),
        (8, 0, 3, 3),
        (1, 250, 100, 1),
        (4, 0, 0, 1),
        (0, 0, 9, 1),
    ],
)
def test_as_many_as_awe_makes(totalwork: int, maxworksize: int, units: int, expected: int) -> None:
    assert plan(totalwork, maxworksize, "chunkrecord", units) == expected


def test_single_records_are_bounded_by_their_bytes() -> None:
    assert plan(1, 2, "record", 1_000, 5 * MIB) == 3
    assert plan(1, 2, "line", 2, 50 * MIB) == 2
    assert plan(7, 2, "record", 1_000, 5 * MIB) == 7


def test_ranges_are_those_of_awe() -> None:
    assert [part_range(r, 4, 10) for r in (1, 2, 3, 4)] == ["1-3", "4-6", "7-8", "9-10"]
    assert [part_range(r, 3, 5) for r in (1, 2, 3)] == ["1-2", "3-4", "5"]


@pytest.mark.parametrize(("n", "units"), [(1, 1), (3, 3), (7, 100), (10, 11), (99, 1000)])
def test_parts_cover_every_unit_once(n: int, units: int) -> None:
    bounds = [part_bounds(rank, n, units) for rank in range(1, n + 1)]
    assert [u for first, last in bounds for u in range(first, last + 1)] == list(range(1, units + 1))


def test_nothing_is_cut_unless_more_than_one_workunit_is_wanted(world: World) -> None:
    assert index_candidates(a_task(world, a_job().task("t").reads("in"))) == ()
    assert index_candidates(a_task(world, a_job().task("t", parts=5))) == ()


def test_the_only_input_is_cut_by_the_default_kinds(world: World) -> None:
    task = a_task(world, a_job().task("t", parts=2).reads("in"))
    assert index_candidates(task) == ("chunkrecord", "record")
    assert enough(task, 2)
    assert not enough(task, 1)
    by_size = a_task(world, a_job().task("t", maxworksize=50).reads("in"))
    assert index_candidates(by_size) == ("chunkrecord", "record")


def test_partinfo_names_input_and_index(world: World) -> None:
    part = {"input": "b", "index": "line"}
    task = a_task(world, a_job().task("t", parts=2, partinfo=part).reads("a").reads("b"))
    assert index_candidates(task) == ("line",)
    assert part_inputs(task) == task.inputs[1:]


def test_several_inputs_are_not_cut_without_partinfo(world: World) -> None:
    task = a_task(world, a_job().task("t", parts=2).reads("a").reads("b"))
    assert index_candidates(task) == ()
    assert part_inputs(task) == []


def test_index_none_makes_an_array_over_shared_inputs(world: World) -> None:
    task = a_task(world, a_job().task("t", parts=2, partinfo={"index": "none"}).reads("a").reads("b"))
    assert index_candidates(task) == ()


def test_F_02_every_cut_that_is_made_covers_its_units() -> None:
    for units in range(1, 60):
        for n in range(1, units + 1):
            assert uncovered(n, units) == ""
    assert uncovered(1_000_000, 123_456_789) == ""


@pytest.mark.parametrize(
    ("first", "last", "wrong"),
    [
        pytest.param(0, 0, (1, 0), id="a unit is left out at the beginning"),
        pytest.param(6, 6, (0, -1), id="a unit is left out at the end"),
        pytest.param(6, 6, (0, 1), id="a unit too many"),
        pytest.param(2, 6, (1, 0), id="a unit is left out where parts become smaller"),
        pytest.param(3, 3, (-1, 0), id="a unit twice where parts become smaller"),
        pytest.param(0, 1, (0, -1), id="gaps in the larger parts"),
        pytest.param(4, 5, (0, -1), id="gaps in the smaller parts"),
        pytest.param(3, 5, (9, -9), id="empty parts"),
    ],
)
def test_F_02_a_cut_that_does_not_cover_is_noticed(first: int, last: int, wrong: tuple[int, int]) -> None:
    """10 units in 7 parts: three of two units, four of one."""

    def bounds(rank: int, n: int, units: int) -> tuple[int, int]:
        start, end = part_bounds(rank, n, units)
        return (start + wrong[0], end + wrong[1]) if first <= rank - 1 <= last else (start, end)

    assert uncovered(7, 10) == ""
    assert uncovered(7, 10, bounds) != ""


def test_F_02_more_parts_than_units_are_noticed() -> None:
    assert uncovered(11, 10) == "part 11 of 11 is empty"
    assert uncovered(1, 0) == "part 1 of 1 is empty"


def test_what_was_processed_is_all_of_it_once_every_rank_is_done() -> None:
    part = {"input": "in", "totalindex": 10, "totalrecords": 10}
    assert processed(part, 7, 7) == {**part, "doneindex": 10, "donerecords": 10}
    assert processed(part, 6, 7) == {**part, "doneindex": 9, "donerecords": None}
    assert processed({"totalindex": 3}, 3, 3)["donerecords"] is None


def test_folders_and_patterns_are_not_cut_and_leave_the_one_file_beside_them(world: World) -> None:
    job = world.submit(a_job().task("t", parts=4).reads("bt2/").reads("*.fa").reads("reads.fastq"))
    assert [io["filename"] for io in part_inputs(job.tasks[0])] == ["reads.fastq"]
    job = world.submit(a_job().task("t", parts=4).reads("bt2/"))
    assert part_inputs(job.tasks[0]) == []
    world.prepare(job.tasks[0])
    assert (job.tasks[0].totalwork, job.tasks[0].notes) == (1, "not split: folders and patterns are not cut")
