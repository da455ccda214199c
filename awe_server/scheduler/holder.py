"""Who holds an attempt: the one question before a report, an upload, or a secret."""

from awe_server.scheduler.state import State, Workunit
from shared_models.errors import LeaseLost, WorkunitNotFound
from shared_models.ids import WorkunitId, split_workunit_id
from shared_models.states import WorkunitState


def check_holder(
    state: State,
    workunit_id: WorkunitId,
    *,
    client_id: str | None = None,
    attempt: int | None = None,
    token: str | None = None,
) -> Workunit:
    """The leased workunit, if everything that is given names its present lease.

    Native clients name attempt and token, and nothing less will do for their attempts: client ids are no
    secret. A stock AWE worker has neither and is known by its client id.
    Raises LeaseLost, or WorkunitNotFound when there is no such workunit.
    """
    unit = state.workunits.get(workunit_id)
    if unit is not None and holds(state, unit, client_id, attempt, token):
        return unit
    raise refusal(state, workunit_id)


def holds(
    state: State, unit: Workunit, client_id: str | None, attempt: int | None, token: str | None
) -> bool:
    """Whether the workunit is leased and nothing given contradicts it; an empty claim holds nothing."""
    return unit.state is WorkunitState.CHECKOUT and _is_last_attempt(state, unit, client_id, attempt, token)


def may_report(
    state: State, unit: Workunit, client_id: str | None, attempt: int | None, token: str | None
) -> bool:
    """Whether this is the holder, or who was missed and whose work nobody has taken since."""
    is_open = unit.state is WorkunitState.CHECKOUT or (unit.state is WorkunitState.QUEUED and unit.missed)
    return is_open and _is_last_attempt(state, unit, client_id, attempt, token)


def _is_last_attempt(
    state: State, unit: Workunit, client_id: str | None, attempt: int | None, token: str | None
) -> bool:
    if token is None and (client_id is None or is_native(state, unit)):
        return False
    return (
        (client_id is None or unit.client == client_id)
        and (attempt is None or unit.attempt == attempt)
        and (token is None or unit.token == token)
    )


def is_native(state: State, unit: Workunit) -> bool:
    """Whether the workunit's holder is one of our own clients, which know their token."""
    client = state.clients.get(unit.client)
    return client is not None and client.native


def refusal(state: State, workunit_id: WorkunitId) -> LeaseLost | WorkunitNotFound:
    """Why nobody may act on it: it exists but is not held so, or it does not exist."""
    if workunit_id in state.workunits:
        return LeaseLost(workunit_id=workunit_id)
    task_id, rank = split_workunit_id(workunit_id)
    task = state.tasks.get(task_id)
    if task is not None and (
        not task.is_cut or task.end_rank - max(task.totalwork, 1) <= rank < task.end_rank
    ):
        return LeaseLost(workunit_id=workunit_id)
    return WorkunitNotFound(workunit_id=workunit_id)
