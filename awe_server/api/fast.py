"""The requests that are asked for most, found without a router: work for clients, submissions, jobs.

Only their plain form: what is written in another way, or not well, is the router's, and so are its errors.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from awe_server.api import exchange, job
from awe_server.api.errors import answered

Serve = Callable[[Request], Awaitable[Response]]

_EXCHANGE = re.compile(r"/client/(?P<client_id>[^/]+)/exchange")
_JOB = re.compile(r"/job/(?P<job_id>[^/]+)")
_WAITING = re.compile(rb"(?:wait_s=(?P<wait_s>\d{1,6})(?:&revision=(?P<revision>\d{1,15}))?)?")


def find(scope: Scope) -> tuple[Serve, Mapping[str, Any]] | None:
    """What serves a request, and its parameters; None if that is for the router to say."""
    path, method = scope["path"], scope["method"]
    if method == "POST":
        if path == "/job" and not scope["query_string"]:
            return job.serve_submit, {}
        if match := _EXCHANGE.fullmatch(path):
            return exchange.serve, match.groupdict()
    elif (
        method == "GET"
        and (match := _JOB.fullmatch(path))
        and (query := _WAITING.fullmatch(scope["query_string"]))
    ):
        numbers = {name: text and int(text) for name, text in query.groupdict().items()}
        return job.serve_job, {**match.groupdict(), **numbers}
    return None


async def serve(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that was found."""
    serve: Serve = scope["endpoint"]
    request = Request(scope, receive)
    try:
        response = await serve(request)
    except Exception as exc:  # noqa: BLE001 - raised again if nobody expects it
        response = await answered(request, exc)
    await response(scope, receive, send)
