"""The server is killed again and again while fifty clients work and people submit, over bad lines.

Everything that was answered is there once, whoever was killed when. Kills, faults and moods come from seeds.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.soak.end import look_at_outputs, work_off
from tests.soak.people import Submitter
from tests.soak.trouble import ODDS, kill_at_random
from tests.soak.worker import Worker
from tests.soak.world import Line, World
from tests.support.env import AweEnv
from tests.support.fault_proxy import FaultProxy
from tests.support.warm_server import WarmServers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

LEASE_S = 8.0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def _site(stack: ExitStack, home: Path, store: str = "") -> AweEnv:
    warm = stack.enter_context(WarmServers())
    env = stack.enter_context(AweEnv(home, store=store, flags=["--lease-s", str(LEASE_S)]))
    env.server.spawn = warm.spawn
    env.server.start()
    return env


async def _load(world: World, env: AweEnv, proxy: FaultProxy, kills: int, clients: int) -> None:
    """Work and kill, then be well and work everything off."""
    submitters = [Submitter(world, number, per_s=20.0, max_open=40) for number in range(6)]
    workers = [Worker(world, number, pace_s=0.1) for number in range(clients)]
    others = world.start(*submitters, *workers)
    proxy.seed(world.seed, ODDS)
    await kill_at_random(world, env, kills)
    world.is_calm = True
    proxy.clear()
    async with Line(world) as line:
        await world.watched("the end", partial(work_off, world, line))
        await world.watched("the last look", partial(look_at_outputs, world, line))
    world.is_over = True
    await asyncio.gather(*others)


def _run(env: AweEnv, seed: int, kills: int, clients: int = 50) -> World:
    with FaultProxy(env.server.url) as proxy:
        world = World(proxy.url, seed, LEASE_S, env.ledger.async_hooks())
        asyncio.run(_load(world, env, proxy, kills, clients))
    return world


def _holds(env: AweEnv, world: World) -> None:
    """The promises, by what clients and people were answered."""
    assert world.problems == []
    jobs: dict[str, dict[str, Any]] = {}
    while page := env.data("GET", f"/job?limit=1000&offset={len(jobs)}&order=id&verbosity=job"):
        jobs |= {job["id"]: job for job in page}
    assert world.jobs.keys() <= jobs.keys(), "an acknowledged job is gone"
    assert {job["state"] for job in jobs.values()} == {"completed"}
    assert len({job["jid"] for job in jobs.values()}) == len(jobs), "a job number was used twice"
    assert max(world.accepted.values()) == 1, "two results of a workunit were accepted"
    done: dict[str, str] = {}
    for id in jobs:
        done |= {
            unit["wuid"]: unit["state"] for unit in env.data("GET", f"/work?jobid={id}&query=&limit=1000")
        }
    assert set(done.values()) == {"completed"}
    assert world.accepted.keys() <= done.keys(), "an accepted result is gone"


@pytest.mark.parametrize("seed", range(1, 9))
def test_nothing_is_lost_or_doubled_while_the_server_is_killed_under_load(
    stack: ExitStack, tmp_path: Path, seed: int
) -> None:
    env = _site(stack, tmp_path)
    world = _run(env, seed, kills=13)
    assert world.counts["jobs submitted"] >= 5
    assert world.accepted.total() >= 10
    _holds(env, world)


def test_nothing_is_lost_or_doubled_with_mongodb_either(
    stack: ExitStack, tmp_path: Path, mongo_url: str
) -> None:
    env = _site(stack, tmp_path, mongo_url)
    _holds(env, _run(env, seed=5, kills=12, clients=12))
