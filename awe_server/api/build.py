"""The application: routers, the one way to answer errors, and what happens to every request.

What is asked for most is served without FastAPI's layers, which cost more than itself: through a `Front`
of its own, with the same errors (fast.py). The router has these routes as well, for the document, and for
whatever is written in another way.
"""

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from awe_server.api import (
    client,
    docs,
    errors,
    events,
    exchange,
    fast,
    health,
    job,
    metrics,
    node,
    queue,
    root,
    work,
)
from awe_server.api.exchange import Followed
from awe_server.api.front import Front
from awe_server.api.job_submit import OnceOnly
from awe_server.api.names import Names
from awe_server.api.transfers import Transfers
from awe_server.runtime.services import Services

_ROUTERS = (root, health, job, work, client, queue, node, events, metrics)


class _Api(FastAPI):
    """The application, with a way past its layers for some requests."""

    fast: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and (found := fast.find(scope)):
            serve, scope["path_params"] = found
            scope["app"] = self
            scope["endpoint"] = serve
            await self.fast(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def build_api(services: Services) -> FastAPI:
    """Put the API together around the services of a server, which need not be ready yet."""
    app = _Api(title="AWE", version=root.VERSION, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.services = services
    app.state.started_s = services.engine.clock.monotonic()
    app.state.once_only = OnceOnly(services)
    app.state.followed = Followed()
    app.state.transfers = Transfers()
    names = Names(services.settings.host, services.settings.public_url)

    def in_doubt() -> bool:
        return services.engine.in_doubt

    app.add_middleware(Front, names=names, in_doubt=in_doubt)
    errors.install(app)
    app.router.routes.insert(0, Route("/client/{client_id}/exchange", exchange.serve, methods=["POST"]))
    app.fast = Front(fast.serve, names, in_doubt)
    for module in _ROUTERS:
        app.include_router(module.router)
    docs.install(app)
    return app
