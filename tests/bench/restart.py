"""Figure 7: how long a server takes from exec to ready, and how much memory at most, on a large store.

Two stores: everything handed out (so many workunits of so many jobs, leased to so many clients), and for
contrast one job with many ranks of which none was handed out. They are made by the scheduler itself and
written as the engine writes; then the real `awe-server serve` starts on them, several times.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from awe_server.scheduler import views
from awe_server.scheduler.state import State
from awe_server.store.base import Operation, Put
from awe_server.store.open import open_store
from tests.bench.harness.figure import Figure, Goal, Row
from tests.bench.harness.http import Line
from tests.bench.harness.site import Site
from tests.builders import World, a_job
from tests.support.memory import peak_rss_bytes

BATCH = 5_000  #: documents of a commit while the store is filled

FIGURE = Figure(
    "restart",
    7,
    "From exec to ready on a large store: everything leased, or nothing handed out",
    [
        Goal("restart with 100,000 leased workunits, 1,000 clients ≤ 3 s", "handed out", "ready_s", 3.0),
        Goal("restart with 1,000,000 pristine workunits ≤ 1 s", "pristine", "ready_s", 1.0),
    ],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--workunits", type=int, default=100_000)
    parser.add_argument(
        "--pristine", type=int, default=1_000_000, help="ranks of the job of the second store"
    )


def handed_out(jobs: int, clients: int, workunits: int) -> State:
    """Every workunit of every job is leased, to all clients alike."""
    world = World(lease_s=3_600.0)
    parts, each = workunits // jobs, workunits // clients
    for number in range(clients):
        world.client(f"{number:08d}-aaaa-4000-8000-000000000000", name=f"node{number}", cores=each)
    for number in range(jobs):
        world.submit(a_job(name=f"job {number}").task("only", parts=parts))
    for client in list(world.state.clients.values()):
        assert len(world.checkout(client.id, want=each)) == each
    return world.state


def pristine(ranks: int) -> State:
    """One job of which nothing was handed out."""
    world = World()
    world.submit(a_job(name="large").task("only", parts=ranks))
    return world.state


async def write(state: State, folder: Path) -> None:
    """All documents of a state, in a new store."""
    store = open_store("sqlite", folder)
    await store.open()
    steps: list[Operation] = [Put(name, document) for name, document in views.documents(state, state.take())]  # type: ignore[arg-type]
    for first in range(0, len(steps), BATCH):
        await store.commit(steps[first : first + BATCH])
    await store.close()


def start(data: Path) -> dict[str, float | str]:
    """Start a server on what is there until it is ready, and end it."""
    began = time.perf_counter()
    with Site(data=data) as site, Line(site.port) as line:
        line.call("GET", "/health")
        return {
            "ready_s": time.perf_counter() - began,
            "cpu_s": site.server.cpu_s(),
            "peak_rss_mib": peak_rss_bytes(site.server.pid) / 2**20,
            "server_fs": site.fs,
        }


@cache
def stores(
    jobs: int, clients: int, workunits: int, ranks: int
) -> "dict[str, tempfile.TemporaryDirectory[str]]":
    """A folder with a filled store for each case; they go with the process."""
    made = {}
    for case, state in (
        ("empty", State()),
        ("handed out", handed_out(jobs, clients, workunits)),
        ("pristine", pristine(ranks)),
    ):
        made[case] = tempfile.TemporaryDirectory(prefix="awe-bench-")
        folder = Path(made[case].name) / "server"
        folder.mkdir()
        asyncio.run(write(state, folder))
    return made


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    filled = stores(options.jobs, options.clients, options.workunits, options.pristine)
    for case, folder in filled.items():
        yield {"case": case, "store": "sqlite", **start(Path(folder.name) / "server")}


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
