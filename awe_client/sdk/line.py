"""Kept connections to one server for small requests that follow each other fast, such as exchanges.

A small request costs 0.5 ms of CPU in httpx and its layers, and a tenth of that here. What those layers are
for is left to them (`line_to` gives None): TLS, proxies, names and passwords in an address. Replies and
errors are httpx's own, so nobody else has to know how a request went.
"""

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from typing import cast
from urllib.request import getproxies

import httptools
import httpx

#: A connection that was idle for so long is not used again: what is between us may have forgotten it.
IDLE_S = 15.0

#: Status, headers, body.
_Reply = tuple[int, list[tuple[bytes, bytes]], bytes]


def line_to(base_url: str) -> "Line | None":
    """A line to the server at this address; None if httpx is needed for it."""
    url = httpx.URL(base_url)
    proxies = getproxies()
    if url.scheme != "http" or url.userinfo or proxies.get("http") or proxies.get("all"):
        return None
    return Line(url)


class Line:
    """As many connections as there are requests at a time; the one that was used last is used next."""

    def __init__(self, url: httpx.URL) -> None:
        self._host, self._port = url.raw_host.decode("ascii"), url.port or 80
        self._netloc = url.netloc.decode("ascii")
        self._idle: list[_Connection] = []

    async def post(
        self,
        url: str,
        content: bytes,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        connect_timeout_s: float,
    ) -> httpx.Response:
        """Send one request and read its reply. Raises httpx.TransportError.

        `timeout_s` bounds each wait for bytes, not the whole reply.
        """
        request = _request(url)
        data = self._words(request, headers, content)
        connection = self._take() or await self._connect(connect_timeout_s)
        try:
            status, raw_headers, body = await connection.ask(data, timeout_s)
        except BaseException:
            connection.close()
            raise
        if connection.is_usable:
            self._idle.append(connection)
        return httpx.Response(status, headers=raw_headers, content=body, request=request)

    def close(self) -> None:
        """Close the connections that are idle; the others go with their requests."""
        while self._idle:
            self._idle.pop().close()

    def _words(self, request: httpx.Request, headers: Mapping[str, str], content: bytes) -> bytes:
        lines = [f"POST {request.url.raw_path.decode('ascii')} HTTP/1.1", f"Host: {self._netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(content)}")
        head = "\r\n".join(lines)
        if head.count("\n") != len(lines) - 1:
            raise httpx.LocalProtocolError("a header holds a line break")
        try:
            return head.encode("ascii") + b"\r\n\r\n" + content
        except UnicodeEncodeError as exc:
            raise httpx.LocalProtocolError("a header holds what is not ASCII") from exc

    def _take(self) -> "_Connection | None":
        horizon = asyncio.get_running_loop().time() - IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and connection.idle_since >= horizon:
                return connection
            connection.close()
        return None

    async def _connect(self, within_s: float) -> "_Connection":
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within_s):
                _, connection = await loop.create_connection(_Connection, self._host, self._port)
        except TimeoutError as exc:
            raise httpx.ConnectTimeout(f"no connection within {within_s:g} s") from exc
        except (OSError, ValueError) as exc:  # the latter: a name that cannot be asked for
            raise httpx.ConnectError(str(exc)) from exc
        return connection


@lru_cache(maxsize=8)
def _request(url: str) -> httpx.Request:
    """What replies say they answer; only its address is looked at."""
    return httpx.Request("POST", url)


class _Connection(asyncio.Protocol):
    """One request at a time, and its reply."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._reply: asyncio.Future[_Reply] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._has_head = False
        self._is_kept = False  #: by the server, after this reply
        self._heard_at = 0.0
        self.is_usable = False  #: for a request
        self.idle_since = 0.0

    async def ask(self, data: bytes, timeout_s: float) -> _Reply:
        """Send a request and wait for its reply. Raises httpx.TransportError."""
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[_Reply] = loop.create_future()
        self._reply = reply
        self._begin()
        self.is_usable = False
        self._heard_at = loop.time()
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            until = self._heard_at + timeout_s
            if until > loop.time():
                timer = loop.call_at(until, look)
            else:
                self._fail(httpx.ReadTimeout(f"nothing was heard for {timeout_s:g} s"))

        timer = loop.call_later(timeout_s, look)
        try:
            self._transport.write(data)
            return await reply
        finally:
            timer.cancel()
            self._reply = None
            self.idle_since = loop.time()

    def close(self) -> None:
        self.is_usable = False
        if self._transport is not None:
            self._transport.close()

    def _begin(self) -> None:
        self._headers, self._body, self._has_head = [], [], False

    def _fail(self, error: httpx.TransportError, cause: BaseException | None = None) -> None:
        error.__cause__ = cause
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)
        self.close()

    def _finish(self) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result((self._parser.get_status_code(), self._headers, b"".join(self._body)))

    # --- what the event loop tells ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        self.is_usable = True

    def data_received(self, data: bytes) -> None:
        if self._reply is None:
            self.close()  # nobody asked
            return
        self._heard_at = asyncio.get_running_loop().time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self._fail(httpx.RemoteProtocolError(f"that is no HTTP: {exc}"), exc)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._fail(httpx.ReadError(str(exc)), exc)
        else:
            if self._has_head and not self._has_length():
                self._finish()  # the end of such a reply is said so
            self._fail(
                httpx.RemoteProtocolError("the server closed the connection before its reply was over")
            )
        del self._parser  # which holds us

    def _has_length(self) -> bool:
        names = {name.lower() for name, _ in self._headers}
        return not names.isdisjoint((b"content-length", b"transfer-encoding"))

    # --- what the parser tells -------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._has_head = True
        self._is_kept = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            self._begin()  # one that announces another
        elif self._reply is not None and not self._reply.done():
            self.is_usable = self._is_kept
            self._finish()
        else:
            self.is_usable = False  # a second reply
