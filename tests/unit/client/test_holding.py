"""The tally of what is held says what a look at all of it would say, whatever moves and in whatever order."""

import random
from types import SimpleNamespace
from typing import Any, cast

from awe_client.daemon import machine as m
from awe_client.daemon.attempt import Attempt, Needs
from awe_client.daemon.holding import Holding, Load, Tally

WRITING = (m.Stage.FETCHING, m.Stage.LINED, m.Stage.RUNNING)


def a_holding(stage: m.Stage, cores: int = 1) -> Holding:
    needs = Needs(cores, cores * 10, cores * 100)
    task = cast(Any, SimpleNamespace(needs=needs))
    machine = m.Machine(must_prepare=False, has_outputs=False, time_limit_s=0.0)
    machine.stage = stage
    return Holding(Attempt(task, "w", 0, 1, "", "/nowhere"), machine)


def looked_at(held: list[Holding]) -> Load:
    stages = [h.machine.stage for h in held]
    unrun = [h for h in held if h.machine.stage not in (m.Stage.PUSHING, m.Stage.REPORTING)]
    cores = sum(h.attempt.task.needs.cores for h in unrun)
    return Load(len(held), cores, cores * 10, cores * 100, stages.count(m.Stage.PUSHING))


def move(tally: Tally, held: list[Holding], holding: Holding, stage: m.Stage) -> None:
    before, holding.machine.stage = holding.machine.stage, stage
    tally.moved(holding, before)
    if stage is m.Stage.GONE:
        held.remove(holding)


def test_a_tally_agrees_with_a_look_at_everything() -> None:
    for seed in range(50):
        draw = random.Random(seed)
        tally, held = Tally(), list[Holding]()
        beside: dict[int, bool] = {}
        for _ in range(200):
            if not held or draw.random() < 0.3:
                held.append(a_holding(draw.choice(WRITING), draw.randint(1, 4)))
                tally.moved(held[-1], None)
                begins = held[-1]
            else:
                begins = draw.choice(held)
                before = begins.machine.stage
                move(tally, held, begins, draw.choice(list(m.Stage)))
                if before is begins.machine.stage:
                    continue
            if begins.machine.stage in WRITING:
                others = [h for h in held if h is not begins and h.machine.stage in WRITING]
                beside |= {id(h): True for h in others} | {id(begins): bool(others)}
                tally.begins_to_write(begins)
            for holding in held:
                assert holding.is_beside is beside[id(holding)]
            assert tally.load == looked_at(held)
            assert tally.is_working == any(h.machine.stage is not m.Stage.REPORTING for h in held)
