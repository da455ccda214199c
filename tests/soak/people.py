"""Who submits jobs all the time, and who plays with all buttons."""

import asyncio
import time
from typing import Any

from tests.soak import documents
from tests.soak.documents import REAL, Document
from tests.soak.world import Line, World

#: Verbs on a job, by weight.
_VERBS: dict[str, tuple[str, str, float]] = {
    "suspend": ("PUT", "/job/{job}?suspend", 4),
    "resume": ("PUT", "/job/{job}?resume", 6),
    "recompute": ("PUT", "/job/{job}?recompute={task}", 2),
    "resubmit": ("PUT", "/job/{job}?resubmit", 2),
    "priority": ("PUT", "/job/{job}?priority={n}", 3),
    "expiration": ("PUT", "/job/{job}?expiration=1M", 3),
    "delete": ("DELETE", "/job/{job}", 1),
    "delete entirely": ("DELETE", "/job/{job}?full", 1),
    "look": ("GET", "/job/{job}?why", 3),
    "resume all": ("PUT", "/job?resumeall", 0.5),
    "suspend client": ("PUT", "/client/{client}?suspend", 1),
    "resume client": ("PUT", "/client/{client}?resume", 2),
    "remove client": ("DELETE", "/client/{client}", 0.3),
    "resume clients": ("PUT", "/client?resumeall", 0.5),
    "suspend queue": ("PUT", "/queue?suspend", 0.2),
    "resume queue": ("PUT", "/queue?resume", 1),
}
_RECENT = 200  #: jobs that verbs are used on


class Submitter:
    """Submits jobs, each under a key of its own, until it was acknowledged."""

    def __init__(
        self,
        world: World,
        number: int,
        *,
        per_s: float,
        max_open: int,
        real: float = 0.0,
        expiring: float = 0.0,
    ) -> None:
        """`real` is the share of jobs with files that real clients do, `expiring` that of jobs that go soon
        after they have ended; all do once the world is steady.
        """
        self._world, self._rng = world, world.rng(f"submitter {number}")
        self._number, self._per_s, self._max_open = number, per_s, max_open
        self._real, self._expiring = real, expiring

    async def run(self) -> None:
        """Submit while the world is not calm."""
        count = 0
        async with Line(self._world) as line:
            while not self._world.is_calm:
                began_s = time.monotonic()
                if count % 10 == 0:
                    await self._wait_for_room(line)
                count += 1
                await self._submit(line, f"soak-{self._world.seed}-{self._number}-{count}")
                pause_s = self._rng.expovariate(self._per_s)
                await asyncio.sleep(max(0.0, pause_s - (time.monotonic() - began_s)))

    async def _wait_for_room(self, line: Line) -> None:
        """Bound what is open: a backlog that grows for ever is no leak."""
        while not self._world.is_calm and await open_jobs(line) > self._max_open:  # noqa: ASYNC110 - a server
            await asyncio.sleep(0.5)

    async def _submit(self, line: Line, key: str) -> None:
        document, content = await self._document(line)
        job = await line.data("POST", "/job", json=document, headers={"Idempotency-Key": key})
        self._world.jobs[job["id"]] = content
        self._world.counts["jobs submitted"] += 1
        if self._world.is_steady or self._rng.random() < self._expiring:
            await line.insist("PUT", f"/job/{job['id']}?expiration=1M")

    async def _document(self, line: Line) -> tuple[Document, bytes]:
        drawn = self._rng.random()
        if drawn < 0.5:
            return documents.chain(self._rng), b""
        content = documents.lines(self._rng)
        node = await line.data("POST", "/node?file_name=in.txt&expiration=30M", content=content)
        group = REAL if self._rng.random() < self._real else documents.FAKE
        return documents.copies(self._rng, node["id"], group), content


async def open_jobs(line: Line, *, suspended: bool = False) -> int:
    """How many jobs have not ended."""
    states = "init,queued,in-progress" + (",suspend" if suspended else "")
    reply = await line.insist("GET", f"/job?verbosity=minimal&limit=1&state={states}")
    return int(reply.json()["total_count"])


class Busybody:
    """Uses random verbs on random jobs and clients; refusals are fine, faults of the server are not."""

    def __init__(self, world: World, number: int, clients: int, *, per_s: float) -> None:
        self._world, self._rng = world, world.rng(f"busybody {number}")
        self._clients, self._per_s = clients, per_s

    async def run(self) -> None:
        """Meddle while the world is not calm."""
        names, weights = list(_VERBS), [weight for _, _, weight in _VERBS.values()]
        async with Line(self._world) as line:
            while not self._world.is_calm:
                await asyncio.sleep(self._rng.expovariate(self._per_s))
                jobs = list(self._world.jobs)[-_RECENT:]
                if not jobs:
                    continue
                name = self._rng.choices(names, weights)[0]
                method, path, _ = _VERBS[name]
                reply = await line.ask(method, path.format(**self._about(self._rng.choice(jobs))))
                told = "unanswered" if reply is None else "done" if reply.is_success else "refused"
                self._world.counts[f"verbs {told}"] += 1
                if told == "done":
                    self._world.counts[f"verb {name}"] += 1

    def _about(self, job: str) -> dict[str, Any]:
        return {
            "job": job,
            "task": "parts" if self._world.jobs[job] else "0",
            "n": self._rng.randint(0, 9),
            "client": f"fake-{self._rng.randrange(self._clients)}",
        }
