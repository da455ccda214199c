"""Whatever is broken by hand is found, and named."""

from collections.abc import Callable
from typing import Any

import pytest

from awe_server.scheduler import jobs
from awe_server.scheduler.demands import Demand
from awe_server.scheduler.invariants import check
from shared_models.errors import JobNotFound
from shared_models.ids import ClientId, WorkunitId
from shared_models.limits import MAX_SKIP_LIST
from shared_models.states import JobState, TaskState, WorkunitState
from tests.builders import World, a_job


class Scene:
    """One of everything: running, delayed, offered again, pending, prepared, finished, suspended."""

    def __init__(self) -> None:
        self.world = World()
        world = self.world
        self.job = world.submit(
            a_job(user="anna").task("t1", parts=4, retry_delay_s=9.0).task("t2").depends("t1"), key="k"
        )
        self.t1, self.t2 = self.job.tasks
        self.client = world.client()
        self.held, self.delayed, self.again = (grant.unit for grant in world.checkout(want=3))
        world.fail(self.delayed)
        world.release(self.again)
        files = world.submit(a_job(priority=9).task("t1").reads("in").task("t2").writes("out"))
        self.preparing, self.finishing = files.tasks
        world.prepare(self.finishing)
        world.client("c2")
        world.done(world.take("c2"))
        self.halted = world.submit(a_job(priority=5).task("t1", parts=2))
        world.take("c2")
        jobs.suspend_job(world.state, world.ctx, self.halted.id)
        world.exchange("c2")

    @property
    def demand(self) -> Demand:
        return self.world.state.demand_list[0]


def test_the_scene_is_sound() -> None:
    scene = Scene()
    world = scene.world
    world.submit(a_job().task("t1", parts=2))
    assert check(world.state) == []


def _set(path: str, value: Any) -> Callable[[Scene], None]:
    """Set an attribute of something in the scene."""
    *parts, name = path.split(".")

    def damage(scene: Scene) -> None:
        target: Any = scene
        for part in parts:
            target = getattr(target, part)
        setattr(target, name, value)

    return damage


def _do(what: Callable[[Scene], Any]) -> Callable[[Scene], None]:
    def damage(scene: Scene) -> None:
        what(scene)

    return damage


DAMAGE: list[tuple[Callable[[Scene], None], str]] = [
    (_do(lambda s: s.world.state.tasks.pop(s.t2.id)), "the tasks of all jobs"),
    (_do(lambda s: s.world.state.workunits.pop(s.held.id)), "the live workunits of all tasks"),
    (_set("job.id", "x"), "a job is filed under another id"),
    (_set("client.id", "x"), "a client is filed under another id"),
    (_set("world.state.last_jid", 0), "a jid is used twice"),
    (_set("job.idempotency", "other"), "idempotency key 'k'"),
    (_do(lambda s: s.world.state.stopped.update({s.client.id: None})), "told to stop and is there"),
    (_do(lambda s: s.world.state.running.clear()), "running is {}"),
    (_set("preparing.inputs", []), "the nodes that tasks name are not those that are filed"),
    (_do(lambda s: s.world.state.demands.clear()), "demands and demand_list differ"),
    (_do(lambda s: s.job.tasks.reverse()), "tasks are not in order"),
    (_set("job.open_tasks", 7), "open_tasks is 7"),
    (_set("job.revision", 0), "revision is 0"),
    (_set("halted.queues", {1: 2}), "is not active and waits in a queue"),
    (_set("job.state", JobState.SUSPEND), "has running tasks"),
    (_do(lambda s: setattr(s.halted.tasks[0], "preparing", True)), "has effects on their way"),
    (_set("halted.state", JobState.COMPLETED), "is completed with 1 open tasks"),
    (_set("halted.notes", ""), "is suspended without a reason"),
    (_set("t2.state", TaskState.FAILED_PERMANENT), "has failed-permanent tasks"),
    (_set("job.state", JobState.QUEUED), "its tasks say in-progress"),
    (_set("job.error", {}), "is active and shows an error"),
    (_set("halted.state", JobState.IN_PROGRESS), "is active with suspended tasks"),
    (_set("t1.state", TaskState.COMPLETED), "is completed with 0 of 4 done"),
    (_set("job.open_tasks", 0), "is active with nothing left to do"),
    (_set("t2.waiting_for", 0), "waiting_for is 0"),
    (_set("t1.dependants", []), "a parent does not know it"),
    (_do(lambda s: s.t1.dependants.append(s.preparing)), "dependencies are double or one-sided"),
    (_set("t2.state", TaskState.QUEUED), "went on before its parents were done"),
    (_set("t1.is_cut", False), "is_cut is False"),
    (_set("t2.preparing", True), "is being prepared"),
    (_set("t1.finishing", True), "is being finished"),
    (_set("preparing.preparing", False), "nobody looks at it"),
    (_set("preparing.preparing", False), "nobody starts it"),
    (_set("finishing.finishing", False), "all its work is done and nobody finishes it"),
    (_set("t2.done", 1), "has ranks before it was cut"),
    (_set("t1.fresh_rank", 9), "ranks 1..9..5 of 4"),
    (_set("t1.done", 1), "handed out 3: 1 done and 3 live"),
    (_set("held.rank", 4), "a live workunit has a rank that was never handed out"),
    (_set("t1.first_attempt", 9), "attempts begin at 9"),
    (_set("held.state", WorkunitState.SUSPEND), "has workunits in"),
    (_set("t1.state", TaskState.QUEUED), "is queued and was handed out"),
    (_set("t1.is_listed", False), "is_listed is False"),
    (_do(lambda s: s.t1.retry.clear()), "offers [] again"),
    (_set("t1.demand", None), "is listed and in no queue"),
    (_set("t1.clientgroups", "big"), "waits where"),
    (_do(lambda s: s.job.queues.clear()), "is listed and in no queue"),
    (_set("held.id", "x"), "is not the workunit of its rank"),
    (_set("held.generation", 7), "is of generation 7"),
    (_set("held.attempt", 7), "attempts of its task are"),
    (_set("held.client", "c2"), "is held by"),
    (_set("held.token", ""), "is leased without token or client"),
    (_set("held.due_s", 5.0), "has a retry delay"),
    (_set("held.state", WorkunitState.SUSPEND), "is out of play in an active job"),
    (_set("held.state", WorkunitState.COMPLETED), "is completed and in memory"),
    (_do(lambda s: s.client.holds.update({WorkunitId("x"): s.held})), "holds <Workunit"),
    (_set("held.state", WorkunitState.QUEUED), "without a lease"),
    (_set("t1.state", TaskState.SUSPEND), "holds <Workunit"),
    (_set("client.offline", True), "holds work and gets none"),
    (_do(lambda s: s.client.withdrawn.update({s.held.id: None})), "is to discard what it holds"),
    (
        _do(lambda s: s.client.skip.update({WorkunitId(str(i)): None for i in range(MAX_SKIP_LIST + 1)})),
        "skips 1002 workunits",
    ),
    (_do(lambda s: s.client.blamed.update({WorkunitId(str(i)): None for i in range(5)})), "times in a row"),
    (_set("client.suspend_reason", "x"), "suspend_reason is 'x'"),
    (_set("client.eligible", []), "remembers other demands than it can serve"),
    (_do(lambda s: s.demand.lanes.append(s.demand.lanes[0])), "lanes are not in order"),
    (_do(lambda s: s.demand.lanes[0].jobs.clear()), "is empty"),
    (_do(lambda s: s.demand.lanes[0].jobs.append(s.demand.lanes[0].jobs[0])), "are not in order"),
    (_do(lambda s: setattr(s.job, "info", {"priority": 9})), "waits in the wrong lane"),
    (_do(lambda s: s.demand.lanes[0].jobs[0].tasks.append(s.t1)), "are not in order"),
    (_do(lambda s: s.demand.lanes[0].jobs[0].tasks.append(s.t2)), "waits in the wrong queue"),
    (_set("demand.listed", 9), "listed is 9"),
    (_do(lambda s: s.world.state.delayed.clear()), "its retry delay never ends"),
    (_do(lambda s: s.world.state.delayed.insert(0, (99_999.0, 99, s.held))), "delayed is not a heap"),
]


@pytest.mark.parametrize(
    ("damage", "words"), DAMAGE, ids=[f"{i}-{words}" for i, (_, words) in enumerate(DAMAGE)]
)
def test_damage_is_found(damage: Callable[[Scene], None], words: str) -> None:
    scene = Scene()
    assert check(scene.world.state) == []
    damage(scene)
    found = check(scene.world.state)
    assert any(words in line for line in found), found


def test_a_refusal_breaks_nothing(world: World) -> None:
    world.client()
    with pytest.raises(JobNotFound):
        jobs.resume_job(world.state, world.ctx, "nobody")  # type: ignore[arg-type]
    assert list(world.state.clients) == [ClientId("c1")]
