"""Figure 4: how many workunits a second go through one server, with simulated clients."""

import argparse
from collections.abc import Iterator

from tests.bench.exchange_cost import one
from tests.bench.harness.figure import Figure, Goal, Row

FIGURE = Figure(
    "exchange_rate",
    4,
    "Workunits a second through one server: simulated clients, batches of 64, SQLite with fsync",
    [
        Goal(
            "workunits/s through one server, batches of 64 ≥ 20,000",
            "batch 64",
            "workunits_per_s",
            20e3,
            True,
        )
    ],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=200_000, help="workunits")
    parser.add_argument("--clients", type=int, default=100)


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    yield {"case": "batch 64", **one(options.count, options.clients, 64)}


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
