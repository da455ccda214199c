"""Figure 13: round trips and bytes between server and MongoDB for a batch, counted on the line.

One simulated client, so that each exchange is a commit of its own. What the server does by itself
meanwhile (hello, the renewal of its lease) goes on whatever the load, and is counted apart.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench.harness.figure import Figure, Goal, Row
from tests.bench.harness.load import work_off
from tests.bench.harness.mongo_counter import MongoCounter
from tests.bench.harness.site import Site
from tests.support.mongo import MongoServer

OURSELVES = ("hello", "isMaster", "ismaster", "ping", "endSessions")  #: the driver's own talk

FIGURE = Figure(
    "mongo_round_trips",
    13,
    "Round trips and bytes between server and MongoDB for a batch of 64 and of 256, counted",
    [
        Goal("MongoDB round trips per batch of 64 ≤ 5", "batch 64", "round_trips", 5.0),
        Goal("MongoDB round trips per batch of 256 ≤ 5", "batch 256", "round_trips", 5.0),
    ],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batches", type=int, default=50, help="exchanges that report and take a batch")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 256], help="of a batch")


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="awe-bench-") as folder:
        mongo = MongoServer(Path(folder))
        mongo.start()
        try:
            for size in options.sizes:
                yield {"case": f"batch {size}", **counted(mongo, options.batches, size)}
        finally:
            mongo.close()


def counted_from(counter: MongoCounter, site: Site) -> Callable[[], float]:
    """CPU of the server; the first who asks begins the count."""
    resets = iter((counter.reset,))

    def cpu_s() -> float:
        next(resets, lambda: None)()
        return site.server.cpu_s()

    return cpu_s


def counted(mongo: MongoServer, batches: int, size: int) -> dict[str, float | str]:
    """Commands for each batch, with those of the submission; the last exchange only reports, and counts."""
    address = urlsplit(mongo.url())
    options = "directConnection=true"  # else the driver would go on to the address that the server tells it
    with (
        MongoCounter(str(address.hostname), address.port or 0) as counter,
        Site(store=f"mongodb://127.0.0.1:{counter.port}{address.path}?{options}") as site,
    ):
        took_s, used_s = work_off(site.port, 1, size, batches * size, cpu_s=counted_from(counter, site))
        asked = {name: n for name, n in counter.requests.items() if name not in OURSELVES}
        passed = sum(n for name, n in (counter.sent + counter.received).items() if name not in OURSELVES)
    if not asked:
        raise RuntimeError("nothing went through the proxy")
    exchanges = batches + 1
    return {
        "workunits": batches * size,
        "round_trips": sum(asked.values()) / exchanges,
        "kilobytes": passed / exchanges / 1e3,
        "commands": " ".join(f"{name}:{n / exchanges:.2f}" for name, n in sorted(asked.items())),
        "server_cpu_us": used_s / (batches * size) * 1e6,
        "exchanges_per_s": exchanges / took_s,
    }


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
