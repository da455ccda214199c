"""A task that fails everywhere is bad, not its clients; a client where everything fails is, not the work."""

import pytest

from awe_server.scheduler.failure import MAX_NODE_FAILURES, withdraw
from awe_server.scheduler.jobs import recompute_job, resume_job
from awe_server.scheduler.state import Client, Job, Workunit
from awe_server.scheduler.why import why_job
from shared_models.ids import ClientId
from shared_models.states import ClientStatus, FailureKind, JobState, TaskState
from tests.builders import Stored, World, a_job, snapshot

K = FailureKind


def fail_some(world: World, client: str, count: int, kind: FailureKind = K.COMMAND) -> None:
    """The client takes so many workunits at once and fails them one after the other."""
    grants = world.checkout(client, want=count)
    assert len(grants) == count
    for grant in grants:
        world.fail(grant.unit, kind)


def suspended(world: World) -> list[str]:
    """Ids of the suspended clients."""
    return [client.id for client in world.state.clients.values() if client.suspended]


def run_to_the_end(world: World, job: Job) -> None:
    """Every client that may works on and fails whatever it gets, until the job is suspended."""
    for _ in range(60):
        for client in list(world.state.clients.values()):
            world.exchange(client.id)
            for grant in world.checkout(client.id, want=2) if client.is_live else []:
                if grant.is_held:
                    world.fail(grant.unit, message="grepp: not found")
        if job.state is JobState.SUSPEND:
            return
        world.pass_s(1)
    raise AssertionError(f"{job!r} never ended")


class TestOtherClientsFailToo:
    """Without any success, a second client that fails on the task proves that the task is bad."""

    @pytest.mark.parametrize("kind", [K.COMMAND, K.SIGNAL, K.TIMEOUT, K.OOM, K.OUTPUT])
    def test_nobody_is_blamed_and_the_first_is_let_off(self, world: World, kind: FailureKind) -> None:
        first, second = world.client("c1"), world.client("c2")
        world.submit(a_job().task("t", parts=9))
        fail_some(world, "c1", 3, kind)
        assert len(first.blamed) == 3
        fail_some(world, "c2", 1, kind)
        assert [len(client.blamed) for client in (first, second)] == [0, 0]
        fail_some(world, "c1", 5)
        assert not first.blamed
        assert [client.total_failed for client in (first, second)] == [8, 1]

    def test_a_client_that_was_suspended_for_it_works_again(self, world: World) -> None:
        first, second = world.client("c1"), world.client("c2")
        world.submit(a_job().task("t", parts=9))
        fail_some(world, "c1", 5)
        assert first.status is ClientStatus.SUSPEND
        world.state.take()
        fail_some(world, "c2", 1)
        changes = world.state.take()
        assert first.status is ClientStatus.IDLE
        assert [e.fields["clientid"] for e in changes.events if e.code == "CO"] == ["c1"]
        assert ClientId("c1") in changes.told
        assert not second.blamed

    def test_blame_for_other_tasks_and_of_other_kinds_stays(self, world: World) -> None:
        first = world.client("c1")
        world.client("c2")
        world.submit(a_job().task("other"))
        world.submit(a_job().task("t", parts=9))
        fail_some(world, "c1", 1)
        fail_some(world, "c1", 1, K.NODE)
        fail_some(world, "c1", 2)
        fail_some(world, "c2", 1)
        assert [id.partition("_")[2] for id in first.blamed] == ["other_0", "t_1"]

    def test_blame_for_a_task_whose_name_begins_alike_stays(self, world: World) -> None:
        first = world.client("c1")
        world.client("c2")
        world.submit(a_job().task("map_reads").task("map", parts=9))
        fail_some(world, "c1", 3)
        fail_some(world, "c2", 1)
        assert [id.partition("_")[2] for id in first.blamed] == ["map_reads_0"]

    @pytest.mark.parametrize("kind", [K.NODE, K.INPUT])
    def test_failures_around_the_command_prove_nothing(self, world: World, kind: FailureKind) -> None:
        first = world.client("c1")
        world.client("c2")
        world.submit(a_job().task("t", parts=9))
        fail_some(world, "c1", 2)
        fail_some(world, "c2", 2, kind)
        assert len(first.blamed) == 2

    def test_after_a_success_clients_are_blamed_again(self, world: World) -> None:
        first = world.client("c1")
        world.client("c2")
        world.submit(a_job().task("t", parts=20))
        fail_some(world, "c1", 1)
        fail_some(world, "c2", 1)
        world.done(world.take("c2"))
        fail_some(world, "c1", 5)
        assert first.suspended

    def test_a_task_that_was_set_back_is_judged_anew(self, world: World) -> None:
        first = world.client("c1")
        world.client("c2")
        job = world.submit(a_job(noretry=True).task("t", parts=9))
        fail_some(world, "c1", 1)
        resume_job(world.state, world.ctx, job.id)
        fail_some(world, "c2", 1)
        assert job.tasks[0].blamed == ""
        recompute_job(world.state, world.ctx, job.id, "t")
        assert job.tasks[0].blamed is None
        fail_some(world, "c1", 1)
        assert len(first.blamed) == 1


class TestOnlyChoice:
    """A client that alone could run a task that never succeeded."""

    def test_Q_01_it_is_not_suspended_and_the_job_is(self, world: World) -> None:
        client = world.client("c1")
        world.client("elsewhere", group="other", apps=["other"])
        job = world.submit(a_job(clientgroups="default").task("t", parts=8))
        run_to_the_end(world, job)
        assert suspended(world) == []
        assert client.blamed == {}
        assert job.tasks[0].state is TaskState.SUSPEND
        assert job.notes.endswith("failed 3 time(s). msg from client: grepp: not found")
        assert not [e for e in world.state.take().events if e.code in ("CS", "CO")]

    def test_neither_are_two_of_which_each_fails_a_part(self, world: World) -> None:
        world.client("c1")
        world.client("c2")
        job = world.submit(a_job().task("t", parts=8))
        run_to_the_end(world, job)
        assert suspended(world) == []

    def test_wrong_commands_one_after_the_other_do_not_add_up(self, world: World) -> None:
        """Each job said what was wrong when it was suspended: the client need not be."""
        client = world.client("c1")
        for _ in range(7):
            run_to_the_end(world, world.submit(a_job().task("t")))
        assert suspended(world) == []
        assert not client.blamed

    def test_it_is_suspended_when_different_tasks_fail_on_it(self, world: World) -> None:
        client = world.client("c1")
        for _ in range(5):
            world.submit(a_job().task("t"))
        fail_some(world, "c1", 5)
        assert client.suspended

    def test_it_is_suspended_when_the_task_succeeded_before(self, world: World) -> None:
        client = world.client("c1")
        world.submit(a_job().task("t", parts=9))
        world.done(world.take())
        fail_some(world, "c1", 5)
        assert client.suspended

    def test_it_is_suspended_when_it_cannot_even_start_commands(self, world: World) -> None:
        client = world.client("c1")
        world.submit(a_job().task("t", parts=9))
        fail_some(world, "c1", 5, K.NODE)
        assert client.suspended

    @pytest.mark.parametrize("absence", ["offline", "suspended", "draining"])
    def test_clients_that_take_no_work_are_no_choice(self, world: World, absence: str) -> None:
        client, other = world.client("c1"), world.client("c2")
        setattr(other, absence, True)
        other.suspend_reason = "manually" if absence == "suspended" else ""
        world.submit(a_job().task("t", parts=9))
        fail_some(world, "c1", 5)
        assert not client.suspended


class TestOutOfReach:
    """What one client may not read or does not see is another's to fetch, and on nobody's account."""

    TEXT = "cannot fetch s3://theirs/x: the store refuses access with the credentials of this machine"

    def fail(self, world: World, client: str, count: int) -> None:
        for grant in world.checkout(client, want=count):
            world.fail(grant.unit, K.NODE, message=self.TEXT, out_of_reach=True)

    def test_it_is_offered_to_others_first(self, world: World) -> None:
        first = world.client("c1")
        world.client("c2")
        job = world.submit(a_job().task("t"))
        unit = world.take("c1")
        world.fail(unit, K.NODE, out_of_reach=True)
        assert (unit.failed, unit.node_failures, list(first.skip), first.blamed) == (0, 1, [unit.id], {})
        world.pass_s(2)
        assert world.checkout("c1") == []
        world.done(world.take("c2"))
        assert job.tasks[0].done == 1

    def test_Q_01_an_input_that_one_client_cannot_fetch_is_offered_to_others_first(
        self, world: World
    ) -> None:
        """What looks like the input's own fault may be a client's way to its host: whoever fails at once is
        always free, and would end the job with its third attempt while the others are busy."""
        bad = world.client("bad", cores=8)
        world.client("good")
        world.submit(a_job().task("busy"))
        busy = world.take("good")
        job = world.submit(a_job().task("t", parts=3))
        world.state.take()
        for _ in range(10):
            world.pass_s(5)
            for name in ("bad", "good"):
                world.exchange(name)
            for grant in world.checkout("bad", want=8):
                world.fail(grant.unit, K.INPUT, message="cannot fetch http://there/x: refused")
        assert job.state is JobState.IN_PROGRESS
        assert [unit.failed for unit in job.tasks[0].units.values()] == [1, 1, 1]
        assert (bad.total_failed, bad.blamed, bad.suspended) == (0, {}, False)
        world.done(busy)
        for _ in range(3):
            world.done(world.take("good"))
        assert job.state is JobState.COMPLETED

    def test_others_are_asked_first_for_a_while_and_not_for_as_long_as_they_are_busy(
        self, world: World
    ) -> None:
        """The host was away for a moment, and the only other client has work for ten hours."""
        world.client("idle")
        world.client("busy")
        world.submit(a_job().task("long"))
        world.take("busy")
        world.submit(a_job().task("t"))
        unit = world.take("idle")
        world.fail(unit, K.INPUT)
        first_delay_s, others_first_s = 1.0, world.state.rules.retry_cap_s

        def asks_after(seconds: float) -> list[Workunit]:
            while seconds > 0:
                world.pass_s(min(seconds, 20.0))
                seconds -= 20.0
                for name in ("idle", "busy"):
                    world.exchange(name)
            return [grant.unit for grant in world.checkout("idle")]

        assert asks_after(first_delay_s + others_first_s - 0.5) == []
        assert asks_after(0.5) == [unit]
        withdraw(world.state, world.ctx, unit, "drained")
        assert asks_after(others_first_s - 0.5) == [], "it is offered to others anew"
        assert asks_after(0.5) == [unit]

    def test_an_input_that_nobody_can_fetch_ends_the_job_on_any_of_them(self, world: World) -> None:
        names = ("c1", "c2", "c3", "c4")
        for name in names:
            world.client(name)
        job = world.submit(a_job().task("t"))
        unit = world.take("c1")
        world.fail(unit, K.INPUT)
        for name in ("c2", "c3"):
            world.pass_s(5)
            world.exchange(name)
            assert world.checkout("c1") == []
            world.fail(world.take(name), K.INPUT)
        assert job.state is JobState.SUSPEND
        assert suspended(world) == []

    def test_no_number_of_them_suspends_a_client(self, world: World) -> None:
        for name in ("c1", "c2"):
            world.client(name)
        for _ in range(6):
            world.submit(a_job().task("t", parts=3))
        for name in ("c1", "c2"):
            self.fail(world, name, 9)
        assert suspended(world) == []
        assert [world.state.clients[ClientId(name)].total_failed for name in ("c1", "c2")] == [9, 9]

    def test_it_proves_nothing_about_what_others_failed_to_start(self, world: World) -> None:
        first = world.client("c1")
        world.client("c2")
        world.submit(a_job().task("t"))
        unit = world.take("c1")
        world.fail(unit, K.NODE)
        world.pass_s(2)
        self.fail(world, "c2", 1)
        assert list(first.blamed) == [unit.id]

    def test_a_job_that_nobody_can_serve_says_why_and_ends(self, world: World) -> None:
        world.client("c1")
        world.client("c2")
        job = world.submit(a_job().task("t"))
        tries = 0
        while job.state is not JobState.SUSPEND:
            for client in ("c1", "c2"):
                world.exchange(client)
                self.fail(world, client, 1)
            tries = sum(unit.node_failures for unit in job.tasks[0].units.values())
            if job.state is JobState.IN_PROGRESS:
                reasons = [row["reason"] for row in why_job(world.state, world.ctx, job.id)]
                assert any(self.TEXT in reason for reason in reasons), reasons
            world.pass_s(1)
        assert tries == MAX_NODE_FAILURES
        assert world.now_s > 300  # not in a quick loop
        gave_up = f"given up after {MAX_NODE_FAILURES} attempts that clients could not carry out"
        says = f"{gave_up}, the last: {self.TEXT}"
        assert job.notes.endswith(says)
        assert (job.error or {})["servernotes"] == f"workunit {says}"
        assert job.tasks[0].notes.endswith(says)
        assert suspended(world) == []


class TestBlackHole:
    """Five good clients need a second for a workunit, one fails each within 5 ms."""

    def _work(self, world: World, job: Job, bad: Client, good: list[str]) -> None:
        running = {name: (world.take(name), world.now_s + 1) for name in good}
        while job.state is not JobState.COMPLETED:
            assert job.state is JobState.IN_PROGRESS
            if not bad.suspended:
                for grant in world.checkout("bad"):
                    world.fail(grant.unit)
            for name, (unit, until_s) in list(running.items()):
                if world.now_s >= until_s:
                    world.exchange(name)
                    world.done(unit)
                    del running[name]
                    for grant in world.checkout(name):
                        running[name] = (grant.unit, world.now_s + 1)
            world.pass_s(0.005 if not bad.suspended else 0.2)

    def test_Q_01_it_is_put_aside_before_the_first_success(self, world: World) -> None:
        bad = world.client("bad")
        good = [f"g{i}" for i in range(5)]
        for name in good:
            world.client(name)
        job = world.submit(a_job().task("t", parts=1_000))
        self._work(world, job, bad, good)
        assert suspended(world) == ["bad"]
        assert bad.total_checkout == 5
        total = sum(client.total_checkout for client in world.state.clients.values())
        assert bad.total_checkout < 0.02 * total


def test_a_restart_remembers_on_whose_account_a_task_stands(world: World, stored: Stored) -> None:
    world.client("c1")
    world.client("c2")
    job = world.submit(a_job().task("t", parts=9).task("u", parts=9))
    fail_some(world, "c1", 2)
    assert snapshot(world.reloaded(stored)) == snapshot(world.state)
    fail_some(world, "c2", 1)
    loaded = world.reloaded(stored)
    assert snapshot(loaded) == snapshot(world.state)
    assert [task.blamed for task in loaded.jobs[job.id].tasks] == ["", None]
    for document in stored.documents["tasks"].values():
        del document["_blamed"]  # as stored before clients were let off for bad tasks
    assert {task.blamed for task in world.reloaded(stored).tasks.values()} == {None}
