"""Objects of s3, gs and az as sources."""

import asyncio

from awe_server.data.objects import ObjectBusy, ObjectChanged, ObjectMissing, ObjectRefused, Objects
from awe_server.data.sources.facts import (
    Fact,
    Place,
    SourceChanged,
    SourceMissing,
    SourceRefused,
    SourceUnreachable,
)
from shared_models.errors import AweError


async def look(objects: Objects, url: str) -> Fact:
    """Ask for size and ETag. Raises SourceMissing, SourceRefused, SourceUnreachable."""
    try:
        found = await objects.head(url)
    except AweError as exc:
        raise _error_of(exc) from exc
    return Fact(found.size_bytes, version=found.etag, ranged=True)


class StoredObject:
    """Reads pieces of an object, which has to stay as it was when it was looked at."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._objects = Objects()
        self._runner = asyncio.Runner()

    def fetch(self, offset: int, length: int) -> bytes:
        """Exactly these bytes. Raises SourceChanged, SourceMissing, SourceRefused, SourceUnreachable."""
        try:
            data = self._runner.run(self._fetch(offset, length))
        except AweError as exc:
            raise _error_of(exc) from exc
        if len(data) != length:
            raise SourceChanged
        return data

    async def _fetch(self, offset: int, length: int) -> bytes:
        pieces = self._objects.read(self._place.url, offset, length, self._place.version)
        return b"".join([piece async for piece in pieces])

    def check(self) -> None:
        """Each piece was of the one version."""

    def close(self) -> None:
        """Nothing is held."""
        self._runner.close()


def _error_of(exc: AweError) -> AweError:
    if isinstance(exc, ObjectMissing):
        return SourceMissing(reason=exc.message)
    if isinstance(exc, ObjectChanged):
        return SourceChanged()
    if isinstance(exc, ObjectBusy):
        return SourceUnreachable(reason=exc.message)
    return SourceRefused(reason=exc.message) if isinstance(exc, ObjectRefused) else exc
