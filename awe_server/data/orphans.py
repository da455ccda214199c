"""Find files that no node document names, and remove them."""

import itertools
import logging
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from anyio import to_thread

from awe_server.data.blobs import BlobStore
from awe_server.data.documents import problem_of
from awe_server.data.files import TEMPORARY_PREFIX, clean_temporary, walk
from awe_server.data.indexes import SIDECAR_SUFFIX
from awe_server.data.parts import PartStore
from awe_server.data.ports import DocumentPort
from awe_server.store.base import Document, Match, Query

log = logging.getLogger(__name__)

_BATCH = 500  #: files looked up in one query


async def collect(blobs: BlobStore, parts: PartStore, documents: DocumentPort, older_than_s: float) -> int:
    """Remove blobs, indexes and staged parts written before `older_than_s` that no node names; how many.

    What may be of a node whose document makes no sense stays.

    The files are listed before the documents are asked, and young files are left alone: an upload that was
    just completed may not be named yet.
    """
    removed = await to_thread.run_sync(clean_temporary, blobs.root, older_than_s)
    removed += await to_thread.run_sync(clean_temporary, parts.root, older_than_s)
    for batch in _batches(await to_thread.run_sync(_old_blobs, blobs, older_than_s)):
        named, odd = _sorted(await _nodes(documents, map(owner_of, batch)))
        unnamed = [name for name in batch if blob_of(name) not in named and owner_of(name) not in odd]
        removed += await to_thread.run_sync(_remove_files, blobs, unnamed)
    for batch in _batches(await to_thread.run_sync(_old_parts, parts, older_than_s)):
        known = {document["id"] for document in await _nodes(documents, batch)}
        unnamed = [node_id for node_id in batch if node_id not in known]
        removed += await to_thread.run_sync(_remove_folders, parts, unnamed)
    return removed


def _old_blobs(blobs: BlobStore, older_than_s: float) -> list[str]:
    return [
        str(Path(entry.path).relative_to(blobs.root))
        for entry in blobs.walk()
        if not entry.name.startswith(TEMPORARY_PREFIX) and entry.stat().st_mtime < older_than_s
    ]


def _old_parts(parts: PartStore, older_than_s: float) -> list[str]:
    return [entry.name for entry in parts.nodes() if entry.stat().st_mtime < older_than_s]


def blob_of(name: str) -> str:
    """An index `<blob>.<kind>.idx` lives as long as its blob."""
    return name.rsplit(".", 2)[0] if name.endswith(SIDECAR_SUFFIX) else name


def owner_of(name: str) -> str:
    """The id of the node for which a blob, or an index of one, was made."""
    return name.rsplit("/", 1)[-1].split(".", 1)[0]


def _sorted(found: Iterable[Document]) -> tuple[set[str], set[str]]:
    """The blobs that documents name, and the ids of those that make no sense: what they name is not known."""
    named: set[str] = set()
    odd: set[str] = set()
    for document in found:
        if problem := problem_of(document) or (document["file"] and not document["_blob"] and "no _blob"):
            odd.add(document["id"])
            log.error(
                "node_skipped",
                extra={"node": document["id"], "reason": f"its document makes no sense: {problem}"},
            )
        elif document["_blob"]:
            named.add(document["_blob"])
    return named, odd


async def _nodes(documents: DocumentPort, ids: Iterable[str]) -> list[Document]:
    wanted = tuple(dict.fromkeys(ids))
    return (await documents.find("nodes", Query(where=(Match("id", wanted),)))).documents


def _batches(names: list[str]) -> Iterator[list[str]]:
    iterator = iter(names)
    while batch := list(itertools.islice(iterator, _BATCH)):
        yield batch


def _remove_files(blobs: BlobStore, names: list[str]) -> int:
    for name in names:
        blobs.quota.remove(blobs.path(name))
    return len(names)


def _remove_folders(parts: PartStore, names: list[str]) -> int:
    for name in names:
        folder = parts.folder(name)
        for entry in list(walk(folder)):
            parts.quota.remove(Path(entry.path))
        shutil.rmtree(folder)
    return len(names)
