"""`GET /health`: for people, load balancers and health checks. Answers while the server is still starting."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from awe_server.api.deps import services_at_any_time
from awe_server.api.envelope import Envelope, Refusal, ok, refusal
from awe_server.api.params import Flag, Parameters
from awe_server.api.root import VERSION
from awe_server.runtime.services import Services
from shared_models.errors import LeadInDoubt
from shared_models.views import Health

router = APIRouter(tags=["server"])


class HealthParameters(Parameters):
    """Of GET /health."""

    live: Flag = False


@router.get(
    "/health",
    summary="Whether this server works",
    response_model=Envelope[Health],
    responses={503: {"model": Refusal, "description": "not ready"}},
)
async def health(
    services: Annotated[Services, Depends(services_at_any_time)], query: Annotated[HealthParameters, Query()]
) -> Response:
    """200 when it is ready for work, 503 when not; with `?live` 200 as long as it answers at all."""
    engine = services.engine
    trouble = LeadInDoubt().message if engine.in_doubt else engine.store_trouble
    ready = engine.ready and not trouble
    found = {
        "live": True,
        "ready": ready,
        "store": engine.store_name,
        "store_trouble": trouble,
        "lease": engine.lease,
        "version": VERSION,
        "server_uuid": engine.server_uuid if engine.ready else "",
        "node_store": asdict(await services.nodes.usage()) if engine.ready else None,
    }
    if ready or query.live:
        return ok(found)
    return refusal(503, [trouble or _waits(engine.stands_by)], "unavailable", health=found)


def _waits(stands_by: str) -> str:
    return f"standing by: {stands_by}" if stands_by else "starting or stopping"
