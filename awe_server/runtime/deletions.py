"""Nodes that nobody needs any more: noted with the batch that made them useless, deleted once it is durable.

A note is a document of `meta`, so a crash in between loses no deletion: recovery reads what is left and asks
again. It is written after everything else of its batch: a torn batch must not name nodes still in use.
"""

import contextlib
import logging
from collections.abc import Iterable

from awe_server.data.nodes import NodeStore
from awe_server.data.ports import DocumentPort
from awe_server.scheduler.state import DeleteNodes, Effect
from awe_server.store.base import Delete, Document, Match, Put, Query, Store
from shared_models.errors import NodeNotFound

log = logging.getLogger(__name__)

#: How the ids of notes begin, among the documents of `meta`.
PREFIX = "delete-nodes-"
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


def notes(effects: Iterable[Effect]) -> list[Put]:
    """The notes of those effects that need one."""
    return [
        Put("meta", {"id": PREFIX + effect.id, "node_ids": list(effect.node_ids), "job": effect.job})
        for effect in effects
        if isinstance(effect, DeleteNodes)
    ]


async def left_over(store: Store) -> list[DeleteNodes]:
    """What was noted and not done. Raises StoreUnavailable."""
    noted = [document async for document in store.scan("meta") if document["id"].startswith(PREFIX)]
    return [effect for document in noted if (effect := _effect(document)) is not None]


def _effect(note: Document) -> DeleteNodes | None:
    node_ids = note.get("node_ids")
    if not isinstance(node_ids, list) or not all(isinstance(id, str) for id in node_ids):
        log.error(
            "document_skipped", extra={"collection": "meta", "id": note["id"], "error": "node_ids: no list"}
        )
        return None
    job = str(note.get("job") or "")
    return DeleteNodes(note["id"].removeprefix(PREFIX), tuple(node_ids), job)
