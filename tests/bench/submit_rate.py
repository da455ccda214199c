"""Figure 6: submission of many small jobs by HTTP, over a few connections."""

import argparse
import asyncio
import time
from collections.abc import Iterator

import uvloop

from tests.bench.harness.figure import Figure, Goal, Row
from tests.bench.harness.http import AsyncLine
from tests.bench.harness.load import array
from tests.bench.harness.site import Site

FIGURE = Figure(
    "submit_rate",
    6,
    "Jobs of one task submitted by HTTP over 8 connections, each fsynced before its answer",
    [Goal("one-task jobs submitted per second, 8 connections ≥ 2,000", "submit", "jobs_per_s", 2e3, True)],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=10_000, help="jobs")
    parser.add_argument("--connections", type=int, default=8)


async def submit_all(port: int, count: int, connections: int) -> float:
    """Seconds until all were answered."""
    lines = [await AsyncLine.open(port) for _ in range(connections)]
    left = iter(range(count))
    document = array(1)

    async def submit(line: AsyncLine) -> None:
        for _ in left:
            await line.call("POST", "/job", document)

    began = time.perf_counter()
    await asyncio.gather(*(submit(line) for line in lines))
    took_s = time.perf_counter() - began
    for line in lines:
        line.close()
    return took_s


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    with Site() as site:
        before, rss, written = site.server.cpu_s(), site.server.rss_bytes(), site.server.written_bytes()
        took_s = uvloop.run(submit_all(site.port, options.count, options.connections))
        yield {
            "case": "submit",
            "jobs": options.count,
            "jobs_per_s": options.count / took_s,
            "server_cpu_us": (site.server.cpu_s() - before) / options.count * 1e6,
            "server_bytes_per_job": (site.server.rss_bytes() - rss) / options.count,
            "server_written_bytes": (site.server.written_bytes() - written) / options.count,
            "server_fs": site.fs,
        }


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
