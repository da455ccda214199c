"""Does the machine see? One rule of the scheduler at a time is broken: the machine has to fail.

What it finds within its first runs is asked whenever the suite runs; with HYPOTHESIS_PROFILE=long also what
takes it many more. None of them may be out of its sight. Any AssertionError counts: the reference model's,
that of the machine's history, and that of the scheduler's own `invariants.check`, which runs after each step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from awe_server.scheduler import blame, checkout, clients, demands, exchange, failure, jobs, report, restart
from awe_server.scheduler.holder import holds
from awe_server.scheduler.state import Client, Context, State
from tests.property.test_machine import LONG, SchedulerMachine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7_200 if LONG else 600)]


@dataclass(frozen=True)
class Mutant:
    """A function or number of the scheduler, and what is put in its place."""

    rule: str  #: that is broken
    module: ModuleType
    name: str
    wrong: Callable[[Any], Any]  #: makes it of the right one


def never(answer: Any) -> Callable[[Any], Any]:
    """Whatever is asked, this is the answer."""
    return lambda _: lambda *_args, **_more: answer


def _undoubled(state: State, unit: Any) -> float:
    return float(state.rules.retry_base_s if unit.task.retry_delay_s is None else unit.task.retry_delay_s)


def _count_no_inputs(right: Any) -> Any:
    def count(unit: Any, failure: Any, *, was_kept: bool) -> None:
        if failure.kind != "input":
            right(unit, failure, was_kept=was_kept)

    return count


def _renew_nothing(state: State, ctx: Context, client: Client, wait_s: float = 0.0) -> None:
    if client.offline:
        client.offline = False
        state.touch_client(client)


def _in_order(state: State, level: Any, budget: Any) -> Any:
    return checkout._in_order(level, budget)


#: Found within the first runs.
QUICK = (
    Mutant("work given back pauses the fourth time", failure, "GIVEN_BACK_FREE", lambda _: 0),
    Mutant("max_failures", failure, "max_failures", lambda right: lambda *a: right(*a) + 1),
    Mutant("max_lost", failure, "_max_lost", lambda right: lambda *a: right(*a) + 1),
    Mutant("an exchange renews leases", exchange, "seen", lambda _: _renew_nothing),
    Mutant("only the same outcome is a duplicate", report, "_same_outcome", never(True)),
    Mutant("a task that fails everywhere is bad", blame, "_is_the_tasks", never(False)),
    Mutant("skip lists count", checkout, "is_only_choice", never(True)),
    Mutant("a lone client may try again", checkout, "is_only_choice", never(False)),
    Mutant("each rank has its own part", checkout, "part_range", lambda right: lambda _, *a: right(1, *a)),
    Mutant("after resume clients try again", restart, "_forget_skips", never(None)),
    Mutant(
        "client groups",
        demands,
        "PREDICATES",
        lambda all: tuple(p for p in all if p is not demands.wrong_group),
    ),
)
RARE = (
    Mutant("each pause before a retry is twice as long", failure, "_retry_delay_s", lambda _: _undoubled),
    Mutant("what is lost again and again pauses", failure, "_lost_pause_s", never(0.0)),
    Mutant("blame taken back lets a client work", blame, "_let_back", lambda _: State.touch_client),
    Mutant("fair shares", checkout, "_in_turn", lambda _: _in_order),
    Mutant("inputs that cannot be fetched count", failure, "_count", _count_no_inputs),
    Mutant("grants whose reply was lost come again", exchange, "_unseen", never([])),
    Mutant("what a client does not list is taken back", exchange, "take_back_unlisted", never(None)),
    Mutant("who was missed may still report", report, "may_report", lambda _: holds),
    Mutant("a spooled result outlives a restart", clients, "_still_has", never(frozenset())),
    Mutant("recompute takes descendants along", jobs, "descendants", lambda _: lambda *tasks: list(tasks)),
)


@pytest.mark.parametrize("mutant", (*QUICK, *RARE) if LONG else QUICK, ids=lambda mutant: mutant.rule)
def test_a_broken_rule_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(mutant.module, mutant.name)
    monkeypatch.setattr(mutant.module, mutant.name, mutant.wrong(right))
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            SchedulerMachine,
            settings=settings(
                deadline=None,
                max_examples=2_000 if LONG else 400,  # it ends with the first that notices
                stateful_step_count=20,
                derandomize=True,
                database=None,
                phases=(Phase.generate,),
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
