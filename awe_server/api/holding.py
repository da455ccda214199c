"""Who holds an attempt, also when its job has left memory: the question before uploads, logs and secrets."""

from awe_server.runtime.engine import Engine
from awe_server.scheduler.holder import check_holder
from awe_server.scheduler.state import State, Workunit
from shared_models.errors import Forbidden, LeaseLost, WorkunitNotFound
from shared_models.ids import ClientId, WorkunitId


async def holder(
    engine: Engine,
    work: WorkunitId,
    *,
    client_id: str | None = None,
    attempt: int | None = None,
    token: str | None = None,
) -> Workunit:
    """The leased workunit, if what is given names its present lease.

    Raises LeaseLost for one that is held otherwise or finished, WorkunitNotFound if there never was one.
    """
    try:
        return check_holder(engine.state, work, client_id=client_id, attempt=attempt, token=token)
    except WorkunitNotFound:
        if await engine.finished([work]):
            raise LeaseLost(workunit_id=work) from None
        raise


def only_for_stock_workers(state: State, client_id: ClientId) -> None:
    """Refuse what AWE's workers do with nothing but their id in the name of a client that speaks exchange.

    Raises Forbidden.
    """
    client = state.clients.get(client_id)
    if client is not None and client.native:
        raise Forbidden(
            f"client {client_id} speaks exchange: it works by POST /client/{client_id}/exchange only"
        )
