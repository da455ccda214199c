"""Nodes of other Shocks: their documents, and the indexes that they build themselves.

A node's file never changes once it is there. Shock knows no Range: a stretch is asked for by `seek` and
`length`. While parts of a file are joined or an index is built, the document says that they are locked; or
whoever asks for the index is answered only when it is built.

The data token of the job that asks is shown to who gives nothing without: a Shock without users refuses every
token. A redirect to another host does not take it along.
"""

import asyncio
from functools import partial
from typing import Any

import httpx
import orjson

from awe_server.data.sources.asking import MAX_REPLY_BYTES, Visit, send, text_of
from awe_server.data.sources.facts import Fact, SourceMissing, SourceRefused, SourceUnreachable, size_of
from awe_server.data.sources.web import refusal
from shared_models.data_tokens import WANTS_LOGIN, answer_to, authorization, without

BUILD_S = 3600.0  #: how long an index that is being built is waited for
_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 5.0
_ASK_S = 10.0  #: one question
_BUILDING = httpx.Timeout(_ASK_S, read=None)  #: the answer to who asks for an index: within BUILD_S


class NotBuilt(Exception):
    """The other Shock has no such index and does not make one; the text says why."""


async def look(
    http: httpx.AsyncClient, node_url: str, token: str = "", *, visit: Visit = lambda url: None
) -> Fact:
    """Read the node's document, `<host>/node/<id>`.

    Raises SourceMissing, SourceRefused, SourceUnreachable, and as `send`; ValueError, KeyError, TypeError if
    it makes no sense.
    """
    file = (await _Node(http, node_url, token, visit).document())["file"]
    size, checksum = size_of(file["size"]), file.get("checksum")
    if file.get("locked"):
        raise SourceUnreachable(reason="its Shock still joins its parts")
    if size == 0 and checksum == {}:
        raise SourceMissing(reason="the node has no file yet")
    md5 = checksum.get("md5") if isinstance(checksum, dict) else None
    return Fact(size, md5=md5 if isinstance(md5, str) else "", ranged=True)


async def build_index(http: httpx.AsyncClient, node_url: str, kind: str, token: str = "") -> int:
    """Have the other Shock index a node, unless it has; how many units there are.

    Raises NotBuilt, SourceUnreachable.
    """
    scope = asyncio.timeout(BUILD_S)
    try:
        async with scope:
            return await _build(_Node(http, node_url, token), kind)
    except (TimeoutError, httpx.TransportError) as exc:
        if scope.expired():
            raise NotBuilt(f"it was not built in {BUILD_S:g} s") from exc
        raise SourceUnreachable(reason=text_of(exc)) from exc
    except (SourceMissing, SourceRefused) as exc:
        raise NotBuilt(exc.message) from exc
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as exc:
        raise NotBuilt(text_of(exc)) from exc


async def _build(node: "_Node", kind: str) -> int:
    units = _units(await node.document(), kind)
    if units is None:
        why_not = await node.ask_for_index(kind)
        units = _units(await node.document(), kind)
        if units is None:
            raise NotBuilt(why_not)
    pause_s = _FIRST_PAUSE_S
    while units == 0:
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _MAX_PAUSE_S)
        units = _units(await node.document(), kind)
    if units is None:
        raise NotBuilt("it went away while it was being built")
    return units


def _units(document: dict[str, Any], kind: str) -> int | None:
    """How many units an index has; 0 while it is built, None if there is none. Raises NotBuilt."""
    index = (document.get("indexes") or {}).get(kind)
    if index is None:
        return None
    locked = index.get("locked")
    if locked:
        if locked.get("error"):
            raise NotBuilt(str(locked["error"])[:200])
        return 0
    units = size_of(index["total_units"])
    if units == 0:
        raise NotBuilt("it is empty")
    return units


def refused(status: int, token: str) -> SourceMissing | SourceRefused | SourceUnreachable:
    """What a status means that is no success, and whether a token was shown."""
    if status in WANTS_LOGIN:
        return SourceRefused(reason=f"its host answers {status} {answer_to(token)}")
    return refusal(status)


class _Node:
    """One node of another Shock, as it is asked for one job."""

    def __init__(
        self, http: httpx.AsyncClient, url: str, token: str, visit: Visit = lambda url: None
    ) -> None:
        self._url = url
        self._token = token
        self._send = partial(send, http, limit=MAX_REPLY_BYTES, visit=visit)

    async def document(self) -> dict[str, Any]:
        async with asyncio.timeout(_ASK_S):
            reply, body = await self._ask("GET", self._url)
        if not reply.is_success:
            raise refused(reply.status_code, self._token)
        data = orjson.loads(body)["data"]
        if not isinstance(data, dict):
            raise TypeError("its reply is no node's document")
        return data

    async def ask_for_index(self, kind: str) -> str:
        """Have it built; what Shock says, which matters if it is not."""
        reply, body = await self._ask("PUT", f"{self._url}/index/{kind}", _BUILDING)
        try:
            error = orjson.loads(body)["error"]
            text = "; ".join(map(str, error)) if isinstance(error, list) else str(error)
        except (ValueError, KeyError, TypeError):
            text = ""
        return without(self._token, text)[:200] or f"its host answers {reply.status_code}"

    async def _ask(
        self, method: str, url: str, patience: httpx.Timeout | None = None
    ) -> tuple[httpx.Response, bytes]:
        reply, body = await self._send(method, url, patience=patience)
        if self._token and reply.status_code in WANTS_LOGIN:
            login = {"Authorization": authorization(self._token)}
            reply, body = await self._send(method, url, headers=login, patience=patience)
        return reply, body
