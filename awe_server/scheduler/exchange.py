"""The native client's one request: it reports, says what it holds, and asks for work, in this order.

A request that is repeated (same request_id) gets the grants it got before, never others; if it got none, it
may get some now: that is also how the runtime asks again for a request that waits. Which of several waiting
requests is the present one is `is_current`. What the request before was given and the client does not list
(it gave that request up, or its reply was lost) comes again, as the same attempts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from awe_server.scheduler.checkout import Grant, grant
from awe_server.scheduler.clients import leave, seen, take_back_unlisted, told_to_stop
from awe_server.scheduler.report import settle
from awe_server.scheduler.state import Client, Context, Document, State
from shared_models.errors import LeaseLost, StaleExchange, WorkunitNotFound
from shared_models.ids import ClientId, WorkunitId
from shared_models.messages import ExchangeRequest, ReportResult, ResultMessage


@dataclass(slots=True)
class ExchangeReply:
    """What the client is answered, before tasks and parts are described."""

    lease_s: float
    results: list[ResultMessage] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    discard: list[tuple[WorkunitId, int]] = field(default_factory=list)
    suspended: bool = False
    suspend_reason: str = ""
    stop: bool = False
    skipped: dict[str, int] = field(default_factory=dict)  #: why there is no work

    @property
    def is_empty(self) -> bool:
        """Nothing to say: the request may wait."""
        return not (self.results or self.grants or self.discard or self.stop)


def exchange(
    state: State,
    ctx: Context,
    client_id: ClientId,
    x: ExchangeRequest,
    finished: Mapping[WorkunitId, Document],
) -> ExchangeReply:
    """Settle reports, compare what is held, and hand out work.

    Raises ClientNotFound; StaleExchange for an older request or another incarnation.
    """
    client = state.clients.get(client_id)
    if client is None:
        return _stop(state, client_id, x)
    if not is_current(state, client_id, x.incarnation, x.request_id):
        raise StaleExchange
    before: list[Grant] = []
    if x.request_id != client.last_request:
        client.last_request = x.request_id
        before, client.last_grants = client.last_grants, []
    seen(state, ctx, client, x.wait_s)
    if x.draining and not client.draining:
        state.changes.left = True
    client.draining = x.draining
    client.trouble = x.trouble
    if x.free is not None:
        client.free_disk_bytes = x.free.disk_bytes
    reply = ExchangeReply(state.rules.lease_s)
    for r in x.reports:
        try:
            result: ReportResult = settle(state, ctx, client, r, finished)
        except LeaseLost:
            result = "lease_lost"
        except WorkunitNotFound:
            result = "unknown"
        reply.results.append({"work": r.work, "attempt": r.attempt or 0, "result": result})
    may_get = client.is_live and not state.queue_suspended
    if before and may_get:
        client.last_grants = _unseen(client, before, x, ctx.now_s - state.rules.lease_s)
    _compare(state, ctx, client, x, reply)
    reply.suspended, reply.suspend_reason = client.suspended, client.suspend_reason
    if x.leaving:
        leave(state, ctx, client)
    elif may_get:
        _give(state, ctx, client, x, reply)
    return reply


def is_current(state: State, client_id: ClientId, incarnation: str, request_id: int) -> bool:
    """Whether this request is the newest of the client's present incarnation."""
    client = state.clients.get(client_id)
    return client is not None and client.incarnation == incarnation and request_id >= client.last_request


def _stop(state: State, client_id: ClientId, x: ExchangeRequest) -> ExchangeReply:
    told_to_stop(state, client_id)
    reply = ExchangeReply(state.rules.lease_s, stop=True)
    reply.discard = list(x.holds)
    reply.results = [{"work": r.work, "attempt": r.attempt or 0, "result": "lease_lost"} for r in x.reports]
    return reply


def _compare(state: State, ctx: Context, client: Client, x: ExchangeRequest, reply: ExchangeReply) -> None:
    """Discard what the client holds and should not; take back what it should hold and does not."""
    held = client.holds
    missing = len(held)
    reported = {(r.work, r.attempt) for r in x.reports} if x.reports else ()
    for id, attempt in x.holds:
        unit = held.get(id)
        if unit is not None and unit.attempt == attempt:
            missing -= 1
        elif (id, attempt) not in reported:
            reply.discard.append((id, attempt))
    client.withdrawn = {}
    if missing > 0:
        listed = set(x.holds)
        listed.update((g.workunit_id, g.attempt) for g in client.last_grants)
        take_back_unlisted(
            state, ctx, client, (id for id, unit in held.items() if (id, unit.attempt) not in listed)
        )


def _unseen(client: Client, before: list[Grant], x: ExchangeRequest, since_s: float) -> list[Grant]:
    """Grants of the request before whose reply the client did not see: they are given to it again.

    Also if it asks for fewer now, or none: that it would not have done with them in hand. A client that gives
    up one waiting request after the other, as commands end, may miss many; what it has not taken since
    `since_s` it never will, and is queued again.
    """
    listed = set(x.holds)
    return [
        g
        for g in before
        if g.is_held
        and client.holds.get(g.workunit_id) is g.unit
        and (g.workunit_id, g.attempt) not in listed
        and g.unit.checkout_s > since_s
    ]


def _give(state: State, ctx: Context, client: Client, x: ExchangeRequest, reply: ExchangeReply) -> None:
    if client.last_grants:
        reply.grants = [
            g for g in client.last_grants if client.holds.get(g.workunit_id) is g.unit and g.is_held
        ]
        return
    if x.want == 0:
        return
    result = grant(state, ctx, client, x.want, x.free)
    client.last_grants = reply.grants = result.grants
    reply.skipped = result.skipped
