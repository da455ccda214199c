"""How long a server takes from exec to ready, and how much memory at most, on a large store. JSON lines out.

Two stores: everything handed out (so many workunits of so many jobs, leased to so many clients), and for
contrast one job with many ranks of which none was handed out. They are made by the scheduler itself and
written as the engine writes; then the real `awe-server serve` starts on them, several times. Run as
`python -m tests.bench.restart --jobs 1000 --clients 1000 --workunits 100000 --pristine 1000000`.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import httpx

from awe_server.scheduler import views
from awe_server.scheduler.state import State
from awe_server.store.base import Operation, Put
from awe_server.store.open import open_store
from tests.builders import World, a_job
from tests.support.env import ServerProcess
from tests.support.memory import peak_rss_bytes

BATCH = 5_000  #: documents of a commit while the store is filled
PATIENCE_S = 600.0


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


def start(home: Path) -> tuple[float, float, int]:
    """Start a server on what is there and end it: seconds until it is ready, those of the processor, and the
    most memory in bytes.
    """
    server = ServerProcess(home)
    try:
        began = time.perf_counter()
        process = server.launch()
        while not _is_ready(f"http://127.0.0.1:{server.port}/health"):
            assert process.returncode is None, process.output()
            assert time.perf_counter() - began < PATIENCE_S, process.output()
            time.sleep(0.005)
        return time.perf_counter() - began, cpu_s(process.pid), peak_rss_bytes(process.pid)
    finally:
        server.close()


def cpu_s(pid: int) -> float:
    """The processor's time that a process and all its threads took so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url, timeout=PATIENCE_S, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def measure(state: State, runs: int) -> dict[str, object]:
    """The median of some starts on the same store."""
    size = {"jobs": len(state.jobs), "clients": len(state.clients), "workunits": len(state.workunits)}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "server").mkdir()
        asyncio.run(write(state, home / "server"))
        del state
        took_s, used_s, peaks = zip(*(start(home) for _ in range(runs)), strict=True)
    return {
        "bench": "restart",
        "store": "sqlite",
        **size,
        "runs": runs,
        "ready_s": round(statistics.median(took_s), 2),
        "ready_max_s": round(max(took_s), 2),
        "cpu_s": round(statistics.median(used_s), 2),
        "peak_rss_mib": round(statistics.median(peaks) / 2**20),
    }


def main() -> None:
    """Measure both stores, and an empty one to compare with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--workunits", type=int, default=100_000)
    parser.add_argument(
        "--pristine", type=int, default=1_000_000, help="ranks of the job of the second store"
    )
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print(json.dumps({**measure(State(), options.runs), "case": "empty"}), flush=True)
    full = handed_out(options.jobs, options.clients, options.workunits)
    print(json.dumps({**measure(full, options.runs), "case": "handed out"}), flush=True)
    print(
        json.dumps(
            {
                **measure(pristine(options.pristine), options.runs),
                "case": "pristine ranks",
                "ranks": options.pristine,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
