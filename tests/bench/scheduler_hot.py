"""Scheduler CPU per workunit for checkout + report, in batches, documents included and excluded.

Run: .venv/bin/python -m tests.bench.scheduler_hot [workunits] [batch]
"""

import sys
from itertools import count
from time import process_time

from awe_server.scheduler import views
from awe_server.scheduler.exchange import exchange
from awe_server.scheduler.state import Context
from shared_models.ids import ClientId
from shared_models.messages import ExchangeRequest, Report
from tests.builders import PLENTY, World, a_job

CLIENTS = 100


def run(total: int, batch: int, *, with_documents: bool) -> float:
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


def main() -> None:
    """Print both measurements."""
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    for with_documents in (False, True):
        us = run(total, batch, with_documents=with_documents)
        print(
            f"batch {batch}, documents {'built' if with_documents else 'not built'}: {us:.1f} µs per workunit"
        )


if __name__ == "__main__":
    main()
