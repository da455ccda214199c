"""Ask other hosts over HTTP within bounds: no reply is read further than it is looked at."""

from collections.abc import Callable, Mapping

import httpx

from awe_server.data.sources.facts import SourceRefused
from shared_models.limits import MIB
from shared_models.locations import is_web_url

MAX_REDIRECTS = 5
MAX_REPLY_BYTES = MIB  #: of a reply that is read, such as a foreign node's document

#: Packed, a short reply could become a long one.
PLAIN = {"Accept-Encoding": "identity"}

#: Told each address before it is asked, those of redirects too; what it raises keeps that from being done.
Visit = Callable[[str], None]


async def send(
    http: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    limit: int = 0,
    patience: httpx.Timeout | None = None,
    visit: Visit = lambda url: None,
) -> tuple[httpx.Response, bytes]:
    """The reply and up to `limit` bytes of its body. Follows redirects without reading theirs.

    `patience`: instead of the client's own.
    Raises httpx.HTTPError, httpx.InvalidURL; SourceRefused for a redirect to what nobody can ask; ValueError
    for a longer or a packed body.
    """
    request = http.build_request(
        method, url, headers={**PLAIN, **(headers or {})}, timeout=patience or httpx.USE_CLIENT_DEFAULT
    )
    for _ in range(1 + MAX_REDIRECTS):
        visit(str(request.url))
        try:
            reply = await http.send(request, stream=True, follow_redirects=False)
        except httpx.RemoteProtocolError as exc:
            if leads_nowhere(exc):
                raise SourceRefused(reason=f"it leads to no address ({text_of(exc)})") from exc
            raise
        try:
            if reply.next_request is None:
                return reply, await _bounded(reply, limit)
            request = reply.next_request
            if not is_web_url(str(request.url)):
                raise SourceRefused(reason=f"it leads to a '{request.url.scheme[:50]}:' address")
        finally:
            await reply.aclose()
    raise ValueError("too many redirects")


async def _bounded(reply: httpx.Response, limit: int) -> bytes:
    body = bytearray()
    if not limit:
        return b""
    if reply.headers.get("content-encoding", "identity") != "identity":
        raise ValueError("its reply is packed, which was not asked for")
    async for chunk in reply.aiter_bytes():
        body += chunk
        if len(body) > limit:
            raise ValueError(f"its reply is longer than {limit} bytes")
    return bytes(body)


def leads_nowhere(exc: httpx.TransportError) -> bool:
    """Whether it was a redirect to what nobody can ask, and no trouble with whoever was asked."""
    return isinstance(exc, httpx.UnsupportedProtocol) or isinstance(exc.__context__, httpx.InvalidURL)


def text_of(exc: Exception) -> str:
    """What an error says, in bounds."""
    return str(exc)[:200] or type(exc).__name__
