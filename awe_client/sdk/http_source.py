"""http(s) as a source of downloads: ranges, validators, and what a refusal means.

A version is told by a strong ETag, else by Last-Modified, else by a weak ETag, which is good for comparing
but not for asking. A whole source that changed may be answered whole (If-Range); of a piece, only that
version will do (If-Match, If-Unmodified-Since).
"""

import errno
import re
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NoReturn

import httpx

from awe_client.sdk.address import shown
from awe_client.sdk.download import Asked, Opener, Reply
from awe_client.sdk.download_errors import DownloadCorrupt, NotSeen, SourceBusy, SourceChanged
from awe_client.sdk.transport import cause_of, raise_for_error, refuse_strangers, system_error
from shared_models.errors import AweError, BadRequest
from shared_models.versions import only_if, web_version

#: Opens one GET with the given extra headers.
Get = Callable[[Mapping[str, str]], AbstractAsyncContextManager[httpx.Response]]

_MAX_REFUSAL_BYTES = 65_536  #: so much of the text of a refusal is read
_ALL = frozenset({200, 203})  #: answers whose body is the file; of a piece it is with 206
#: Why this machine reaches nobody at the moment, or nobody there: it says nothing about the other side.
_OWN_TROUBLES = frozenset({
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM,
    errno.ENETDOWN, errno.ENETUNREACH, socket.EAI_AGAIN,
})  # fmt: skip
_CONTENT_RANGE = re.compile(r"bytes (?:(?P<first>\d+)-(?P<last>\d+)|\*)/(?P<size>\d+|\*)")


def worth_retrying(status: int) -> bool:
    """Whether the same request may be answered otherwise a little later."""
    return status in (202, 408, 425, 429) or status >= 500


def unreachable(exc: httpx.RequestError) -> AweError:
    """What a failed connection means, in the system's own words."""
    error = NotSeen if system_error(exc)[0] in _OWN_TROUBLES else SourceBusy
    return error(cause_of(exc))


def http_opener(
    get: Get, failed: Callable[[httpx.RequestError], AweError] = unreachable, *, is_own: bool = False
) -> Opener:
    """Make a source of what `get` opens; `failed` words the errors of connections.

    `is_own`: it is an awe-server; who answers in its place is no source (NotAnAweServer).
    """

    @asynccontextmanager
    async def open_once(asked: Asked) -> AsyncIterator[Reply]:
        try:
            async with get(headers_of(asked)) as response:
                if response.status_code in _ALL or (response.status_code == 206 and not asked.is_all):
                    yield _reply(response, asked)
                else:
                    yield await _beyond_the_end(response, asked, is_own=is_own)
        except httpx.UnsupportedProtocol as exc:
            raise BadRequest(f"leads to an address that is not http or https: {exc}") from exc
        except httpx.TransportError as exc:
            raise failed(exc) from exc
        except httpx.TooManyRedirects as exc:
            raise BadRequest("redirects without end") from exc
        except (httpx.RequestError, httpx.InvalidURL, UnicodeError) as exc:
            raise BadRequest(f"cannot be asked: {cause_of(exc)}") from exc

    return open_once


def headers_of(asked: Asked) -> dict[str, str]:
    """What a request says about the bytes and the version that are wanted."""
    headers = {"Accept-Encoding": "identity"}
    if not asked.is_all:
        last = asked.offset + asked.length - 1 if asked.length >= 0 else ""
        headers["Range"] = f"bytes={asked.offset}-{last}"
    condition = only_if(asked.etag)
    if condition and asked.or_all:
        condition = {"If-Range": asked.etag}
    return headers | condition


def _reply(response: httpx.Response, asked: Asked) -> Reply:
    length = response.headers.get("content-length", "")
    left = int(length) if length.isdigit() else -1
    offset, size = 0, -1
    if response.status_code == 206:
        offset, left, size = _piece(response.headers.get("content-range", "").strip())
    version = web_version(response.headers, asked.etag)
    return Reply(response.aiter_raw(), offset, left, version, size)


def _piece(text: str) -> tuple[int, int, int]:
    """Offset and length of a piece, and the size of the whole or -1. Raises DownloadCorrupt."""
    found = _CONTENT_RANGE.fullmatch(text)
    if found and found["first"] is not None:
        first, stop = int(found["first"]), int(found["last"]) + 1
        size = -1 if found["size"] == "*" else int(found["size"])
        if first < stop and (size < 0 or stop <= size):
            return first, stop - first, size
    raise DownloadCorrupt(f"the source answers 206 and does not say which piece it sends: {text[:100]!r}")


async def _beyond_the_end(response: httpx.Response, asked: Asked, *, is_own: bool) -> Reply:
    """A resumed download may have been complete already; everything else that is no success is raised."""
    found = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", "").strip())
    if response.status_code == 416 and found and found["size"] == str(asked.offset) and asked.length < 0:
        return Reply(_nothing(), asked.offset, 0, asked.etag)
    await _refuse(response, is_own=is_own)


async def _refuse(response: httpx.Response, *, is_own: bool) -> NoReturn:
    """Raise what a reply means that is no success: worth another try or not, with a piece of its text."""
    status = response.status_code
    if status == 412:
        raise SourceChanged
    body = b""
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) >= _MAX_REFUSAL_BYTES:
            break
    headers = {k: v for k, v in response.headers.items() if k in ("retry-after", "content-type")}
    read = httpx.Response(
        status, headers=headers, content=body[:_MAX_REFUSAL_BYTES], request=response.request,
        extensions={"reason_phrase": response.reason_phrase.encode()},
    )  # fmt: skip
    if is_own:
        refuse_strangers(read)
    try:
        raise_for_error(read)
    except AweError as exc:
        if worth_retrying(status) and not exc.retryable:
            raise SourceBusy(str(exc), **exc.fields) from exc
        raise
    error = SourceBusy if worth_retrying(status) else BadRequest
    raise error(f"answered {status} from {shown(str(response.url))}, which is not the file")


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
