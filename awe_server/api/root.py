"""`GET /`: what this server is. The one reply without an envelope, as in AWE."""

from importlib.metadata import version
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from awe_server.api.deps import BaseUrl, Served
from awe_server.api.envelope import JSON
from awe_server.api.params import NoParameters
from shared_models.times import rfc3339

router = APIRouter(tags=["server"])

VERSION = version("awe")
RESOURCES = ["job", "work", "client", "queue", "node", "events", "health"]
#: The fields of `info` that `GET /job?distinct=` knows.
INFO_INDEXES = [
    "name",
    "submittime",
    "completedtime",
    "pipeline",
    "clientgroups",
    "project",
    "service",
    "user",
    "priority",
    "userattr.submission",
]


@router.get("/", summary="What this server is", response_model=dict[str, Any])
async def describe(
    request: Request, services: Served, base_url: BaseUrl, _: Annotated[NoParameters, Query()]
) -> Response:
    """Name, version, resources and queue status; `uuid` stays the same when the server restarts."""
    clock = services.engine.clock
    state = services.engine.state
    about = {
        "id": "AWE",
        "type": "server",
        "title": "AWE Server",
        "version": VERSION,
        "git_commit_hash": "",
        "uuid": services.engine.server_uuid,
        "url": f"{base_url}/",
        "documentation": f"{base_url}/docs",
        "contact": "",
        "resources": RESOURCES,
        "info_indexes": INFO_INDEXES,
        "auth": [],
        "anonymous_permissions": {"read": True, "write": True, "delete": True},
        "queue_status": "suspended" if state.queue_suspended else "running",
        "server_time": rfc3339(clock.wall()),
        "uptime": _duration(clock.monotonic() - request.app.state.started_s),
    }
    return Response(orjson.dumps(about), media_type=JSON)


def _duration(span_s: float) -> str:
    minutes, seconds = divmod(span_s, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}h{minutes}m{seconds:.2f}s"
