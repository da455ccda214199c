"""One HTTP connection: uvicorn's, that lets large bodies pass the event loop by.

The head of a request and of its answer are read and written as ever. What is between them and large enough
goes straight between the socket and a file (data/sockets.py): the loop would copy each byte three times.
Without this connection (an application under test) everything goes over the loop.
"""

import asyncio
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import httptools
from starlette.types import Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from awe_server.api.one_packet import OnePacket
from awe_server.data.downloads import ByteReader
from awe_server.data.sockets import Socket, in_thread
from shared_models.limits import MIB

_EXTENSION = "awe.bypass"
LARGE_BYTES = MIB  #: what is left of a body, at least, to be worth it
_FLUSH_S = 0.005


class Connection(OnePacket):
    """Speaks HTTP/1.1 on one connection."""

    _left = 0  #: bytes of a body of which the parser knows nothing
    line: asyncio.Transport  #: the transport, whatever else replies are written through

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller is there."""
        self.line = transport
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The line is closed. What it holds and what holds it part: Python looks for cycles seldom."""
        super().connection_lost(exc)
        self.pipeline.clear()
        self.cycle = self.scope = None  # type: ignore[assignment]

    def on_headers_complete(self) -> None:
        """A request begins."""
        bypass = Bypass(self)
        self.scope["extensions"] = {_EXTENSION: bypass}  # type: ignore[dict-item]
        super().on_headers_complete()
        bypass.serves(self.cycle)

    def data_received(self, data: bytes) -> None:
        """Bytes of the line."""
        if not self._left:
            super().data_received(data)
            return
        body, rest = data[: self._left], data[self._left :]
        self._left -= len(body)
        self.on_body(body)
        if not self._left:
            self.on_message_complete()
            if rest:
                super().data_received(rest)

    def go_on(self, left: int) -> None:
        """A body that went another way goes on here with its last `left` bytes, or is over."""
        if self.parser is None:
            return  # the connection is lost
        self.parser = httptools.HttpRequestParser(self)  # the old one waits for what it has not seen
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._left = left
        if not left:
            self.on_message_complete()


class Bypass:
    """The way beside the loop for the body of one request, or of its answer."""

    __slots__ = ("_connection", "_cycle")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cycle: weakref.ref[RequestResponseCycle]  # it has us in its scope

    def serves(self, cycle: RequestResponseCycle) -> None:
        """Learn whose way this is."""
        self._cycle = weakref.ref(cycle)

    @property
    def cycle(self) -> RequestResponseCycle:
        """The request, while it is served."""
        cycle = self._cycle()
        assert cycle is not None
        return cycle

    @property
    def has_all(self) -> bool:
        """Whether a request's body is there to its end."""
        return not self.cycle.more_body

    def is_worth_it(self, left: int) -> bool:
        """Whether of a request's body, of which `left` bytes were not taken, enough is still on the line."""
        return left - len(self.cycle.body) >= LARGE_BYTES and not self.cycle.disconnected

    @contextmanager
    def receiving(self, left: int) -> Iterator[tuple[bytes, Socket | None]]:
        """What came of the `left` bytes of a request's body, and the socket that the rest comes from; None
        if the connection is lost.

        What was not taken from there by then comes the usual way.
        """
        connection, cycle = self._connection, self.cycle
        connection.flow.pause_reading()
        here, cycle.body = bytes(cycle.body), bytearray()
        if connection.line.is_closing():  # its descriptor may be another's by now
            yield here, None
            return
        line = Socket(connection.line.get_extra_info("socket").fileno())
        try:
            yield here, line
        finally:
            line.close()
            connection.go_on(left - len(here) - line.received)

    async def send(self, reader: ByteReader, send: Send) -> None:
        """Send the body of an answer that has begun. `send` is told of each step, so that it can object."""
        transport, cycle = self._connection.line, self.cycle
        nothing = {"type": "http.response.body", "body": b"", "more_body": True}
        await send(nothing)  # whatever holds the head back lets go of it
        await _written(transport)
        if transport.is_closing():
            return
        line = Socket(transport.get_extra_info("socket").fileno())
        try:
            while reader.left and not transport.is_closing():
                sent = await in_thread(partial(reader.send_to, line))
                cycle.expected_content_length -= sent
                await send(nothing)
                if not sent:
                    await line.writable()
        except (ConnectionError, TimeoutError):  # the caller is gone
            cycle.disconnected = True
            transport.abort()
        finally:
            line.close()


async def _written(transport: asyncio.Transport) -> None:
    """Return when nothing waits to be sent."""
    pause_s = 0.0
    while transport.get_write_buffer_size():
        await asyncio.sleep(pause_s)
        pause_s = _FLUSH_S


def bypass_of(scope: Scope) -> Bypass | None:
    """The way beside the loop for this request, if its connection has one."""
    bypass: Bypass | None = scope.get("extensions", {}).get(_EXTENSION)
    return bypass
