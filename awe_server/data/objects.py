"""Objects at `s3://`, `gs://` and `az://`, through obstore; the one file of the server that imports it.

Imported only when such an address is used. Where a store is and who asks is obstore's own configuration: the
environment variables AWS_…, GOOGLE_… and AZURE_… of the server.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from awe_server.data.passing import is_passing
from shared_models.errors import AweError
from shared_models.limits import MIB
from shared_models.object_credentials import SECTION, used_by
from shared_models.object_urls import ObjectPlace, object_place

if TYPE_CHECKING:
    from obstore.store import ObjectStore

TIMEOUT_S = 60.0  #: without a byte
PLAIN_BYTES = 8 * MIB  #: what is no larger is stored by one request
MAX_PIECES = 10_000  #: of one multipart upload, as S3 and Google take them
CONCURRENCY = 2  #: pieces of one upload at once; one more is being filled
USUAL_PIECE_BYTES = 30 * MIB  #: so an upload holds less than 100 MB in memory
#: As S3 takes it. Its pieces have 525 MiB; one is sent while the next is filled, and of all uploads with
#: pieces larger than usual only one goes on at a time: 1.1 GB in memory at most, whatever is delivered.
MAX_OBJECT_BYTES = 5 * 1024**4
MAX_STORES = 64  #: whose connections are kept

_PREFIX = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
#: Options that obstore takes from the environment only if no other option of its connections is given.
_FROM_ENVIRONMENT = (
    "allow_http", "allow_invalid_certificates", "proxy_url", "proxy_ca_certificate", "proxy_excludes",
    "root_certificate",
)  # fmt: skip
#: Asked for credentials when the environment has none.
_NO_CREDENTIALS = re.compile(
    r"169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal|[Aa]ccount must be specified"
)
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound")
_STATUS = re.compile(r"status code: ([1-5]\d\d)((?: [A-Za-z-]+){0,5})")
_URL = re.compile(r"https?://[^\s,)\"']+")
_MAX_REASON_CHARS = 300


class ObjectMissing(AweError):
    """There is no such object."""

    code = "object_missing"


class ObjectRefused(AweError):
    """The store refuses."""

    code = "object_refused"


class ObjectChanged(ObjectRefused):
    """The object is not any more what it was."""

    code = "object_changed"


class ObjectBusy(AweError):
    """The store does not answer as it should; it may later."""

    code = "object_busy"
    retryable = True


@dataclass(slots=True, frozen=True)
class ObjectFact:
    """What a store says of an object."""

    size_bytes: int
    etag: str


class Objects:
    """Reads and writes objects; one store, with its connections, for each bucket."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._large = asyncio.Lock()  #: held by the one upload with pieces larger than usual
        self._stores: dict[tuple[str, str], ObjectStore] = {}  #: the one that was used last at the end

    async def head(self, url: str) -> ObjectFact:
        """Look at an object. Raises ObjectMissing, ObjectRefused, ObjectBusy, as all methods do."""
        from obstore import head_async

        place = object_place(url)
        try:
            found = await head_async(await self._store(place), place.key)
        except Exception as exc:
            raise _error_of(exc, place) from exc
        return ObjectFact(found["size"], found["e_tag"] or "")

    async def read(
        self, url: str, offset: int = 0, length: int | None = None, etag: str = ""
    ) -> AsyncIterator[bytes]:
        """Read a stretch of an object, or the rest of it. Raises ObjectChanged if its ETag is another."""
        from obstore import get_async

        place = object_place(url)
        options: dict[str, Any] = {"if_match": etag} if etag else {}
        if length is not None:
            options["range"] = (offset, offset + length)
        elif offset:
            options["range"] = {"offset": offset}
        try:
            result = await get_async(await self._store(place), place.key, options=options)  # type: ignore[arg-type]
            async for piece in result.stream(min_chunk_size=MIB):
                yield bytes(piece)
        except Exception as exc:
            raise _error_of(exc, place) from exc

    async def put(self, url: str, chunks: AsyncIterable[bytes], size: int) -> None:
        """Store an object: whole, or not at all. Raises what the chunks raise, too."""
        from obstore import put_async

        place = object_place(url)
        try:
            store = await self._store(place)
            if size <= PLAIN_BYTES:
                data = b"".join([chunk async for chunk in chunks])
                await put_async(store, place.key, data, use_multipart=False)
                return
            piece = piece_bytes(size)
            is_usual = piece <= USUAL_PIECE_BYTES
            async with contextlib.nullcontext() if is_usual else self._large:
                at_once = CONCURRENCY if is_usual else 1
                await put_async(store, place.key, chunks, chunk_size=piece, max_concurrency=at_once)
        except Exception as exc:
            raise _error_of(exc, place) from exc

    async def delete(self, url: str) -> None:
        """Remove an object; fine if it is gone already."""
        from obstore import delete_async

        place = object_place(url)
        try:
            await delete_async(await self._store(place), place.key)
        except Exception as exc:
            error = _error_of(exc, place)
            if not isinstance(error, ObjectMissing):
                raise error from exc

    async def _store(self, place: ObjectPlace) -> "ObjectStore":
        key = (place.scheme, place.bucket)
        store = self._stores.pop(key, None)
        if store is None:
            store = await to_thread.run_sync(self._open, *key)
        self._stores[key] = store
        if len(self._stores) > MAX_STORES:
            del self._stores[next(iter(self._stores))]
        return store

    def _open(self, scheme: str, bucket: str) -> "ObjectStore":
        from obstore.store import from_url

        seconds = timedelta(seconds=self._timeout_s)
        options: dict[str, Any] = {
            "connect_timeout": min(seconds, timedelta(seconds=15)),
            "read_timeout": seconds,
            "timeout": timedelta(hours=1),
        }
        for name in _FROM_ENVIRONMENT:
            if value := os.environ.get(_PREFIX[scheme] + name.upper()):
                options[name] = value.lower() in ("1", "true", "yes", "on") if "allow" in name else value
        retry: Any = {"max_retries": 2, "retry_timeout": seconds}
        config: dict[str, Any] = {}
        if scheme == "s3" and not os.environ.get("AWS_CHECKSUM_ALGORITHM"):
            config["checksum_algorithm"] = "SHA256"  # the store checks what it gets, and keeps the checksum
        return from_url(  # type: ignore[call-overload, no-any-return]
            f"{scheme}://{bucket}", config=config, client_options=options, retry_config=retry
        )


def piece_bytes(size: int) -> int:
    """How large the pieces are in which an object of this size is stored. Raises ObjectRefused."""
    if size > MAX_OBJECT_BYTES:
        most = MAX_OBJECT_BYTES // 10**9
        raise ObjectRefused(f"{size} bytes are more than one object may have here ({most} GB)")
    return max(PLAIN_BYTES, -(-size // MAX_PIECES))


def _error_of(exc: Exception, place: ObjectPlace) -> AweError:
    """What an error of obstore means, without its long text, in which addresses have their queries."""
    from obstore import exceptions as obs

    if isinstance(exc, AweError):
        return exc
    if isinstance(exc, FileNotFoundError | obs.NotFoundError):
        if _NO_BUCKET.search(str(exc)):
            return ObjectRefused(f"there is no bucket {place.bucket}")
        return ObjectMissing(f"there is no {place.url}")
    if isinstance(exc, obs.PreconditionError):
        return ObjectChanged(f"{place.url} is not any more what it was")
    if isinstance(exc, PermissionError | obs.PermissionDeniedError | obs.UnauthenticatedError):
        return ObjectRefused(f"the store refuses {place.url} {used_by('this server', place.scheme)}")
    text = str(exc)
    if _NO_CREDENTIALS.search(text):
        names = f"environment variables {_PREFIX[place.scheme]}…: {SECTION}"
        return ObjectRefused(f"this server has no credentials for {place.scheme}:// addresses ({names})")
    if isinstance(exc, asyncio.TimeoutError):
        return ObjectBusy(f"the store of {place.url} does not answer")
    if isinstance(exc, obs.BaseError) and (found := _STATUS.search(text)):
        said = f"the store of {place.url} answers {found[1]}{found[2].rstrip()}"
        status = int(found[1])
        return ObjectBusy(said) if is_passing(status) else ObjectRefused(said)
    line = _URL.sub(lambda match: match[0].partition("?")[0], text.partition("\n")[0])[:_MAX_REASON_CHARS]
    if isinstance(exc, obs.BaseError | OSError):
        return ObjectBusy(f"{place.url}: {line}")
    return ObjectRefused(f"{place.url}: {line}")
