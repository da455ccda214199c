"""Nodes of equal content share its bytes: one file with a name for each of them.

A file becomes shared after its document is durable, by taking its name over to the bytes of another one:
whatever a crash interrupts, the document names whole and right bytes. The bytes stay as long as one node
needs them, because every node has a name of its own for them.
"""

import errno
import logging
import os
import secrets
from pathlib import Path

from anyio import to_thread

from awe_server.data.blobs import BUFFER_BYTES
from awe_server.data.documents import problem_of
from awe_server.data.files import TEMPORARY_PREFIX, fsync_folder
from awe_server.data.node_base import NodeBase
from awe_server.data.quota import Quota
from awe_server.store.base import Document, Match, Put, Query
from shared_models.errors import AweError

log = logging.getLogger(__name__)

#: Nodes of the same content that are tried: files have a limited number of names, or are damaged.
_CANDIDATES = 8


class NodeSharing(NodeBase):
    """Shares bytes between nodes."""

    async def _put_with_file(self, document: Document, *, dedup: bool = False) -> None:
        """Store a node's document with new content, and then let it use the bytes of another node, if that is
        wanted. One node after the other: else two of them would each look for bytes that the other gives up.
        """
        if not ((dedup or self._dedup) and document["file"]["size"]):
            await self._documents.put(Put("nodes", document))
            return
        async with self._lock(f"sha256/{document['file']['checksum']['sha256']}"):
            await self._documents.put(Put("nodes", document))
            await self._share(document)

    async def _share(self, document: Document) -> None:
        """A saving and no promise: what keeps it from being made leaves the node its own bytes."""
        own = self._blobs.path(document["_blob"])
        try:
            for other in await self._of_same_content(document):
                twin = self._blobs.path(other["_blob"])
                if await to_thread.run_sync(_take_over, self._quota, own, twin):
                    return
        except (AweError, OSError) as exc:
            log.warning("not_shared", extra={"node": document["id"], "reason": str(exc)})

    async def _of_same_content(self, document: Document) -> list[Document]:
        file = document["file"]
        same = (
            Match("file.checksum.sha256", (file["checksum"]["sha256"],)),
            Match("file.size", (file["size"],)),
        )
        found: dict[str, Document] = {}
        for newest in (False, True):
            page = await self._documents.find("nodes", Query(same, "created_on", newest, _CANDIDATES))
            found.update((other["id"], other) for other in page.documents if not problem_of(other))
        found.pop(document["id"], None)
        return list(found.values())


def _take_over(quota: Quota, own: Path, twin: Path) -> bool:
    """Make `own` a name of the bytes of `twin`, if these are still the same; whether it is one now."""
    try:
        if own.samefile(twin):
            return True
        if not _is_same(own, twin):
            return False
        temporary = own.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")
        quota.link(twin, temporary)
        try:
            quota.rename(temporary, own)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        fsync_folder(own.parent)
    except FileNotFoundError:  # it was replaced or deleted meanwhile
        return False
    except OSError as exc:
        if exc.errno != errno.EMLINK:
            raise
        return False
    return True


def _is_same(first: Path, second: Path) -> bool:
    """Compare the bytes: the file of a disk that went bad must not replace a good one."""
    with first.open("rb", buffering=0) as one, second.open("rb", buffering=0) as other:
        if os.fstat(one.fileno()).st_size != os.fstat(other.fileno()).st_size:
            return False
        while True:
            data = one.read(BUFFER_BYTES)
            if data != other.read(BUFFER_BYTES):
                return False
            if not data:
                return True
