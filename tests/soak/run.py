"""One soak, from the first job to the last look at what is stored."""

import asyncio
import json
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.soak.end import count_jobs, look_at_outputs, work_off
from tests.soak.memory import Growth, growth, warm_up, watch
from tests.soak.people import Busybody, Submitter
from tests.soak.trouble import ODDS, Trouble, start_daemon
from tests.soak.worker import Worker
from tests.soak.world import Line, World
from tests.support import tally
from tests.support.env import BIN, AweEnv
from tests.support.fault_proxy import FaultProxy

LEASE_S = 5.0
DAEMONS = 2
LISTEN_S = 2.0
TROUBLED = 0.6  #: this share of the time the server is killed, in the rest its memory is measured
WARM_UP = 0.5  #: at most this share of the rest
#: What `awe-server check` calls files that no document names.
LEFTOVERS = frozenset({"orphan_blob", "orphan_index", "orphan_parts", "temporary"})
JOBS_PER_S, VERBS_PER_S = 5.0, 2.0


@dataclass(frozen=True)
class Outcome:
    """What was seen; `problems` is empty if all promises held."""

    seed: int
    seconds: float
    counts: Mapping[str, int]
    memory: Growth
    problems: tuple[str, ...]

    def __str__(self) -> str:
        what = tally.summary(self.counts)
        head = f"soak: {self.seconds:.0f} s, seed {self.seed}"
        memory = f"memory of the server: {self.memory}"
        end = "all promises held" if not self.problems else f"{len(self.problems)} problems"
        return "\n".join([head, *what, memory, f"soak: {end}", *self.problems])


def soak(home: Path, seconds: float, clients: int, seed: int, *, max_growth: float | None = 0.1) -> Outcome:
    """Run it; it takes `seconds`, and what it needs to work everything off. `home` is an empty folder.

    `max_growth` of the server's memory, as a share, while nobody kills it; None: not looked at.
    """
    flags = ["--lease-s", str(LEASE_S), "--log-level", "warning"]
    env = AweEnv(home, flags=flags, server_env={"AWE_EXPIRE_WAIT_S": "5"})
    before, began_s = Counter(tally.totals()), time.monotonic()
    samples: list[int] = []
    try:
        env.server.start()
        with FaultProxy(env.server.url) as proxy:
            world = World(proxy.url, seed, LEASE_S, env.ledger.async_hooks())
            env.clients += [start_daemon(env, proxy.url, number) for number in range(DAEMONS)]
            asyncio.run(_live(world, env, proxy, seconds, clients, samples))
            problems = [*world.problems, *_stop(env), *_check(env, world)]
        problems += env.check()
    finally:
        env.close()
    memory = growth(samples)
    if max_growth is not None and memory.share > max_growth:
        problems.append(f"the server's memory grew by more than {100 * max_growth:.0f} %")
    counts = world.counts + Counter(tally.totals()) - before
    counts["jobs acknowledged"] = len(world.jobs)
    counts["results accepted of fake clients"] = world.accepted.total()
    return Outcome(seed, time.monotonic() - began_s, counts, memory, tuple(problems))


async def _live(
    world: World, env: AweEnv, proxy: FaultProxy, seconds: float, clients: int, samples: list[int]
) -> None:
    """Trouble, then a time in which the server lives on, then peace, in which all is worked off."""
    others = world.start(
        *(Worker(world, number) for number in range(clients)),
        Submitter(world, 0, per_s=JOBS_PER_S, max_open=4 * clients, real=0.2, expiring=0.6),
        Busybody(world, 0, clients, per_s=VERBS_PER_S),
    )
    proxy.seed(world.seed, ODDS, stall_s=LEASE_S / 2)
    hearing = asyncio.ensure_future(_listen(world, env))
    await Trouble(world, env, mean_s=max(4.0, seconds / 45)).run(TROUBLED * seconds)
    world.is_steady = True
    ends_at = time.monotonic() + (1 - TROUBLED) * seconds
    async with Line(world) as line:
        await warm_up(line, WARM_UP * (1 - TROUBLED) * seconds)
        await watch(env, samples, ends_at)
        world.is_calm = True
        proxy.clear()
        await world.watched("the end", partial(work_off, world, line))
        await world.watched("the count", partial(count_jobs, world, line))
        await world.watched("the last look", partial(look_at_outputs, world, line))
    world.is_over = True
    await asyncio.gather(*others, hearing)


async def _listen(world: World, env: AweEnv) -> None:
    """Hear what the server tells before it forgets it, and before it is killed without a word."""
    while not world.is_over:
        await asyncio.to_thread(env.listen)
        await asyncio.sleep(LISTEN_S)


def _stop(env: AweEnv) -> list[str]:
    """Stop everything in good order; what is wrong with how it ended."""
    problems: list[str] = []
    for stop in (*(client.stop for client in env.clients), env.server.stop):
        try:
            stop()
        except AssertionError as exc:
            problems.append(str(exc))
    return problems


def _check(env: AweEnv, world: World) -> list[str]:
    """What `awe-server check` finds, but uploads that a kill cut off before anybody was answered: they are
    swept some time later, and counted here.
    """
    command = [str(BIN / "awe-server"), "check", "--data", str(env.server.data), "--repair", "--json"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    if not checked.stdout:
        return [f"awe-server check: {checked.stderr[-2000:]}"]
    found = json.loads(checked.stdout)
    left = [problem for problem in found["nodes"]["problems"] if problem["kind"] in LEFTOVERS]
    world.counts["files that kills left, swept later"] = len(left)
    wrong = [problem for problem in found["nodes"]["problems"] if problem not in left]
    return [f"awe-server check: {problem}" for problem in (*found["problems"], *wrong)]
