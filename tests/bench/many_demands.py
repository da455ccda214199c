"""Figure 9: what a checkout costs while many tasks are queued that this client may not have.

The scheduler alone, as it runs in the server: an exchange that reports one workunit and takes the next.
"""

import argparse
from collections.abc import Iterator
from itertools import count as serial_numbers
from time import process_time

from awe_server.scheduler.exchange import exchange
from awe_server.scheduler.state import Context
from shared_models.ids import ClientId
from shared_models.messages import ExchangeRequest, Report
from tests.bench.harness.figure import Figure, Goal, Row, ratio
from tests.builders import PLENTY, World, a_job

ALL_AT_ONCE = 1_000  #: tasks of a job

FIGURE = Figure(
    "many_demands",
    9,
    "Checkout with 100,000 queued tasks of 1,000 demands, for a client eligible for one, or an empty queue",
    [Goal("checkout among 100,000 tasks of 1,000 demands ≤ 2 × empty queue", "crowded", "of_empty", 2.0)],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--demands", type=int, default=1_000)
    parser.add_argument("--count", type=int, default=5_000, help="checkouts")


def crowd(world: World, tasks: int, demands: int) -> None:
    """Queue tasks, each demand a client group with a client of its own."""
    for number in range(demands):
        world.client(f"other{number}", group=f"group{number}")
        left = tasks // demands
        while left > 0:
            job = a_job(clientgroups=f"group{number}")
            for index in range(min(left, ALL_AT_ONCE)):
                job.task(f"t{index}")
            world.submit(job)
            left -= ALL_AT_ONCE


def checkouts_us(world: World, checkouts: int) -> dict[str, float]:
    """CPU of an exchange that reports a workunit and takes the next; that of a client's first one apart."""
    world.client("c", group="ours")
    world.submit(a_job(clientgroups="ours").task("only", parts=checkouts))
    world.state.take()
    serial = serial_numbers(1)
    ctx = Context(1000.0, 1.7e9, lambda: f"token-{next(serial)}")
    reports: list[Report] = []
    first_us, began = 0.0, process_time()
    for number in range(1, checkouts + 1):
        x = ExchangeRequest("i1", number, [], reports, 1, 0.0, PLENTY, False)
        [grant] = exchange(world.state, ctx, ClientId("c"), x, {}).grants
        reports = [
            Report(
                grant.workunit_id, grant.attempt, grant.token, "done", None, 0, None, "", 1.0, "", "", {}, []
            )
        ]
        world.state.take()
        if number == 1:
            first_us, began = (process_time() - began) * 1e6, process_time()
    return {"checkout_us": (process_time() - began) / max(checkouts - 1, 1) * 1e6, "first_us": first_us}


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    empty = checkouts_us(World(), options.count)
    yield {"case": "empty", **empty}
    world = World()
    crowd(world, options.tasks, options.demands)
    crowded = checkouts_us(world, options.count)
    yield {"case": "crowded", **crowded, "of_empty": ratio(crowded["checkout_us"], empty["checkout_us"])}


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
