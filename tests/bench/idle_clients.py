"""Figure 8: many clients that wait on long polls: what they cost the server, and how soon one is woken."""

import argparse
import asyncio
import time
from collections.abc import Iterator

import uvloop

from tests.bench.harness.figure import Figure, Goal, Row, percentile
from tests.bench.harness.http import AsyncLine
from tests.bench.harness.load import SimulatedClient, array, connect
from tests.bench.harness.site import Site, allow_many_files

WAIT_S = 20.0  #: as a real client waits when its lease is 60 s: a third of it

FIGURE = Figure(
    "idle_clients",
    8,
    "2,000 idle clients on long polls: server CPU while nothing happens; then one workunit at a time arrives",
    [
        Goal("2,000 idle clients: server CPU ≤ 5 % of a core", "idle", "core_percent", 5.0),
        Goal("wake-up latency p99 when one workunit arrives ≤ 10 ms", "wake-up", "p99_ms", 10.0),
    ],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, default=2_000)
    parser.add_argument("--idle-s", type=float, default=2 * WAIT_S, help="how long nothing happens")
    parser.add_argument("--count", type=int, default=200, help="workunits that arrive, one at a time")


async def wait_for_work(client: SimulatedClient, came: "asyncio.Queue[float]") -> None:
    """Poll for ever, one workunit at a time; say when one came."""
    while True:
        if await client.exchange(1, WAIT_S):
            came.put_nowait(time.perf_counter())


async def run(site: Site, clients: int, idle_s: float, count: int) -> tuple[float, list[float]]:
    """The share of a core that idle clients took, and the seconds from each submission to its grant."""
    made = await connect(site.port, clients)
    came: asyncio.Queue[float] = asyncio.Queue()
    polls = [asyncio.create_task(wait_for_work(client, came)) for client in made]
    await asyncio.sleep(2.0)
    before, began = site.server.cpu_s(), time.perf_counter()
    await asyncio.sleep(idle_s)
    share = (site.server.cpu_s() - before) / (time.perf_counter() - began)
    line, took_s = await AsyncLine.open(site.port), []
    for _ in range(count):
        began = time.perf_counter()
        await line.call("POST", "/job", array(1))
        took_s.append(await asyncio.wait_for(came.get(), 60.0) - began)
        await asyncio.sleep(0.02)  # whoever had it has reported and waits again
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)
    return share, took_s


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    allow_many_files()
    with Site() as site:
        share, took_s = uvloop.run(run(site, options.clients, options.idle_s, options.count))
        yield {
            "case": "idle",
            "clients": options.clients,
            "core_percent": share * 100,
            "server_rss_mib": site.server.rss_bytes() / 2**20,
        }
        yield {
            "case": "wake-up",
            "workunits": options.count,
            "p50_ms": percentile(took_s, 50) * 1e3,
            "p99_ms": percentile(took_s, 99) * 1e3,
            "max_ms": max(took_s) * 1e3,
            "server_fs": site.fs,
        }


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
