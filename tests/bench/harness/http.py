"""HTTP/1.1 over one kept connection, as cheap as it gets: what is measured is the server.

`Line` waits in the thread; `AsyncLine` on the event loop.
"""

import asyncio
import socket
from typing import Any, Self

import orjson

BLOCK = 1 << 20
PATIENCE_S = 900.0  #: a server that answers nothing for so long has failed


class Refused(Exception):
    """The server's answer was not what the measurement is about."""


def request_bytes(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """The head and body of a request; `content_type` becomes Content-Type."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    if body and "content_type" not in headers:
        headers["content_type"] = "application/json"
    lines += [f"{name.replace('_', '-').title()}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def read_head(head: bytes) -> tuple[int, int]:
    """Status and length of the body."""
    lower = head.lower()
    at = lower.find(b"content-length:")
    if at < 0:
        raise Refused(f"a reply without a length: {head[:200]!r}")
    return int(head.split(b" ", 2)[1]), int(lower[at + 15 :].split(b"\r\n", 1)[0])


def data_of(status: int, body: bytes) -> Any:
    """The `data` of an envelope. Raises Refused."""
    if status != 200:
        raise Refused(f"{status} {body[:500]!r}")
    return orjson.loads(body)["data"]


class Line:
    """One connection of a caller that waits."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def call(self, method: str, path: str, value: Any = None, **headers: str) -> Any:
        """A JSON request; the `data` of its reply."""
        body = b"" if value is None else orjson.dumps(value)
        self._socket.sendall(request_bytes(method, path, body, **headers))
        return self._reply()

    def upload(self, method: str, path: str, block: bytes, size: int) -> Any:
        """A request whose body is the same block again and again, `size` bytes; the `data` of its reply."""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n"
        self._socket.sendall(head.encode() + b"Content-Type: application/octet-stream\r\n\r\n")
        view, left = memoryview(block), size
        while left > 0:
            self._socket.sendall(view[:left])
            left -= len(block)
        return self._reply()

    def drain(self, path: str) -> int:
        """GET and drop the body; its length."""
        self._socket.sendall(request_bytes("GET", path))
        head, left = self._head()
        status, length = read_head(head)
        if status != 200:
            raise Refused(f"{path}: {status}")
        missing, buffer = length - len(left), bytearray(BLOCK)
        while missing > 0:
            missing -= self._received(self._socket.recv_into(buffer, min(missing, BLOCK)))
        return length

    def _reply(self) -> Any:
        head, body = self._head()
        status, length = read_head(head)
        while len(body) < length:
            piece = self._socket.recv(BLOCK)
            self._received(len(piece))
            body += piece
        return data_of(status, body)

    def _head(self) -> tuple[bytes, bytes]:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = self._socket.recv(BLOCK)
            self._received(len(piece))
            data += piece
        head, _, rest = data.partition(b"\r\n\r\n")
        return head + b"\r\n", rest

    @staticmethod
    def _received(count: int) -> int:
        if not count:
            raise Refused("the server closed the connection")
        return count


class AsyncLine:
    """One connection among many on an event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=BLOCK))

    async def call(self, method: str, path: str, value: Any = None) -> Any:
        """A JSON request; the `data` of its reply."""
        body = b"" if value is None else orjson.dumps(value)
        self._writer.write(request_bytes(method, path, body))
        head = await self._reader.readuntil(b"\r\n\r\n")
        status, length = read_head(head)
        return data_of(status, await self._reader.readexactly(length))

    def close(self) -> None:
        self._writer.close()
