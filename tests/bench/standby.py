"""How long a standby takes to serve once its leader was killed, or stopped, under load. JSON lines, a table.

Kinds: `same machine` (kill -9; the standby sees that the process is gone), `other machine` (kill -9; it does
not, and waits for the lease), `stopped` (SIGSTOP, woken once the standby leads). The two servers of a pair
lead by turns, while eight clients work; at its end all that was promised is looked for. `serves`: until the
first exchange that was answered; `works`: until the first result that was accepted. Run as
`python -m tests.bench.standby --runs 20`.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from awe_server.store.lease import LEASE_S
from tests.crash.documents import plain
from tests.support.env import ServerProcess
from tests.support.mongo import MongoServer
from tests.support.pair import Load, Pair, await_leader

KINDS = ("same machine", "other machine", "stopped")


def runs_of(kind: str, folder: Path, runs: int) -> Iterator[dict[str, Any]]:
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
            for _ in range(runs):
                yield take_over(kind, pair, load, leader)
                leader = pair.other(leader)
            load.work_off()
    finally:
        mongo.close()


def take_over(kind: str, pair: Pair, load: Load, old: ServerProcess) -> dict[str, Any]:
    """Take the leader away while clients work, and let it stand by afterwards."""
    load.first_after(load.accepted_at, time.monotonic())
    time.sleep(1.0)
    busy, at_s = os.getloadavg()[0], time.monotonic()
    old.running.pause() if kind == "stopped" else old.kill("kill server, the leader of a pair")
    await_leader(pair.other(old))
    ready_s = time.monotonic() - at_s
    found: dict[str, Any] = {"kind": kind, "load_average": busy, "ready_s": ready_s}
    found["serves_s"] = load.first_after(load.exchanged_at, at_s + ready_s) + ready_s
    found["works_s"] = load.first_after(load.accepted_at, at_s + ready_s) + ready_s
    if kind == "stopped":
        found |= wake(old)
    found["longest_request_s"] = load.longest_s
    pair.stand_by(old)
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in found.items()}


def wake(old: ServerProcess) -> dict[str, Any]:
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


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Minimum, median and maximum for each kind."""
    lines = [f"{'':15}{'':9}{'min':>8}{'median':>8}{'max':>8}  (s)"]
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        for what in ("serves", "works", "exits"):
            times = [row[f"{what}_s"] for row in mine if f"{what}_s" in row]
            if times:
                middle = statistics.median(times)
                lines.append(
                    f"{kind:15}{what:9}{min(times):8.2f}{middle:8.2f}{max(times):8.2f}  {len(times)} runs"
                )
    return lines


def main() -> None:
    """Run them in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="of each kind")
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    print(
        json.dumps({"cpus": os.cpu_count(), "python": platform.python_version(), "lease_s": LEASE_S}),
        flush=True,
    )
    rows: list[dict[str, Any]] = []
    for kind in options.kinds:
        with tempfile.TemporaryDirectory(prefix="awe-bench-") as folder:
            for row in runs_of(kind, Path(folder), options.runs):
                rows.append(row)
                print(json.dumps(row), flush=True)
    print("\n".join(table(rows)), flush=True)


if __name__ == "__main__":
    main()
