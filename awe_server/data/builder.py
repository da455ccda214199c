"""Build indexes without holding up the event loop."""

from pathlib import Path

from anyio import to_thread

from awe_server.data.documents import size_units
from awe_server.data.ports import IndexFact
from shared_models.errors import BadRequest


class IndexBuilder:
    """Runs index scans."""

    async def build(self, blob: Path, kind: str, name: str) -> IndexFact:
        """Build one index; `name` is what errors call the file."""
        if kind == "size":
            return IndexFact("size", size_units((await to_thread.run_sync(blob.stat)).st_size), "size")
        raise BadRequest(f"Unknown index kind '{kind[:60]}': expected size, line, record or chunkrecord.")

    async def close(self) -> None:
        """Stop the worker processes."""
