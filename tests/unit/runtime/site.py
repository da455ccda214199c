"""A workshop with a real node store, whose effects are carried out."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import orjson

from awe_server.data.nodes import NodeStore
from awe_server.runtime.duties import BackgroundDuties
from awe_server.runtime.node_removal import NodeRemover
from awe_server.runtime.random_ids import Uuids
from awe_server.scheduler.clients import register
from awe_server.scheduler.submit import submit_job
from shared_models.ids import JobId, TaskId
from shared_models.parse import parse_job_document
from tests.support.eventually import eventually
from tests.support.staged import stage_path
from tests.unit.runtime.workshop import CLIENT, Workshop

new_id = Uuids()


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
        self.remover = NodeRemover(self.engine, self.nodes, lambda: self.engine.state, self.hands.clock.wall)

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


class SharedSite(Site):
    """A site that reaches other servers, and has a directory that is open to jobs."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.shared = root / "shared"
        self.shared.mkdir(exist_ok=True)
        super().__init__(root, file_roots=(str(self.shared),), **settings)
        self.background = BackgroundDuties(
            self.engine, self.nodes, root / "nodes", root / "logs", new_id, self.fatal.append
        )
        self.engine.attach(self.background)

    async def register(self) -> None:
        profile = {
            "name": "c", "group": "default", "apps": ["*"], "cores": 1, "memory_bytes": 2**30,
            "disk_bytes": 2**30, "native": True, "incarnation": "one", "file_roots": [str(self.shared)],
        }  # fmt: skip
        await self.engine.do(register, profile, CLIENT, CLIENT)

    async def submit(self, *tasks: dict[str, Any], key: str = "", **info: Any) -> JobId:
        raw = orjson.dumps({"info": {"name": "t", **info}, "tasks": list(tasks)})
        document = parse_job_document(raw, closed=lambda path: None)
        job_id = JobId(new_id())
        await self.engine.do(submit_job, document, job_id=job_id, owner="", idempotency_key=key)
        return job_id

    def stage(self, job_id: JobId, generation: int, attempt: int, data: bytes) -> Path:
        target = f"{self.shared}/out"
        path = Path(stage_path(target, TaskId(f"{job_id}_0"), generation, 0, attempt))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return path
