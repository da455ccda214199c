"""Figure 5: a task of very many workunits: how long its submission takes, and what memory it costs."""

import argparse
import time
from collections.abc import Iterator

from tests.bench.harness.figure import Figure, Goal, Row
from tests.bench.harness.http import Line
from tests.bench.harness.load import array, work_off
from tests.bench.harness.site import Site

FIGURE = Figure(
    "million",
    5,
    "Submit one task of 1,000,000 workunits; then let simulated clients run all of them",
    [
        Goal("submit 1,000,000 workunits ≤ 50 ms", "submit", "submit_ms", 50.0),
        Goal("… server memory grown ≤ 5 MB", "submit", "grown_mb", 5.0),
        Goal("server RSS after all 1,000,000 ran ≤ 250 MB", "after all ran", "server_rss_mb", 250.0),
    ],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=1_000_000, help="workunits")


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    with Site() as site, Line(site.port) as line:
        line.call("POST", "/job", array(1, group="nobody"))  # what is slow once is no cost of this one
        before, began = site.server.rss_bytes(), time.perf_counter()
        line.call("POST", "/job", array(options.count, group="nobody"))
        took_s = time.perf_counter() - began
        yield {
            "case": "submit",
            "workunits": options.count,
            "submit_ms": took_s * 1e3,
            "grown_mb": (site.server.rss_bytes() - before) / 1e6,
            "server_fs": site.fs,
        }
        took_s, used_s = work_off(site.port, 16, 64, options.count, cpu_s=site.server.cpu_s)
        yield {
            "case": "after all ran",
            "workunits": options.count,
            "workunits_per_s": options.count / took_s,
            "server_cpu_us": used_s / options.count * 1e6,
            "server_rss_mb": site.server.rss_bytes() / 1e6,
        }


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
