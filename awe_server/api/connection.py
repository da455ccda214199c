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
from awe_server.data.sockets import DOWNLOADS, STEP_BYTES, Socket, in_thread
from shared_models.limits import MIB

_EXTENSION = "awe.bypass"
LARGE_BYTES = MIB  #: what is left of a body, at least, to be worth it
#: A caller that takes no byte of an answer for so long is given up.
STALL_S = 120.0
_FLUSH_S = 0.005
_NOTHING = {"type": "http.response.body", "body": b"", "more_body": True}


class Connection(OnePacket):
    """Speaks HTTP/1.1 on one connection."""

    _left = 0  #: bytes of a body of which the parser knows nothing
    sending: Socket | None = None  #: what an answer goes out on, past us
    line: asyncio.Transport  #: the transport, whatever else replies are written through

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller is there."""
        self.line = transport
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The line is closed. What it holds and what holds it part: Python looks for cycles seldom."""
        super().connection_lost(exc)
        if self.sending is not None:
            self.sending.wake()
        self.pipeline.clear()
        self.cycle = self.scope = None  # type: ignore[assignment]

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; behind an answer that is under way it would be taken for the rest of it."""
        answer = self.cycle
        if self.pipeline or (answer and answer.response_started and not answer.response_complete):
            self.line.abort()
        else:
            super().send_400_response(msg)

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
            if line.close():
                connection.go_on(left - len(here) - line.received)
            else:  # a thread still takes bytes from there: nobody knows what comes next
                connection.line.abort()

    async def send(self, reader: ByteReader, send: Send) -> None:
        """Send the body of an answer that has begun. `send` is told of each step, so that it can object.

        It ends early when the caller is gone, or takes nothing for STALL_S.
        """
        transport = self._connection.line
        await send(_NOTHING)  # whatever holds the head back lets go of it
        try:
            await _written(transport)
            if not transport.is_closing():
                await self._send(reader, send)
        except (ConnectionError, TimeoutError):  # also for what waited before it
            self.cycle.disconnected = True
            transport.abort()

    async def _send(self, reader: ByteReader, send: Send) -> None:
        transport, cycle = self._connection.line, self.cycle
        line = self._connection.sending = Socket(transport.get_extra_info("socket").fileno())
        try:
            while reader.left and not transport.is_closing():
                wanted = min(reader.left, STEP_BYTES)
                sent = await in_thread(DOWNLOADS, partial(reader.send_to, line))
                cycle.expected_content_length -= sent
                await send(_NOTHING)
                if sent < wanted and not transport.is_closing():
                    await _taken(line)
        except (ConnectionError, TimeoutError):
            transport.abort()
            raise
        finally:
            self._connection.sending = None
            if transport.is_closing() and reader.left:
                line.abort()
            else:
                line.close()


async def _written(transport: asyncio.Transport) -> None:
    """Return when nothing waits to be sent. Raises TimeoutError if nothing of it is taken for STALL_S."""
    clock = asyncio.get_running_loop().time
    pause_s, least, since_s = 0.0, -1, 0.0
    while (waits := transport.get_write_buffer_size()) and not transport.is_closing():
        if waits != least:
            least, since_s = waits, clock()
        elif clock() - since_s > STALL_S:
            raise TimeoutError
        await asyncio.sleep(pause_s)
        pause_s = _FLUSH_S


async def _taken(line: Socket) -> None:
    """Return when the line takes more, or is lost. Raises TimeoutError if nothing is taken for STALL_S."""
    while True:
        before = line.under_way
        try:
            async with asyncio.timeout(STALL_S):
                await line.writable()
            return
        except TimeoutError:  # slow callers have taken something, but left too little room
            if line.under_way == before:
                raise


def bypass_of(scope: Scope) -> Bypass | None:
    """The way beside the loop for this request, if its connection has one."""
    bypass: Bypass | None = scope.get("extensions", {}).get(_EXTENSION)
    return bypass
