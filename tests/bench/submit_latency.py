"""Figure 2: how long a caller waits from the submission of one trivial job until it is seen completed."""

import argparse
import time
from collections.abc import Iterator

from tests.bench.harness.figure import Figure, Goal, Row, percentile
from tests.bench.harness.http import Line
from tests.bench.harness.load import array
from tests.bench.harness.site import Site
from tests.bench.peers import PEERS

WARM = 10  #: jobs before the first that counts

FIGURE = Figure(
    "submit_latency",
    2,
    "One /bin/true, from submit to `completed` seen by a waiting caller, fsynced; 200 in turn",
    [
        Goal("submit → completed, p50 ≤ 2.5 ms", "awe", "p50_ms", 2.5),
        Goal("submit → completed, p99 ≤ 5 ms", "awe", "p99_ms", 5.0),
    ],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=200, help="jobs, one after the other")
    parser.add_argument(
        "--peers", nargs="*", choices=sorted(PEERS), default=["celery_in_memory", "hyperqueue"]
    )


def one(line: Line) -> float:
    """Seconds from before the submission to the answer that says completed."""
    began = time.perf_counter()
    job = line.call("POST", "/job", array(1))["id"]
    state = line.call("GET", f"/job/{job}?wait_s=60")["state"]
    took_s = time.perf_counter() - began
    assert state == "completed", state
    return took_s


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    for name in options.peers:
        yield {"case": name, **PEERS[name].latency(options.count)}
    with Site() as site, Line(site.port) as line:
        client = site.start_client()
        for _ in range(WARM):
            one(line)
        server_s, client_s, written = site.server.cpu_s(), client.cpu_s(), site.server.written_bytes()
        took_ms = [one(line) * 1e3 for _ in range(options.count)]
        yield {
            "case": "awe",
            "jobs": options.count,
            "p50_ms": percentile(took_ms, 50),
            "p99_ms": percentile(took_ms, 99),
            "max_ms": max(took_ms),
            "server_cpu_ms": (site.server.cpu_s() - server_s) / options.count * 1e3,
            "client_cpu_ms": (client.cpu_s() - client_s) / options.count * 1e3,
            "server_written_bytes": (site.server.written_bytes() - written) / options.count,
            "server_fs": site.fs,
        }


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
