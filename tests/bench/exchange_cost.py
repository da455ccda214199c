"""Figure 3: what the server's process costs a workunit, checkout and report, in batches."""

import argparse
import time
from collections.abc import Iterator

from tests.bench.harness.figure import Figure, Goal, Row
from tests.bench.harness.load import work_off
from tests.bench.harness.site import Site

FIGURE = Figure(
    "exchange_cost",
    3,
    "Server CPU for the checkout and report of a workunit, in batches, SQLite with fsync",
    [Goal("server CPU per workunit, batches of 64 ≤ 35 µs", "batch 64", "server_cpu_us", 35.0)],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=100_000, help="workunits")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64, 256])
    parser.add_argument("--clients", type=int, default=8)


def one(count: int, clients: int, batch: int, jobs: int = 1) -> dict[str, float | str]:
    """A fresh server works off jobs of so many workunits, one after the other."""
    with Site() as site:
        loader_s, written = time.process_time(), site.server.written_bytes()
        took_s, used_s = work_off(site.port, clients, batch, count, jobs=jobs, cpu_s=site.server.cpu_s)
        return {
            "workunits": count * jobs,
            "clients": clients,
            "workunits_per_s": count * jobs / took_s,
            "server_cpu_us": used_s / (count * jobs) * 1e6,
            "server_core_share": used_s / took_s,
            "load_core_share": (time.process_time() - loader_s) / took_s,
            "server_written_bytes": (site.server.written_bytes() - written) / (count * jobs),
            "server_rss_mib": site.server.rss_bytes() / 2**20,
            "server_fs": site.fs,
        }


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    for batch in options.batch:
        count = options.count if batch > 1 else max(options.count // 20, 1)
        yield {"case": f"batch {batch}", **one(count, options.clients, batch)}


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
