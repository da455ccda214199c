"""The exchange: reports, then what is held, then work."""

import pytest

from awe_server.scheduler.exchange import is_current
from awe_server.scheduler.jobs import suspend_job
from awe_server.scheduler.queue import suspend_queue
from awe_server.scheduler.suspension import remove_client, suspend_client
from awe_server.scheduler.why import why_job
from shared_models.errors import ClientNotFound, StaleExchange
from shared_models.ids import ClientId, WorkunitId
from shared_models.states import FailureKind, WorkunitState
from tests.builders import Stored, World, a_job, a_report, changed, job_id, snapshot

C1 = ClientId("c1")


def test_one_round_trip_reports_and_fetches(world: World) -> None:
    world.client()
    world.submit(a_job().task("t", parts=3))
    first = world.exchange(want=1)
    unit = first.grants[0].unit
    world.state.take()
    reply = world.exchange(want=1, reports=[a_report(unit)], holds=[])
    assert reply.results == [{"work": unit.id, "attempt": 1, "result": "accepted"}]
    assert [g.rank for g in reply.grants] == [2]
    assert (reply.lease_s, reply.discard, reply.suspended, reply.stop) == (60.0, [], False, False)
    assert changed(world.state.take()) == {
        "t": "in-progress",
        "t_1": "completed",
        "t_2": "checkout",
        "c1": "active-busy",
    }
    assert not reply.is_empty


def test_every_result_is_told(world: World, stored: Stored) -> None:
    world.client()
    world.client("c2")
    world.submit(a_job().task("t", parts=4))
    a, b = (g.unit for g in world.checkout(want=2))
    (other,) = world.checkout("c2")
    world.done(a)
    stored.apply(world.state)
    unknown = a_report(b, work=WorkunitId(f"{job_id(9)}_t_1"))
    reports = [a_report(a), a_report(b), a_report(b), a_report(other.unit), unknown]
    reply = world.exchange(reports=reports, finished={a.id: stored.documents["workunits"][a.id]})
    assert [r["result"] for r in reply.results] == [
        "duplicate",
        "accepted",
        "duplicate",
        "lease_lost",
        "unknown",
    ]


class TestHolds:
    """Both sides agree on what is held after each exchange."""

    def test_L_07_held_here_and_not_there_is_queued_at_once(self, world: World) -> None:
        """It was granted, and the client dropped it."""
        world.client()
        world.submit(a_job().task("t", parts=2))
        (dropped,) = world.exchange(want=1).grants
        world.exchange()  # lists it
        reply = world.exchange(want=2, holds=[])
        assert [g.rank for g in reply.grants] == [1, 2]
        unit = dropped.unit
        assert (unit.attempt, unit.given_back, unit.failed, unit.lost) == (2, 1, 0, 0)
        assert not dropped.is_held

    def test_L_07_a_grant_whose_reply_was_given_up_comes_again_as_the_same_attempt(
        self, world: World
    ) -> None:
        """A client that has something to report does not wait for the reply that is under way."""
        world.client()
        world.submit(a_job().task("t", parts=9))
        (running,) = world.exchange(want=1).grants
        holds = [(running.unit.id, 1)]
        unseen = world.exchange(want=2, holds=holds).grants
        world.state.take()
        reply = world.exchange(want=2, holds=holds, reports=[a_report(running.unit)])
        assert reply.grants == unseen
        assert [(g.unit.attempt, g.unit.given_back) for g in unseen] == [(1, 0), (1, 0)]
        assert changed(world.state.take()) == {"t": "in-progress", "t_1": "completed", "c1": "active-busy"}
        assert [g.rank for g in world.exchange(want=1).grants] == [4]

    @pytest.mark.parametrize("want", [0, 1])
    def test_all_of_it_comes_again_although_less_is_asked_for(self, world: World, want: int) -> None:
        """How far a client fetches ahead changes from moment to moment."""
        world.client()
        world.submit(a_job().task("t", parts=9))
        first = world.exchange(want=3).grants
        for _ in range(2):
            assert world.exchange(want=want, holds=[], request_id=7).grants == first
        assert [g.unit.given_back for g in first] == [0, 0, 0]

    def test_to_a_client_that_drains_it_does_not(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t"))
        (grant,) = world.exchange(want=1).grants
        assert world.exchange(want=1, holds=[], draining=True).grants == []
        assert grant.unit.state is WorkunitState.QUEUED

    def test_what_was_settled_meanwhile_does_not_come_again(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t", parts=3))
        done, failed, lasts = world.exchange(want=3).grants
        reports = [a_report(done.unit), a_report(failed.unit, outcome="failed", kind=FailureKind.COMMAND)]
        assert world.exchange(want=3, holds=[], reports=reports).grants == [lasts]

    def test_a_client_that_never_lists_it_does_not_get_it_for_ever(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t"))
        attempts = []
        for _ in range(7):
            attempts.append(world.exchange(want=1, holds=[]).grants[0].attempt)
            world.pass_s(world.state.rules.lease_s / 3 + 0.1)
        assert attempts == [1, 1, 1, 2, 2, 2, 3]

    def test_held_there_and_not_here_is_to_be_discarded(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("t", parts=2))
        unit = world.take()
        assert world.exchange(holds=[(unit.id, 1)]).discard == []
        assert world.exchange(holds=[(unit.id, 1), (unit.id, 7)]).discard == [(unit.id, 7)]
        suspend_job(world.state, world.ctx, job.id)
        assert "c1" in world.state.changes.told
        for _ in range(2):
            assert world.exchange(holds=[(unit.id, 1)]).discard == [(unit.id, 1)]

    def test_what_it_reports_it_need_not_be_told_to_discard(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t"))
        unit = world.take()
        reply = world.exchange(holds=[(unit.id, 1)], reports=[a_report(unit)])
        assert reply.discard == []

    def test_an_exchange_renews_every_lease(self, world: World) -> None:
        client = world.client()
        world.submit(a_job().task("t"))
        unit = world.take()
        for _ in range(5):
            world.pass_s(59)
            world.exchange()
        assert unit.state is WorkunitState.CHECKOUT
        assert client.deadline_s == world.now_s + 60

    def test_an_offline_client_is_back_and_told_what_it_lost(self, world: World) -> None:
        client = world.client()
        world.submit(a_job().task("t"))
        unit = world.take()
        world.pass_s(60)
        assert client.offline
        reply = world.exchange(holds=[(unit.id, 1)])
        assert reply.discard == [(unit.id, 1)]
        assert not client.offline


class TestRequestIds:
    """One current request per client; a repeat is answered the same."""

    def test_L_07_a_repeat_gets_the_same_grants_and_never_others(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t", parts=9))
        first = world.exchange(want=3, request_id=1)
        before = snapshot(world.state)
        again = world.exchange(want=3, request_id=1, holds=[])
        assert again.grants == first.grants
        assert snapshot(world.state) == before

    def test_a_repeat_of_reports_is_harmless(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t", parts=9))
        unit = world.take()
        r = a_report(unit)
        first = world.exchange(want=1, request_id=1, reports=[r], holds=[])
        again = world.exchange(want=1, request_id=1, reports=[r], holds=[])
        assert [x["result"] for x in first.results + again.results] == ["accepted", "duplicate"]
        assert again.grants == first.grants
        assert unit.task.done == 1

    def test_grants_withdrawn_meanwhile_are_not_repeated(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("t", parts=9))
        world.submit(a_job().task("u"))
        first = world.exchange(want=10, request_id=1)
        suspend_job(world.state, world.ctx, job.id)
        again = world.exchange(want=10, request_id=1, holds=[])
        assert [g.task.name for g in again.grants] == ["u"]
        assert len(first.grants) == 10

    def test_a_waiting_request_asks_again_under_its_number(self, world: World) -> None:
        world.client()
        assert world.exchange(want=1, request_id=1).is_empty
        world.submit(a_job().task("t"))
        assert len(world.exchange(want=1, request_id=1).grants) == 1

    def test_a_lower_number_and_another_incarnation_are_stale(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t"))
        world.exchange(want=1, request_id=5)
        before = snapshot(world.state)
        with pytest.raises(StaleExchange):
            world.exchange(want=1, request_id=4)
        with pytest.raises(StaleExchange):
            world.exchange(want=1, request_id=6, incarnation="i0")
        assert snapshot(world.state) == before

    def test_is_current_tells_which_one_still_counts(self, world: World) -> None:
        world.client()
        world.exchange(request_id=5)
        assert is_current(world.state, C1, "i1", 5)
        assert is_current(world.state, C1, "i1", 6)
        assert not is_current(world.state, C1, "i1", 4)
        assert not is_current(world.state, C1, "i2", 5)
        assert not is_current(world.state, ClientId("zz"), "i1", 5)

    def test_a_new_incarnation_counts_from_the_start(self, world: World) -> None:
        world.client()
        world.exchange(request_id=5)
        world.client(incarnation="i2")
        assert world.exchange(request_id=1, incarnation="i2").is_empty


class TestNoWork:
    """Nothing is handed out, and the reply says why."""

    def test_a_suspended_client_is_told(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t"))
        suspend_client(world.state, world.ctx, C1)
        reply = world.exchange(want=1)
        assert (reply.suspended, reply.grants) == (True, [])

    def test_a_suspended_client_may_still_report(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t"))
        unit = world.take()
        suspend_client(world.state, world.ctx, C1)
        reply = world.exchange(reports=[a_report(unit)], holds=[])
        assert [r["result"] for r in reply.results] == ["lease_lost"]

    def test_a_draining_client_gets_nothing(self, world: World) -> None:
        client = world.client()
        world.submit(a_job().task("t"))
        assert world.exchange(want=1, draining=True).grants == []
        assert client.draining
        assert len(world.exchange(want=1).grants) == 1

    def test_a_suspended_queue_hands_out_nothing(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t", parts=2))
        unit = world.take()
        suspend_queue(world.state, world.ctx)
        reply = world.exchange(want=1, reports=[a_report(unit)], holds=[])
        assert reply.grants == []
        assert [r["result"] for r in reply.results] == ["accepted"]

    def test_why_there_is_nothing(self, world: World) -> None:
        world.client(group="a")
        world.submit(a_job(clientgroups="b").task("t"))
        reply = world.exchange(want=1)
        assert reply.skipped == {"wrong_group": 1}
        assert reply.is_empty

    def test_an_idle_exchange_writes_nothing(self, world: World) -> None:
        world.client()
        world.exchange(want=4)
        world.state.take()
        world.exchange(want=4)
        assert world.state.changes.is_empty()


def test_an_unknown_client_registers_and_a_removed_one_stops(world: World) -> None:
    with pytest.raises(ClientNotFound):
        world.exchange()
    world.client()
    world.submit(a_job().task("t"))
    unit = world.take()
    remove_client(world.state, world.ctx, C1)
    reply = world.exchange(holds=[(unit.id, 1)], reports=[a_report(unit)])
    assert reply.stop
    assert reply.discard == [(unit.id, 1)]
    assert [r["result"] for r in reply.results] == ["lease_lost"]
    assert unit.state is WorkunitState.QUEUED


class TestLeaving:
    """A client that ends in good order says goodbye."""

    def test_it_is_offline_at_once_and_keeps_its_counters(self, world: World) -> None:
        client = world.client()
        job = world.submit(a_job().task("t", parts=2))
        unit = world.take()
        assert world.exchange(holds=[], reports=[a_report(unit)], draining=True).results
        world.state.take()
        reply = world.exchange(draining=True, leaving=True)
        assert (reply.grants, reply.stop) == ([], False)
        changes = world.state.take()
        assert changed(changes) == {"c1": "offline"}
        assert [(e.code, e.fields["reason"]) for e in changes.events] == [("CU", "left")]
        assert (client.total_completed, client.total_checkout) == (1, 1)
        reasons = [row["reason"] for row in why_job(world.state, world.ctx, job.id)]
        assert "no live client (1 offline)" in reasons

    def test_what_it_holds_is_queued_with_nobody_to_blame(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t"))
        unit = world.take()
        world.exchange(leaving=True)
        assert (unit.state, unit.given_back, unit.lost) == (WorkunitState.QUEUED, 1, 0)

    def test_it_may_come_back(self, world: World) -> None:
        client = world.client()
        world.exchange(leaving=True, draining=True)
        world.client(incarnation="i2")
        assert client.is_live
        world.pass_s(59)
        assert client.is_live


def test_parts_are_told(world: World) -> None:
    world.client()
    job = world.submit(a_job().task("t", parts=4).reads("in"))
    world.prepare(job.tasks[0], index="record", units=10)
    assert [g.part for g in world.exchange(want=4).grants] == ["1-3", "4-6", "7-8", "9-10"]
