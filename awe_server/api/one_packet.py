"""The head of a reply leaves with the beginning of its body: one packet, and its reader wakes once.

Uvicorn writes them one after the other, and uvloop sends each at once. Here a head is held back until what
follows is written, but no longer than the event loop takes for one turn: a stream's head does not wait for
its first event.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = b"HTTP/1."
#: More is not copied to go along with a head.
_LITTLE_BYTES = 64 * 1024


class _Joining:
    """A transport that holds heads back; all else is the transport's own."""

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes, in order."""
        head = self._head
        if head:
            self._head = b""
            if len(data) <= _LITTLE_BYTES:
                self._transport.write(head + data)
                return
            self._transport.write(head)
        elif data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        """Close once all is sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class OnePacket(HttpToolsProtocol):
    """Uvicorn's protocol on such a transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to serve a connection."""
        super().connection_made(cast(asyncio.Transport, _Joining(transport, self.loop)))
