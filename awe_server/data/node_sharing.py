"""Nodes of equal content share its bytes: one file with a name for each of them.

A file becomes shared after its document is durable, by taking its name over to the bytes of another one:
whatever a crash interrupts, the document names whole and right bytes. The bytes stay as long as one node
needs them, because every node has a name of its own for them.
"""

import logging
import os
import secrets
from pathlib import Path

from anyio import to_thread

from awe_server.data.blobs import BUFFER_BYTES
from awe_server.data.files import TEMPORARY_PREFIX, fsync_folder
from awe_server.data.node_base import NodeBase
from awe_server.data.quota import Quota
from awe_server.store.base import Document, Match, Query

log = logging.getLogger(__name__)

#: Nodes of the same content that are tried: files have a limited number of names, or are damaged.
_CANDIDATES = 8


class NodeSharing(NodeBase):
    """Shares bytes between nodes."""

    async def _share(self, document: Document, *, wanted: bool = False) -> None:
        """Let a node, whose document is durable, use the bytes of another one with the same content.

        That is a saving and no promise: what keeps it from being made leaves the node its own bytes.
        """
        file = document["file"]
        if not ((wanted or self._dedup) and file["size"]):
            return
        sha256, size = file["checksum"]["sha256"], file["size"]
        async with self._lock(f"sha256/{sha256}"):
            same = (Match("file.checksum.sha256", (sha256,)), Match("file.size", (size,)))
            newest = Query(same, order="created_on", descending=True, limit=_CANDIDATES)
            oldest = Query(same, order="created_on", limit=_CANDIDATES)
            for query in (oldest, newest):
                for other in (await self._documents.find("nodes", query)).documents:
                    if other["id"] == document["id"]:
                        continue
                    own, twin = self._blobs.path(document["_blob"]), self._blobs.path(other["_blob"])
                    try:
                        if await to_thread.run_sync(_take_over, self._quota, own, twin):
                            return
                    except OSError as exc:
                        log.warning("not_shared", extra={"node": document["id"], "reason": str(exc)})


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
    except FileNotFoundError:  # one of them was replaced or deleted meanwhile
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
