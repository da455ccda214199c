"""Another Shock as a source of downloads.

It knows no Range: a stretch of a file is asked for by `seek` and `length`, a piece of an index by `index` and
`part` (then the URL has both). What a node holds never changes, so a cut download of it may be resumed, but
one by index begins anew, and so does a node's document: nobody told which bytes it is.

The job's data token is shown to a Shock that gives nothing without it: one without users refuses every token.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import httpx

from awe_client.sdk.download import Asked, Opener, Reply
from awe_client.sdk.download_errors import SourceBusy
from awe_client.sdk.http_source import http_opener
from shared_models.data_tokens import WANTS_LOGIN, answer_to, authorization, without
from shared_models.errors import AweError, BadRequest, Forbidden, Unauthenticated

#: What Shock says, with status 400, of a file whose parts it joins at the moment.
_LOCKED = "locked"
_MAX_REFUSAL_BYTES = 65_536  #: of a refusal that is read so that its connection may be used again


class Get(Protocol):
    """Opens one GET of an address, with these headers."""

    def __call__(
        self, url: httpx.URL, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[httpx.Response]: ...


def shock_opener(get: Get, address: str, datatoken: str = "") -> Opener:
    """Make a source of a node's URL. Raises httpx.InvalidURL."""
    url = httpx.URL(address)
    is_content = "download" in url.params and "index" not in url.params

    @asynccontextmanager
    async def open_once(asked: Asked) -> AsyncIterator[Reply]:
        stretch = url
        if not asked.is_all:
            query = {"seek": str(asked.offset)} | ({"length": str(asked.length)} if asked.length >= 0 else {})
            stretch = url.copy_merge_params(query)
        try:
            async with http_opener(lambda headers: _ask(get, stretch, headers, datatoken))(Asked()) as reply:
                version = f'"{url.path}"' if is_content else ""
                yield Reply(reply.chunks, asked.offset, reply.left, version)
        except (Unauthenticated, Forbidden) as exc:
            said = f"it answers {exc.fields.get('status')} {answer_to(datatoken)}"
            raise type(exc)(f"{said}: {without(datatoken, str(exc))}") from exc
        except AweError as exc:
            exc.args = (without(datatoken, str(exc)),)
            if isinstance(exc, BadRequest) and _LOCKED in str(exc):
                raise SourceBusy(str(exc)) from exc
            raise

    return open_once


@asynccontextmanager
async def _ask(
    get: Get, url: httpx.URL, headers: Mapping[str, str], datatoken: str
) -> AsyncIterator[httpx.Response]:
    """The answer to anybody, or else to who shows the token; a redirect takes it to no other host."""
    async with get(url, headers) as response:
        if not (datatoken and response.status_code in WANTS_LOGIN):
            yield response
            return
        count = 0
        async for chunk in response.aiter_raw():
            count += len(chunk)
            if count > _MAX_REFUSAL_BYTES:
                break
    async with get(url, {**headers, "Authorization": authorization(datatoken)}) as response:
        yield response
