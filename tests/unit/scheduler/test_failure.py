"""What a failure means for workunit, client and job."""

from copy import copy
from itertools import combinations

import pytest

from awe_server.scheduler.blame import CLIENT_LIMIT_REASON, skip_workunit
from awe_server.scheduler.checkout import Grant
from awe_server.scheduler.failure import (
    GIVEN_BACK_BASE_S,
    GIVEN_BACK_CAP_S,
    GIVEN_BACK_FREE,
    GIVEN_BACK_SOON_LEASES,
    MAX_GIVEN_BACK,
    MAX_NODE_FAILURES,
    _lost_pause_s,
)
from awe_server.scheduler.jobs import resume_job, suspend_job
from awe_server.scheduler.state import Client, Job, Task, Workunit
from awe_server.scheduler.suspension import remove_client, suspend_client
from awe_server.scheduler.views import job_document, task_document, unit_document
from awe_server.scheduler.why import why_job, why_workunit
from shared_models.ids import ClientId, WorkunitId
from shared_models.limits import MAX_APPERROR_CHARS, MAX_NOTES_CHARS, MAX_SKIP_LIST
from shared_models.states import ClientStatus, FailureKind, JobState, TaskState, WorkunitState
from tests.builders import Stored, World, a_job, a_report, changed, job_id

K = FailureKind
OWN = [K.COMMAND, K.SIGNAL, K.TIMEOUT, K.OOM, K.OUTPUT]


def start(world: World, clients: int = 1, **task: object) -> tuple[Job, Workunit]:
    """Clients c1..cn, one job with one task, its first workunit leased to c1."""
    for i in range(1, clients + 1):
        world.client(f"c{i}")
    job = world.submit(a_job().task("t", **task))  # type: ignore[arg-type]
    return job, world.take()


def fail_on(world: World, client: str, unit: Workunit, kind: FailureKind = K.COMMAND) -> None:
    """The client takes exactly this workunit, when its delay is over, and fails it."""
    for _ in range(6):
        world.now_s += 50
        for other in world.state.clients:
            world.exchange(other)
    assert world.take(client) is unit
    world.fail(unit, kind)


@pytest.mark.parametrize("kind", OWN)
def test_an_own_failure_counts_blames_and_delays(world: World, kind: FailureKind) -> None:
    job, unit = start(world, parts=2)
    client = world.state.clients[ClientId("c1")]
    world.state.take()
    world.fail(unit, kind, exit_code=3, signal=9, message="boom", computetime_s=7.0)
    changes = world.state.take()
    assert changed(changes) == {"t": "in-progress", "t_1": "queued", "c1": "active-idle"}
    assert [(e.code, e.fields.get("kind")) for e in changes.events] == [("WF", kind), ("WR", kind)]
    assert (unit.failed, unit.lost, unit.node_failures, unit.given_back) == (1, 0, 0, 0)
    assert unit.exit == {"kind": kind, "exit_code": 3, "signal": 9, "message": "boom"}
    assert (unit.notes, unit.computetime) == ("boom", 7.0)
    assert unit.not_before == world.wall_s + 1
    assert list(client.skip) == [unit.id]
    assert list(client.blamed) == [unit.id]
    assert client.total_failed == 1
    assert not changes.work
    assert job.state is JobState.IN_PROGRESS


def test_delays_double_up_to_the_cap(world: World) -> None:
    _, unit = start(world, max_failures=100)
    delays = []
    for _ in range(12):
        world.fail(unit)
        delays.append(unit.due_s - world.now_s)
        world.now_s = unit.due_s
        world.exchange()
        world.take()
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


@pytest.mark.parametrize(("base", "expected"), [(0.0, 0.0), (10.0, 10.0), (1000.0, 1000.0)])
def test_a_task_sets_its_own_delay(world: World, base: float, expected: float) -> None:
    _, unit = start(world, retry_delay_s=base)
    world.fail(unit)
    assert unit.not_before == (world.wall_s + expected if expected else 0.0)
    assert unit.due_s == (world.now_s + expected if expected else 0.0)


def test_the_threshold_suspends_workunit_task_and_job_with_the_reason(world: World) -> None:
    job, unit = start(world, parts=3)
    other = world.take()
    world.fail(unit)
    fail_on(world, "c1", unit)
    world.now_s += 50
    world.exchange()
    assert world.take() is unit
    world.state.take()
    world.fail(unit, message="no such gene", stderr_tail="x" * 9_000)
    changes = world.state.take()
    assert changed(changes) == {
        "job": "suspend",
        "t": "suspend",
        "t_1": "suspend",
        "t_2": "suspend",
        "c1": "active-idle",
    }
    assert [e.code for e in changes.events] == ["WF", "WP", "JP"]
    assert list(changes.told) == ["c1"]
    assert job.notes == f"workunit {unit.id} failed 3 time(s). msg from client: no such gene"
    assert job.lastfailed == unit.id
    assert job.error == {
        "clientfailed": "c1",
        "workfailed": unit.id,
        "taskfailed": unit.task.id,
        "servernotes": "workunit failed 3 time(s)",
        "worknotes": "no such gene",
        "apperror": "x" * MAX_APPERROR_CHARS,
        "status": "suspend",
    }
    assert unit.task.notes == f"workunit {unit.id}: workunit failed 3 time(s)"
    assert other.state is WorkunitState.SUSPEND
    assert list(world.state.clients[ClientId("c1")].withdrawn) == [other.id]
    assert world.checkout() == []


@pytest.mark.parametrize("kind", [*OWN, K.INPUT])
def test_noretry_and_max_failures_set_the_threshold(world: World, kind: FailureKind) -> None:
    world.client()
    job = world.submit(a_job(noretry=True).task("t", max_failures=5))
    world.fail(world.take(), kind)
    assert job.state is JobState.SUSPEND
    job = world.submit(a_job().task("t", max_failures=1))
    world.fail(world.take(), kind)
    assert job.state is JobState.SUSPEND


def test_a_job_that_was_resumed_has_its_failures_forgiven(world: World) -> None:
    job, unit = start(world, max_failures=1)
    world.fail(unit)
    resume_job(world.state, world.ctx, job.id)
    assert world.take() is unit
    world.done(unit)
    assert job.state is JobState.COMPLETED


class TestExit42:
    """A command says that trying again makes no sense."""

    def test_workunit_task_and_job_fail_for_good(self, world: World) -> None:
        job, unit = start(world, parts=4)
        client = world.state.clients[ClientId("c1")]
        done, other, waits = (g.unit for g in world.checkout(want=3))
        world.done(done)
        world.fail(waits)
        world.state.take()
        world.fail(unit, exit_code=42, stderr_tail="bad sample")
        changes = world.state.take()
        assert changed(changes) == {
            "job": "failed-permanent",
            "t": "failed-permanent",
            "t_1": "failed-permanent",
            "t_3": "failed-permanent",
            "t_4": "failed-permanent",
            "c1": "active-idle",
            "ForgetJob": "job",
        }
        assert [e.code for e in changes.events] == ["WF", "W!", "JF"]
        assert job.error is not None
        assert (job.error["servernotes"], job.error["status"]) == (
            "exit code 42 encountered",
            "failed-permanent",
        )
        assert job.error["apperror"] == "bad sample"
        assert (job.lastfailed, job.notes) == (unit.id, f"workunit {unit.id}: exit code 42 encountered")
        assert unit.id not in client.skip
        assert list(client.withdrawn) == [other.id]
        world.pass_s(30)
        assert world.checkout() == []
        assert world.state.forget_job(job.id)
        assert not world.state.workunits

    def test_tasks_that_wait_stay_pending_and_running_ones_fail(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("a").task("b").task("c").depends("a").task("d").reads("in"))
        world.fail(world.take(), exit_code=42)
        assert [t.state for t in job.tasks] == [
            TaskState.FAILED_PERMANENT,
            TaskState.FAILED_PERMANENT,
            TaskState.PENDING,
            TaskState.PENDING,
        ]

    def test_only_a_command_can_say_so(self, world: World) -> None:
        job, unit = start(world)
        world.fail(unit, K.OUTPUT, exit_code=42)
        assert job.state is JobState.IN_PROGRESS


class TestBlame:
    """Who is to blame for a failure."""

    def test_an_input_failure_never_blames_the_client_but_ends(self, world: World) -> None:
        job, unit = start(world)
        client = world.state.clients[ClientId("c1")]
        world.fail(unit, K.INPUT)
        fail_on(world, "c1", unit, K.INPUT)
        assert (unit.failed, unit.input_failures, client.total_failed) == (2, 2, 0)
        assert list(client.skip) == [unit.id]
        assert not client.blamed
        fail_on(world, "c1", unit, K.INPUT)
        assert job.state is JobState.SUSPEND

    def test_a_node_failure_is_not_the_workunits_and_bounded(self, world: World) -> None:
        job, unit = start(world, clients=MAX_NODE_FAILURES)
        world.fail(unit, K.NODE)
        client = world.state.clients[ClientId("c1")]
        assert (unit.failed, unit.node_failures) == (0, 1)
        assert list(client.skip) == list(client.blamed) == [unit.id]
        for i in range(2, MAX_NODE_FAILURES + 1):
            assert job.state is JobState.IN_PROGRESS
            fail_on(world, f"c{i}", unit, K.NODE)
        assert job.state is JobState.SUSPEND
        gave_up = f"given up after {MAX_NODE_FAILURES} attempts that clients could not carry out"
        assert job.notes == f"workunit {unit.id} {gave_up}"

    def test_success_ends_a_row_of_failures(self, world: World) -> None:
        client = world.client()
        world.submit(a_job().task("t", parts=9))
        for _ in range(4):
            world.fail(world.take())
        assert len(client.blamed) == 4
        world.done(world.take())
        assert len(client.blamed) == 0
        world.fail(world.take())
        assert not client.suspended

    def test_Q_01_five_in_a_row_suspend_the_client_and_its_other_work_is_queued(self, world: World) -> None:
        client = world.client()
        world.client("c2")
        world.submit(a_job().task("t", parts=9))
        units = [g.unit for g in world.checkout(want=7)]
        for unit in units[:4]:
            world.fail(unit)
        world.state.take()
        world.fail(units[4])
        changes = world.state.take()
        assert changed(changes) == {
            "t": "in-progress",
            "t_5": "queued",
            "t_6": "queued",
            "t_7": "queued",
            "c1": "suspend",
        }
        assert client.suspend_reason == f"{CLIENT_LIMIT_REASON}: 5 workunits in a row failed on it"
        assert [(u.failed, u.lost, u.given_back) for u in units[5:]] == [(0, 0, 1), (0, 0, 1)]
        assert "CS" in [e.code for e in changes.events]
        world.pass_s(1)
        assert len(world.checkout("c2", want=99)) == 9

    def test_a_failure_that_a_second_client_repeats_is_taken_off_the_first(self, world: World) -> None:
        _, unit = start(world, clients=3, max_failures=9)
        first, second, third = world.state.clients.values()
        world.fail(unit)
        assert len(first.blamed) == 1
        fail_on(world, "c2", unit)
        assert [len(c.blamed) for c in (first, second)] == [0, 0]
        assert unit.id in second.skip
        fail_on(world, "c3", unit)
        assert len(third.blamed) == 0
        assert [c.total_failed for c in (first, second, third)] == [1, 1, 1]

    def test_taking_blame_back_lifts_the_suspension_it_caused(self, world: World) -> None:
        first = world.client()
        second = world.client("c2")
        world.submit(a_job().task("t", parts=6))
        world.done(world.take("c2"))
        units = [g.unit for g in world.checkout(want=5)]
        for unit in units:
            world.fail(unit)
        assert first.suspended
        world.pass_s(1)
        for grant in world.checkout("c2", want=1):
            world.state.take()
            world.fail(grant.unit)
        told = [event for event in world.state.changes.events if event.fields.get("clientid") == "c1"]
        assert [(event.code, event.fields["reason"]) for event in told] == [
            ("CO", "its blame was taken back")
        ]
        assert first.status is ClientStatus.IDLE
        assert first.suspend_reason == ""
        assert "c1" in world.state.changes.told
        assert len(first.blamed) == 4
        assert not second.blamed

    def test_Q_01_one_bad_job_does_not_suspend_a_farm(self, world: World) -> None:
        for i in range(4):
            world.client(f"c{i}")
        jobs = [world.submit(a_job().task("bad", parts=6)) for _ in range(2)]
        for _ in range(300):
            world.now_s += 1
            world.exchange(f"c{_ % 4}", reports=[], want=0)
            client = world.state.clients[ClientId(f"c{_ % 4}")]
            if not client.suspended:
                for grant in world.checkout(client.id):
                    world.fail(grant.unit)
        assert all(job.state is JobState.SUSPEND for job in jobs)
        assert not [c for c in world.state.clients.values() if c.suspended]

    def test_blame_that_success_ended_need_not_be_taken_back(self, world: World) -> None:
        _, unit = start(world, clients=2, parts=2)
        first = world.state.clients[ClientId("c1")]
        world.fail(unit)
        world.done(world.take())
        assert not first.blamed
        fail_on(world, "c2", unit)
        assert unit.blamed == {"work": ""}

    def test_the_same_client_failing_again_is_blamed_again(self, world: World) -> None:
        _, unit = start(world)
        client = world.state.clients[ClientId("c1")]
        world.fail(unit)
        client.blamed = {}
        fail_on(world, "c1", unit)
        assert list(client.blamed) == [unit.id]

    def test_node_and_own_failures_are_judged_apart(self, world: World) -> None:
        _, unit = start(world, clients=2)
        first, second = world.state.clients.values()
        world.fail(unit, K.NODE)
        fail_on(world, "c2", unit, K.COMMAND)
        assert list(first.blamed) == list(second.blamed) == [unit.id]
        assert unit.blamed == {"node": "c1", "work": "c2"}

    def test_blame_of_a_client_that_is_gone_is_nobodys(self, world: World) -> None:
        _, unit = start(world, clients=2)
        world.fail(unit)
        remove_client(world.state, world.ctx, ClientId("c1"))
        fail_on(world, "c2", unit)
        assert not world.state.clients[ClientId("c2")].blamed


class TestBlackHole:
    """A node where everything fails at once must not fail everything."""

    def test_Q_01_it_is_put_aside_and_everything_completes(self, world: World) -> None:
        bad = world.client("bad")
        good = [f"g{i}" for i in range(5)]
        for name in good:
            world.client(name)
        job = world.submit(a_job().task("t", parts=1_000))
        while job.state is not JobState.COMPLETED:
            world.pass_s(0.2)
            for _ in range(10):
                if not bad.suspended:
                    for grant in world.checkout("bad"):
                        world.fail(grant.unit)
            for name in good:
                world.exchange(name)
                for grant in world.checkout(name):
                    world.done(grant.unit)
        assert bad.suspended
        assert bad.total_checkout == 5


class TestLost:
    """A lease that ran out."""

    def test_L_08_it_has_its_own_limit_and_no_delay_at_first(self, world: World) -> None:
        job, unit = start(world)
        client = world.state.clients[ClientId("c1")]
        for n in range(1, 6):
            world.state.take()
            world.pass_s(60)
            assert (unit.failed, unit.lost) == (0, n)
            if n < 5:
                assert changed(world.state.take()) == {"t": "in-progress", "t_0": "queued", "c1": "offline"}
                if n > 1:
                    world.pass_s(unit.due_s - world.now_s)
                world.exchange()
                assert world.take() is unit
        assert job.state is JobState.SUSPEND
        assert job.notes.startswith(f"workunit {unit.id} was lost with its client 5 time(s).")
        assert not client.skip
        assert client.total_failed == 0

    def test_L_08_with_noretry_the_first_loss_suspends(self, world: World) -> None:
        world.client()
        job = world.submit(a_job(noretry=True).task("t").task("u").depends("t"))
        world.take()
        world.pass_s(60)
        assert job.state is JobState.SUSPEND
        assert job.error is not None
        assert job.error["servernotes"] == "workunit was lost with its client 1 time(s)"
        world.pass_s(1000)
        resume_job(world.state, world.ctx, job.id)
        assert job.state is JobState.IN_PROGRESS

    def test_L_08_from_the_second_loss_on_there_is_a_pause_that_may_be_longer_each_time(
        self, world: World, stored: Stored
    ) -> None:
        _, unit = start(world)
        pauses_s = []
        for n in range(1, 5):
            world.pass_s(60)
            pauses_s.append(unit.due_s - world.now_s if unit.due_s else 0.0)
            if n > 1:
                said = f"lost with its client {n} time(s), or with what runs commands there: retry in "
                assert why_workunit(world.state, world.ctx, unit.id)[0]["reason"].startswith(said)
                assert world.reloaded(stored).workunits[unit.id].due_s == unit.due_s
            world.pass_s(pauses_s[-1])
            world.exchange()
            assert world.take() is unit
        assert pauses_s[0] == 0.0
        for pause_s, most_s in zip(pauses_s[1:], (30, 120, 300), strict=True):
            assert 0 < pause_s <= most_s

    def test_L_08_those_that_began_together_once_begin_apart_the_next_time(self, world: World) -> None:
        _, unit = start(world)
        names = [WorkunitId(f"{unit.task.id}_{n}") for n in range(100, 300)]

        def together(attempt: int) -> set[tuple[WorkunitId, WorkunitId]]:
            pauses_s = {}
            for name in names:
                one = copy(unit)
                one.id, one.attempt, one.lost = name, attempt, 2
                pauses_s[name] = _lost_pause_s(world.state, one)
            return {(a, b) for a, b in combinations(names, 2) if abs(pauses_s[a] - pauses_s[b]) < 0.25}

        once = together(2)
        assert once
        assert len(once & together(3)) < len(once) / 5


class TestPoison:
    """Work that takes along who carries it out is bounded, and lets its neighbours through."""

    REASON = "the process that ran the command here was killed"

    def test_L_02_what_kills_its_client_again_and_again_is_suspended(self, world: World) -> None:
        job, unit = start(world)
        client = world.state.clients[ClientId("c1")]
        for n in range(1, world.state.rules.max_lost + 1):
            assert job.state is JobState.IN_PROGRESS
            world.client(incarnation=f"again{n}")
            assert (unit.failed, unit.lost, unit.given_back) == (0, n, 0)
            if n < world.state.rules.max_lost:
                world.pass_s(unit.due_s - world.now_s if unit.due_s else 0.0)
                world.client(incarnation=f"again{n}")
                assert world.take() is unit
        assert (job.state, unit.state) == (JobState.SUSPEND, WorkunitState.SUSPEND)
        assert job.notes == (
            f"workunit {unit.id} was lost with its client 5 time(s). msg from client: client restarted"
        )
        assert (client.total_failed, client.blamed, client.suspended) == (0, {}, False)

    def test_a_client_that_ends_in_good_order_counts_for_nothing(self, world: World) -> None:
        job, unit = start(world)
        for n in range(1, 2 * world.state.rules.max_lost):
            if n % 2:
                world.exchange(leaving=True)
            else:
                world.release(unit)
            world.state.clients[ClientId("c1")].incarnation = ""
            world._requests.clear()
            world.client()
            assert (unit.failed, unit.lost) == (0, 0)
            world.pass_s(300)
            world.client()
            assert world.take() is unit
        assert job.state is JobState.IN_PROGRESS

    def test_a_failure_of_who_was_restarted_is_no_loss(self, world: World) -> None:
        _, unit = start(world)
        failed = a_report(unit, outcome="failed", kind=K.COMMAND, exit_code=1)
        world.client(incarnation="again")
        assert unit.lost == 1
        assert world.report(failed) == "accepted"
        assert (unit.failed, unit.lost) == (1, 0)

    def test_what_ends_its_machine_while_it_runs_is_suspended_soon(self, world: World) -> None:
        job, unit = start(world)
        client = world.state.clients[ClientId("c1")]
        for n in range(1, world.state.rules.max_lost + 1):
            assert job.state is JobState.IN_PROGRESS
            world.fail(unit, K.NODE, message=self.REASON, ran=True)
            assert (unit.failed, unit.lost, unit.node_failures) == (0, n, n)
            if n < world.state.rules.max_lost:
                pause_s = unit.due_s - world.now_s
                assert 2 ** (n - 1) <= pause_s <= (1, 30, 120, 300)[n - 1]
                world.pass_s(pause_s)
                assert world.take() is unit
        assert job.state is JobState.SUSPEND
        gave_up = "given up after 5 attempts that ended with their client, or with what ran them there"
        assert job.notes == f"workunit {unit.id} {gave_up}, the last: {self.REASON}"
        assert (client.blamed, client.suspended) == ({}, False)

    def test_its_neighbours_put_no_client_aside(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t", parts=8))
        for grant in world.checkout(want=8):
            world.fail(grant.unit, K.NODE, ran=True)
        assert not world.state.clients[ClientId("c1")].suspended

    def test_a_machine_that_cannot_start_it_does_not_count_so(self, world: World) -> None:
        _, unit = start(world)
        world.fail(unit, K.NODE)
        assert (unit.lost, unit.node_failures) == (0, 1)
        world.pass_s(1)
        world.take()
        world.fail(unit, K.COMMAND, ran=True)
        assert (unit.lost, unit.failed) == (0, 1)

    def test_resume_forgives(self, world: World) -> None:
        job, unit = start(world)
        unit.lost = 4
        world.fail(unit, K.NODE, ran=True)
        assert job.state is JobState.SUSPEND
        resume_job(world.state, world.ctx, job.id)
        assert (unit.lost, unit.node_failures) == (0, 0)

    @pytest.mark.parametrize("dies", ["client", "executor"])
    def test_neighbours_on_the_only_client_get_through(self, world: World, dies: str) -> None:
        """The poison ends whoever runs beside it, at once; the others need 20 s each."""
        world.client()
        poison = world.submit(a_job().task("t"))
        others = [world.submit(a_job().task("t")) for _ in range(6)]
        running: list[Grant] = []
        began: dict[str, float] = {}
        for n in range(2_000):
            world.exchange()
            for grant in world.checkout(want=8):
                running.append(grant)
                began[grant.workunit_id] = world.now_s
            if any(grant.task.job is poison for grant in running):
                for grant in running:
                    if dies == "executor":
                        world.fail(grant.unit, K.NODE, ran=True)
                running.clear()
                if dies == "client":
                    world.client(incarnation=f"killed-{n}")
                    world.client(incarnation="i1")
                    world._requests.clear()
            for grant in [g for g in running if world.now_s - began[g.workunit_id] >= 20]:
                world.done(grant.unit)
                running.remove(grant)
            world.pass_s(0.5)
        assert poison.state is JobState.SUSPEND
        assert why_job(world.state, world.ctx, poison.id)
        assert [job.state for job in others] == [JobState.COMPLETED] * 6


class TestReleased:
    """Work given back blames nobody, and is bounded."""

    def test_it_is_offered_again_at_once(self, world: World) -> None:
        job, unit = start(world)
        world.state.take()
        world.release(unit)
        changes = world.state.take()
        assert changed(changes) == {"t": "in-progress", "t_0": "queued", "c1": "active-idle"}
        assert list(changes.work.values()) == [1]
        assert (unit.failed, unit.lost, unit.given_back, unit.not_before) == (0, 0, 1, 0.0)
        assert world.take() is unit
        assert job.state is JobState.IN_PROGRESS

    def test_a_client_that_gives_everything_back_at_once_suspends_nothing(self, world: World) -> None:
        job, unit = start(world)
        world.release(unit)
        for _ in range(10 * 60):
            for _ in range(100):
                for grant in world.checkout():
                    world.release(grant.unit)
            world.pass_s(1)
        assert job.state is JobState.IN_PROGRESS
        assert 10 < unit.attempt < 20
        assert unit.due_s - world.now_s <= GIVEN_BACK_CAP_S
        assert "given back" in why_workunit(world.state, world.ctx, unit.id)[0]["reason"]

    def test_other_work_goes_on_meanwhile(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("t", parts=2))
        for _ in range(GIVEN_BACK_FREE + 1):
            first = world.take()
            world.release(first)
        second = world.take()
        assert (first.rank, second.rank) == (1, 2)
        world.pass_s(GIVEN_BACK_BASE_S)
        assert world.take() is first
        assert job.state is JobState.IN_PROGRESS

    def test_a_workunit_lives_through_any_number_of_ordinary_drains(self, world: World) -> None:
        job, unit = start(world)
        for _ in range(3 * MAX_GIVEN_BACK):
            for _ in range(2 * GIVEN_BACK_SOON_LEASES):
                world.exchange()
                world.pass_s(world.state.rules.lease_s / 2)
            world.release(unit)
            assert (unit.given_back, unit.not_before) == (0, 0.0)
            assert world.take() is unit
        assert job.state is JobState.IN_PROGRESS

    def test_what_nobody_ever_keeps_is_suspended_in_the_end(self, world: World) -> None:
        job, unit = start(world)
        began_s = world.now_s
        for _ in range(MAX_GIVEN_BACK - 1):
            world.release(unit)
            world.pass_s(GIVEN_BACK_CAP_S)
            world.client()
            assert world.take() is unit
        world.release(unit)
        assert job.state is JobState.SUSPEND
        assert job.notes == f"workunit {unit.id} was given back at once {MAX_GIVEN_BACK} times."
        assert world.now_s - began_s > 8 * 3600

    def test_a_pause_survives_a_restart(self, world: World, stored: Stored) -> None:
        _, unit = start(world)
        for _ in range(GIVEN_BACK_FREE + 9):
            world.release(unit)
            world.pass_s(GIVEN_BACK_CAP_S)
            world.client()
            world.take()
        world.release(unit)
        assert unit.due_s - world.now_s == GIVEN_BACK_CAP_S
        loaded = world.reloaded(stored).workunits[unit.id]
        assert loaded.due_s == unit.due_s

    def test_a_result_of_who_was_restarted_counts_also_during_the_pause(self, world: World) -> None:
        job, unit = start(world)
        world.client(incarnation="again")
        assert world.take() is unit
        report = a_report(unit)
        world.client(incarnation="once more")
        assert unit.due_s > world.now_s
        assert world.report(report) == "accepted"
        assert job.state is JobState.COMPLETED

    def test_a_client_put_aside_with_work_at_the_limit_halts_that_job_only(self, world: World) -> None:
        world.client()
        first, second = (world.submit(a_job().task("t", parts=3)) for _ in range(2))
        units = [g.unit for g in world.checkout(want=6)]
        units[0].given_back = MAX_GIVEN_BACK - 1
        suspend_client(world.state, world.ctx, ClientId("c1"))
        assert (first.state, second.state) == (JobState.SUSPEND, JobState.IN_PROGRESS)
        assert {u.state for u in units[:3]} == {WorkunitState.SUSPEND}
        assert {u.state for u in units[3:]} == {WorkunitState.QUEUED}


class TestCancelled:
    """Nothing of a suspended job starts or counts."""

    def test_S_08_zero_starts_after_suspend(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("t", parts=10))
        units = [g.unit for g in world.checkout(want=4)]
        world.fail(units[3])
        world.state.take()
        suspend_job(world.state, world.ctx, job.id)
        assert changed(world.state.take()) == {
            "job": "suspend",
            "t": "suspend",
            "t_1": "suspend",
            "t_2": "suspend",
            "t_3": "suspend",
            "t_4": "suspend",
            "c1": "active-idle",
        }
        for _ in range(5):
            world.pass_s(50)
            world.exchange(want=4)
            assert world.checkout(want=10) == []
        assert job.state is JobState.SUSPEND
        assert [u.failed for u in units] == [0, 0, 0, 1]


def test_the_skip_list_is_bounded_and_drops_the_oldest() -> None:
    client = Client(ClientId("c"))
    job = Job(job_id(), 1, {}, {})
    task = Task(f"{job.id}_t", job, "t", 0)  # type: ignore[arg-type]
    for rank in range(MAX_SKIP_LIST + 2):
        skip_workunit(client, Workunit(WorkunitId(f"w{rank}"), task, rank))
    assert len(client.skip) == MAX_SKIP_LIST
    assert next(iter(client.skip)) == "w2"
    skip_workunit(client, Workunit(WorkunitId("w2"), task, 2))
    assert list(client.skip)[-1] == "w2"
    assert len(client.skip) == MAX_SKIP_LIST


def test_long_messages_are_cut(world: World) -> None:
    job, unit = start(world, max_failures=1)
    world.fail(unit, message="m" * 9_000)
    assert unit.exit is not None
    assert len(unit.exit["message"]) == len(unit.notes) == MAX_NOTES_CHARS
    assert len(job.notes) == MAX_NOTES_CHARS


def test_X_01_a_thousand_failures_with_long_texts_leave_small_documents(world: World) -> None:
    world.client()
    job = world.submit(a_job().task("t", max_failures=1_000, retry_delay_s=0.0))
    (task,) = job.tasks
    for n in range(1_000):
        unit = world.take()
        world.fail(unit, FailureKind.INPUT, message="m" * 100_000, stderr_tail="e" * 100_000)
        assert unit.failed == n + 1
        assert len(str(unit_document(unit))) < 3 * MAX_NOTES_CHARS
    assert job.state is JobState.SUSPEND
    assert len(str(task_document(task))) < 2 * MAX_NOTES_CHARS
    assert len(str(job_document(job))) < 4 * MAX_NOTES_CHARS + MAX_APPERROR_CHARS
