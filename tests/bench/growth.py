"""Figure 15: what figures 1, 3 and 4 become with ever more workunits."""

import argparse
from collections.abc import Iterator

from tests.bench import end_to_end, exchange_cost
from tests.bench.harness.figure import Figure, Goal, Row, ratio

CLIENTS = 16
ENOUGH = 20_000  #: workunits in all, by jobs in turn if one has fewer: CPU is counted in ticks of 10 ms

FIGURE = Figure(
    "growth",
    15,
    "Figures 1, 3 and 4 at 10³, 10⁴, 10⁵ and 10⁶ workunits: the worst beside the best, in the same run",
    [
        Goal("end to end at 10³ … 10⁶ workunits: slowest ≥ 0.8 × fastest", "end to end", "flat", 0.8, True),
        Goal("server CPU per workunit: least ≥ 0.8 × most", "server CPU", "flat", 0.8, True),
        Goal("workunits/s through one server: slowest ≥ 0.8 × fastest", "exchange rate", "flat", 0.8, True),
    ],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--counts", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])


def flatness(values: list[float]) -> float:
    """The least beside the most: 1 is flat."""
    return ratio(min(values), max(values))


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    rates, costs, exchanges = [], [], []
    for count in options.counts:
        ran, exchanged = end_to_end.awe(count), exchange_cost.one(count, CLIENTS, 64, -(-ENOUGH // count))
        rates.append(float(ran["tasks_per_s"]))
        costs.append(float(exchanged["server_cpu_us"]))
        exchanges.append(float(exchanged["workunits_per_s"]))
        yield {
            "case": f"{count:,}",
            "end_to_end_per_s": rates[-1],
            "end_to_end_server_cpu_us": float(ran["server_cpu_us"]),
            "server_cpu_us": costs[-1],
            "exchange_workunits_per_s": exchanges[-1],
            "server_rss_mib": float(exchanged["server_rss_mib"]),
        }
    yield {"case": "end to end", "flat": flatness(rates)}
    yield {"case": "server CPU", "flat": flatness(costs)}
    yield {"case": "exchange rate", "flat": flatness(exchanges)}


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
