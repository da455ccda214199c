"""A store as a server leaves it that was used: jobs in every state, leases, files, secrets; made by a real
server in process, with requests.
"""

from pathlib import Path
from typing import Any

import httpx

from awe_server.api import build_api
from awe_server.app import build_services
from awe_server.runtime.clock import Clock
from awe_server.settings import Settings
from tests.support.eventually import eventually

SECRETS = ("private-of-the-job", "token-of-the-data")  #: what a submitter told nobody else


async def use(data: Path, store_url: str = "sqlite") -> None:
    """Start a server, let people and one client use it, stop it while work is out.

    Jobs by name: `done` (three ranks, then one), `runs` (two of three ranks out; secrets, an output),
    `paused`, `gone` (deleted), `hopeless` (exit code 42). And a file that somebody uploaded.
    """
    deaths: list[BaseException] = []
    settings = Settings(data_dir=data, store_url=store_url, free_floor_bytes=0)
    services = build_services(settings, clock=Clock(), fatal=deaths.append)
    await services.engine.start()
    transport = httpx.ASGITransport(build_api(services))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8001", timeout=20) as http:
        await _Users(http).work()
    await services.engine.stop()
    assert not deaths


class _Users:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._client = ""
        self._requests = 0
        self._held: dict[str, tuple[int, str]] = {}

    async def work(self) -> None:
        await self._ask("POST", "/node", content=b"a file")
        profile = {"name": "n", "group": "g", "apps": ["*"], "cores": 8, "memory_bytes": 2**30}
        registered = {**profile, "disk_bytes": 2**30, "native": True, "incarnation": "one"}
        self._client = (await self._ask("POST", "/client", json=registered))["id"]
        done = await self._submit("done", _task("cut", totalwork=3), _task("sum", dependsOn=["cut"]))
        while await self._take():
            await self._report(*self._held)
        await self._until(done, "completed")
        gone = await self._submit("gone", _task("only", totalwork=2))
        paused = await self._submit("paused", _task("only", totalwork=3))
        hopeless = await self._submit("hopeless", _task("only"), _task("never", dependsOn=["only"]))
        await self._take(want=6)
        await self._report(f"{paused}_only_1")
        await self._report(f"{hopeless}_only_0", outcome="failed", kind="command", exit_code=42)
        await self._ask("PUT", f"/job/{paused}?suspend")
        await self._ask("DELETE", f"/job/{gone}")
        self._held.clear()
        private, token = SECRETS
        secret = _task("made", outputs=[{"filename": "o"}], totalwork=3)
        secret["cmd"]["environ"] = {"private": {"PASSWORD": private}}
        await self._submit("runs", secret, headers={"Datatoken": token})
        await eventually(lambda: self._take(want=2))
        assert len(self._held) == 2

    async def _ask(self, method: str, path: str, **more: Any) -> Any:
        reply = await self._http.request(method, path, **more)
        assert reply.status_code == 200, reply.text
        return reply.json()["data"]

    async def _submit(self, name: str, *tasks: dict[str, Any], **more: Any) -> str:
        document = {"info": {"name": name}, "tasks": list(tasks)}
        return str((await self._ask("POST", "/job", json=document, **more))["id"])

    async def _until(self, job: str, state: str) -> None:
        async def reached() -> bool:
            return bool((await self._ask("GET", f"/job/{job}"))["state"] == state)

        await eventually(reached)

    async def _take(self, want: int = 8) -> bool:
        given = await self._exchange(want)
        return bool(given["work"])

    async def _report(self, *ids: str, **how: Any) -> None:
        reports = []
        for id in ids:
            attempt, token = self._held.pop(id)
            reports.append({"work": id, "attempt": attempt, "token": token, "outcome": "done", **how})
        await self._exchange(0, reports)

    async def _exchange(self, want: int, reports: list[dict[str, Any]] | None = None) -> Any:
        self._requests += 1
        said = {"incarnation": "one", "request_id": self._requests, "want": want, "reports": reports or []}
        held = [[id, attempt] for id, (attempt, _) in self._held.items()]
        told = await self._ask("POST", f"/client/{self._client}/exchange", json={**said, "holds": held})
        assert all(row["result"] == "accepted" for row in told["results"])
        for work in told["work"]:
            self._held[f"{work['task']}_{work['rank']}"] = (work["attempt"], work["token"])
        return told


def _task(name: str, **keys: Any) -> dict[str, Any]:
    return {"taskid": name, "cmd": {"name": "true"}, **keys}
