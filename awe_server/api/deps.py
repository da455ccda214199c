"""What every route needs: the services, who is asking, and where links point to."""

from collections.abc import Callable
from typing import Annotated, TypeVar

import anyio.to_thread
from fastapi import Depends
from starlette.requests import Request

from awe_server.auth.caller import Caller, who
from awe_server.runtime.collector import undisturbed
from awe_server.runtime.services import Services
from shared_models.errors import Starting, Unavailable

T = TypeVar("T")

#: Tasks and files that are turned into a reply at once; more are worked on in a thread: others are served.
INLINE = 500


async def beside(count: int, work: Callable[[], T]) -> T:
    """Do pure work on `count` things without holding up the event loop."""
    return work() if count <= INLINE else await anyio.to_thread.run_sync(undisturbed, work)


def services_at_any_time(request: Request) -> Services:
    """The services, also while the server is still starting."""
    services: Services = request.app.state.services
    return services


async def services_when_ready(request: Request) -> Services:
    """The services. Raises Starting while the server stands by, Unavailable until recovery is over, and again
    while the server stops.
    """
    services = services_at_any_time(request)
    if services.engine.stands_by:
        raise Starting(f"standing by: ask the other server. {services.engine.stands_by}")
    if not services.engine.ready:
        raise Unavailable("The server is starting or stopping; try again.")
    return services


Served = Annotated[Services, Depends(services_when_ready)]
Asking = Annotated[Caller, Depends(who)]


async def base_url(request: Request) -> str:
    """How the asker reaches this server, without a slash at the end: as configured, or as it was asked."""
    services: Services = request.app.state.services
    if services.settings.public_url:
        return services.settings.public_url.rstrip("/")
    return f"{request.scope['scheme']}://{request.headers.get('host') or request.url.netloc}"


BaseUrl = Annotated[str, Depends(base_url)]
