"""Who holds an attempt, also when its job has left memory: the question before uploads, logs and secrets."""

from awe_server.runtime.engine import Engine
from awe_server.scheduler.holder import check_holder
from awe_server.scheduler.state import Workunit
from shared_models.errors import LeaseLost, WorkunitNotFound
from shared_models.ids import WorkunitId


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
