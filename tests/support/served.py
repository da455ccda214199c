"""A small HTTP server in a thread of its own, which records requests and misbehaves when told to."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO, Self

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.support.faults import Cut, Fault, Faults

BLOCK = 65536
Handler = Callable[[Request], Awaitable[ASGIApp]]
Span = tuple[int, int]


@dataclass(frozen=True)
class Seen:
    """A request as it came in; the names of headers are lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol, whose connection a handler can drop."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {"drop": self.transport.close}  # type: ignore[dict-item]


class _DroppingApp:
    """Closes the connection where a handler raised `Cut`, and says nothing about it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Cut:
            scope["extensions"]["drop"]()
            while (await receive())["type"] != "http.disconnect":
                pass


class Served:
    """Base of servers in a thread; use it in a with statement.

    `url` is where it listens. `requests` is what came in, faulty or not. `faults` says what goes wrong.
    `block_delay_s` makes it slow: it waits so long after each 64 KiB of a reply.
    """

    def __init__(self) -> None:
        self.faults = Faults()
        self.requests: list[Seen] = []
        self.block_delay_s = 0.0
        self.url = ""
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def routes(self) -> list[BaseRoute]:
        """What it serves."""
        raise NotImplementedError

    def refusal(self, fault: Fault) -> Response:
        """The reply of a request that is to fail."""
        return Response(fault.text, fault.status, dict(fault.headers), "text/plain")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, port: int = 0) -> Self:
        """Listen; give the old `port` to come back after a `stop`."""
        listener = socket.create_server(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        app = _DroppingApp(Router(self.routes()))
        config = uvicorn.Config(
            app, http=_Protocol, lifespan="off", ws="none", log_config=None, access_log=False,
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Cut every connection and listen no more."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive(), "the server does not end"
        self._server = self._thread = None

    @property
    def port(self) -> int:
        """Where it listens, or listened."""
        return int(self.url.rpartition(":")[2])

    def seen(self, method: str, where: str = "") -> list[Seen]:
        """Requests of this method with this piece in their path or query."""
        return [r for r in self.requests if r.method == method and where in f"{r.path}?{r.query}"]

    def guarded(self, handler: Handler) -> Handler:
        """Record each request and let it fail if that was asked for."""

        async def guarded(request: Request) -> ASGIApp:
            method, target = request.method, _target(request)
            self.requests.append(Seen(method, request.url.path, request.url.query, dict(request.headers)))
            if fault := self.faults.take("fail", method, target):
                await _drain(request)
                return self.refusal(fault)
            if method in ("PUT", "POST"):
                await self._spoil_upload(request)
            with contextlib.suppress(ClientDisconnect):
                return await handler(request)
            raise Cut

        return guarded

    async def _spoil_upload(self, request: Request) -> None:
        method, target = request.method, _target(request)
        if self.faults.take("stall", method, target):
            await self._stall()
        if fault := self.faults.take("cut", method, target):
            got = 0
            async for piece in request.stream():
                got += len(piece)
                if got >= fault.at:
                    break
            raise Cut

    async def _stall(self) -> None:
        self.faults.stalled += 1
        try:
            while self.faults.held.is_set():
                if self._server is None or self._server.should_exit:
                    raise Cut
                await asyncio.sleep(0.01)
        finally:
            self.faults.stalled -= 1

    def file_reply(
        self, request: Request, file: BinaryIO, spans: Iterable[Span], status: int, headers: Mapping[str, str]
    ) -> ASGIApp:
        """Pieces of a file, one after the other, with the faults of this request; closes the file."""
        method, target = request.method, _target(request)
        faults = {kind: self.faults.take(kind, method, target) for kind in ("cut", "stall", "flip")}
        return _FileReply(file, self._spoilt(_blocks(file, spans), faults), status, headers)

    async def _spoilt(
        self, blocks: Iterable[bytes], faults: Mapping[str, Fault | None]
    ) -> AsyncIterator[bytes]:
        cut, stall, flip = faults["cut"], faults["stall"], faults["flip"]
        sent = 0
        for block in blocks:
            stop = sent + len(block)
            piece, start = block, sent
            if flip is not None and sent <= flip.at < stop:
                at = flip.at - sent
                piece = piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :]
            if stall is not None and sent <= stall.at < stop:
                yield piece[: stall.at - start]
                await self._stall()
                piece, start = piece[stall.at - start :], stall.at
            if cut is not None and start <= cut.at < stop:
                yield piece[: cut.at - start]
                raise Cut
            yield piece
            sent = stop
            if self.block_delay_s:
                await asyncio.sleep(self.block_delay_s)


class _FileReply:
    """A reply whose body comes from an iterator; chunked if the headers do not tell its length."""

    def __init__(
        self, file: BinaryIO, blocks: AsyncIterator[bytes], status: int, headers: Mapping[str, str]
    ) -> None:
        self._file, self._blocks, self._status = file, blocks, status
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await send({"type": "http.response.start", "status": self._status, "headers": self._headers})
            if scope["method"] != "HEAD":
                async for block in self._blocks:
                    await send({"type": "http.response.body", "body": block, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _blocks(file: BinaryIO, spans: Iterable[Span]) -> Iterator[bytes]:
    for offset, length in spans:
        file.seek(offset)
        left = length
        while left > 0 and (block := file.read(min(BLOCK, left))):
            left -= len(block)
            yield block


def _target(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}"


async def _drain(request: Request) -> None:
    """Read an upload that is refused, so that the client comes to read the answer."""
    async for _ in request.stream():
        pass
