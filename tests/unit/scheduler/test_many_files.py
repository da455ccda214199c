"""Wide jobs: what many inputs ask of one producer costs each input a look-up, not a walk over its outputs."""

import pytest

from awe_server.scheduler.graph import check_graph
from awe_server.scheduler.progress import locate_inputs
from shared_models.documents import JobDocument
from tests.builders import World, a_job

WIDTH = 300
READERS = 5


class Counted(str):
    """A file name that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.fixture(autouse=True)
def _fresh_count() -> None:
    Counted.comparisons = 0


def wide() -> JobDocument:
    """One producer of many files, and several tasks that read all of them."""
    job = a_job().task("make")
    for i in range(WIDTH):
        job.writes(f"f{i}")
    for k in range(READERS):
        job.task(f"read{k}")
        for i in range(WIDTH):
            job.reads(f"f{i}", origin="make")
    document = job.build()
    for task in document.tasks:
        for io in (*task.inputs, *task.outputs):
            io.filename = Counted(io.filename)
    return document


def test_origins_are_checked_without_comparing_every_input_with_every_output() -> None:
    assert check_graph(wide())[1] == ["make"]
    assert Counted.comparisons <= 3 * READERS * WIDTH


def test_inputs_are_located_without_comparing_every_input_with_every_output(world: World) -> None:
    job = world.submit(wide())
    make, *readers = job.tasks
    world.prepare(make)
    for task in job.tasks:
        task.inputs = [{**io, "filename": Counted(io["filename"])} for io in task.inputs]
        task.outputs = [{**io, "filename": Counted(io["filename"])} for io in task.outputs]
    Counted.comparisons = 0
    for task in readers:
        assert [io["node"] for io in locate_inputs(world.state, task)] == [io["node"] for io in make.outputs]
    assert Counted.comparisons <= 3 * READERS * WIDTH


def test_an_output_is_found_by_its_name_also_after_outputs_were_replaced(world: World) -> None:
    make = world.submit(wide()).tasks[0]
    assert make.output("f7") is make.outputs[7]
    make.outputs = [{**io, "node": "new"} for io in make.outputs]
    world.state.touch_task(make)
    assert make.output("f7")["node"] == "new"
