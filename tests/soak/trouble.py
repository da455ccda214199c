"""Who kills, stalls and stops the server, and kills daemons, at random moments."""

import asyncio
import time
from functools import partial

from tests.soak.documents import REAL
from tests.soak.world import World
from tests.support import tally
from tests.support.env import BIN, AweEnv, Process
from tests.support.eventually import eventually

#: Faults of a request or a reply, of each twentieth or so.
ODDS = {
    "503": 0.008, "503-retry-after": 0.004, "reset": 0.006, "cut-request": 0.006, "repeat": 0.008,
    "drop-reply": 0.01, "cut": 0.004, "stall": 0.008,
}  # fmt: skip
KILL = "kill server, random moment under load"  #: how it is counted
_KINDS = {"kill": 6, "kill again": 3, "stall": 3, "stop": 2, "daemon": 2, "stall daemon": 1}


class Trouble:
    """Use `run` in the event loop of the world; what blocks is done in threads."""

    def __init__(self, world: World, env: AweEnv, mean_s: float) -> None:
        self._world, self._env, self._mean_s = world, env, mean_s
        self._rng = world.rng("trouble")

    async def run(self, for_s: float) -> None:
        """Make trouble for so long; afterwards the server runs."""
        ends_at = time.monotonic() + for_s
        while (pause_s := self._rng.uniform(0.4, 1.6) * self._mean_s) < ends_at - time.monotonic():
            await asyncio.sleep(pause_s)
            match self._rng.choices(list(_KINDS), list(_KINDS.values()))[0]:
                case "kill":
                    await asyncio.to_thread(self._env.server.kill, KILL)  # hears its events first
                    await asyncio.to_thread(self._env.server.start)
                case "kill again":
                    for _ in range(self._rng.randint(2, 4)):
                        await kill_and_start(self._env)
                        await asyncio.sleep(self._rng.uniform(0.02, 0.3))
                    await kill_and_start(self._env)
                case "stall":
                    await self._stall(self._env.server.running)
                case "stall daemon" if self._env.clients:
                    await self._stall(self._rng.choice(self._env.clients))
                case "stop":
                    await self._stop()
                case "daemon" if self._env.clients:
                    await self._kill_daemon()

    async def _stall(self, process: Process) -> None:
        """SIGSTOP, for up to two leases."""
        process.pause()
        await asyncio.sleep(self._rng.uniform(0.5, 2.0) * self._world.lease_s)
        process.resume()

    async def _stop(self) -> None:
        tally.count("clean stop server")
        try:
            await asyncio.to_thread(self._env.server.stop)
        except AssertionError as exc:
            self._world.problem(f"a clean stop: {exc}")
        await asyncio.to_thread(self._env.server.start)

    async def _kill_daemon(self) -> None:
        """kill -9, and the same again on the same work directory."""
        number = self._rng.randrange(len(self._env.clients))
        await asyncio.to_thread(self._env.clients[number].kill)
        self._env.clients[number] = start_daemon(self._env, self._world.url, number)


def start_daemon(env: AweEnv, url: str, number: int) -> Process:
    """A real client, on the work directory of its number."""
    argv = [
        str(BIN / "awe-client"), "run", "--server", url, "--group", REAL, "--slots", "2",
        "--work", str(env.home / f"daemon-{number}"),
    ]  # fmt: skip
    return Process(argv, env.home / f"daemon-{number}-log", env.client_env, "client")


async def kill_and_start(env: AweEnv) -> None:
    """At this very moment, with whatever it is doing."""
    env.server.running.kill(KILL)
    await asyncio.to_thread(env.server.start)


def _has_answered(world: World, before: int) -> bool:
    return world.answered > before


async def kill_at_random(world: World, env: AweEnv, times: int) -> None:
    """kill -9, 20 to 300 ms after it began to give answers, again and again."""
    rng = world.rng("kills")
    for _ in range(times):
        before = world.answered
        await eventually(partial(_has_answered, world, before))
        await asyncio.sleep(rng.uniform(0.02, 0.3))
        await kill_and_start(env)
