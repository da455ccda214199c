"""Nodes, files elsewhere, and parts of removed jobs, that nobody needs any more: noted with the batch that
made them useless, and deleted once it is durable.

A note is a document of `meta`, so a crash in between loses no deletion: recovery reads what is left and asks
again. It is written after everything else of its batch: a torn batch must not name nodes still in use.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace

from awe_server.data.hosts import host_of
from awe_server.data.ports import DocumentPort
from awe_server.data.sinks.base import SinkBusy, SinkRefused, SinkSilent, shown
from awe_server.data.sinks.sinks import Sinks
from awe_server.runtime.delivery import Delivery
from awe_server.runtime.node_removal import NodeRemover
from awe_server.runtime.parts_removal import PartsRemover
from awe_server.scheduler.places import delivery_of, is_given
from awe_server.scheduler.state import DeleteNodes, DeletePlaces, Effect
from awe_server.store.base import Delete, Document, Put, Store
from shared_models.ids import JobId

log = logging.getLogger(__name__)

#: How the ids of notes begin, among the documents of `meta`.
PREFIX = "delete-nodes-"
PLACES_PREFIX = "delete-places-"
PLACE_TRIES = 200  #: in one life of the server; what is away for longer than these take stays where it is


class Deleter:
    """Carries out DeleteNodes."""

    def __init__(self, documents: DocumentPort, remover: NodeRemover, parts: PartsRemover) -> None:
        self._documents = documents
        self._remover = remover
        self._parts = parts

    async def __call__(self, effect: DeleteNodes) -> None:
        """Remove what is there of it, then the note; what others need goes later, and by itself."""
        for node_id in effect.node_ids:
            await self._remover.remove(node_id)
        if effect.job:
            await self._parts.remove_all_of(JobId(effect.job))
            await self._remover.remove_all_of(effect.job)
        await self._documents.put(Delete("meta", PREFIX + effect.id))


class PlaceDeleter:
    """Carries out DeletePlaces. What is done is done once, however often the rest has to be tried."""

    def __init__(self, documents: DocumentPort, sinks: Sinks, delivery: Delivery) -> None:
        self._documents = documents
        self._sinks = sinks
        self._delivery = delivery
        self._left: dict[str, tuple[DeletePlaces, int]] = {}  #: what is left of each effect, how often tried

    async def __call__(self, effect: DeletePlaces) -> None:
        """Delete what can be deleted, then the note. Raises SinkBusy to be asked again for the rest."""
        effect, tries = self._left.get(effect.id, (effect, 0))
        busy: dict[str, SinkBusy] = {}
        silent: dict[str, SinkSilent] = {}  #: by host: who waits for each of its places waits for ever
        for place in effect.places:
            host = host_of(place)
            if host in silent:
                busy[place] = silent[host]
                continue
            try:
                await self._remove(place, effect)
            except SinkRefused as exc:
                log.warning("not_deleted", extra={"place": shown(place), "reason": exc.message})
            except SinkBusy as exc:
                busy[place] = exc
                if isinstance(exc, SinkSilent):
                    silent[host] = exc
        if busy and tries + 1 < PLACE_TRIES:
            rest = replace(effect, places=tuple(busy))
            if rest != effect:
                await self._documents.put(*notes([rest]))
            self._left[effect.id] = (rest, tries + 1)
            raise next(iter(busy.values()))
        for place, why in busy.items():
            log.warning("not_deleted", extra={"place": shown(place), "reason": why.message})
            if delivery := delivery_of(place):
                await self._delivery.forget(delivery[1])
        self._left.pop(effect.id, None)
        await self._documents.put(Delete("meta", PLACES_PREFIX + effect.id))

    async def _remove(self, place: str, effect: DeletePlaces) -> None:
        """Remove one of them, unless it may be of a job that has begun anew: its next end sees to that."""
        job = await self._documents.get("jobs", effect.job) or {}
        if is_given(place) and job.get("resumed", effect.resumed) != effect.resumed:
            return
        token = str(job.get("_datatoken") or "")
        if delivery := delivery_of(place):
            await self._delivery.take_back(*delivery, token)
        else:
            await self._sinks.remove(place, token)


def notes(effects: Iterable[Effect]) -> list[Put]:
    """The notes of those effects that need one."""
    return [Put("meta", note) for effect in effects if (note := _note(effect)) is not None]


def _note(effect: Effect) -> Document | None:
    if isinstance(effect, DeleteNodes):
        return {"id": PREFIX + effect.id, "node_ids": list(effect.node_ids), "job": effect.job}
    if isinstance(effect, DeletePlaces):
        about = {"places": list(effect.places), "job": effect.job, "resumed": effect.resumed}
        return {"id": PLACES_PREFIX + effect.id, **about}
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
        resumed = note.get("resumed")
        return DeletePlaces(
            id.removeprefix(PLACES_PREFIX), tuple(things), job, resumed if isinstance(resumed, int) else 0
        )
    return DeleteNodes(id.removeprefix(PREFIX), tuple(things), job)
