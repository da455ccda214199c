"""A client says how an attempt ended. At most one result per workunit is accepted, and the same report may be
repeated: it is answered the same and changes nothing.

A client that was missed (its lease ran out, or it was restarted) still delivers what it had finished, as long
as nobody else has taken the workunit: no other attempt exists then that could say something else. What was
withdrawn from it on purpose (its job or it was suspended, it was removed, it gave the work back or did not
list it) stays withdrawn.
"""

from collections.abc import Mapping
from typing import Literal

from awe_server.scheduler.demands import has_work, unlist_task
from awe_server.scheduler.failure import Failure, end_badly
from awe_server.scheduler.holder import may_report, refusal
from awe_server.scheduler.progress import ranks_done
from awe_server.scheduler.state import Client, Context, Document, State, Workunit
from awe_server.scheduler.views import unit_document
from shared_models.errors import ClientNotFound, LeaseLost
from shared_models.ids import ClientId, WorkunitId, kept_node_id
from shared_models.limits import MAX_NOTES_CHARS
from shared_models.messages import Report
from shared_models.states import FailureKind, WorkunitState

Result = Literal["accepted", "duplicate"]


def report(
    state: State, ctx: Context, client_id: ClientId, r: Report, finished: Mapping[WorkunitId, Document]
) -> Result:
    """Settle an attempt.

    `finished` holds the stored documents of reported workunits that are not live any more.
    A result for a job that was suspended meanwhile is refused: its lease was withdrawn, the work runs again
    on resume. Raises ClientNotFound, LeaseLost, WorkunitNotFound.
    """
    client = state.clients.get(client_id)
    if client is None:
        raise ClientNotFound
    return settle(state, ctx, client, r, finished)


def settle(
    state: State, ctx: Context, client: Client, r: Report, finished: Mapping[WorkunitId, Document]
) -> Result:
    """As `report`, for a client that is known."""
    unit = state.workunits.get(r.work)
    if unit is None or not may_report(state, unit, client.id, r.attempt, r.token):
        return _repeated(state, client, r, finished)
    if unit.state is not WorkunitState.CHECKOUT:
        if r.outcome == "released":
            return _repeated(state, client, r, finished)
        _hold_again(state, client, unit)
    if r.outcome == "done":
        _complete(state, ctx, client, unit, r)
        return "accepted"
    unit.computetime = r.computetime_s
    unit.perf = r.perf or None
    kind = FailureKind.RELEASED if r.outcome == "released" else r.kind or FailureKind.COMMAND
    if r.outcome == "failed":
        _keep(state, ctx, unit, r.kept)
        state.record("WF", jobid=unit.task.job.id, workid=unit.id, clientid=client.id, kind=kind.value)
    failure = Failure(
        kind, r.exit_code, r.signal, r.message, r.stderr_tail, out_of_reach=r.out_of_reach, ran=r.ran
    )
    end_badly(state, ctx, unit, failure)
    return "accepted"


def _hold_again(state: State, client: Client, unit: Workunit) -> None:
    """Give a workunit back to who was missed, to be settled at once; that it was missed does not count."""
    task = unit.task
    task.retry = [other for other in task.retry if other is not unit]
    unit.due_s = unit.not_before = 0.0
    if not has_work(task):
        unlist_task(task)
    if (unit.exit or {}).get("kind") == FailureKind.LOST:
        unit.lost = max(0, unit.lost - 1)
    else:
        unit.given_back = max(0, unit.given_back - 1)
    unit.exit = None
    unit.missed = False
    unit.state = WorkunitState.CHECKOUT
    client.holds[unit.id] = unit
    client.withdrawn.pop(unit.id, None)
    user = task.job.user
    state.running[user] = state.running.get(user, 0) + 1


def _keep(state: State, ctx: Context, unit: Workunit, node_id: str) -> None:
    """Remember the node of what the attempt left; that of an earlier attempt goes."""
    if node_id != kept_node_id(unit.id, unit.attempt):
        return
    if unit.kept and unit.kept != node_id:
        state.delete_nodes(ctx, [unit.kept])
    unit.kept = node_id


def _complete(state: State, ctx: Context, client: Client, unit: Workunit, r: Report) -> None:
    """Accept a result: the workunit leaves memory with its document."""
    task = unit.task
    state.end_lease(unit, ctx.wall_s)
    unit.state = WorkunitState.COMPLETED
    unit.done_time = ctx.wall_s
    unit.computetime = r.computetime_s
    unit.notes = r.message[:MAX_NOTES_CHARS]
    unit.perf = r.perf or None
    unit.outputs = r.outputs or None
    state.touch_workunit(unit)
    del task.units[unit.rank]
    del state.workunits[unit.id]
    task.done += 1
    task.computetime += r.computetime_s
    state.touch_task(task)
    client.total_completed += 1
    client.lastcompleted = ctx.wall_s
    if client.blamed:
        client.blamed = {}
    state.touch_client(client)
    state.record("WD", jobid=task.job.id, workid=unit.id, clientid=client.id)
    if task.done == task.totalwork:
        ranks_done(state, ctx, task)


def _repeated(state: State, client: Client, r: Report, finished: Mapping[WorkunitId, Document]) -> Result:
    """The attempt is not held: fine if it was settled by this very report before, refused otherwise."""
    settled = _last_word(state, r.work, finished)
    if settled is None:
        raise refusal(state, r.work)
    if not _same_attempt(settled, client, r) or not _same_outcome(settled, r):
        raise LeaseLost(workunit_id=r.work)
    return "duplicate"


def _last_word(state: State, id: WorkunitId, finished: Mapping[WorkunitId, Document]) -> Document | None:
    """The newest document of a workunit: live, settled in this very batch, or stored."""
    unit = state.workunits.get(id) or state.changes.workunits.get(id)
    return unit_document(unit) if unit is not None else finished.get(id)


def _same_attempt(settled: Document, client: Client, r: Report) -> bool:
    if r.attempt is None and r.token is None:
        return bool(settled["client"] == client.id)
    return bool(
        (r.attempt is None or settled["attempt"] == r.attempt)
        and (r.token is None or settled["_token"] == r.token)
    )


def _same_outcome(settled: Document, r: Report) -> bool:
    state = settled["state"]
    if r.outcome == "done":
        return bool(state == WorkunitState.COMPLETED)
    if state in (WorkunitState.CHECKOUT, WorkunitState.COMPLETED) or not settled["exit"]:
        return False
    kind = FailureKind.RELEASED if r.outcome == "released" else r.kind
    return bool(settled["exit"]["kind"] == kind)
