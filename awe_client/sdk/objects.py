"""s3, gs and az as sources of downloads, through obstore; the one file of the client that imports it.

Imported only when such an address is used: it takes time that most commands have no use for. Where a store is
and who asks is obstore's own configuration, the environment variables AWS_…, GOOGLE_… and AZURE_….
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from awe_client.sdk.address import shown
from awe_client.sdk.download import Asked, Opener, Reply
from awe_client.sdk.download_errors import NotSeen, OutOfReach, SourceBusy, SourceChanged
from awe_client.sdk.http_source import worth_retrying
from shared_models.errors import AweError, BadRequest, Forbidden, NotFound
from shared_models.object_credentials import SECTION, used_by
from shared_models.object_urls import ObjectPlace, object_place

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_PREFIX = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
#: Options that obstore takes from the environment only if no other option of its connections is given.
_FROM_ENVIRONMENT = (
    "allow_http", "allow_invalid_certificates", "proxy_url", "proxy_ca_certificate", "proxy_excludes",
    "root_certificate",
)  # fmt: skip
#: In what obstore says; what follows may be a page of the store, with names of keys.
_STATUS = re.compile(r"status code: ([1-5]\d\d)((?: [A-Za-z-]+){0,5})")
_URL = re.compile(r"https?://\S+")
#: What it says of a machine without credentials, account or region; and whom it asks for credentials then.
_UNCONFIGURED = re.compile(r"credential|\btoken\b|account must be|configured region", re.IGNORECASE)
_CLOUD = re.compile(r"https?://(169\.254\.|metadata\b)")
_NOT_CONNECTED = "error sending request"
_MAX_ERROR_CHARS = 300
_PIECE_BYTES = 64 * 1024  #: what is held of it is lost in a cut
_LONG = timedelta(days=30)


class Objects:
    """Opens objects; one store, with its connections, for each bucket."""

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._stores: dict[tuple[str, str], ObjectStore] = {}

    def opener(self, url: str) -> Opener:
        """Make a source of an address. Raises InvalidDocument if it is not one of an object."""
        place = object_place(url)

        @asynccontextmanager
        async def open_once(asked: Asked) -> AsyncIterator[Reply]:
            try:
                store = self._stores.get((place.scheme, place.bucket))
                if store is None:
                    store = await anyio.to_thread.run_sync(self._open, place.scheme, place.bucket)
                async with asyncio.timeout(self._timeout_s):
                    result = await _get(store, place, asked)
            except Exception as exc:
                raise _error_of(exc, place.scheme) from exc
            first, stop = result.range
            chunks = _chunks(result.stream(min_chunk_size=_PIECE_BYTES), place, self._timeout_s)
            yield Reply(chunks, first, stop - first, result.meta["e_tag"] or "")

        return open_once

    def _open(self, scheme: str, bucket: str) -> "ObjectStore":
        from obstore.store import from_url

        seconds = timedelta(seconds=self._timeout_s)
        options: dict[str, Any] = {"connect_timeout": min(seconds, timedelta(seconds=15)), "timeout": _LONG}
        options["read_timeout"] = seconds
        for name in _FROM_ENVIRONMENT:
            if value := os.environ.get(_PREFIX[scheme] + name.upper()):
                options[name] = value.lower() in ("1", "true", "yes", "on") if "allow" in name else value
        store = from_url(f"{scheme}://{bucket}", client_options=options, retry_config={"max_retries": 0})  # type: ignore[call-overload]
        return self._stores.setdefault((scheme, bucket), store)


async def _get(store: "ObjectStore", place: ObjectPlace, asked: Asked) -> Any:
    from obstore import get_async

    options: dict[str, Any] = {}
    if asked.length >= 0:
        options["range"] = (asked.offset, asked.offset + asked.length)
    elif asked.offset:
        options["range"] = {"offset": asked.offset}
    if asked.etag:
        options["if_match"] = asked.etag
    try:
        return await get_async(store, place.key, options=options)  # type: ignore[arg-type]
    except Exception as exc:
        if asked.or_all and isinstance(_error_of(exc, place.scheme), SourceChanged):
            return await get_async(store, place.key)
        raise


async def _chunks(stream: Any, place: ObjectPlace, timeout_s: float) -> AsyncIterator[bytes]:
    pieces = aiter(stream)
    while True:
        try:
            async with asyncio.timeout(timeout_s):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except Exception as exc:
            raise _error_of(exc, place.scheme) from exc
        yield bytes(piece)


def _error_of(exc: Exception, scheme: str) -> AweError:
    """What an error of obstore means, without its long text, in which addresses have their queries."""
    from obstore import exceptions as obs

    if isinstance(exc, AweError):
        return exc
    if isinstance(exc, TimeoutError):
        return SourceBusy("nothing came for too long")
    if isinstance(exc, FileNotFoundError | obs.NotFoundError):
        return NotFound("there is no such object")
    if isinstance(exc, obs.PreconditionError):
        return SourceChanged()
    if isinstance(exc, PermissionError | obs.PermissionDeniedError | obs.UnauthenticatedError):
        return Forbidden(f"the store refuses access {used_by('this machine', scheme)}")
    text = str(exc)
    if isinstance(exc, obs.BaseError):
        return _of_the_store(text)
    line = _line(text)
    return SourceBusy(line) if isinstance(exc, OSError) else BadRequest(line)


def _of_the_store(text: str) -> AweError:
    found = _STATUS.search(text)
    said = text[: found.end()] if found else text.partition("\n")[0]
    if _CLOUD.search(said) or _UNCONFIGURED.search(_URL.sub("", said)):
        return OutOfReach(
            f"this machine has no credentials for the store, or its account or region is not set ({SECTION})"
        )
    if found:
        answer = f"the store answered {found[1]}{found[2].rstrip()}"
        return SourceBusy(answer) if worth_retrying(int(found[1])) else BadRequest(answer)
    # Where the store is, says the machine's own configuration.
    return (NotSeen if _NOT_CONNECTED in said else SourceBusy)(_line(text))


def _line(text: str) -> str:
    """The first line of a text, in bounds, its addresses without their queries."""
    return _URL.sub(lambda match: shown(match[0]), text.partition("\n")[0])[:_MAX_ERROR_CHARS]
