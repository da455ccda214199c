"""Outputs in object stores. An object appears whole, and storing it again changes nothing."""

from awe_server.data.objects import ObjectBusy, ObjectMissing, ObjectRefused, Objects
from awe_server.data.sinks.base import Content, RequireLead, SinkBusy, SinkRefused, verified


class ObjectSink:
    """Stores objects."""

    def __init__(self, objects: Objects, require_lead: RequireLead) -> None:
        self._objects = objects
        self._require_lead = require_lead

    async def deliver(self, url: str, content: Content) -> None:
        """Store the content. Raises SinkBusy, SinkRefused."""
        chunks = await content.chunks()
        try:
            await self._objects.put(url, verified(chunks, content, self._require_lead), content.size)
            size = (await self._objects.head(url)).size_bytes
        except ObjectBusy as exc:
            raise SinkBusy(exc.message) from exc
        except (ObjectRefused, ObjectMissing) as exc:
            raise SinkRefused(exc.message) from exc
        finally:
            await chunks.aclose()
        if size != content.size:
            raise SinkBusy(f"{url} has {size} bytes after the upload, not {content.size}")

    async def delete(self, url: str) -> None:
        """Remove an object. Raises SinkBusy, SinkRefused."""
        try:
            await self._objects.delete(url)
        except ObjectBusy as exc:
            raise SinkBusy(exc.message) from exc
        except ObjectRefused as exc:
            raise SinkRefused(exc.message) from exc
