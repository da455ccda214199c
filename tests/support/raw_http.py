"""HTTP/1.1 as it is on the line, for a proxy that passes it on: where messages end, their bytes unchanged."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Self

BLOCK = 65536
#: Closing with this set sends a reset, and what is not read yet is lost.
_RESET = struct.pack("ii", 1, 0)


#: A header of the reply to the second of two requests: the status of that to the first.
FIRST = "x-first-reply"


@dataclass(frozen=True)
class Head:
    """The first line and the headers of a message; names are lower case, `raw` is as it came."""

    first: str
    headers: dict[str, str]
    raw: bytes

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        first, *lines = raw[:-4].decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return cls(first, {name.strip().lower(): value.strip() for name, _, value in pairs}, raw)

    @property
    def status(self) -> int:
        """Of a reply."""
        return int(self.first.split(" ")[1])

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "")

    @property
    def length(self) -> int | None:
        """Bytes of the body, if the head tells."""
        value = self.headers.get("content-length")
        return None if value is None or self.is_chunked else int(value)


class Gone(Exception):
    """The other end closed the connection in the middle of something."""


class _Reader(asyncio.StreamReader):
    """Says at once that the other end is gone, also while nobody reads."""

    def __init__(self) -> None:
        super().__init__(limit=4 * BLOCK)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        self.gone.set()
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self.gone.set()
        super().set_exception(exc)


class End:
    """One connection, at either end."""

    def __init__(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.gone = reader.gone  #: set when the other end is

    async def head(self) -> Head:
        """The head of the next message; raises Gone if none comes any more."""
        try:
            return Head.parse(await self._reader.readuntil(b"\r\n\r\n"))
        except asyncio.IncompleteReadError as exc:
            raise Gone from exc

    async def body(self, head: Head, *, until_close: bool = False) -> AsyncIterator[bytes]:
        """The body as it is on the line, in pieces. Without a length there is none, unless it ends with the
        connection.
        """
        if head.is_chunked:
            async for piece in self._chunks():
                yield piece
        elif head.length is not None:
            async for piece in self._exactly(head.length):
                yield piece
        elif until_close:
            while piece := await self._reader.read(BLOCK):
                yield piece

    async def _chunks(self) -> AsyncIterator[bytes]:
        size = -1
        while size:
            line = await self._line()
            yield line
            size = int(line.split(b";")[0], 16)
            if size:
                async for piece in self._exactly(size + 2):
                    yield piece
        while (line := await self._line()) != b"\r\n":
            yield line
        yield line

    async def _line(self) -> bytes:
        try:
            return await self._reader.readuntil(b"\r\n")
        except asyncio.IncompleteReadError as exc:
            raise Gone from exc

    async def _exactly(self, length: int) -> AsyncIterator[bytes]:
        while length:
            piece = await self._reader.read(min(BLOCK, length))
            if not piece:
                raise Gone
            length -= len(piece)
            yield piece

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        """Close with a reset, as a machine that crashed and came back would."""
        line: socket.socket = self._writer.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()


async def connect(host: str, port: int) -> End:
    """Raises OSError if nobody listens there."""
    loop = asyncio.get_running_loop()
    reader = _Reader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.create_connection(lambda: protocol, host, port)
    return End(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def listen(line: socket.socket, serve: Callable[[End], Awaitable[None]]) -> asyncio.Server:
    """Call `serve` for each connection."""
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is accepted has it too

    def protocol() -> asyncio.StreamReaderProtocol:
        reader = _Reader()
        return asyncio.StreamReaderProtocol(reader, lambda _, writer: serve(End(reader, writer)))

    return await asyncio.get_running_loop().create_server(protocol, sock=line)
