"""Answering with bytes: whole or a Range, under a name that a header can carry, never shown by a browser."""

from urllib.parse import quote

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from awe_server.api.connection import LARGE_BYTES, bypass_of
from awe_server.data.downloads import ByteReader, Download, open_reader, pick_range
from awe_server.data.logs import Log, Logs

#: Characters that stand for themselves in a quoted ASCII file name of a header.
_PLAIN = frozenset(map(chr, range(0x20, 0x7F))) - frozenset('"\\%')


def disposition(name: str) -> str:
    """Content-Disposition: an ASCII name for old readers, the true one for all others (RFC 6266)."""
    ascii_name = "".join(char if char in _PLAIN else "_" for char in name) or "download"
    header = f'attachment; filename="{ascii_name}"'
    if ascii_name == name:
        return header
    return f"{header}; filename*=UTF-8''{quote(name, safe='')}"


def etag(found: Download) -> str:
    """Names the content: it stays when only attributes or indexes change, so a cut download can go on."""
    return f'"{found.md5}"'


def node_response(request: Request, found: Download) -> Response:
    """The bytes of a node; of a Range, with status 206."""
    headers = {
        "Content-Disposition": disposition(found.name),
        "Accept-Ranges": "bytes",
        "ETag": etag(found),
        "Content-Length": str(found.size),
    }
    if found.partial:
        headers["Content-Range"] = f"bytes {found.offset}-{found.offset + found.size - 1}/{found.total}"
    return _stream(request, found.chunks, 206 if found.partial else 200, headers, "application/octet-stream")


def _stream(
    request: Request, chunks: ByteReader, status: int, headers: dict[str, str], media_type: str
) -> Response:
    if request.state.head:
        return Response(status_code=status, headers=headers, media_type=media_type)
    return _Bytes(chunks, status, headers, media_type)


class _Bytes(StreamingResponse):
    """Many bytes pass the event loop by, where the connection can do that."""

    def __init__(self, reader: ByteReader, status: int, headers: dict[str, str], media_type: str) -> None:
        super().__init__(reader, status, headers, media_type)
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        bypass = bypass_of(scope)
        if bypass is None or self._reader.left < LARGE_BYTES:
            await super().__call__(scope, receive, send)
            return
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await bypass.send(self._reader, send)
            if not self._reader.left:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await self._reader.aclose()


async def log_response(request: Request, logs: Logs, log: Log) -> Response:
    """The bytes of a log that may still grow. Behind its end is 416: there is nothing yet."""
    total = await logs.size(log)
    wanted = pick_range(request.headers.get("range", ""), total or 0)
    offset, size = wanted or (0, total or 0)
    headers = {"Accept-Ranges": "bytes", "Content-Length": str(size), "Cache-Control": "no-cache"}
    if wanted:
        headers["Content-Range"] = f"bytes {offset}-{offset + size - 1}/{total}"
    media_type = "text/plain; charset=utf-8"
    if not size:
        return Response(b"", headers=headers, media_type=media_type)
    chunks = await anyio.to_thread.run_sync(open_reader, logs.path(log), offset, size)
    return _stream(request, chunks, 206 if wanted else 200, headers, media_type)
