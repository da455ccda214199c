"""How big are files on other hosts? Asked within bounds: a host that is silent, slow or hostile costs little.

An unknown size stops nobody, so every doubt ends in one. A look at a file has one deadline in all, whatever
trickles in meanwhile; a host that did not answer is not asked again for a while.
"""

import asyncio
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import orjson

from awe_server.store.base import Document
from shared_models.fields import MAX_INT
from shared_models.limits import MIB

LOOK_S = 10.0  #: for one file, redirects included
DOWN_S = 30.0  #: how long a host that did not answer is left alone
MAX_AT_ONCE = 16  #: questions to one host at the same moment
MAX_NODE_BYTES = MIB  #: of a foreign node's document; what is longer is not read
MAX_REDIRECTS = 5

#: Packed, a short reply could become a long one.
_HEADERS = {"Accept-Encoding": "identity"}


class Unknown(Exception):
    """The size could not be found out; the text says why."""


def host_of(io: Document) -> str:
    """The host that a file has to be fetched from, "" if it is ours; without user and password."""
    if not io["url"]:
        return ""
    try:
        parts = urlsplit(io["url"])
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    except ValueError:
        return "?"


class ForeignFiles:
    """Asks other hosts."""

    def __init__(self, http: httpx.AsyncClient, monotonic: Callable[[], float]) -> None:
        self._http = http
        self._monotonic = monotonic
        self._down: dict[str, tuple[float, str]] = {}  #: hosts that did not answer: until when, and why
        self._gates: dict[str, tuple[asyncio.Semaphore, int]] = {}  #: and how many hold or wait for each

    async def size(self, io: Document) -> int:
        """The file's size in bytes. Raises Unknown."""
        host = host_of(io)
        self._check_up(host)
        gate, users = self._gates.get(host) or (asyncio.Semaphore(MAX_AT_ONCE), 0)
        self._gates[host] = (gate, users + 1)
        try:
            async with gate:
                self._check_up(host)
                return await self._ask(io, host)
        finally:
            gate, users = self._gates.pop(host)
            if users > 1:
                self._gates[host] = (gate, users - 1)

    def _check_up(self, host: str) -> None:
        until_s, reason = self._down.get(host, (0.0, ""))
        if self._monotonic() < until_s:
            raise Unknown(reason)
        self._down.pop(host, None)

    async def _ask(self, io: Document, host: str) -> int:
        try:
            async with asyncio.timeout(LOOK_S):
                if io["node"]:
                    return await self._node_size(f"{io['host']}/node/{io['node']}")
                reply, _ = await self._send("HEAD", io["url"], 0)
                return _size(reply.headers["content-length"])
        except (TimeoutError, httpx.TimeoutException):
            raise self._is_down(host, f"no answer from {host} in {LOOK_S:g} s") from None
        except httpx.TransportError as exc:
            raise self._is_down(host, f"{host} cannot be reached: {_text(exc)}") from exc
        except httpx.HTTPStatusError as exc:
            raise Unknown(f"{host} answers {exc.response.status_code}") from exc
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as exc:
            raise Unknown(f"{host} does not tell it ({_text(exc)})") from exc

    def _is_down(self, host: str, reason: str) -> Unknown:
        self._down[host] = (self._monotonic() + DOWN_S, reason)
        return Unknown(reason)

    async def _node_size(self, url: str) -> int:
        _, body = await self._send("GET", url, MAX_NODE_BYTES)
        return _size(orjson.loads(body)["data"]["file"]["size"])

    async def _send(self, method: str, url: str, limit: int) -> tuple[httpx.Response, bytes]:
        """The reply and its body. Follows redirects without reading theirs."""
        request = self._http.build_request(method, url, headers=_HEADERS)
        for _ in range(1 + MAX_REDIRECTS):
            reply = await self._http.send(request, stream=True, follow_redirects=False)
            try:
                if reply.next_request is None:
                    reply.raise_for_status()
                    return reply, await _bounded(reply, limit)
                request = reply.next_request
            finally:
                await reply.aclose()
        raise ValueError("too many redirects")


def _size(told: str | int) -> int:
    size = int(told)
    if not 0 <= size <= MAX_INT:
        raise ValueError(f"{str(told)[:40]} is no size")
    return size


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


def _text(exc: Exception) -> str:
    return str(exc)[:200] or type(exc).__name__
