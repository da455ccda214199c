"""Request bodies: bounded in bytes and in how long they may stall."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from awe_server.api.params import plain_count
from awe_server.data.ports import Cut
from shared_models.errors import BadRequest, InvalidDocument, TooLarge
from shared_models.strict_json import read_json

#: A sender that is silent for so long in the middle of a body is given up.
STALL_S = 120.0
#: A body that is only a few keys: a client's profile, a heartbeat, attributes of a node.
MAX_SMALL_BYTES = 1024 * 1024


class SenderGone(ClientDisconnect, Cut):
    """The connection ended before the body did."""


class Stalled(Cut):
    """No byte of the body came for a while; for the caller a bad request."""


async def stream(request: Request, limit: int | None = None) -> AsyncIterator[bytes]:
    """Yield the body as it comes.

    Raises TooLarge as soon as more than `limit` bytes are announced or seen, Stalled, and SenderGone.
    """
    if limit is not None:
        _bounded(plain_count(request.headers.get("content-length", "")) or 0, limit)
    seen, more = 0, True
    while more:
        try:
            async with asyncio.timeout(STALL_S):  # costs a fifth of anyio's
                message = await request.receive()
        except TimeoutError as exc:
            raise Stalled(f"the request body stalled for {STALL_S:.0f} s") from exc
        if message["type"] == "http.disconnect":
            raise SenderGone
        chunk, more = message.get("body", b""), message.get("more_body", False)
        seen += len(chunk)
        if limit is not None:
            _bounded(seen, limit)
        if chunk:
            yield chunk


def _bounded(size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(f"the request body is larger than {limit} bytes")


async def whole(request: Request, limit: int) -> bytes:
    """Read the body into memory; raises as `stream` does."""
    return b"".join([chunk async for chunk in stream(request, limit)])


def parse_json(raw: bytes, what: str) -> Any:
    """Read JSON strictly; raises BadRequest naming what was expected and where the text goes wrong."""
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise BadRequest(f"{what} is not JSON: {exc}") from exc
    try:
        return read_json(raw)
    except InvalidDocument as exc:
        raise BadRequest(f"{what}: {exc.message}") from exc


def media_type(request: Request) -> str:
    """The content type without its parameters, in small letters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
