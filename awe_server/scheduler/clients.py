"""Clients come, say that they live, and are missed when they do not.

A client has one deadline for all it holds: every sign of life moves it by a lease. When it passes, the client
is offline and its work is queued again. Time is monotonic: steps of the wall clock expire nothing.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from awe_server.scheduler.demands import forget_eligible
from awe_server.scheduler.failure import Failure, end_badly, withdraw, withdraw_all
from awe_server.scheduler.state import Client, Context, Document, Removal, State
from shared_models.errors import ClientNotFound
from shared_models.ids import ClientId, WorkunitId
from shared_models.states import FailureKind

#: A client that was not heard of for so long is forgotten, unless somebody suspended it.
FORGET_OFFLINE_S = 24 * 3600.0
MAX_REPLACED = 8  #: incarnations of a client that are remembered, since the server's start
SHARED_ID = "two daemons use this client id: stop one, and remove `client-id` from its work directory"


@dataclass(slots=True)
class Instructions:
    """What a heartbeat is answered with."""

    discard: list[WorkunitId] = field(default_factory=list)
    stop: bool = False


def register(
    state: State, ctx: Context, profile: Document, client_id: ClientId | None, new_client_id: ClientId
) -> Client:
    """Take a client in, or in again; `profile` was checked.

    A known id keeps its counters and its suspension. A new incarnation (a restart; a stock AWE worker has no
    other kind) starts with a clean skip list, and what the old one held is queued again as lost, at once for
    the first time: the old one ended without giving it back, and that may have been the work's doing. But not
    what the new one still has, finished in its spool (native: `spooled`) or running (stock: `current_work`).
    An incarnation that was replaced and comes again is no restart: two daemons have one id, and what the
    other one holds is queued again with nobody to blame.
    """
    id = client_id or new_client_id
    client = state.clients.get(id)
    if client is None:
        client = state.clients[id] = Client(id)
        client.regtime = ctx.wall_s
    incarnation = str(profile.get("incarnation") or "")
    before = client.incarnation
    restarted = not incarnation or incarnation != before
    state.changes.left = True  # it may have become another one
    client.describe(profile)
    forget_eligible(client)
    client.incarnation = incarnation
    client.draining = False
    state.stopped.pop(id, None)
    is_shared = restarted and incarnation in client.replaced
    if restarted:
        _replace(state, ctx, client, before, profile, is_shared=is_shared)
    client.offline = False
    seen(state, ctx, client)
    state.touch_client(client)
    reason = {"reason": SHARED_ID} if is_shared else {}
    state.record("CR", clientid=id, name=client.name, group=client.group, **reason)
    return client


def _replace(
    state: State, ctx: Context, client: Client, before: str, profile: Document, *, is_shared: bool
) -> None:
    """Take back what the incarnation before holds. `is_shared`: it did not end, both come by turns."""
    client.replaced.pop(before, None)
    if before:
        client.replaced[before] = None
    if len(client.replaced) > MAX_REPLACED:
        del client.replaced[next(iter(client.replaced))]
    client.last_request = 0
    client.last_grants = []
    client.skip = {}
    client.blamed = {}
    client.idle_since = ctx.wall_s
    if is_shared:
        failure = Failure(FailureKind.RELEASED, message=SHARED_ID, missed=True)
    else:
        failure = Failure(FailureKind.LOST, message="client restarted", missed=True)
    keep = _still_has(client, profile)
    for unit in [unit for id, unit in client.holds.items() if id not in keep]:
        if client.holds.get(unit.id) is unit:
            end_badly(state, ctx, unit, failure)
    running = profile.get("current_work") or ()
    client.withdrawn = {id: None for id in running if id not in client.holds}


def hear(state: State, ctx: Context, client_id: ClientId, incarnation: str) -> None:
    """It sent something, so it lives, whatever becomes of what it sent."""
    client = state.clients.get(client_id)
    if client is not None and client.incarnation == incarnation:
        seen(state, ctx, client)


def seen(state: State, ctx: Context, client: Client, wait_s: float = 0.0) -> None:
    """The client lives: its leases last from now on, and beyond the end of a wait it is about to begin."""
    lease_s = state.rules.lease_s
    client.deadline_s = ctx.now_s + max(lease_s, wait_s + lease_s / 2)
    if client.offline:
        client.offline = False
        state.touch_client(client)


def renew_all(state: State, ctx: Context) -> None:
    """Until now nobody could be heard: every lease that runs begins anew."""
    for client in state.clients.values():
        if client.deadline_s:
            client.deadline_s = ctx.now_s + state.rules.lease_s


def heartbeat(
    state: State, ctx: Context, client_id: ClientId, holds: Collection[WorkunitId] | None
) -> Instructions:
    """A stock AWE worker lives. `holds` is what it lists (PUT), or None if it does not say (GET).

    Work it lists and does not hold is to be discarded. Work it holds and does not list is queued again, once
    it was out for a lease: the worker lists late. Raises ClientNotFound.
    """
    client = state.clients.get(client_id)
    if client is None:
        return told_to_stop(state, client_id)
    seen(state, ctx, client)
    if holds is None:
        discard = list(client.withdrawn)
    else:
        discard = [id for id in holds if id not in client.holds]
        late_s = ctx.now_s - state.rules.lease_s
        listed = set(holds)
        take_back_unlisted(
            state,
            ctx,
            client,
            (id for id, u in client.holds.items() if id not in listed and u.checkout_s <= late_s),
        )
    client.withdrawn = {}
    return Instructions(discard)


def told_to_stop(state: State, client_id: ClientId) -> Instructions:
    """What an unknown client hears: to stop, if it was removed. Raises ClientNotFound: it has to register."""
    if client_id in state.stopped:
        return Instructions(stop=True)
    raise ClientNotFound


def take_back_unlisted(state: State, ctx: Context, client: Client, ids: Iterable[WorkunitId]) -> None:
    """Queue what the client does not know it holds (it never got the reply, or dropped the work)."""
    for id in list(ids):
        unit = client.holds.get(id)
        if unit is not None:
            state.end_lease(unit, ctx.wall_s)
            withdraw(state, ctx, unit, "not held by its client")


def reap(state: State, ctx: Context) -> None:
    """Miss the clients whose deadline passed: offline, their work queued again as lost."""
    for client in [c for c in state.clients.values() if c.deadline_s <= ctx.now_s]:
        if not client.offline:
            _lose(state, ctx, client)
        elif not client.suspended and client.offline_s + FORGET_OFFLINE_S <= ctx.now_s:
            forget_client(state, client)


def leave(state: State, ctx: Context, client: Client) -> None:
    """The client says goodbye: offline at once; what it still holds is queued again with nobody to blame."""
    withdraw_all(state, ctx, client, "its client has left")
    client.withdrawn = {}
    _go_offline(state, ctx, client, reason="left")


def forget_client(state: State, client: Client) -> None:
    """Drop a client that holds nothing from memory and store."""
    del state.clients[client.id]
    state.changes.clients.pop(client.id, None)
    state.changes.removals.append(Removal("clients", "id", client.id))


def _go_offline(state: State, ctx: Context, client: Client, **reason: str) -> None:
    state.changes.left = True
    client.offline = True
    client.offline_s = ctx.now_s
    client.last_grants = []
    state.touch_client(client)
    state.record("CU", clientid=client.id, name=client.name, **reason)


def _lose(state: State, ctx: Context, client: Client) -> None:
    _go_offline(state, ctx, client)
    while client.holds:
        unit = next(iter(client.holds.values()))
        message = f"client {client.id} was lost"
        end_badly(state, ctx, unit, Failure(FailureKind.LOST, message=message, missed=True))


def _still_has(client: Client, profile: Document) -> set[WorkunitId]:
    """Leases that go on over a restart: those of attempts the client can still report."""
    if not client.native:
        return set(profile.get("current_work") or ())
    spooled: list[Any] = list(profile.get("spooled") or ())
    return {
        id
        for id, attempt in spooled
        if (unit := client.holds.get(id)) is not None and unit.attempt == attempt
    }
