"""Clients are taken out of service and come back."""

import pytest

from awe_server.scheduler import suspension
from awe_server.scheduler.clients import heartbeat
from shared_models.errors import ClientNotFound, ClientSuspended, Conflict
from shared_models.ids import ClientId
from shared_models.limits import MAX_STOPPED
from shared_models.states import ClientStatus, WorkunitState
from tests.builders import Stored, World, a_job, changed

C1 = ClientId("c1")


def suspend(world: World, id: str = "c1") -> None:
    suspension.suspend_client(world.state, world.ctx, ClientId(id))


def test_suspending_a_client_gives_its_work_back_at_once_and_blames_nobody(world: World) -> None:
    world.submit(a_job().task("t1", parts=2))
    client = world.client()
    units = [grant.unit for grant in world.checkout(want=2)]
    world.state.take()

    suspend(world)

    changes = world.state.take()
    assert changed(changes) == {"t1": "in-progress", "t1_1": "queued", "t1_2": "queued", "c1": "suspend"}
    assert changes.told == {C1: None}
    assert [event.code for event in changes.events] == ["WR", "WR", "CS"]
    assert (client.suspend_reason, client.total_failed, list(client.skip)) == ("manually suspended", 0, [])
    assert [unit.failed for unit in units] == [0, 0]
    world.client("c2")
    assert [grant.rank for grant in world.checkout("c2", 10)] == [1, 2]


def test_a_suspended_client_gets_nothing_and_hears_why(world: World) -> None:
    world.submit(a_job().task("t1"))
    world.client()
    unit = world.take()
    suspend(world)
    reply = world.exchange(holds=[(unit.id, unit.attempt)], want=1)
    assert (reply.suspended, reply.grants, reply.discard) == (True, [], [(unit.id, unit.attempt)])
    with pytest.raises(ClientSuspended, match="Client suspended"):
        world.checkout()


def test_a_stock_worker_is_told_to_discard_at_its_heartbeat(world: World) -> None:
    world.submit(a_job().task("t1"))
    world.stock_client()
    unit = world.take()
    suspend(world)
    assert heartbeat(world.state, world.ctx, C1, [unit.id]).discard == [unit.id]
    world.client("c2")
    assert world.take("c2") is unit


def test_resume_forgets_failures_in_a_row_and_wakes_the_client(world: World) -> None:
    world.submit(a_job().task("t1", parts=6))
    client = world.client()
    world.client("c2")
    for unit in [grant.unit for grant in world.checkout(want=5)]:
        world.fail(unit)
    assert (client.status, client.suspend_reason) == (
        ClientStatus.SUSPEND,
        "MAX_CLIENT_FAILURE on client reached: 5 workunits in a row failed on it",
    )
    world.state.take()

    suspension.resume_client(world.state, world.ctx, C1)

    changes = world.state.take()
    assert changed(changes) == {"c1": "active-idle"}
    assert changes.told == {C1: None}
    assert [event.code for event in changes.events] == ["CO"]
    assert (client.suspended, client.suspend_reason, len(client.blamed)) == (False, "", 0)
    assert [grant.rank for grant in world.checkout(want=1)] == [6]


def test_what_does_not_apply_is_refused_with_awes_words(world: World) -> None:
    world.client()
    with pytest.raises(Conflict, match="Client not suspended"):
        suspension.resume_client(world.state, world.ctx, C1)
    suspend(world)
    world.state.take()
    with pytest.raises(Conflict, match="Client not active"):
        suspend(world)
    for verb in (suspension.suspend_client, suspension.resume_client, suspension.remove_client):
        with pytest.raises(ClientNotFound, match="Client not found"):
            verb(world.state, world.ctx, ClientId("nobody"))
    assert world.state.changes.is_empty()


def test_suspend_all_and_resume_all_count_whom_they_changed(world: World) -> None:
    world.submit(a_job().task("t1", parts=3))
    for id in ("c1", "c2", "c3"):
        world.client(id)
    world.take("c1")
    world.take("c2")
    suspend(world, "c3")
    assert suspension.suspend_all(world.state, world.ctx) == 2
    assert not world.state.running
    assert {client.status for client in world.state.clients.values()} == {ClientStatus.SUSPEND}
    assert suspension.resume_all(world.state, world.ctx) == 3
    assert suspension.resume_all(world.state, world.ctx) == 0


def test_a_suspended_client_that_falls_silent_is_offline_and_comes_back_suspended(world: World) -> None:
    client = world.client()
    suspend(world)
    world.pass_s(61)
    seen = [client.status]
    world.exchange()
    assert [*seen, client.status] == [ClientStatus.OFFLINE, ClientStatus.SUSPEND]


def test_a_suspension_survives_registration_and_restart(world: World, stored: Stored) -> None:
    world.client()
    suspend(world)
    world.client(incarnation="i2")
    assert world.state.clients[C1].suspended
    loaded = world.reloaded(stored).clients[C1]
    assert (loaded.suspended, loaded.suspend_reason) == (True, "manually suspended")


def test_a_removed_client_is_told_to_stop_until_it_registers_anew(world: World, stored: Stored) -> None:
    world.submit(a_job().task("t1"))
    world.client()
    unit = world.take()
    stored.apply(world.state)

    suspension.remove_client(world.state, world.ctx, C1)

    changes = stored.apply(world.state)
    assert unit.state is WorkunitState.QUEUED
    assert not stored.documents["clients"]
    assert changes.told == {C1: None}
    reply = world.exchange(holds=[(unit.id, unit.attempt)])
    assert (reply.stop, reply.discard) == (True, [(unit.id, unit.attempt)])
    assert heartbeat(world.state, world.ctx, C1, None).stop
    world.client(incarnation="i2")
    assert world.exchange(incarnation="i2").stop is False


def test_only_the_last_removed_clients_are_remembered(world: World) -> None:
    for i in range(MAX_STOPPED + 1):
        world.client(f"c{i}")
        suspension.remove_client(world.state, world.ctx, ClientId(f"c{i}"))
    assert list(world.state.stopped) == [f"c{i}" for i in range(1, MAX_STOPPED + 1)]
