"""A person takes clients out of service and brings them back.

A client's `Status` is derived (state.Client.status): not heard of, else suspended, else holding work or not.
So a suspended client that falls silent is shown as offline, and is suspended again when it is heard of.
Source: AWE lib/core/cqmgr.go SuspendClient, ResumeClient; differs: the test is the right way round, its work
goes back at once and nobody is blamed for it.
"""

from awe_server.scheduler.clients import forget_client
from awe_server.scheduler.failure import put_aside, withdraw_all
from awe_server.scheduler.state import Client, Context, State
from shared_models.errors import ClientNotFound, Conflict
from shared_models.ids import ClientId
from shared_models.limits import MAX_STOPPED

MANUALLY = "manually suspended"


def suspend_client(state: State, ctx: Context, client_id: ClientId, reason: str = MANUALLY) -> Client:
    """Give a client no more work; what it holds is queued again at once, and it is told to discard that.

    Raises ClientNotFound, Conflict if it is suspended already.
    """
    client = _find(state, client_id)
    if client.suspended:
        raise Conflict("Client not active", client_id=client_id)
    put_aside(state, ctx, client, reason)
    return client


def resume_client(state: State, ctx: Context, client_id: ClientId) -> Client:
    """Give a suspended client work again; its failures in a row are forgotten.

    Raises ClientNotFound, Conflict if it is not suspended.
    """
    client = _find(state, client_id)
    if not client.suspended:
        raise Conflict("Client not suspended", client_id=client_id)
    client.suspended = False
    client.suspend_reason = ""
    client.blamed = {}
    state.touch_client(client)
    state.tell(client)
    state.record("CO", clientid=client.id, name=client.name)
    return client


def suspend_all(state: State, ctx: Context, reason: str = MANUALLY) -> int:
    """Suspend every client that is not; how many those were."""
    active = [client for client in state.clients.values() if not client.suspended]
    for client in active:
        put_aside(state, ctx, client, reason)
    return len(active)


def resume_all(state: State, ctx: Context) -> int:
    """Resume every suspended client; how many those were."""
    suspended = [id for id, client in state.clients.items() if client.suspended]
    for id in suspended:
        resume_client(state, ctx, id)
    return len(suspended)


def remove_client(state: State, ctx: Context, client_id: ClientId) -> None:
    """Send a client away: what it holds is queued again, and it is told to stop when it next asks.

    It comes back by registering anew. Raises ClientNotFound.
    """
    client = _find(state, client_id)
    withdraw_all(state, ctx, client, "client removed")
    state.tell(client)
    forget_client(state, client)
    state.changes.left = True
    state.stopped[client.id] = None
    if len(state.stopped) > MAX_STOPPED:
        del state.stopped[next(iter(state.stopped))]
    state.record("CU", clientid=client.id, name=client.name, reason="removed")


def _find(state: State, client_id: ClientId) -> Client:
    client = state.clients.get(client_id)
    if client is None:
        raise ClientNotFound
    return client
