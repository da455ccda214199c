"""One conversation with one server: requests out, the envelope's `data` in, failures as AweErrors.

What is repeated after a failure, and what is not:

* never sent (connection refused, no free connection): always, whatever the call;
* maybe sent (connection cut, time-out) or answered "try again" (503, 507): only calls that mean the same when
  they arrive twice (`repeatable`). A POST /job is one of them because it carries an Idempotency-Key.
"""

import os
import time
from collections.abc import AsyncIterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypedDict, Unpack
from urllib.parse import quote

import anyio
import httpx
import orjson

from awe_client.sdk.address import server_address, shown, without_credentials
from awe_client.sdk.backoff import jittered_delay_s
from awe_client.sdk.line import Line
from awe_client.sdk.replies import Page, View, views
from shared_models.errors import (
    AweError,
    BadRange,
    BadRequest,
    Conflict,
    Forbidden,
    InvalidDocument,
    NotAnAweServer,
    NotFound,
    ServerUnreachable,
    TooLarge,
    Unauthenticated,
    Unavailable,
    error_from_code,
)

Params = Mapping[str, str | int | float | bool | list[str] | None]
Body = bytes | AsyncIterable[bytes]

_BY_STATUS: dict[int, type[AweError]] = {
    400: BadRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    413: TooLarge,
    416: BadRange,
    425: Unavailable,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}
#: httpx raises these before a byte of the request has left.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


#: What a server answers to routes that it does not have.
_NO_SUCH_ROUTE = (404, 405, 501)


@dataclass(slots=True, frozen=True)
class RetryPolicy:
    """How often and how fast a failed call is repeated."""

    attempts: int = 5
    base_s: float = 0.2
    cap_s: float = 5.0


class Options(TypedDict, total=False):
    """What a request may have besides method and path."""

    params: Params | None
    content: Body | None
    headers: Mapping[str, str] | None
    repeatable: bool | None  #: None = as the method says
    timeout_s: float | None  #: None = as the transport says


class Transport:
    """Sends requests, unwraps envelopes, raises AweErrors, repeats what may be repeated."""

    def __init__(
        self,
        base_url: str,
        *,
        http: httpx.AsyncClient | None = None,
        line: Line | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        connect_timeout_s: float = 10.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        """`line`, if given, takes what is posted as bytes."""
        self.base_url = server_address(base_url)
        self.shown_url = without_credentials(self.base_url)
        self.timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._retry = retry or RetryPolicy()
        self._line = line
        self._headers = {"User-Agent": "awe-client", **(headers or {})}
        # Reading the certificates costs 0.07 s; without TLS there is nothing to verify with them.
        self._http = http or httpx.AsyncClient(
            verify=base_url.startswith("https:"), limits=httpx.Limits(max_connections=64)
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._line is not None:
            self._line.close()
        await self._http.aclose()

    async def call(self, method: str, path: str, **options: Unpack[Options]) -> Any:
        """Send one request and return the envelope's `data`."""
        return (await self.envelope(method, path, **options))["data"]

    async def page(self, kind: type[View], path: str, params: Params | None = None) -> Page[View]:
        """Get one page of a list; a list without page numbers is one page."""
        envelope = await self.envelope("GET", path, params=params)
        rows = views(kind, envelope["data"])
        total = envelope.get("total_count", len(rows))
        return Page(rows, total, envelope.get("limit", len(rows)), envelope.get("offset", 0))

    async def envelope(self, method: str, path: str, **options: Unpack[Options]) -> dict[str, Any]:
        """Send one request, again if it may be, and return the whole decoded body."""
        return decode(await self.send(method, path, **options))

    async def send(self, method: str, path: str, **options: Unpack[Options]) -> httpx.Response:
        """Send one request, again if it may be, and return the read reply."""
        repeatable = options.get("repeatable")
        may_repeat = method in ("GET", "HEAD") if repeatable is None else repeatable
        attempt = 0
        while True:
            attempt += 1
            try:
                reply = await self._send_once(method, path, options)
                refuse_strangers(reply)
                raise_for_error(reply)
                return reply
            except httpx.TransportError as exc:
                error: AweError = self.unreachable(exc)
                again = may_repeat or isinstance(exc, _NEVER_SENT)
                if not again or attempt >= self._retry.attempts:
                    raise error from exc
            except (httpx.RequestError, httpx.InvalidURL) as exc:
                raise NotAnAweServer(f"{self.shown_url} cannot be talked to: {cause_of(exc)}") from exc
            except AweError as exc:
                error = exc
                if not (may_repeat and exc.retryable) or attempt >= self._retry.attempts:
                    raise
            asked_s = float(error.fields.get("retry_after_s", 0.0))
            policy = self._retry
            await anyio.sleep(
                jittered_delay_s(attempt, base_s=policy.base_s, cap_s=policy.cap_s, asked_s=asked_s)
            )

    def stream(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[httpx.Response]:
        """Open one request whose reply is read piece by piece.

        The caller maps httpx's errors with `unreachable`.
        """
        return self._http.stream(
            method,
            self.url(path),
            params=_clean(params),
            headers={**self._headers, **(headers or {})},
            timeout=self._timeout(None),
        )

    def url(self, path: str) -> str:
        """Absolute URL of a path of this server; an absolute URL stays what it is."""
        return path if "://" in path else self.base_url + path

    def unreachable(self, exc: httpx.RequestError) -> ServerUnreachable:
        """Say which server, what happened, and what to look at."""
        return ServerUnreachable(
            f"cannot reach {self.shown_url}: {cause_of(exc)}. Is awe-server running there? "
            "Set the address with --server or AWE_SERVER.",
            url=self.shown_url,
        )

    async def _send_once(self, method: str, path: str, options: Options) -> httpx.Response:
        content, params, timeout_s = options.get("content"), options.get("params"), options.get("timeout_s")
        headers = {**self._headers, **(options.get("headers") or {})}
        if self._line is not None and method == "POST" and isinstance(content, bytes) and not params:
            return await self._line.post(
                self.url(path),
                content,
                headers,
                timeout_s=timeout_s or self.timeout_s,
                connect_timeout_s=self._connect_timeout_s,
            )
        return await self._http.request(
            method,
            self.url(path),
            params=_clean(params),
            content=content,
            headers=headers,
            timeout=self._timeout(timeout_s),
        )

    def _timeout(self, timeout_s: float | None) -> httpx.Timeout:
        return httpx.Timeout(timeout_s or self.timeout_s, connect=self._connect_timeout_s)


def cause_of(exc: BaseException) -> str:
    """The system's own words for a failed connection, if they are in the chain, rather than httpx's."""
    number, words = system_error(exc)
    if number:
        return os.strerror(number) if number > 0 else words
    return str(exc) or type(exc).__name__


def system_error(exc: BaseException) -> tuple[int, str]:
    """Number and words of the system's own error in a chain of exceptions; (0, "") if there is none.

    Numbers below 0 are of the resolver of names.
    """
    inner: BaseException | None = exc
    while inner is not None:
        if isinstance(inner, OSError) and inner.errno and inner.strerror:
            return inner.errno, inner.strerror
        inner = inner.__cause__ or inner.__context__
    return 0, ""


def decode(reply: httpx.Response, *, bare: bool = False) -> dict[str, Any]:
    """Read the envelope, or with `bare` any JSON object. Raises NotAnAweServer if it is something else."""
    try:
        body = orjson.loads(reply.content)
    except orjson.JSONDecodeError as exc:
        raise _stranger(reply) from exc
    if not isinstance(body, dict) or not (bare or "data" in body):
        raise _stranger(reply)
    return body


def refuse_strangers(reply: httpx.Response) -> None:
    """Tell "no such job" from "no such route": the latter is said without an envelope.

    So does a proxy that has no server behind it at the moment, and one that leads elsewhere. Raises
    NotAnAweServer.
    """
    elsewhere = 300 <= reply.status_code < 400 or reply.status_code in _NO_SUCH_ROUTE
    if elsewhere and _envelope_of(reply) is None:
        raise _stranger(reply)


def _stranger(reply: httpx.Response) -> NotAnAweServer:
    kind = reply.headers.get("content-type", "no content type")
    url = without_credentials(str(reply.request.url))
    return NotAnAweServer(f"{url} answered {reply.status_code} ({kind}): is that an awe-server?")


def _envelope_of(reply: httpx.Response) -> dict[str, Any] | None:
    try:
        body = orjson.loads(reply.content)
    except orjson.JSONDecodeError:
        return None
    return body if isinstance(body, dict) and ("error" in body or "data" in body) else None


def raise_for_error(reply: httpx.Response) -> None:
    """Raise the AweError that a read reply stands for; return if it stands for success."""
    if reply.status_code < 400:
        return
    error = _error_of(reply)
    error.fields["status"] = reply.status_code
    if after_s := _retry_after_s(reply.headers.get("retry-after", "")):
        error.fields["retry_after_s"] = after_s
    raise error


def _retry_after_s(text: str) -> float:
    """Seconds from now, of a number or a date; 0 if it is neither, or over."""
    if text.isdigit():
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return 0.0


def _error_of(reply: httpx.Response) -> AweError:
    envelope = _envelope_of(reply)
    if envelope is None:
        text = f"{reply.status_code} {reply.reason_phrase} from {shown(str(reply.request.url))}"
        # Proxies have numbers of their own for a server that is away.
        otherwise = Unavailable if reply.status_code > 501 else AweError
        return _BY_STATUS.get(reply.status_code, otherwise)(text)
    raw = envelope.get("error") or [reply.reason_phrase]
    texts = [str(text) for text in raw] if isinstance(raw, list) else [str(raw)]
    code = envelope.get("code")
    if code == InvalidDocument.code:
        return InvalidDocument(texts)
    if isinstance(code, str):
        return error_from_code(code, "; ".join(texts))
    return _BY_STATUS.get(reply.status_code, AweError)("; ".join(texts))


def _clean(params: Params | None) -> dict[str, str | list[str]] | None:
    """Leave out what was not given; booleans become flags, which the server reads by presence."""
    if params is None:
        return None
    kept: dict[str, str | list[str]] = {}
    for name, value in params.items():
        if value is None or value is False:
            continue
        if isinstance(value, list):
            kept[name] = value
        else:
            kept[name] = "" if value is True else str(value)
    return kept


def path_segment(text: str) -> str:
    """An id as one segment of a path; whatever it holds, it stays one.

    Raises BadRequest for a text that no path can hold as a segment.
    """
    if text in ("", ".", ".."):
        raise BadRequest(f"'{text}' is not an id")
    return quote(text, safe="")
