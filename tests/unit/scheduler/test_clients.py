"""Clients register, live, fall silent and come back."""

import pytest

from awe_server.scheduler.clients import (
    FORGET_OFFLINE_S,
    MAX_REPLACED,
    SHARED_ID,
    heartbeat,
    register,
)
from awe_server.scheduler.jobs import suspend_job
from awe_server.scheduler.suspension import remove_client, suspend_client
from awe_server.scheduler.views import client_document
from shared_models.errors import ClientNotFound
from shared_models.ids import ClientId
from shared_models.states import ClientStatus, JobState, WorkunitState
from tests.builders import World, a_job, a_profile, changed

C1 = ClientId("c1")


def test_a_new_client_gets_the_new_id_and_its_document(world: World) -> None:
    profile = a_profile(
        hostname="node7",
        version="1.0",
        token="never kept",
        user="anna",
        containers=["docker"],
        file_roots=["/data"],
    )
    client = register(world.state, world.ctx, profile, None, ClientId("new"))
    changes = world.state.take()
    assert changed(changes) == {"new": "active-idle"}
    assert [(e.code, e.fields["clientid"]) for e in changes.events] == [("CR", "new")]
    assert client_document(client) == {
        "user": "anna",
        "hostname": "node7",
        "version": "1.0",
        "id": "new",
        "name": "node",
        "group": "default",
        "cores": 8,
        "memory_bytes": 16 * 1024**3,
        "disk_bytes": 100 * 1024**3,
        "gpus": 0,
        "apps": ["*"],
        "containers": ["docker"],
        "file_roots": ["/data"],
        "regtime": "2026-01-01T12:00:00.000000Z",
        "Status": "active-idle",
        "suspended": False,
        "suspend_reason": "",
        "total_checkout": 0,
        "total_completed": 0,
        "total_failed": 0,
        "skip_work": [],
        "incarnation": "i1",
        "native": True,
        "lastcompleted": "0001-01-01T00:00:00Z",
        "idle_since": "2026-01-01T12:00:00.000000Z",
        "consecutive_failures": 0,
        "_blamed": [],
    }


class TestIncarnations:
    """A restart under the same id."""

    def test_L_02_everything_of_the_old_one_is_queued_at_once_as_lost_without_blame(
        self, world: World
    ) -> None:
        client = world.client()
        world.submit(a_job().task("t", parts=2))
        units = [g.unit for g in world.checkout(want=2)]
        world.state.take()
        world.client(incarnation="i2")
        changes = world.state.take()
        assert changed(changes) == {
            "t": "in-progress",
            "t_1": "queued",
            "t_2": "queued",
            "c1": "active-idle",
        }
        assert [(u.failed, u.lost, u.given_back) for u in units] == [(0, 1, 0), (0, 1, 0)]
        assert client.total_failed == 0
        assert len(world.checkout(want=9)) == 2

    def test_L_02_what_it_has_in_its_spool_goes_on(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t", parts=3))
        a, b, c = (g.unit for g in world.checkout(want=3))
        world.client(incarnation="i2", spooled=[[a.id, 1], [b.id, 7], ["unknown", 1]])
        assert [u.state for u in (a, b, c)] == [
            WorkunitState.CHECKOUT,
            WorkunitState.QUEUED,
            WorkunitState.QUEUED,
        ]
        assert world.done(a) == "accepted"

    def test_the_same_incarnation_keeps_everything(self, world: World) -> None:
        client = world.client()
        world.submit(a_job().task("t", parts=2))
        unit = world.take()
        world.fail(world.take())
        world.client()
        assert unit.state is WorkunitState.CHECKOUT
        assert client.skip
        assert client.blamed

    def test_a_restart_cleans_the_skip_list_but_keeps_counters_and_suspension(self, world: World) -> None:
        client = world.client()
        world.submit(a_job().task("t", parts=2))
        world.fail(world.take())
        suspend_client(world.state, world.ctx, C1, "bad disk")
        assert world.client(incarnation="i2") is client
        assert (client.skip, client.blamed) == ({}, {})
        assert (client.total_checkout, client.total_failed) == (1, 1)
        assert (client.suspended, client.suspend_reason) == (True, "bad disk")

    def test_a_stock_worker_keeps_what_it_runs(self, world: World) -> None:
        world.stock_client()
        world.submit(a_job().task("t", parts=2))
        a, b = (g.unit for g in world.checkout(want=2))
        world.stock_client(current_work=[a.id, "unknown"])
        assert [u.state for u in (a, b)] == [WorkunitState.CHECKOUT, WorkunitState.QUEUED]

    def test_a_stock_worker_hears_what_it_runs_in_vain(self, world: World) -> None:
        """What it does not run any more is lost, and that may halt the job of what it does run."""
        world.stock_client()
        job = world.submit(a_job(noretry=True).task("t", parts=2))
        a, b = (g.unit for g in world.checkout(want=2))
        world.stock_client(current_work=[b.id])
        assert job.state is JobState.SUSPEND
        assert heartbeat(world.state, world.ctx, C1, None).discard == [b.id]
        assert a.state is b.state is WorkunitState.SUSPEND

    def test_a_stock_worker_hears_again_what_was_withdrawn_before_it_registered(self, world: World) -> None:
        world.stock_client()
        job = world.submit(a_job().task("t", parts=2))
        a, _ = (g.unit for g in world.checkout(want=2))
        suspend_job(world.state, world.ctx, job.id)
        world.stock_client(current_work=[a.id])
        assert heartbeat(world.state, world.ctx, C1, None).discard == [a.id]

    def test_two_daemons_with_one_id_blame_no_work(self, world: World) -> None:
        """A restart has a new incarnation; one that was replaced and is back is another daemon."""
        world.client(incarnation="a")
        job = world.submit(a_job().task("t"))
        unit = world.take()
        world.client(incarnation="b")
        assert (unit.lost, unit.given_back) == (1, 0), "it may have been a restart"
        for turn in range(10):
            world.pass_s(1)
            incarnation = "ab"[turn % 2]
            held = world.take()
            world.state.take()
            world.client(incarnation=incarnation)
            assert held is unit
            assert unit.notes == SHARED_ID
            (came,) = (e for e in world.state.take().events if e.code == "CR")
            assert came.fields["reason"] == SHARED_ID
            world.pass_s(400)
            world.client(incarnation=incarnation)
        assert (unit.failed, unit.lost) == (0, 1)
        assert job.state is JobState.IN_PROGRESS

    def test_a_failure_of_one_of_two_daemons_with_one_id_counts_as_nothing_else(self, world: World) -> None:
        world.client(incarnation="a")
        world.client(incarnation="b")
        world.submit(a_job().task("t"))
        unit = world.take()
        world.client(incarnation="a")
        assert unit.given_back == 1
        assert world.fail(unit) == "accepted"
        assert (unit.failed, unit.lost, unit.given_back) == (1, 0, 0)

    def test_what_one_of_two_daemons_with_one_id_has_finished_counts(self, world: World) -> None:
        world.client(incarnation="a")
        world.client(incarnation="b")
        world.submit(a_job().task("t"))
        unit = world.take()
        world.client(incarnation="a")
        assert unit.state is WorkunitState.QUEUED
        lost = unit.lost
        assert world.done(unit) == "accepted"
        assert unit.lost == lost == 0

    def test_many_restarts_are_remembered_by_the_last_few(self, world: World) -> None:
        client = world.client()
        for n in range(2, 40):
            world.client(incarnation=f"i{n}")
        assert len(client.replaced) == MAX_REPLACED

    def test_an_offline_client_that_registers_is_back(self, world: World) -> None:
        client = world.client()
        world.pass_s(60)
        assert client.status is ClientStatus.OFFLINE
        world.client()
        assert client.status is ClientStatus.IDLE

    def test_it_does_not_drain_any_more(self, world: World) -> None:
        client = world.client()
        world.submit(a_job().task("t"))
        assert world.exchange(want=1, draining=True).grants == []
        assert client.draining
        world.client(incarnation="i2")
        assert len(world.exchange(want=1, incarnation="i2", request_id=1).grants) == 1


class TestHeartbeat:
    """Stock workers: without a list (GET) and with one (PUT)."""

    def test_without_a_list_all_leases_go_on(self, world: World) -> None:
        world.stock_client()
        world.submit(a_job().task("t", parts=2))
        units = [g.unit for g in world.checkout(want=2)]
        world.state.take()
        for _ in range(10):
            world.pass_s(50)
            assert heartbeat(world.state, world.ctx, C1, None).discard == []
        assert {u.state for u in units} == {WorkunitState.CHECKOUT}
        assert world.state.changes.is_empty()

    def test_without_a_list_it_is_told_once_what_was_withdrawn(self, world: World) -> None:
        world.stock_client()
        job = world.submit(a_job().task("t", parts=2))
        unit = world.take()
        suspend_job(world.state, world.ctx, job.id)
        assert "c1" in world.state.changes.told
        assert heartbeat(world.state, world.ctx, C1, None).discard == [unit.id]
        assert heartbeat(world.state, world.ctx, C1, None).discard == []

    def test_work_it_got_again_is_not_to_be_discarded(self, world: World) -> None:
        world.stock_client()
        world.submit(a_job().task("t"))
        unit = world.take()
        suspend_client(world.state, world.ctx, C1)
        from awe_server.scheduler.suspension import resume_client

        resume_client(world.state, world.ctx, C1)
        assert world.take() is unit
        assert heartbeat(world.state, world.ctx, C1, None).discard == []

    def test_listed_and_not_held_is_to_be_discarded(self, world: World) -> None:
        world.stock_client()
        world.submit(a_job().task("t"))
        unit = world.take()
        assert heartbeat(world.state, world.ctx, C1, [unit.id, "unknown"]).discard == ["unknown"]

    def test_L_07_held_and_not_listed_is_queued_after_a_lease(self, world: World) -> None:
        world.stock_client()
        world.submit(a_job().task("t"))
        unit = world.take()
        world.pass_s(59)
        heartbeat(world.state, world.ctx, C1, [])
        assert unit.state is WorkunitState.CHECKOUT
        world.pass_s(1)
        heartbeat(world.state, world.ctx, C1, [])
        assert (unit.state, unit.lost, unit.given_back) == (WorkunitState.QUEUED, 0, 1)
        assert heartbeat(world.state, world.ctx, C1, [unit.id]).discard == [unit.id]

    def test_unknown_registers_and_removed_stops(self, world: World) -> None:
        with pytest.raises(ClientNotFound):
            heartbeat(world.state, world.ctx, C1, None)
        world.client()
        remove_client(world.state, world.ctx, C1)
        assert heartbeat(world.state, world.ctx, C1, None).stop
        world.client()
        assert not heartbeat(world.state, world.ctx, C1, None).stop


class TestReap:
    """Who is silent for a lease is gone."""

    def test_a_silent_client_is_offline_after_a_lease_and_its_work_queued(self, world: World) -> None:
        client = world.client()
        world.submit(a_job().task("t", parts=3))
        unit = world.take()
        world.state.take()
        world.pass_s(59.9)
        assert world.state.changes.is_empty()
        world.pass_s(0.1)
        changes = world.state.take()
        assert changed(changes) == {"t": "in-progress", "t_1": "queued", "c1": "offline"}
        assert [e.code for e in changes.events] == ["CU", "WR"]
        assert unit.exit == {
            "kind": "lost",
            "exit_code": None,
            "signal": None,
            "message": "client c1 was lost",
        }
        assert list(changes.work.values()) == [1]
        assert not client.holds
        world.pass_s(1)
        assert world.state.changes.is_empty()

    def test_L_04_work_longer_than_a_lease_starts_once(self, world: World) -> None:
        world.client()
        for i in range(2, 6):
            world.client(f"c{i}")
        world.submit(a_job().task("t"))
        unit = world.take()
        for _ in range(100):
            world.pass_s(30)
            world.exchange("c1")
            for i in range(2, 6):
                assert world.exchange(f"c{i}", want=1).grants == []
        assert unit.attempt == 1
        assert world.done(unit) == "accepted"

    def test_L_04_a_wait_longer_than_the_lease_is_no_silence(self, world: World) -> None:
        client = world.client()
        world.exchange(wait_s=60.0)
        world.pass_s(89)
        assert not client.offline
        world.pass_s(1)
        assert client.offline

    def test_L_10_completed_is_terminal(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("t", parts=5))
        units = [g.unit for g in world.checkout(want=5)]
        world.now_s += 59.999
        for unit in units:
            world.done(unit)
        world.state.take()
        world.pass_s(0.001)
        assert changed(world.state.take()) == {"c1": "offline"}
        assert {u.state for u in units} == {WorkunitState.COMPLETED}
        assert job.open_tasks == 0

    def test_L_11_steps_of_the_wall_clock_expire_nothing(self, world: World) -> None:
        client = world.client()
        world.submit(a_job().task("t"))
        unit = world.take()
        for step in (-3600, 7200, -86400):
            world.wall_s += step
            world.pass_s(1)
        assert not client.offline
        assert unit.state is WorkunitState.CHECKOUT
        world.pass_s(60)
        assert client.offline

    def test_a_client_offline_for_a_day_is_forgotten_unless_suspended(self, world: World) -> None:
        world.client()
        world.client("c2")
        suspend_client(world.state, world.ctx, ClientId("c2"))
        world.pass_s(60)
        world.pass_s(FORGET_OFFLINE_S - 1)
        assert C1 in world.state.clients
        world.state.take()
        world.pass_s(1)
        assert changed(world.state.take()) == {"removed clients c1": "id"}
        assert list(world.state.clients) == ["c2"]
