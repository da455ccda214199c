"""Reports: one accepted result per workunit; repeats are answered the same, strangers are refused."""

import pytest

from awe_server.scheduler.holder import check_holder
from awe_server.scheduler.jobs import delete_job, resubmit_job, resume_job, suspend_job
from awe_server.scheduler.report import report
from awe_server.scheduler.state import DeleteNodes, Workunit
from awe_server.scheduler.suspension import remove_client, suspend_client
from awe_server.scheduler.views import unit_document
from shared_models.errors import ClientNotFound, LeaseLost, WorkunitNotFound
from shared_models.ids import ClientId, WorkunitId, kept_node_id
from shared_models.states import FailureKind, JobState, WorkunitState
from tests.builders import Stored, World, a_job, a_report, changed, job_id, snapshot


def lost(world: World, unit: Workunit, client: str = "c1", **extra: object) -> None:
    """The report is refused with lease_lost and changes nothing."""
    before = snapshot(world.state)
    with pytest.raises(LeaseLost):
        world.report(a_report(unit, **extra), client)
    assert snapshot(world.state) == before


def test_a_result_completes_workunit_task_and_job(world: World) -> None:
    client = world.client()
    job = world.submit(a_job().task("t", parts=2))
    a, b = (g.unit for g in world.checkout(want=2))
    world.state.take()
    outputs = [{"filename": "x", "size": 3, "md5": "0" * 32}]
    assert world.done(a, perf={"maxrss": 5}, outputs=outputs, message="fine") == "accepted"
    changes = world.state.take()
    assert changed(changes) == {"t": "in-progress", "t_1": "completed", "c1": "active-busy"}
    assert [(e.code, e.fields["workid"]) for e in changes.events] == [("WD", a.id)]
    assert (a.done_time, a.computetime, a.perf, a.outputs) == (world.wall_s, 2.0, {"maxrss": 5}, outputs)
    assert a.notes == "fine"
    assert (job.tasks[0].remainwork, job.tasks[0].computetime) == (1, 2.0)
    assert a.id not in world.state.workunits
    assert (client.total_checkout, client.total_completed, client.lastcompleted) == (2, 1, world.wall_s)
    world.done(b)
    assert changed(world.state.take()) == {
        "job": "completed",
        "t": "completed",
        "t_2": "completed",
        "c1": "active-idle",
        "ForgetJob": "job",
    }


class TestRepeats:
    """The same report again: the same answer, no change."""

    def test_a_result_in_the_same_batch(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t", parts=2))
        unit = world.take()
        r = a_report(unit)
        assert world.report(r) == "accepted"
        before = snapshot(world.state)
        assert world.report(r) == "duplicate"
        assert snapshot(world.state) == before

    def test_a_result_that_is_stored(self, world: World, stored: Stored) -> None:
        world.client()
        world.client("c2")
        world.submit(a_job().task("t", parts=2))
        unit = world.take()
        r = a_report(unit)
        world.report(r)
        stored.apply(world.state)
        finished = {unit.id: stored.documents["workunits"][unit.id]}
        assert world.report(r, finished=finished) == "duplicate"
        stock = a_report(unit, attempt=None, token=None)
        assert world.report(stock, finished=finished) == "duplicate"
        with pytest.raises(LeaseLost):
            world.report(stock, "c2", finished)
        with pytest.raises(LeaseLost):
            world.report(a_report(unit, token="guess"), finished=finished)
        with pytest.raises(LeaseLost):
            world.report(a_report(unit, attempt=2), finished=finished)
        failed = a_report(unit, outcome="failed", kind=FailureKind.COMMAND)
        with pytest.raises(LeaseLost):
            world.report(failed, finished=finished)
        assert world.state.changes.is_empty()

    @pytest.mark.parametrize("outcome", ["failed", "released"])
    def test_a_failure_is_counted_once(self, world: World, outcome: str) -> None:
        client = world.client()
        world.submit(a_job().task("t"))
        unit = world.take()
        kind = FailureKind.SIGNAL if outcome == "failed" else None
        r = a_report(unit, outcome=outcome, kind=kind)
        assert world.report(r) == "accepted"
        counts = (unit.failed, unit.given_back, client.total_failed, len(client.blamed))
        assert world.report(r) == "duplicate"
        assert (unit.failed, unit.given_back, client.total_failed, len(client.blamed)) == counts
        lost(world, unit)
        lost(world, unit, outcome="failed", kind=FailureKind.OOM)

    def test_a_failure_that_ended_the_retries(self, world: World) -> None:
        world.client()
        world.submit(a_job(noretry=True).task("t"))
        unit = world.take()
        r = a_report(unit, outcome="failed", kind=FailureKind.COMMAND, exit_code=1)
        assert world.report(r) == "accepted"
        assert unit.state is WorkunitState.SUSPEND
        assert world.report(r) == "duplicate"


def missed(world: World, how: str, *, stock: bool = False) -> Workunit:
    """A workunit whose holder was missed: it is queued again."""
    (world.stock_client if stock else world.client)()
    world.submit(a_job().task("t", parts=2))
    unit = world.take()
    if how == "lease":
        world.pass_s(61)
    elif stock:
        world.stock_client(current_work=[])
    else:
        world.client(incarnation="i2")
    assert unit.state is WorkunitState.QUEUED
    return unit


class TestMissed:
    """Whoever was missed still delivers what it had finished, as long as nobody has taken it since."""

    @pytest.mark.parametrize("stock", [False, True])
    @pytest.mark.parametrize("how", ["lease", "restart"])
    def test_L_01_a_result_of_who_was_missed_is_accepted_and_not_done_again(
        self, world: World, how: str, stock: bool
    ) -> None:
        unit = missed(world, how, stock=stock)
        r = a_report(unit, attempt=None, token=None) if stock else a_report(unit)
        assert world.report(r) == "accepted"
        assert world.report(r) == "duplicate"
        assert (unit.state, unit.exit, unit.lost, unit.given_back) == (WorkunitState.COMPLETED, None, 0, 0)
        assert unit.task.done == 1
        assert world.state.clients[ClientId("c1")].total_completed == 1
        world.client("c2")
        assert [grant.rank for grant in world.checkout("c2", want=9)] == [2]

    def test_the_last_rank_ends_its_job(self, world: World, stored: Stored) -> None:
        world.client()
        job = world.submit(a_job().task("t"))
        unit = world.take()
        world.pass_s(61)
        stored.apply(world.state)
        world.state = world.reloaded(stored)  # a restart changes nothing of that
        assert world.report(a_report(unit)) == "accepted"
        assert world.state.jobs[job.id].state is JobState.COMPLETED
        assert snapshot(world.reloaded(stored)) == snapshot(world.state)

    def test_a_failure_counts_as_one_and_not_as_a_loss(self, world: World) -> None:
        unit = missed(world, "lease")
        r = a_report(unit, outcome="failed", kind=FailureKind.COMMAND, exit_code=1)
        assert world.report(r) == "accepted"
        assert (unit.failed, unit.lost) == (1, 0)
        assert world.report(r) == "duplicate"

    @pytest.mark.parametrize("claim", [{"token": "guess"}, {"attempt": 2}, {"attempt": None, "token": None}])
    def test_a_wrong_claim_is_refused(self, world: World, claim: dict[str, object]) -> None:
        lost(world, missed(world, "lease"), **claim)

    def test_another_client_is_refused(self, world: World) -> None:
        unit = missed(world, "restart")
        world.client("c2")
        lost(world, unit, "c2")

    @pytest.mark.parametrize("why", ["job", "resumed", "client", "removed", "released", "unlisted", "failed"])
    def test_what_was_taken_or_given_back_on_purpose_stays_so(self, world: World, why: str) -> None:
        world.client()
        job = world.submit(a_job().task("t", parts=2))
        unit = world.take()
        r = a_report(unit)
        if why in ("job", "resumed"):
            suspend_job(world.state, world.ctx, job.id)
            if why == "resumed":
                resume_job(world.state, world.ctx, job.id)
        elif why == "client":
            suspend_client(world.state, world.ctx, ClientId("c1"))
        elif why == "removed":
            remove_client(world.state, world.ctx, ClientId("c1"))
            world.client()
        elif why == "released":
            world.release(unit)
        elif why == "unlisted":
            world.exchange(holds=[])
        else:
            world.fail(unit)
        before = snapshot(world.state)
        with pytest.raises(LeaseLost):
            world.report(r)
        assert snapshot(world.state) == before

    @pytest.mark.parametrize("message", ["client restarted", "client c1 was lost"])
    def test_what_a_client_says_does_not_make_it_missed(
        self, world: World, stored: Stored, message: str
    ) -> None:
        world.client()
        world.submit(a_job().task("t", parts=2))
        unit = world.take()
        world.report(a_report(unit, outcome="released", message=message))
        lost(world, unit)
        world.state = world.reloaded(stored)
        lost(world, unit)

    def test_a_restart_of_the_server_remembers_who_was_missed(self, world: World, stored: Stored) -> None:
        unit = missed(world, "restart")
        world.state = world.reloaded(stored)
        assert world.report(a_report(unit)) == "accepted"

    def test_a_lost_lease_of_an_older_document_counts_as_missed(self, world: World, stored: Stored) -> None:
        unit = missed(world, "lease")
        stored.apply(world.state)
        del stored.documents["workunits"][unit.id]["_missed"]
        world.state = world.reloaded(stored)
        assert world.report(a_report(unit)) == "accepted"

    def test_giving_it_back_too_late_changes_nothing(self, world: World) -> None:
        lost(world, missed(world, "lease"), outcome="released")

    def test_nobody_uploads_or_reads_secrets_with_a_lease_that_ran_out(self, world: World) -> None:
        unit = missed(world, "lease")
        with pytest.raises(LeaseLost):
            check_holder(world.state, unit.id, attempt=unit.attempt, token=unit.token)


class TestFencing:
    """Only the holder of the attempt is heard."""

    def test_L_01_a_zombie_is_refused_once_there_is_a_new_holder(self, world: World) -> None:
        world.client()
        world.client("c2")
        world.submit(a_job().task("t", parts=2))
        unit = world.take()
        old = a_report(unit)
        world.now_s += 31
        world.exchange("c2")
        world.pass_s(30)
        again = world.take("c2")
        assert again is unit
        assert unit.attempt == 2
        for _ in range(2):
            with pytest.raises(LeaseLost):
                world.report(old)
            if unit.state is WorkunitState.CHECKOUT:
                assert world.done(unit) == "accepted"
        assert unit.client == "c2"

    @pytest.mark.parametrize(
        "claim",
        [{"token": "guess"}, {"attempt": 2}, {"attempt": 0}, {"token": ""}, {"attempt": None, "token": "x"}],
    )
    def test_L_01_a_wrong_attempt_or_token_is_refused(self, world: World, claim: dict[str, object]) -> None:
        world.client()
        world.submit(a_job().task("t"))
        lost(world, world.take(), **claim)

    def test_L_01_another_client_is_refused_even_with_the_token(self, world: World) -> None:
        world.client()
        world.client("c2")
        world.submit(a_job().task("t"))
        lost(world, world.take(), "c2")

    def test_a_stock_worker_is_known_by_its_id(self, world: World) -> None:
        world.stock_client()
        world.stock_client("c2")
        world.submit(a_job().task("t"))
        unit = world.take()
        lost(world, unit, "c2", attempt=None, token=None)
        assert world.done(unit, attempt=None, token=None) == "accepted"

    def test_an_unknown_client_is_told_to_register(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t"))
        unit = world.take()
        with pytest.raises(ClientNotFound):
            report(world.state, world.ctx, ClientId("zz"), a_report(unit), {})

    def test_a_result_for_a_job_suspended_meanwhile_is_refused(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("t"))
        unit = world.take()
        suspend_job(world.state, world.ctx, job.id)
        lost(world, unit)
        lost(world, unit, outcome="failed", kind=FailureKind.COMMAND)
        resume_job(world.state, world.ctx, job.id)
        lost(world, unit)
        assert world.take() is unit
        assert world.done(unit) == "accepted"

    def test_attempts_of_an_older_generation_are_refused(self, world: World, stored: Stored) -> None:
        world.client()
        job = world.submit(a_job().task("t", parts=2))
        a, b = (g.unit for g in world.checkout(want=2))
        world.done(a)
        suspend_job(world.state, world.ctx, job.id)
        resubmit_job(world.state, world.ctx, job.id)
        stored.apply(world.state)
        lost(world, a)
        lost(world, b)
        (grant,) = world.checkout()
        assert (grant.workunit_id, grant.attempt) == (a.id, 2)
        lost(world, a)

    def test_what_does_not_exist_is_not_found(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("t", parts=2))
        unit = world.take()
        for work in (f"{job.id}_t_0", f"{job.id}_t_3", f"{job.id}_u_1", f"{job_id(9)}_t_1"):
            with pytest.raises(WorkunitNotFound):
                world.report(a_report(unit, work=WorkunitId(work)))
        with pytest.raises(LeaseLost):
            world.report(a_report(unit, work=WorkunitId(f"{job.id}_t_2")))
        delete_job(world.state, world.ctx, job.id, full=True)
        with pytest.raises(WorkunitNotFound):
            world.report(a_report(unit))


class TestHolder:
    """The question before uploads and secrets."""

    def test_a_native_holder_is_known_by_its_token_alone(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t"))
        unit = world.take()
        ask = check_holder
        assert ask(world.state, unit.id, attempt=1, token=unit.token) is unit
        for claim in (
            {},
            {"attempt": 1},
            {"client_id": "c1"},
            {"client_id": "c1", "attempt": 1},
            {"token": "x"},
            {"client_id": "c2"},
            {"attempt": 2, "token": unit.token},
        ):
            with pytest.raises(LeaseLost):
                ask(world.state, unit.id, **claim)
        world.release(unit)
        with pytest.raises(LeaseLost):
            ask(world.state, unit.id, attempt=1, token=unit.token)

    def test_a_stock_holder_is_known_by_its_id(self, world: World) -> None:
        world.stock_client()
        world.submit(a_job().task("t"))
        unit = world.take()
        assert check_holder(world.state, unit.id, client_id="c1") is unit
        assert check_holder(world.state, unit.id, attempt=1, token=unit.token) is unit
        for claim in ({}, {"attempt": 1}, {"client_id": "c2"}):
            with pytest.raises(LeaseLost):
                check_holder(world.state, unit.id, **claim)

    def test_a_workunit_of_a_task_that_is_not_cut_is_not_held(self, world: World) -> None:
        job = world.submit(a_job().task("t").reads("in"))
        with pytest.raises(LeaseLost):
            check_holder(world.state, WorkunitId(f"{job.id}_t_0"), client_id="c1")


class TestKept:
    """What a failed attempt left is a node; only the last one is kept."""

    def test_the_node_of_the_last_failed_attempt_stays_and_the_one_before_goes(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t", keep_failed=True, retry_delay_s=0))
        unit = world.take()
        first = kept_node_id(unit.id, 1)
        world.fail(unit, kept=first)
        assert unit.kept == first
        world.state.take()
        world.take()
        second = kept_node_id(unit.id, 2)
        world.fail(unit, kept=second)
        assert (unit.kept, unit_document(unit)["kept"]) == (second, second)
        effects = world.state.take().effects
        assert [e.node_ids for e in effects if isinstance(e, DeleteNodes)] == [(first,)]
        world.take()
        world.done(unit)
        assert unit_document(unit)["kept"] == second

    def test_a_client_cannot_name_any_other_node(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t", keep_failed=True))
        unit = world.take()
        world.fail(unit, kept="00000000-0000-4000-8000-000000000000")
        assert unit.kept == ""

    def test_it_goes_with_the_job_and_only_then(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("t", keep_failed=True))
        world.state.take()
        delete_job(world.state, world.ctx, job.id)
        assert not [e for e in world.state.take().effects if isinstance(e, DeleteNodes)]
        delete_job(world.state, world.ctx, job.id, full=True)
        assert [e.job for e in world.state.take().effects if isinstance(e, DeleteNodes)] == [job.id]


def test_the_document_of_a_completed_workunit_says_all(world: World) -> None:
    world.client()
    job = world.submit(a_job().task("t"))
    unit = world.take()
    world.done(unit)
    assert unit_document(unit) == {
        "id": f"{job.id}_t_0",
        "jobid": job.id,
        "taskid": f"{job.id}_t",
        "rank": 0,
        "state": "completed",
        "failed": 0,
        "lost": 0,
        "attempt": 1,
        "client": "c1",
        "checkout_time": "2026-01-01T12:00:00.000000Z",
        "computetime": 2.0,
        "done_time": "2026-01-01T12:00:00.000000Z",
        "notes": "",
        "exit": None,
        "perf": None,
        "outputs": None,
        "kept": "",
        "_token": "token-1",
        "generation": 1,
        "not_before": "0001-01-01T00:00:00Z",
        "_input_failures": 0,
        "_node_failures": 0,
        "_given_back": 0,
        "_missed": False,
        "_blamed": {},
    }
