"""Figure 1: many times /bin/true through server and client, beside the limit and the peers in one run."""

import argparse
import time
from collections.abc import Iterator

from tests.bench.harness.figure import Figure, Goal, Row, ratio
from tests.bench.harness.http import Line
from tests.bench.harness.limit import spawn_loops, xargs
from tests.bench.harness.load import array
from tests.bench.harness.machine import cpu_s
from tests.bench.harness.site import Child, Site
from tests.bench.peers import PEERS

FIGURE = Figure(
    "end_to_end",
    1,
    "10,000 × /bin/true, one client, stdout and stderr files, every result fsynced before it is acknowledged",
    [
        Goal("/bin/true end to end ≥ 0.7 × C posix_spawn loops", "awe", "of_limit", 0.7, True),
        Goal("… ≥ 1.8 × HyperQueue's PyPI wheel", "awe", "of_hyperqueue", 1.8, True),
        Goal("… ≥ 1.8 × dramatiq + Redis, every write fsynced", "awe", "of_dramatiq", 1.8, True),
    ],
)
WARM = 50  #: commands before those that count


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=10_000, help="commands")
    parser.add_argument("--peers", nargs="*", choices=sorted(PEERS), default=sorted(PEERS))


def run_job(line: Line, count: int) -> float:
    """Seconds from before the submission to the answer that says completed."""
    began = time.perf_counter()
    job = line.call("POST", "/job", array(count))["id"]
    while line.call("GET", f"/job/{job}?wait_s=60")["state"] != "completed":
        pass
    return time.perf_counter() - began


def awe(count: int) -> dict[str, float | str]:
    """Our own server and one client of two slots."""
    with Site() as site, Line(site.port) as line:
        client = site.start_client()
        run_job(line, WARM)
        server_s, client_s, all_s = site.server.cpu_s(), client.cpu_s(), _with_commands(client)
        written, daemon_s = site.server.written_bytes(), cpu_s(client.pid)
        took_s = run_job(line, count)
        return {
            "tasks": count,
            "tasks_per_s": count / took_s,
            "server_cpu_us": (site.server.cpu_s() - server_s) / count * 1e6,
            "daemon_cpu_us": (cpu_s(client.pid) - daemon_s) / count * 1e6,
            "client_cpu_us": (client.cpu_s() - client_s) / count * 1e6,
            "client_and_commands_cpu_us": (_with_commands(client) - all_s) / count * 1e6,
            "server_written_bytes": (site.server.written_bytes() - written) / count,
            "server_rss_mib": site.server.rss_bytes() / 2**20,
            "client_rss_mib": client.rss_bytes() / 2**20,
            "server_fs": site.fs,
            "keeps": "results fsynced before they are acknowledged, with the tails of two files",
        }


def _with_commands(client: Child) -> float:
    return client.cpu_s(children=True)


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    limit = spawn_loops(options.count)
    yield {"case": "limit: C posix_spawn loops", **limit}
    yield {"case": "xargs -P2", **xargs(options.count)}
    ratios = {}
    for name in options.peers:
        found = PEERS[name].throughput(options.count)
        yield {"case": name, **found}
        ratios[f"of_{name}"] = float(found["tasks_per_s"])
    ours = awe(options.count)
    rates = {"of_limit": float(limit["tasks_per_s"]), **ratios}
    rate = float(ours["tasks_per_s"])
    yield {"case": "awe", **ours, **{name: ratio(rate, theirs) for name, theirs in rates.items()}}


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
