"""Figure 12: what the client's own processes cost a workunit, beside the command and its start."""

import argparse
from collections.abc import Iterator

from tests.bench.end_to_end import awe
from tests.bench.harness.figure import Figure, Goal, Row
from tests.bench.harness.limit import spawn_loops

FIGURE = Figure(
    "client_overhead",
    12,
    "CPU of client and executors for a workunit, beyond the command itself",
    [Goal("client CPU per workunit beyond the child itself ≤ 200 µs", "client", "beyond_child_us", 200.0)],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=10_000, help="workunits")


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    """All that client, executors and commands use, less what C loops and theirs use in the same run."""
    limit = spawn_loops(options.count)
    ours = awe(options.count)
    yield {
        "case": "client",
        "workunits": options.count,
        "beyond_child_us": float(ours["client_and_commands_cpu_us"]) - float(limit["cpu_us"]),
        "own_processes_us": ours["client_cpu_us"],
        "daemon_us": ours["daemon_cpu_us"],
        "with_commands_us": ours["client_and_commands_cpu_us"],
        "c_loop_with_commands_us": limit["cpu_us"],
    }


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
