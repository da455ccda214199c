"""Scheduler CPU per workunit for checkout + report, in batches, documents included and excluded."""

import argparse
from collections.abc import Iterator
from itertools import count
from time import process_time

from awe_server.scheduler import views
from awe_server.scheduler.exchange import exchange
from awe_server.scheduler.state import Context
from shared_models.ids import ClientId
from shared_models.messages import ExchangeRequest, Report
from tests.bench.harness.figure import Figure, Row
from tests.builders import PLENTY, World, a_job

CLIENTS = 100

FIGURE = Figure("scheduler_hot", 0, "The scheduler alone: CPU for the checkout and report of a workunit")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=200_000, help="workunits")
    parser.add_argument("--batch", type=int, default=64)


def workunit_us(total: int, batch: int, *, with_documents: bool) -> float:
    """Microseconds per workunit: one exchange reports a batch and takes the next."""
    world = World()
    for i in range(CLIENTS):
        world.client(f"c{i}")
    world.submit(a_job().task("array", parts=total))
    world.state.take()
    serial = count(1)
    ctx = Context(1000.0, 1.7e9, lambda: f"token-{next(serial)}")
    spent = 0.0
    held: dict[int, list[Report]] = {}
    requests = [0] * CLIENTS
    for turn in range(-(-total // batch) + CLIENTS):
        client = turn % CLIENTS
        requests[client] += 1
        x = ExchangeRequest("i1", requests[client], [], held.pop(client, []), batch, 0.0, PLENTY, False)
        began = process_time()
        reply = exchange(world.state, ctx, ClientId(f"c{client}"), x, {})
        changes = world.state.take()
        if with_documents:
            views.documents(world.state, changes)
        spent += process_time() - began
        held[client] = [
            Report(g.workunit_id, g.attempt, g.token, "done", None, 0, None, "", 1.0, "", "", {}, [])
            for g in reply.grants
        ]
    return spent / total * 1e6


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    for with_documents in (False, True):
        cpu_us = workunit_us(options.count, options.batch, with_documents=with_documents)
        yield {"case": f"documents {'built' if with_documents else 'not built'}", "cpu_us": cpu_us}


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
