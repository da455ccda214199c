"""The application: routers, the one way to answer errors, and what happens to every request."""

from fastapi import FastAPI
from starlette.routing import Route

from awe_server.api import (
    client,
    docs,
    errors,
    events,
    exchange,
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


def build_api(services: Services) -> FastAPI:
    """Put the API together around the services of a server, which need not be ready yet."""
    app = FastAPI(title="AWE", version=root.VERSION, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.services = services
    app.state.started_s = services.engine.clock.monotonic()
    app.state.once_only = OnceOnly(services)
    app.state.followed = Followed()
    app.state.transfers = Transfers()
    names = Names(services.settings.host, services.settings.public_url)
    app.add_middleware(Front, names=names, in_doubt=lambda: services.engine.in_doubt)
    errors.install(app)
    # First, because it is asked for most, and without FastAPI's layers, because they cost as much as itself.
    app.router.routes.insert(0, Route("/client/{client_id}/exchange", exchange.serve, methods=["POST"]))
    for module in _ROUTERS:
        app.include_router(module.router)
    docs.install(app)
    return app
