"""How many workunits, and which units each one gets."""

import pytest

from awe_server.scheduler.split import enough, index_candidates, part_bounds, part_input, part_range, plan
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
    assert part_input(task) == task.inputs[1]


def test_several_inputs_are_not_cut_without_partinfo(world: World) -> None:
    task = a_task(world, a_job().task("t", parts=2).reads("a").reads("b"))
    assert index_candidates(task) == ()
    assert part_input(task) is None


def test_index_none_makes_an_array_over_shared_inputs(world: World) -> None:
    task = a_task(world, a_job().task("t", parts=2, partinfo={"index": "none"}).reads("a").reads("b"))
    assert index_candidates(task) == ()
