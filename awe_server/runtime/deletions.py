"""Nodes, and files elsewhere, that nobody needs any more: noted with the batch that made them useless, and
deleted once it is durable.

A note is a document of `meta`, so a crash in between loses no deletion: recovery reads what is left and asks
again. It is written after everything else of its batch: a torn batch must not name nodes still in use.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterable

from awe_server.data.nodes import NodeStore
from awe_server.data.ports import DocumentPort
from awe_server.data.sinks.base import SinkBusy, SinkRefused, shown
from awe_server.data.sinks.sinks import Sinks
from awe_server.scheduler.state import DeleteNodes, DeletePlaces, Effect
from awe_server.store.base import Delete, Document, Match, Put, Query, Store
from shared_models.errors import NodeNotFound

log = logging.getLogger(__name__)

#: How the ids of notes begin, among the documents of `meta`.
PREFIX = "delete-nodes-"
PLACES_PREFIX = "delete-places-"
PLACE_TRIES = 200  #: in one life of the server; what is away for longer than these take stays where it is
_BATCH = 100


class Deleter:
    """Carries out DeleteNodes."""

    def __init__(self, documents: DocumentPort, nodes: NodeStore) -> None:
        self._documents = documents
        self._nodes = nodes

    async def __call__(self, effect: DeleteNodes) -> None:
        """Delete what is there of it, then the note."""
        for node_id in effect.node_ids:
            try:
                await self._nodes.delete(node_id)
            except NodeNotFound:
                continue
        if effect.job:
            await self._delete_all_of(effect.job)
        await self._documents.put(Delete("meta", PREFIX + effect.id))

    async def _delete_all_of(self, job_id: str) -> None:
        """Delete what is there for a job: nobody else knows, say, what its failed attempts left."""
        query = Query((Match("job", (job_id,)),), limit=_BATCH)
        while found := (await self._documents.find("nodes", query)).documents:
            for document in found:
                with contextlib.suppress(NodeNotFound):
                    await self._nodes.delete(document["id"])


class PlaceDeleter:
    """Carries out DeletePlaces."""

    def __init__(self, documents: DocumentPort, sinks: Sinks) -> None:
        self._documents = documents
        self._sinks = sinks
        self._tries: Counter[str] = Counter()

    async def __call__(self, effect: DeletePlaces) -> None:
        """Delete what can be deleted, then the note. Raises SinkBusy to be asked again."""
        job = await self._documents.get("jobs", effect.job)
        token = str((job or {}).get("_datatoken") or "")
        busy: SinkBusy | None = None
        for place in effect.places:
            try:
                await self._sinks.remove(place, token)
            except SinkRefused as exc:
                log.warning("not_deleted", extra={"place": shown(place), "reason": exc.message})
            except SinkBusy as exc:
                busy = exc
        self._tries[effect.id] += 1
        if busy is not None and self._tries[effect.id] < PLACE_TRIES:
            raise busy
        if busy is not None:
            log.warning("not_deleted", extra={"job_id": effect.job, "reason": busy.message})
        del self._tries[effect.id]
        await self._documents.put(Delete("meta", PLACES_PREFIX + effect.id))


def notes(effects: Iterable[Effect]) -> list[Put]:
    """The notes of those effects that need one."""
    return [Put("meta", note) for effect in effects if (note := _note(effect)) is not None]


def _note(effect: Effect) -> Document | None:
    if isinstance(effect, DeleteNodes):
        return {"id": PREFIX + effect.id, "node_ids": list(effect.node_ids), "job": effect.job}
    if isinstance(effect, DeletePlaces):
        return {"id": PLACES_PREFIX + effect.id, "places": list(effect.places), "job": effect.job}
    return None


async def left_over(store: Store) -> list[Effect]:
    """What was noted and not done. Raises StoreUnavailable."""
    prefixes = (PREFIX, PLACES_PREFIX)
    noted = [document async for document in store.scan("meta") if document["id"].startswith(prefixes)]
    return [effect for document in noted if (effect := _effect(document)) is not None]


def _effect(note: Document) -> Effect | None:
    id: str = note["id"]
    key = "places" if id.startswith(PLACES_PREFIX) else "node_ids"
    things = note.get(key)
    if not isinstance(things, list) or not all(isinstance(thing, str) for thing in things):
        log.error("document_skipped", extra={"collection": "meta", "id": id, "error": f"{key}: no list"})
        return None
    job = str(note.get("job") or "")
    if key == "places":
        return DeletePlaces(id.removeprefix(PLACES_PREFIX), tuple(things), job)
    return DeleteNodes(id.removeprefix(PREFIX), tuple(things), job)
