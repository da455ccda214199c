"""The whole server in process, on the memory store, with a clock that tests move."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from awe_server.api import build_api
from awe_server.app import build_services
from awe_server.runtime.clock import Clock
from awe_server.runtime.services import Services
from awe_server.settings import Settings
from tests.support.eventually import eventually
from tests.support.invariants import (
    COLLECTIONS,
    Document,
    Ledger,
    Tape,
    check_all,
    check_files,
    check_temporary,
    counted,
)

URL = "http://127.0.0.1:8001"


@dataclass
class Hands:
    """The clock's hands."""

    now_s: float = 1_000.0
    wall_s: float = 1_796_028_857.0

    def advance(self, span_s: float) -> None:
        self.now_s += span_s
        self.wall_s += span_s


@dataclass
class Api:
    """A server and somebody who talks to it."""

    app: FastAPI
    services: Services
    http: httpx.AsyncClient
    hands: Hands
    deaths: list[BaseException] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)

    async def check(self) -> Sequence[str]:
        """What is wrong with what was answered, told and stored; the server still runs."""
        engine, tape = self.services.engine, Tape()
        await engine.settled()
        while page := engine.events.since(tape.last):
            tape.add(page)
        documents: dict[str, list[Document]] = {
            name: [document async for document in engine.scan(name)] for name in COLLECTIONS
        }
        broken = check_all(documents, tape, self.ledger, wall_s=self.hands.wall_s)
        return counted([*broken, *check_files(self.services.settings.data_dir / "memory", documents)])

    async def ok(self, method: str, path: str, **more: Any) -> Any:
        """The `data` of a request that must succeed."""
        reply = await self.http.request(method, path, **more)
        assert reply.status_code == 200, reply.text
        envelope = reply.json()
        assert envelope["status"] == 200
        assert envelope["error"] is None
        return envelope["data"]

    async def refused(self, method: str, path: str, status: int, code: str, **more: Any) -> list[str]:
        """The texts of a request that must be refused so."""
        reply = await self.http.request(method, path, **more)
        envelope = reply.json()
        assert (reply.status_code, envelope.get("code")) == (status, code), reply.text
        assert envelope["status"] == status
        assert envelope["data"] is None
        assert all(isinstance(text, str) and text for text in envelope["error"])
        texts: list[str] = envelope["error"]
        return texts

    async def submit(self, *tasks: dict[str, Any], **info: Any) -> dict[str, Any]:
        """Submit a job; without tasks, one that runs `true`."""
        document = {"info": info, "tasks": tasks or ({"taskid": "0", "cmd": {"name": "true"}},)}
        job: dict[str, Any] = await self.ok("POST", "/job", json=document)
        return job

    async def register(self, name: str = "w1", **profile: Any) -> dict[str, Any]:
        """Register a stock worker."""
        profile = {"name": name, "group": "default", "apps": ["*"], "cores": 4, **profile}
        client: dict[str, Any] = await self.ok("POST", "/client", json=profile)
        return client

    async def checkout(self, client: dict[str, Any]) -> dict[str, Any]:
        """Check one workunit out."""
        work: dict[str, Any] = await self.ok("GET", f"/work?client={client['id']}")
        return work

    async def report(self, work: dict[str, Any], status: str = "done", **params: Any) -> Any:
        """Report as a stock worker does; the envelope's data."""
        query = {"status": status, "client": work["client"], "computetime": "1", **params}
        return await self.ok("PUT", f"/work/{work['id']}", params=query)

    async def state_of(self, job: dict[str, Any], state: str) -> dict[str, Any]:
        """The job, once it is in this state."""
        found: dict[str, Any] = {}

        async def is_there() -> bool:
            found.update(await self.ok("GET", f"/job/{job['id']}"))
            return bool(found["state"] == state)

        await eventually(is_there, show=lambda: found)
        return found


@pytest.fixture
def settings() -> dict[str, Any]:
    """Settings that are not the usual ones; modules replace it."""
    return {}


@pytest.fixture
async def api(tmp_path: Path, settings: dict[str, Any], anyio_backend: str) -> AsyncIterator[Api]:
    hands, deaths = Hands(), list[BaseException]()
    services = build_services(
        Settings(
            data_dir=tmp_path / "data", store_url="memory:", free_floor_bytes=0, retry_base_s=0.0, **settings
        ),
        clock=Clock(lambda: hands.now_s, lambda: hands.wall_s),
        fatal=deaths.append,
    )
    app = build_api(services)
    await services.engine.start()
    ledger = Ledger()
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url=URL, timeout=20, event_hooks=ledger.async_hooks()
    ) as http:
        api = Api(app, services, http, hands, deaths, ledger)
        yield api
    broken = [] if deaths else [*(await api.check())]
    await services.engine.stop()
    if not deaths:
        broken += check_temporary(tmp_path / "data")
    assert not deaths
    assert not broken, "\n".join(broken)
