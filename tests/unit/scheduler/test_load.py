"""A restart is not an event: what was stored is loaded as it stood."""

from collections.abc import Callable

import pytest

from awe_server.scheduler import views
from awe_server.scheduler.failure import GIVEN_BACK_BASE_S, GIVEN_BACK_FREE
from awe_server.scheduler.invariants import check
from awe_server.scheduler.jobs import resubmit_job, resume_job, suspend_job
from awe_server.scheduler.load import LoadInput, load, load_jobs
from awe_server.scheduler.queue import suspend_queue
from awe_server.scheduler.ready import task_refused
from awe_server.scheduler.state import FinishTask, PrepareTask, State
from awe_server.scheduler.suspension import suspend_client
from awe_server.scheduler.tick import tick
from shared_models.ids import ClientId
from shared_models.states import FailureKind, JobState, TaskState, WorkunitState
from tests.builders import Stored, World, a_job, a_report, changed, job_id, snapshot


def busy(world: World) -> None:
    """Something of everything: waiting, cut, leased, failed, suspended, being looked at, being finished."""
    world.client()
    world.client("c2", group="other", containers=["docker"], file_roots=["/data"])
    world.stock_client("c3")
    one = world.submit(
        a_job(priority=3).task("a", parts=4).task("b").depends("a").reads("x", node="n"), key="k"
    )
    units = [g.unit for g in world.checkout(want=3)]
    world.done(units[0], outputs=[{"filename": "o", "size": 1, "md5": ""}])
    world.fail(units[1], message="boom")
    two = world.submit(a_job().task("s", parts=3), owner="bob")
    world.checkout(want=2)
    suspend_job(world.state, world.ctx, two.id)
    three = world.submit(a_job().task("f").writes("o").task("p").reads("in"))
    world.prepare(three.tasks[0])
    for grant in world.checkout("c3", want=1):
        world.done(grant.unit)
    world.submit(a_job(start_at="2030-01-01T00:00:00Z").task("later"))
    four = world.submit(a_job().task("r").reads("in"))
    task_refused(world.state, world.ctx, four.tasks[0].id, 1, "no")
    suspend_client(world.state, world.ctx, ClientId("c2"))
    suspend_queue(world.state, world.ctx)
    assert one.state is JobState.IN_PROGRESS


def test_loaded_equals_live(world: World, stored: Stored) -> None:
    busy(world)
    loaded = world.reloaded(stored)
    assert snapshot(loaded) == snapshot(world.state)
    assert check(loaded) == []
    assert not loaded.changes.jobs
    assert not loaded.changes.tasks
    assert not loaded.changes.workunits


def test_what_was_under_way_is_asked_for_again(world: World, stored: Stored) -> None:
    job = world.submit(a_job().task("p").reads("in").task("f").writes("o"))
    world.prepare(job.tasks[1])
    world.client()
    world.done(world.take())
    loaded = world.reloaded(stored)
    assert set(loaded.changes.effects) == {PrepareTask(job.tasks[0].id, 1), FinishTask(job.tasks[1].id, 1)}


@pytest.mark.parametrize("step_s", [-3600.0, -86400.0])
def test_L_11_a_retry_is_no_later_when_the_wall_clock_went_back_over_a_restart(
    world: World, stored: Stored, step_s: float
) -> None:
    world.client()
    world.submit(a_job().task("t", retry_delay_s=2.0))
    unit = world.take()
    world.fail(unit)
    stored.apply(world.state)
    world.wall_s += step_s
    loaded = world.reloaded(stored)
    assert 0.0 < loaded.workunits[unit.id].due_s - world.now_s <= 2.0


def test_L_11_a_pause_is_no_longer_when_the_wall_clock_went_back_over_a_restart(
    world: World, stored: Stored
) -> None:
    """Of what was given back: its first pause is one second."""
    world.submit(a_job().task("t"))
    for _ in range(GIVEN_BACK_FREE + 1):
        world.client()
        unit = world.take()
        world.release(unit)
    assert unit.due_s - world.now_s == GIVEN_BACK_BASE_S
    stored.apply(world.state)
    world.wall_s -= 3600
    assert world.reloaded(stored).workunits[unit.id].due_s == unit.due_s


def test_leases_go_on_with_a_full_grace_period(world: World, stored: Stored) -> None:
    """Monotonic time starts anew with the process; reports of before are accepted."""
    world.client()
    world.submit(a_job().task("t", parts=2))
    unit = world.take()
    world.pass_s(59)
    stored.apply(world.state)
    world.now_s = 5.0
    world.wall_s += 3600
    world.state = load(stored.load_input(world.state.rules), world.ctx)
    world.pass_s(59)
    assert world.state.workunits[unit.id].state is WorkunitState.CHECKOUT
    assert world.done(unit) == "accepted"
    world.pass_s(1)
    assert world.state.clients[ClientId("c1")].offline


def test_retry_delays_go_on_and_are_never_longer_than_they_were(world: World, stored: Stored) -> None:
    world.client()
    world.submit(a_job().task("t", retry_delay_s=100.0))
    unit = world.take()
    world.fail(unit)
    world.pass_s(40)
    loaded = world.reloaded(stored)
    assert loaded.workunits[unit.id].due_s == world.now_s + 60
    world.wall_s -= 10 * 3600
    assert load(stored.load_input(world.state.rules), world.ctx).workunits[unit.id].due_s == world.now_s + 100
    world.wall_s += 20 * 3600
    assert load(stored.load_input(world.state.rules), world.ctx).tasks[unit.task.id].retry


def test_what_failed_of_its_input_is_offered_to_others_for_as_long_as_before(
    world: World, stored: Stored
) -> None:
    for name in ("idle", "busy"):
        world.client(name)
    world.submit(a_job().task("t"))
    unit = world.take("idle")
    world.fail(unit, FailureKind.INPUT)
    others_first_s = world.state.rules.retry_cap_s
    world.state = world.reloaded(stored)
    unit = world.state.workunits[unit.id]
    assert unit.others_until_s == world.now_s + 1.0 + others_first_s
    world.pass_s(1.0)
    loaded = world.reloaded(stored)
    assert loaded.workunits[unit.id].others_until_s == world.now_s + others_first_s


def test_an_idempotency_key_still_gives_its_job(world: World, stored: Stored) -> None:
    job = world.submit(a_job().task("t"), key="k")
    world.state = world.reloaded(stored)
    assert world.submit(a_job().task("t"), key="k").id == job.id


def test_jids_go_on_after_the_counter_and_the_highest_job(world: World, stored: Stored) -> None:
    job = world.submit(a_job().task("t"))
    assert world.reloaded(stored).last_jid == job.jid
    stored.documents["meta"] = {}
    assert load(stored.load_input(world.state.rules), world.ctx).last_jid == job.jid
    assert load(LoadInput(counters={"id": "counters", "jid": 77}), world.ctx).last_jid == 77


def test_completed_workunits_may_be_counts(world: World, stored: Stored) -> None:
    world.client()
    job = world.submit(a_job().task("t", parts=9))
    units = [g.unit for g in world.checkout(want=5)]
    for unit in units[:3]:
        world.done(unit)
    stored.apply(world.state)
    documents = stored.load_input(world.state.rules)
    documents.workunits = [d for d in documents.workunits if d["state"] != "completed"]
    documents.completed = {job.tasks[0].id: 3}
    assert snapshot(load(documents, world.ctx)) == snapshot(world.state)


def test_a_finished_job_is_loaded_again_for_a_verb(world: World, stored: Stored) -> None:
    world.client()
    job = world.submit(a_job().task("a", parts=2).task("b").depends("a"))
    while job.state is not JobState.COMPLETED:
        world.done(world.take())
    stored.apply(world.state)
    before = views.job_document(job)
    assert world.state.forget_job(job.id)
    documents = stored.documents
    load_jobs(
        world.state,
        world.ctx,
        [documents["jobs"][job.id]],
        documents["tasks"].values(),
        documents["workunits"].values(),
    )
    again = world.state.jobs[job.id]
    assert views.job_document(again) == before
    assert world.state.changes.is_empty()
    resubmit_job(world.state, world.ctx, job.id)
    stored.apply(world.state)
    assert not documents["workunits"]
    assert [world.take().attempt for _ in range(2)] == [2, 2]


class TestTornBatches:
    """A store without transactions may keep a prefix: removals, workunits, tasks, and jobs last."""

    def torn(self, world: World, stored: Stored, verb: Callable[[], object], keep: tuple[str, ...]) -> State:
        """Store all, run the verb, store only some collections of its batch, and load."""
        stored.apply(world.state)
        verb()
        documents = {name: dict(held) for name, held in stored.documents.items()}
        stored.apply(world.state)
        for name, held in documents.items():
            if name not in keep:
                stored.documents[name] = held
        loaded = load(stored.load_input(world.state.rules), world.ctx)
        assert check(loaded) == []
        return loaded

    def leased(self, world: World) -> None:
        """One job with a workunit leased, one failed, one done, one fresh."""
        world.client()
        job = world.submit(a_job().task("t", parts=5))
        a, b, _ = (g.unit for g in world.checkout(want=3))
        world.done(a)
        world.fail(b)
        assert job.id == job_id()

    def test_a_halt_is_finished(self, world: World, stored: Stored) -> None:
        self.leased(world)
        loaded = self.torn(
            world, stored, lambda: suspend_job(world.state, world.ctx, job_id()), ("workunits", "tasks")
        )
        job = loaded.jobs[job_id()]
        assert (job.state, job.notes) == (JobState.SUSPEND, "suspended")
        assert job_id() in loaded.changes.jobs

    def test_a_halt_of_which_only_workunits_are_known_is_undone(self, world: World, stored: Stored) -> None:
        self.leased(world)
        loaded = self.torn(
            world, stored, lambda: suspend_job(world.state, world.ctx, job_id()), ("workunits",)
        )
        assert loaded.jobs[job_id()].state is JobState.IN_PROGRESS
        assert {u.state for u in loaded.workunits.values()} == {WorkunitState.QUEUED}

    def test_a_resume_is_undone(self, world: World, stored: Stored) -> None:
        self.leased(world)
        suspend_job(world.state, world.ctx, job_id())
        loaded = self.torn(
            world, stored, lambda: resume_job(world.state, world.ctx, job_id()), ("workunits", "tasks")
        )
        assert loaded.jobs[job_id()].state is JobState.SUSPEND
        assert {u.state for u in loaded.workunits.values()} == {WorkunitState.SUSPEND}

    def test_a_permanent_failure_is_finished(self, world: World, stored: Stored) -> None:
        self.leased(world)
        unit = world.take()
        loaded = self.torn(world, stored, lambda: world.fail(unit, exit_code=42), ("workunits", "tasks"))
        job = loaded.jobs[job_id()]
        assert job.state is JobState.FAILED_PERMANENT
        assert "exit code 42" in job.notes

    def test_D_05_a_completion_is_finished(self, world: World, stored: Stored) -> None:
        """All work is done and the job does not know."""
        world.client()
        job = world.submit(a_job().task("t"))
        unit = world.take()
        loaded = self.torn(world, stored, lambda: world.done(unit), ("workunits", "tasks"))
        assert loaded.jobs[job.id].state is JobState.COMPLETED
        assert changed(loaded.take()) == {"job": "completed", "ForgetJob": "job"}

    def test_a_first_checkout_that_only_workunits_know(self, world: World, stored: Stored) -> None:
        world.client()
        job = world.submit(a_job().task("t", parts=3))
        loaded = self.torn(world, stored, lambda: world.checkout(want=2), ("workunits", "clients"))
        again = loaded.jobs[job.id]
        assert (again.state, again.tasks[0].state) == (JobState.IN_PROGRESS, TaskState.IN_PROGRESS)
        assert again.info["startedtime"] == job.info["startedtime"]
        assert changed(loaded.take()) == {"job": "in-progress", "t": "in-progress"}

    def test_a_cut_the_job_does_not_know(self, world: World, stored: Stored) -> None:
        job = world.submit(a_job().task("t").reads("in"))
        loaded = self.torn(world, stored, lambda: world.prepare(job.tasks[0]), ("tasks",))
        assert loaded.jobs[job.id].state is JobState.QUEUED

    def test_D_05_a_result_the_task_does_not_know_completes_it(self, world: World, stored: Stored) -> None:
        world.client()
        job = world.submit(a_job().task("t"))
        unit = world.take()
        loaded = self.torn(world, stored, lambda: world.done(unit), ("workunits",))
        assert loaded.jobs[job.id].state is JobState.COMPLETED

    def test_a_lease_the_task_does_not_know_is_kept(self, world: World, stored: Stored) -> None:
        self.leased(world)
        loaded = self.torn(world, stored, lambda: world.checkout(want=2), ("workunits",))
        (task,) = loaded.jobs[job_id()].tasks
        assert (task.fresh_rank, sorted(task.units)) == (6, [2, 3, 4, 5])

    @pytest.mark.parametrize("suspended", [False, True])
    def test_ranks_without_a_document_run_again(self, world: World, stored: Stored, suspended: bool) -> None:
        self.leased(world)
        if suspended:
            suspend_job(world.state, world.ctx, job_id())
        stored.apply(world.state)
        stored.documents["workunits"] = {}
        loaded = load(stored.load_input(world.state.rules), world.ctx)
        (task,) = loaded.jobs[job_id()].tasks
        assert sorted(task.units) == [1, 2, 3]
        assert task.done == 0
        assert [u.rank for u in task.retry] == ([] if suspended else [1, 2, 3])
        assert task.state is (TaskState.SUSPEND if suspended else TaskState.IN_PROGRESS)

    def test_work_of_a_client_nobody_knows_is_queued(self, world: World, stored: Stored) -> None:
        self.leased(world)
        stored.apply(world.state)
        stored.documents["clients"] = {}
        loaded = load(stored.load_input(world.state.rules), world.ctx)
        assert {u.state for u in loaded.workunits.values()} == {WorkunitState.QUEUED}
        assert check(loaded) == []

    def test_documents_of_an_older_generation_do_not_count(self, world: World, stored: Stored) -> None:
        self.leased(world)
        stored.apply(world.state)
        for document in stored.documents["workunits"].values():
            document["generation"] = 0
        stored.documents["tasks"][f"{job_id()}_gone"] = {"id": "x", "jobid": "nobody"}
        loaded = load(stored.load_input(world.state.rules), world.ctx)
        assert loaded.jobs[job_id()].tasks[0].done == 0


def test_a_job_whose_time_came_while_the_server_was_down_starts(world: World, stored: Stored) -> None:
    job = world.submit(a_job(start_at="2026-01-01T12:01:00Z").task("t"))
    stored.apply(world.state)
    world.wall_s += 3600
    loaded = load(stored.load_input(world.state.rules), world.ctx)
    assert loaded.jobs[job.id].state is JobState.QUEUED
    tick(loaded, world.ctx)


def test_reports_after_a_restart_are_accepted_once(world: World, stored: Stored) -> None:
    world.client()
    world.submit(a_job().task("t", parts=2))
    unit = world.take()
    r = a_report(unit)
    world.state = world.reloaded(stored)
    assert world.report(r) == "accepted"
    assert world.report(r) == "duplicate"


def test_a_state_without_documents_is_empty(world: World) -> None:
    loaded = load(LoadInput(), world.ctx)
    assert snapshot(loaded) == snapshot(State())
