"""The requests that are asked for most, found without a router: work for clients, submissions, jobs.

Only their plain form: what is written in another way, or not well, is the router's, and so are its errors.
"""

import re
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from awe_server.api import exchange, job

Serve = Callable[[Request], Awaitable[Response]]

_EXCHANGE = re.compile(r"/client/(?P<client_id>[^/]+)/exchange")
_JOB = re.compile(r"/job/(?P<job_id>[^/]+)")
_WAITING = re.compile(rb"|wait_s=\d{1,6}(&revision=\d{1,15})?")


def find(scope: Scope) -> tuple[Serve, Mapping[str, str]] | None:
    """What serves a request, and the parameters of its path; None if that is for the router to say."""
    path, method = scope["path"], scope["method"]
    if method == "POST":
        if path == "/job" and not scope["query_string"]:
            return job.serve_submit, {}
        if match := _EXCHANGE.fullmatch(path):
            return exchange.serve, match.groupdict()
    elif method == "GET" and (match := _JOB.fullmatch(path)) and _WAITING.fullmatch(scope["query_string"]):
        return job.serve_job, match.groupdict()
    return None


async def serve(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that was found."""
    serve: Serve = scope["endpoint"]
    response = await serve(Request(scope, receive))
    await response(scope, receive, send)
