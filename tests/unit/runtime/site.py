"""A workshop with a real node store, whose effects are carried out."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx

from awe_server.app import new_id
from awe_server.data.nodes import NodeStore
from awe_server.runtime.duties import BackgroundDuties
from shared_models.ids import JobId
from tests.support.eventually import eventually
from tests.unit.runtime.workshop import Workshop


async def stream(content: bytes) -> AsyncIterator[bytes]:
    yield content


class Site(Workshop):
    """A workshop whose effects are carried out."""

    def __init__(self, root: Path, **settings: Any) -> None:
        super().__init__(**settings)
        self.root = root
        self.nodes = NodeStore(root / "nodes", self.engine, new_id, self.hands.clock.wall, 0)
        self.foreign: Callable[[httpx.Request], httpx.Response] = lambda request: httpx.Response(404)
        http = httpx.AsyncClient(transport=httpx.MockTransport(lambda request: self.foreign(request)))
        self.background = BackgroundDuties(
            self.engine, self.nodes, root / "nodes", root / "logs", new_id, self.fatal.append, http
        )
        self.engine.attach(self.background)

    async def node(self, content: bytes, name: str = "in.txt") -> str:
        return str((await self.nodes.create(stream(content), name=name))["id"])

    async def shown(self, job_id: JobId) -> tuple[dict[str, Any], dict[str, Any]]:
        job, tasks = await self.engine.job_documents(job_id)
        return job, tasks[0]

    async def until(self, job_id: JobId, state: str) -> dict[str, Any]:
        """Wait for the first task's state; the task."""
        seen: dict[str, Any] = {}

        async def reached() -> bool:
            seen.update((await self.shown(job_id))[1])
            return bool(seen["state"] == state)

        await eventually(reached, show=lambda: seen)
        return seen

    async def text(self, node_id: str) -> bytes:
        download = await self.nodes.open_range(node_id)
        return b"".join([chunk async for chunk in download.chunks])
