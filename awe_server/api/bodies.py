"""Request bodies: bounded in bytes and in how long they may stall."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Self

import orjson
from starlette.requests import ClientDisconnect, Request

from awe_server.api.connection import bypass_of
from awe_server.api.params import plain_count
from awe_server.data.ports import Cut, Sink
from awe_server.data.sockets import FAST_BYTES, STEP_BYTES, UPLOADS, Socket, in_thread
from shared_models.errors import BadRequest, InvalidDocument, TooLarge
from shared_models.strict_json import read_json

#: A sender that is silent for so long in the middle of a body is given up.
STALL_S = 120.0
#: What comes little by little is taken so seldom, not for each packet.
PAUSE_S = 0.005
#: A body that is only a few keys: a client's profile, a heartbeat, attributes of a node.
MAX_SMALL_BYTES = 1024 * 1024


class SenderGone(ClientDisconnect, Cut):
    """The connection ended before the body did."""


class Stalled(Cut):
    """No byte of the body came for a while; for the caller a bad request."""


class Body:
    """A request's body as it comes, once.

    Iterating raises TooLarge as soon as more than `limit` bytes are announced or seen, Stalled, SenderGone.
    """

    def __init__(self, request: Request, limit: int | None = None) -> None:
        length = plain_count(request.headers.get("content-length", "")) or 0
        if limit is not None:
            _bounded(length, limit)
        is_chunked = "transfer-encoding" in request.headers
        self._bypass = None if is_chunked or limit is not None else bypass_of(request.scope)
        self._length = length
        self._limit = limit
        self._seen = 0
        self._receive = request.receive
        self._more = True
        self._back = b""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._back:
            chunk, self._back = self._back, b""
            return chunk
        while self._more:
            if chunk := await self._next():
                return chunk
        raise StopAsyncIteration

    async def _next(self) -> bytes:
        try:
            async with asyncio.timeout(STALL_S):  # costs a fifth of anyio's
                message = await self._receive()
        except TimeoutError as exc:
            raise _stalled() from exc
        if message["type"] == "http.disconnect":
            raise SenderGone
        chunk: bytes = message.get("body", b"")
        self._more = message.get("more_body", False)
        self._seen += len(chunk)
        if self._limit is not None:
            _bounded(self._seen, self._limit)
        return chunk

    async def first(self) -> bytes:
        """How it begins; empty only if it is. It can still be read whole."""
        self._back = await anext(self, b"")
        return self._back

    @property
    def can_pass(self) -> bool:
        """Whether `passing` would move anything now."""
        bypass = self._bypass
        return bypass is not None and not self._back and bypass.is_worth_it(self._length - self._seen)

    async def passing(self, sink: Sink) -> AsyncIterator[int]:
        """Give the rest to `sink`, in threads, past the event loop; yields how many bytes at a time.

        Raises Stalled and SenderGone, and what `sink` raises.
        """
        assert self._bypass is not None
        left = self._length - self._seen
        with self._bypass.receiving(left) as (here, line):
            if here:
                await in_thread(UPLOADS, partial(sink.write, here))
                yield len(here)
            left -= len(here)
            if line is None:
                raise SenderGone
            while left:
                wanted = min(left, STEP_BYTES)
                count, is_open = await in_thread(UPLOADS, partial(line.receive, wanted, sink))
                left -= count
                if count:
                    yield count
                if left and not is_open:
                    raise SenderGone
                if count < wanted:
                    await _more_comes(line, left)
        self._seen = self._length


async def _more_comes(line: Socket, left: int) -> None:
    try:
        async with asyncio.timeout(STALL_S):
            await line.readable()
    except TimeoutError as exc:
        raise _stalled() from exc
    if line.here < min(left, FAST_BYTES):
        await asyncio.sleep(PAUSE_S)


def _stalled() -> Stalled:
    return Stalled(f"the request body stalled for {STALL_S:.0f} s")


def stream(request: Request, limit: int | None = None) -> Body:
    """The body as it comes. Raises TooLarge if more than `limit` bytes are announced."""
    return Body(request, limit)


def _bounded(size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(f"the request body is larger than {limit} bytes")


async def whole(request: Request, limit: int) -> bytes:
    """Read the body into memory; raises as `stream` does."""
    connection = bypass_of(request.scope)
    if connection is None or not connection.has_all:
        return b"".join([chunk async for chunk in stream(request, limit)])
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise SenderGone
    body: bytes = message["body"]
    _bounded(len(body), limit)
    return body


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
