"""Who asks whether a node is in use looks only at the tasks that name it."""

import pytest

from awe_server.scheduler import jobs
from awe_server.scheduler.invariants import check
from awe_server.scheduler.readers import check_unneeded, check_unread
from shared_models.errors import Conflict
from tests.builders import World, a_job


def test_a_node_is_in_use_from_submit_until_its_job_has_gone() -> None:
    world = World()
    job = world.submit(a_job().task("t1").reads("in").task("t2").writes("out"))
    reads, writes = job.tasks
    given = reads.inputs[0]["node"]
    with pytest.raises(Conflict, match=f"node {given} is an input of task {reads.id}"):
        check_unread(world.state, given)
    world.prepare(writes)
    made = writes.outputs[0]["node"]
    with pytest.raises(Conflict, match=f"node {made} is an output of task {writes.id}"):
        check_unneeded(world.state, made)
    check_unneeded(world.state, "another")
    assert world.state.named_nodes.as_dict() == {given: {reads.id}, made: {writes.id}}
    jobs.delete_job(world.state, world.ctx, job.id)
    world.state.forget_job(job.id)
    assert world.state.named_nodes.as_dict() == {}
    assert check(world.state) == []


def test_only_the_tasks_that_name_a_node_are_looked_at() -> None:
    world = World()
    job = world.submit(a_job().task("t1").reads("in").task("t2").reads("other"))
    world.state.tasks.clear()
    assert list(world.state.named_nodes.of("node-other")) == [job.tasks[1]]
    with pytest.raises(Conflict):
        check_unread(world.state, "node-other")
