"""What everybody in a soak shares: where the server is, how bad things are, and what was seen."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

#: Refusals that say: later.
BUSY = (503, 507)
MAX_PROBLEMS = 100


class Runs(Protocol):
    """Somebody who does something until all is over."""

    async def run(self) -> None: ...


@dataclass
class World:
    """One server behind a proxy, and all who use it. Everything runs in one event loop."""

    url: str  #: the way through the proxy
    seed: int
    lease_s: float
    hooks: dict[str, list[Callable[..., Any]]] = field(default_factory=dict)  #: of each HTTP client
    is_steady: bool = False  #: what is kept for ever does not grow any more
    is_calm: bool = False  #: nobody misbehaves any more, whatever the lines do
    is_over: bool = False  #: everybody goes home
    answered: int = 0  #: requests that the server took
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    accepted: Counter[str] = field(default_factory=Counter)  #: results, by workunit
    jobs: dict[str, bytes] = field(default_factory=dict)  #: acknowledged: what each output has to be

    def rng(self, who: str) -> random.Random:
        """Chance for one of them, the same for the same seed."""
        return random.Random(f"{self.seed} {who}")

    def problem(self, text: str) -> None:
        """Something that must not be; it fails the soak."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(text)

    def start(self, *everybody: Runs) -> list[asyncio.Future[None]]:
        """Let them run beside each other."""
        return [asyncio.ensure_future(self.watched(type(one).__name__, one.run)) for one in everybody]

    async def watched(self, who: str, do: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do it; an error in it is a problem, and does not stop the others."""
        try:
            await do()
        except Exception as exc:  # noqa: BLE001 - told at the end, with all others
            self.problem(f"{who}: {exc!r}")


class Line:
    """Somebody's way to the server. Use it in an async with statement."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._http = httpx.AsyncClient(
            base_url=world.url, timeout=10 + world.lease_s, trust_env=False, verify=False,
            event_hooks=world.hooks,
        )  # fmt: skip

    async def __aenter__(self) -> "Line":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        """One request; None if nothing came back, or only that it is not the time."""
        try:
            reply = await self._http.request(method, path, **options)
        except httpx.TransportError:
            self._world.counts["requests without an answer"] += 1
            return None
        if reply.status_code in BUSY:
            self._world.counts[f"answers {reply.status_code}"] += 1
            return None
        self._world.answered += 1
        if reply.status_code >= 500:
            self._world.problem(f"{method} {path}: {reply.status_code} {reply.text[:500]}")
        return reply

    async def insist(self, method: str, path: str, **options: Any) -> httpx.Response:
        """As `ask`, again and again until there is an answer."""
        pause_s = 0.02
        while (reply := await self.ask(method, path, **options)) is None:
            await asyncio.sleep(pause_s)
            pause_s = min(0.2, 2 * pause_s)
        return reply

    async def data(self, method: str, path: str, **options: Any) -> Any:
        """`data` of a success; insists."""
        reply = await self.insist(method, path, **options)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text[:500]}"
        return reply.json()["data"]
