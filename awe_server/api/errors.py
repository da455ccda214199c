"""Every error of every route becomes an envelope here, and only here."""

import logging
import uuid
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from awe_server.api.bodies import Stalled
from awe_server.api.envelope import refusal, refused
from shared_models.errors import AweError, BadRequest

log = logging.getLogger(__name__)

#: Codes of what the framework refuses before a route is reached.
_CODES = {404: "not_found", 405: "method_not_allowed"}
_SHOWN_CHARS = 200
#: nginx's number for a caller that hung up; nobody reads the reply.
_CLIENT_CLOSED = 499


def install(app: FastAPI) -> None:
    """Give an application the one way to answer errors."""
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)


async def answered(request: Request, exc: Exception) -> Response:
    """What an application would answer to an error of a route. Raises a surprise again."""
    for kind in type(exc).__mro__:
        if kind in _HANDLERS:
            return await _HANDLERS[kind](request, exc)
    raise exc


async def _awe_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, AweError)
    if exc.http_status == 500:
        return incident(request.scope, exc)
    return refused(exc)


async def _invalid(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)
    return refusal(400, [_problem(error) for error in exc.errors()], "invalid_request")


def _problem(error: dict[str, Any]) -> str:
    """Say where and what: `limit: Input should be a valid integer, got 'x'`."""
    place = ".".join(str(step) for step in error["loc"] if step not in ("query", "path", "header", "body"))
    given = error.get("input")
    shown = f", got {given[:_SHOWN_CHARS]!r}" if isinstance(given, str) else ""
    return f"{place}: {error['msg']}{shown}"


async def _framework(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    path = request.scope["path"][:_SHOWN_CHARS]
    texts = {404: f"Resource {path} unknown", 405: f"{request.method} is not possible on {path}"}
    text = texts.get(exc.status_code) or str(exc.detail) or HTTPStatus(exc.status_code).phrase
    code = _CODES.get(exc.status_code, "invalid_request")
    return refusal(exc.status_code, [text], code, headers=exc.headers)


async def _stalled(request: Request, exc: Exception) -> Response:
    return refused(BadRequest(str(exc)))


async def _gone(request: Request, exc: Exception) -> Response:
    return refusal(_CLIENT_CLOSED, ["The request was cut off; nothing was changed."], "invalid_request")


def incident(scope: Scope, exc: Exception) -> Response:
    """Log a surprise once, with an id by which the person who met it can name it."""
    number = uuid.uuid4().hex[:12]
    log.error(
        "incident", exc_info=exc, extra={"incident": number, "method": scope["method"], "path": scope["path"]}
    )
    return refusal(
        500, [f"Something went wrong inside the server; incident {number}"], "internal", incident=number
    )


_HANDLERS: dict[type, Callable[[Request, Exception], Awaitable[Response]]] = {
    AweError: _awe_error,
    RequestValidationError: _invalid,
    HTTPException: _framework,
    ClientDisconnect: _gone,
    Stalled: _stalled,
}
