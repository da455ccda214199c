"""`GET /events`: what happened lately, as a list or as a stream of server-sent events."""

from collections.abc import AsyncIterator
from typing import Annotated

import anyio
import orjson
from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from awe_server.api.deps import Served
from awe_server.api.envelope import Envelope, ok
from awe_server.api.params import Parameters, plain_count
from awe_server.runtime.services import Services
from shared_models.limits import MAX_PAGE, MAX_WAIT_S
from shared_models.views import EventView

router = APIRouter(tags=["events"])


class EventParameters(Parameters):
    """Of GET /events."""

    since: int = Query(0, ge=0, description="number of the last event that is known already")
    job: str = Query("", description="only of this job")
    wait_s: float = Query(0.0, ge=0, description="with nothing new, wait so long for something")


@router.get("/events", summary="What happened", response_model=Envelope[list[EventView]])
async def events(
    request: Request,
    services: Served,
    query: Annotated[EventParameters, Query()],
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Events newer than `since`, oldest first, at most a thousand.

    With `Accept: text/event-stream` they come as they happen; `Last-Event-ID` goes on after a cut.
    Codes are AWE's: JQ job submitted, JD done, JP suspended, JL deleted, TQ TD task queued and done, WC WD WF
    WR WP workunit checked out, done, failed, requeued, suspended, CR CU client registered and gone.
    """
    if "text/event-stream" in request.headers.get("accept", ""):
        known = plain_count(last_event_id)
        since = query.since if known is None else known
        return StreamingResponse(
            _stream(services, since, query.job),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-cache"},
        )
    log = services.engine.events
    found = log.since(query.since, job_id=query.job, limit=MAX_PAGE)
    if not found and query.wait_s > 0:
        found = await _next(services, query)
    return ok(found)


async def _next(services: Services, query: EventParameters) -> list[dict[str, object]]:
    """Wait for the next event that fits."""
    log = services.engine.events
    seen = query.since
    with anyio.move_on_after(min(query.wait_s, MAX_WAIT_S)):
        while await log.wait(seen, MAX_WAIT_S):
            if found := log.since(query.since, job_id=query.job, limit=MAX_PAGE):
                return found
            seen = log.last
    return []


async def _stream(services: Services, since: int, job_id: str) -> AsyncIterator[bytes]:
    async for event in services.engine.events.follow(since, job_id=job_id):
        if event is None:
            yield b":\n\n"
        else:
            yield b"id: %d\nevent: %s\ndata: %s\n\n" % (
                event["seq"],
                str(event["code"]).encode(),
                orjson.dumps(event),
            )
