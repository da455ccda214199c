"""How long a standby takes to serve once its leader was killed, or stopped, under load.

Kinds: `same machine` (kill -9; the standby sees that the process is gone), `other machine` (kill -9; it does
not, and waits for the lease), `stopped` (SIGSTOP, woken once the standby leads). The two servers of a pair
lead by turns, while eight clients work; at its end all that was promised is looked for. `serves`: until the
first exchange that was answered; `works`: until the first result that was accepted. Ends with exit code 1 if
a standby served later than it has to: when the lease is over and 5 s more.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from awe_server.store.lease import LEASE_S
from tests.bench.harness.figure import Figure, Row, Value
from tests.crash.documents import plain
from tests.support.env import ServerProcess
from tests.support.mongo import MongoServer
from tests.support.pair import MARGIN_S, Load, Pair, await_leader

KINDS = ("same machine", "other machine", "stopped")

FIGURE = Figure("standby", 0, "How long a standby takes to serve once its leader was killed, or stopped")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--take-overs", type=int, default=4, help="of each kind, by one pair, in each run")
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)


def take_overs(kind: str, folder: Path, times: int) -> Iterator[Row]:
    """So many take-overs of one pair; everything that was promised is looked for at the end."""
    (folder / "mongo").mkdir(parents=True)
    mongo = MongoServer(folder / "mongo")
    mongo.start()
    try:
        with (
            Pair(folder / "site", mongo.url(), far=kind == "other machine").start() as pair,
            Load(pair, lambda number: plain(f"job {number}", width=4), pause_s=1.0) as load,
        ):
            leader = pair.servers[0]
            for _ in range(times):
                yield take_over(kind, pair, load, leader)
                leader = pair.other(leader)
            load.work_off()
    finally:
        mongo.close()


def take_over(kind: str, pair: Pair, load: Load, old: ServerProcess) -> Row:
    """Take the leader away while clients work, and let it stand by afterwards."""
    load.first_after(load.accepted_at, time.monotonic())
    time.sleep(1.0)
    busy, at_s = os.getloadavg()[0], time.monotonic()
    old.running.pause() if kind == "stopped" else old.kill("kill server, the leader of a pair")
    await_leader(pair.other(old))
    ready_s = time.monotonic() - at_s
    found: dict[str, Value] = {"case": kind, "load_average": busy, "ready_s": ready_s}
    found["serves_s"] = load.first_after(load.exchanged_at, at_s + ready_s) + ready_s
    found["works_s"] = load.first_after(load.accepted_at, at_s + ready_s) + ready_s
    if kind == "stopped":
        found |= wake(old)
    found["longest_request_s"] = load.longest_s
    pair.stand_by(old)
    return found


def wake(old: ServerProcess) -> dict[str, Value]:
    """How a leader ends that was stopped while another one took over."""
    old.running.resume()
    at_s = time.monotonic()
    code = old.running.wait()
    [line] = [line for line in old.running.stderr.read_text().splitlines() if "server_stops" in line]
    return {
        "exit_code": code,
        "exits_s": time.monotonic() - at_s,
        "says": line.partition("server_stops")[2].strip(),
    }


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    for kind in options.kinds:
        with tempfile.TemporaryDirectory(prefix="awe-bench-") as folder:
            yield from take_overs(kind, Path(folder), options.take_overs)


def late(rows: Iterable[Row]) -> list[str]:
    """The take-overs that took longer than they may, a line each."""
    limit_s = LEASE_S + MARGIN_S
    return [
        f"{row['case']}: served after {row['serves_s']} s, at most {limit_s:g} s are allowed"
        for row in rows
        if float(row["serves_s"]) > limit_s
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure; whoever was late makes it fail."""
    rows: list[Row] = []

    def measured(options: argparse.Namespace, number: int) -> Iterator[Row]:
        for row in measure(options, number):
            rows.append(row)
            yield row

    FIGURE.main(measured, arguments, argv)
    if lines := late(rows):
        sys.exit("\n".join(lines))


if __name__ == "__main__":
    main()
