"""A fake client that lives by exchange: it computes nothing, breaks no rule of the wire, and is moody.

It forgets work, gives it back, fails, falls silent for longer than a lease, and crashes; its lines are as bad
as the proxy makes them. What it must not do (docs/wire.md, 6): take grants of a request that it gave up, drop
a result before the server has answered it.
"""

import asyncio
import uuid
from functools import partial
from typing import Any

from tests.soak.documents import FAKE
from tests.soak.world import Line, World
from tests.support.fake_client import Grant, Reply

#: How an attempt ends, by weight.
_ENDS = {"done": 0.86, "failed": 0.05, "released": 0.04, "forgotten": 0.03, "node": 0.01, "late": 0.01}
_CRASH, _SILENCE, _GIVE_UP = 0.004, 0.004, 0.3  #: odds in each round; of a request without an answer
_BUSY = 6  #: attempts at once


class Worker:
    """One client."""

    def __init__(self, world: World, number: int, pace_s: float = 0.4) -> None:
        self._world, self._rng = world, world.rng(f"worker {number}")
        self._pace_s = pace_s  #: work takes so long on average
        self.id = f"fake-{number}"
        self._incarnation, self._request_id = uuid.uuid4().hex, 0
        self._held: dict[str, Grant] = {}
        self._ready: dict[str, Reply] = {}  #: reports that were not answered yet
        self._doing: dict[str, asyncio.Task[None]] = {}
        self._line = Line(world)

    async def run(self) -> None:
        """Work until all is over."""
        async with self._line:
            try:
                await self._register()
                while not self._world.is_over:
                    await self._round()
                await self._ask(self._request(0) | {"leaving": True})
            finally:
                await self._drop(*self._doing)

    async def _round(self) -> None:
        if not self._world.is_calm:
            if self._rng.random() < _CRASH:
                await self._crash()
            if self._rng.random() < _SILENCE:
                self._world.counts["clients that fell silent"] += 1
                await asyncio.sleep(self._rng.uniform(1.0, 2.0) * self._world.lease_s)
        want = self._rng.randint(1, 3) if len(self._held) < _BUSY else 0
        if (data := await self._ask(self._request(want))) is not None:
            await self._take(data)

    def _request(self, want: int) -> Reply:
        self._request_id += 1
        wait_s = self._rng.uniform(0.1, 0.5) if self._held else self._rng.uniform(0.5, 3.0)
        return {
            "incarnation": self._incarnation, "request_id": self._request_id, "want": want,
            "wait_s": 0.0 if self._ready else wait_s,
            "holds": [grant.hold for grant in self._held.values()], "reports": list(self._ready.values()),
            "free": {"cores": 64, "memory_bytes": 2**40, "disk_bytes": 2**40, "gpus": 0},
        }  # fmt: skip

    async def _ask(self, request: Reply) -> Reply | None:
        """An exchange, repeated as it is until it is answered, or given up for a newer one."""
        while True:
            reply = await self._line.ask("POST", f"/client/{self.id}/exchange", json=request)
            if reply is not None and reply.is_success:
                return dict(reply.json()["data"])
            if reply is not None:
                if reply.status_code not in (404, 409):
                    self._world.problem(f"exchange of {self.id}: {reply.status_code} {reply.text[:500]}")
                await self._register()
                return None
            await asyncio.sleep(self._rng.uniform(0.02, 0.2))
            if self._world.is_over or self._rng.random() < _GIVE_UP:
                return None

    async def _register(self, spooled: list[list[Any]] | None = None) -> None:
        profile = {
            "id": self.id, "name": self.id, "group": FAKE, "apps": ["*"], "cores": 64,
            "memory_bytes": 2**40, "disk_bytes": 2**40, "native": True, "incarnation": self._incarnation,
            "spooled": spooled or [],
        }  # fmt: skip
        await self._line.data("POST", "/client", json=profile)

    async def _crash(self) -> None:
        """All is lost but the results on disk."""
        self._world.counts["clients that crashed"] += 1
        await self._drop(*(work for work in self._held if work not in self._ready))
        self._incarnation, self._request_id = uuid.uuid4().hex, 0
        await self._register([self._held[work].hold for work in self._ready if work in self._held])

    async def _take(self, data: Reply) -> None:
        """What the server answered."""
        for result in data["results"]:
            self._world.counts[f"reports {result['result']}"] += 1
            report = self._ready.pop(result["work"], None)
            if report and report["outcome"] == "done" and result["result"] == "accepted":
                self._world.accepted[result["work"]] += 1
            await self._drop(result["work"])
        await self._drop(*(work for work, _ in data["discard"]))
        if data["stop"]:
            await self._drop(*self._held)
            self._incarnation, self._request_id = uuid.uuid4().hex, 0
            await self._register()
        for item in data["work"]:
            await self._begin(
                Grant(
                    f"{item['task']}_{item['rank']}", item["attempt"], item["token"], item["rank"],
                    data["tasks"][item["task"]], item.get("part", ""), item.get("pieces", []),
                )
            )  # fmt: skip

    async def _begin(self, grant: Grant) -> None:
        known = self._held.get(grant.work)
        if known is not None and known.attempt == grant.attempt:
            return  # granted again, since the server cannot know that the reply has come
        await self._drop(grant.work)
        self._held[grant.work] = grant
        doing = self._world.watched(f"{self.id} {grant.work}", partial(self._work, grant))
        self._doing[grant.work] = asyncio.ensure_future(doing)

    async def _drop(self, *works: str) -> None:
        """Forget these attempts."""
        ended = [self._doing.pop(work) for work in works if work in self._doing]
        for work in works:
            self._held.pop(work, None)
            self._ready.pop(work, None)
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

    async def _work(self, grant: Grant) -> None:
        """One attempt, to its report."""
        world, rng = self._world, self._rng
        end = "done" if world.is_calm else rng.choices(list(_ENDS), list(_ENDS.values()))[0]
        world.counts[f"attempts {end}"] += 1
        if not world.is_calm:
            await asyncio.sleep(rng.expovariate(1 / self._pace_s))
        if end == "late":
            await asyncio.sleep(2 * world.lease_s)
        if end == "forgotten":
            self._forget(grant)
            return
        report = self._report(grant, end)
        if end in ("done", "late"):
            outputs = await self._outputs(grant)
            if outputs is None:
                world.counts["attempts that were taken away"] += 1
                self._forget(grant)
                return
            report["outputs"] = outputs
        self._ready[grant.work] = report

    def _forget(self, grant: Grant) -> None:
        if self._held.get(grant.work) is grant:
            del self._held[grant.work]

    def _report(self, grant: Grant, end: str) -> Reply:
        report: Reply = {"work": grant.work, "attempt": grant.attempt, "token": grant.token}
        if end in ("done", "late"):
            return report | {"outcome": "done", "exit_code": 0, "computetime_s": 0.1}
        if end == "released":
            return report | {"outcome": "released"}
        return report | {
            "outcome": "failed", "kind": "node" if end == "node" else "command", "exit_code": 1,
            "message": "as the soak wants it",
        }  # fmt: skip

    async def _outputs(self, grant: Grant) -> list[Reply] | None:
        """Copy the input to each output; None if the attempt, or what it needs, is gone."""
        task, made = grant.task, []
        content: bytes | None = b""
        if task["inputs"]:
            content = await self._input(grant)
        for io in task["outputs"] if content is not None else ():
            path = f"/node/{io['node']}?work={grant.work}&attempt={grant.attempt}"
            headers = {"Awe-Lease": grant.token, "Content-Type": "application/octet-stream"}
            reply = await self._line.insist("PUT", path, content=content, headers=headers)
            if not reply.is_success:
                self._refused(reply.status_code, f"upload of {grant.work}: {reply.text[:500]}")
                return None
            fact = reply.json()["data"]
            made.append({"filename": io["filename"], "size": fact["size"], "md5": fact["md5"]})
        return None if content is None else made

    async def _input(self, grant: Grant) -> bytes | None:
        """The piece of its input."""
        url, headers, length = grant.task["inputs"][0]["url"], {}, None
        if grant.pieces:
            [(offset, length)] = grant.pieces
            if not length:
                return b""
            headers["Range"] = f"bytes={offset}-{offset + length - 1}"
        reply = await self._line.insist("GET", url, headers=headers)
        if not reply.is_success:
            self._refused(reply.status_code, f"input of {grant.work}: {reply.text[:500]}")
            return None
        if length is not None and len(reply.content) != length:
            self._world.problem(f"input of {grant.work}: {len(reply.content)} of {length} bytes")
        return reply.content

    def _refused(self, status: int, what: str) -> None:
        """Work may be taken away at any time, and its job removed; nothing else may happen."""
        if status not in (403, 404, 409):
            self._world.problem(f"{what} ({status})")
