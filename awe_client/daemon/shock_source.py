"""Another Shock as a source of downloads.

It knows no Range: a stretch of a file is asked for by `seek` and `length`, a piece of an index by `index` and
`part` (then the URL has both). What a node holds never changes, so a cut download of it may be resumed, but
one by index begins anew: nobody told which bytes it is.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import httpx

from awe_client.sdk.download import Asked, Opener, Reply
from awe_client.sdk.download_errors import SourceBusy
from awe_client.sdk.http_source import http_opener
from shared_models.errors import BadRequest

#: What Shock says, with status 400, of a file whose parts it joins at the moment.
_LOCKED = "locked"


class Get(Protocol):
    """Opens one GET of an address."""

    def __call__(self, url: httpx.URL) -> AbstractAsyncContextManager[httpx.Response]: ...


def shock_opener(get: Get, address: str) -> Opener:
    """Make a source of a node's download URL."""
    url = httpx.URL(address)
    by_index = "index" in url.params

    @asynccontextmanager
    async def open_once(asked: Asked) -> AsyncIterator[Reply]:
        stretch = url
        if not asked.is_all:
            query = {"seek": str(asked.offset)} | ({"length": str(asked.length)} if asked.length >= 0 else {})
            stretch = url.copy_merge_params(query)
        try:
            async with http_opener(lambda _: get(stretch))(Asked()) as reply:
                version = "" if by_index else f'"{url.path}"'
                yield Reply(reply.chunks, asked.offset, reply.left, version)
        except BadRequest as exc:
            if _LOCKED in str(exc):
                raise SourceBusy(str(exc)) from exc
            raise

    return open_once
