"""The queue's switch and its counts."""

import pytest

from awe_server.scheduler import jobs, suspension
from awe_server.scheduler.queue import queue_counts, resume_queue, suspend_queue
from shared_models.errors import QueueSuspended
from tests.builders import Stored, World, a_job
from tests.support.cost import cpu_below


def test_a_suspended_queue_hands_out_nothing_and_takes_everything(world: World) -> None:
    world.submit(a_job().task("t1", parts=2))
    world.client()
    unit = world.take()
    suspend_queue(world.state, world.ctx)
    with pytest.raises(QueueSuspended, match="Server queue is suspended"):
        world.checkout()
    assert world.exchange(want=1).grants == []
    assert world.done(unit) == "accepted"
    job = world.submit(a_job().task("t1"))
    assert job.state == "queued"
    assert [event.code for event in world.state.changes.events][-4:-2] == ["QS", "WD"]


def test_resuming_the_queue_wakes_whoever_waits_for_its_work(world: World) -> None:
    world.submit(a_job().task("t1", parts=3).task("t2", cmd="blast"))
    suspend_queue(world.state, world.ctx)
    world.state.take()
    resume_queue(world.state, world.ctx)
    changes = world.state.take()
    assert {demand.app: count for demand, count in changes.work.items()} == {"run": 3, "blast": 1}
    assert [event.code for event in changes.events] == ["QR"]


def test_both_are_kept_over_a_restart_and_twice_is_once(world: World, stored: Stored) -> None:
    suspend_queue(world.state, world.ctx)
    assert world.reloaded(stored).queue_suspended
    suspend_queue(world.state, world.ctx)
    assert world.state.changes.is_empty()
    resume_queue(world.state, world.ctx)
    assert not world.reloaded(stored).queue_suspended
    resume_queue(world.state, world.ctx)
    assert world.state.changes.is_empty()


def test_counts_of_an_empty_server_are_zero(world: World) -> None:
    counts = queue_counts(world.state)
    assert set(counts) == {"jobs", "tasks", "workunits", "clients"}
    assert all(n == 0 for section in counts.values() for n in section.values())


def test_counts_have_the_shape_that_awe_gives_them(world: World) -> None:
    world.submit(a_job().task("t1", parts=5).task("t2").depends("t1").task("t3"))
    halted = world.submit(a_job().task("t1", parts=4).task("t2").depends("t1"))
    jobs.suspend_job(world.state, world.ctx, halted.id)
    done = world.submit(a_job(priority=9).task("t1"))
    world.client("busy")
    for grant in world.checkout("busy", 1):
        world.done(grant.unit)
    assert done.state == "completed"
    units = [grant.unit for grant in world.checkout("busy", 3)]
    world.fail(units[0])
    world.client("idle")
    world.client("aside")
    suspension.suspend_client(world.state, world.ctx, world.client("aside").id)
    assert queue_counts(world.state) == {
        "jobs": {"total": 2, "active": 1, "suspended": 1},
        "tasks": {
            "total": 5,
            "queuing": 1,
            "in-progress": 1,
            "pending": 2,
            "completed": 0,
            "suspended": 1,
            "failed": 0,
        },
        "workunits": {"total": 10, "queuing": 4, "checkout": 2, "suspended": 4},
        "clients": {"total": 3, "busy": 1, "idle": 1, "suspended": 1, "offline": 0},
    }
    world.pass_s(61)
    assert queue_counts(world.state)["clients"] == {
        "total": 0,
        "busy": 0,
        "idle": 0,
        "suspended": 0,
        "offline": 3,
    }


def test_a_refused_task_has_no_workunits_to_count(world: World) -> None:
    job = world.submit(a_job().task("t1", parts=4).reads("in"))
    jobs.suspend_job(world.state, world.ctx, job.id)
    counts = queue_counts(world.state)
    assert counts["workunits"] == {"total": 0, "queuing": 0, "checkout": 0, "suspended": 0}
    assert counts["tasks"]["pending"] == 1


@pytest.fixture
def crowd(world: World) -> World:
    """A million workunits, a few of them out."""
    world.submit(a_job().task("t1", parts=1_000_000))
    world.client(cores=100)
    world.checkout(want=50)
    return world


def test_counting_costs_tasks_not_workunits(crowd: World) -> None:
    with cpu_below(0.2):
        for _ in range(100):
            counts = queue_counts(crowd.state)
    assert counts["workunits"] == {"total": 1_000_000, "queuing": 999_950, "checkout": 50, "suspended": 0}
