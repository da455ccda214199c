"""A store without transactions may keep only the beginning of a batch that nobody was answered for.

Whatever that beginning is: the server starts, every invariant holds, and all work can still be done.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import pytest

from awe_server.scheduler import jobs, suspension, views
from awe_server.scheduler.invariants import check
from awe_server.scheduler.load import load
from awe_server.scheduler.state import Context, Document, PrepareTask, Removal, State
from shared_models.states import FailureKind, JobState
from tests.builders import Stored, World, a_job, snapshot


class Scene:
    """A job that is half done, and one whose first task is: two clients, one of them long silent."""

    def __init__(self) -> None:
        self.world = world = World()
        self.split = world.submit(a_job().task("t1", parts=3).task("t2").depends("t1"))
        self.chain = world.submit(a_job(priority=5).task("t1").task("t2", parts=2).depends("t1"))
        world.client("silent")
        world.pass_s(61)
        world.client()
        world.done(world.take())
        self.early, self.running = (grant.unit for grant in world.checkout(want=2))
        world.done(self.early)

    def suspended(self) -> None:
        jobs.suspend_job(self.world.state, self.world.ctx, self.chain.id)


def suspend(scene: Scene) -> None:
    scene.suspended()


def resume(scene: Scene) -> None:
    jobs.resume_job(scene.world.state, scene.world.ctx, scene.chain.id)


def recompute(scene: Scene) -> None:
    jobs.recompute_job(scene.world.state, scene.world.ctx, scene.chain.id, "t1")


def resubmit(scene: Scene) -> None:
    jobs.resubmit_job(scene.world.state, scene.world.ctx, scene.chain.id)


def delete(scene: Scene) -> None:
    jobs.delete_job(scene.world.state, scene.world.ctx, scene.chain.id, full=True)


def complete(scene: Scene) -> None:
    scene.world.done(scene.running)


def fail(scene: Scene) -> None:
    scene.running.failed = 2
    scene.world.fail(scene.running)


def fail_for_good(scene: Scene) -> None:
    scene.world.fail(scene.running, exit_code=42)


def release_and_take(scene: Scene) -> None:
    scene.world.fail(scene.running, FailureKind.NODE)
    scene.world.checkout(want=10)


def work_of_one_moment(scene: Scene) -> None:
    """A task becomes ready, is handed out and done in the batch in which its parent is done."""
    complete(scene)
    for grant in scene.world.checkout(want=3):
        scene.world.done(grant.unit)
    scene.world.checkout(want=1)


def come_back_and_take(scene: Scene) -> None:
    scene.world.exchange("silent", want=2)


def resume_client_and_take(scene: Scene) -> None:
    suspension.resume_all(scene.world.state, scene.world.ctx)
    scene.world.exchange(want=2)


def submit(scene: Scene) -> None:
    scene.world.submit(a_job().task("t1").task("t2").depends("t1"))


@pytest.mark.parametrize(
    ("act", "before"),
    [
        (suspend, None),
        (resume, suspend),
        (recompute, suspend),
        (recompute, complete),
        (resubmit, suspend),
        (delete, None),
        (complete, None),
        (fail, None),
        (fail_for_good, None),
        (release_and_take, None),
        (work_of_one_moment, None),
        (come_back_and_take, None),
        (
            resume_client_and_take,
            lambda s: suspension.suspend_client(s.world.state, s.world.ctx, s.world.client().id),
        ),
        (submit, None),
    ],
)
def test_every_beginning_of_a_batch_loads(
    act: Callable[[Scene], None], before: Callable[[Scene], None] | None
) -> None:
    scene, stored = Scene(), Stored()
    if before:
        before(scene)
    stored.apply(scene.world.state)
    act(scene)
    changes = scene.world.state.take()
    steps = [partial(_remove, r) for r in changes.removals]
    steps += [partial(_put, name, d) for name, d in views.documents(scene.world.state, changes)]
    for end in range(len(steps) + 1):
        torn = deepcopy(stored)
        for step in steps[:end]:
            step(torn)
        state = load(torn.load_input(scene.world.state.rules), scene.world.ctx)
        assert check(state) == [], f"after {end} of {len(steps)}"
        if end == len(steps):
            assert snapshot(state) == snapshot(scene.world.state)
        _finish(state, scene.world.ctx)


def _remove(removal: Removal, stored: Stored) -> None:
    held = stored.documents.get(removal.collection, {})
    stored.documents[removal.collection] = {
        id: document for id, document in held.items() if document[removal.field] != removal.value
    }


def _put(collection: str, document: Document, stored: Stored) -> None:
    stored.documents.setdefault(collection, {})[document["id"]] = document


def _finish(state: State, ctx: Context) -> None:
    """All work of all jobs can be done."""
    world = World()
    world.state, world.now_s, world.wall_s = state, ctx.now_s, ctx.wall_s
    for job in list(state.jobs.values()):
        if job.state is JobState.SUSPEND:
            jobs.resume_job(state, ctx, job.id)
    suspension.suspend_all(state, ctx)
    world.client("hero", cores=100)
    for _ in range(20):
        for effect in state.take().effects:
            if isinstance(effect, PrepareTask):
                world.prepare(state.tasks[effect.task_id])
        for grant in world.checkout("hero", 10):
            world.done(grant.unit)
        world.now_s += 10
    over = {JobState.COMPLETED, JobState.FAILED_PERMANENT, JobState.DELETED}
    assert {job.state for job in state.jobs.values()} <= over
