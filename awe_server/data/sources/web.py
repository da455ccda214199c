"""Files of web servers: how big they are, which version, and whether pieces of them can be read."""

import re

import httpx

from awe_server.data.passing import is_passing
from awe_server.data.sources.asking import Visit, send
from awe_server.data.sources.facts import (
    Fact,
    NoRanges,
    SourceChanged,
    SourceMissing,
    SourceRefused,
    SourceUnreachable,
    size_of,
)
from shared_models.versions import only_if, web_version

_CONTENT_RANGE = re.compile(r"bytes (?:(?P<first>\d+)-(?P<last>\d+)|\*)/(?P<size>\d+)")


async def look(http: httpx.AsyncClient, url: str, *, to_cut: bool, visit: Visit = lambda url: None) -> Fact:
    """Ask for the headers; if those do not say enough, for the first byte.

    Raises SourceMissing, SourceRefused, SourceUnreachable, and as `send`; ValueError, KeyError if the size
    is not told.
    """
    reply, _ = await send(http, "HEAD", url, visit=visit)
    if is_passing(reply.status_code):
        raise refusal(reply.status_code)
    says_ranges = "bytes" in reply.headers.get("accept-ranges", "").lower()
    if reply.is_success and "content-length" in reply.headers and (says_ranges or not to_cut):
        return _fact(reply, size_of(reply.headers["content-length"]), ranged=says_ranges)
    reply, _ = await send(http, "GET", url, headers={"Range": "bytes=0-0"}, visit=visit)
    found = content_range(reply)
    if reply.status_code == 206 and found:
        return _fact(reply, size_of(found["size"]), ranged=True)
    if reply.status_code == 416 and found and found["size"] == "0":
        return _fact(reply, 0, ranged=True)
    if reply.status_code != 200:
        raise refusal(reply.status_code)
    return _fact(reply, size_of(reply.headers["content-length"]), ranged=False)


def _fact(reply: httpx.Response, size: int, *, ranged: bool) -> Fact:
    return Fact(size, version=web_version(reply.headers), ranged=ranged)


def refusal(status: int) -> SourceMissing | SourceRefused | SourceUnreachable:
    """What a status means that is no success."""
    reason = f"its host answers {status}"
    if is_passing(status):
        return SourceUnreachable(reason=reason)
    return SourceMissing(reason=reason) if status in (404, 410) else SourceRefused(reason=reason)


def content_range(reply: httpx.Response) -> re.Match[str] | None:
    """What a reply says about the piece that it is, and the whole."""
    return _CONTENT_RANGE.fullmatch(reply.headers.get("content-range", "").strip())


def piece_headers(version: str, offset: int, length: int) -> dict[str, str]:
    """Ask for so many bytes of this version."""
    return {"Range": f"bytes={offset}-{offset + length - 1}", **only_if(version)}


def check_piece(reply: httpx.Response, version: str, offset: int, length: int, size: int) -> None:
    """Raise unless the reply is exactly what `piece_headers` asked for."""
    if reply.status_code in (412, 416):
        raise SourceChanged
    if reply.status_code == 200:
        raise NoRanges(reason="its host sends only all of it")
    if reply.status_code != 206:
        raise refusal(reply.status_code)
    if version and web_version(reply.headers, version) not in ("", version):
        raise SourceChanged
    found = content_range(reply)
    if found is None or found["first"] is None:
        raise NoRanges(reason="its host does not say which piece it sends")
    if int(found["size"]) != size:
        raise SourceChanged
    if (int(found["first"]), int(found["last"])) != (offset, offset + length - 1):
        raise NoRanges(reason="its host sends other pieces than it is asked for")
