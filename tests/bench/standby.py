"""How long a standby takes to serve once its leader was killed, or stopped, under load. JSON lines, a table.

Kinds: `same machine` (kill -9; the standby sees that the process is gone), `other machine` (kill -9; it does
not, and waits for the lease), `stopped` (SIGSTOP, woken once the standby leads). Each run has servers, a
database and eight clients of its own. `serves`: until the first exchange that was answered; `works`: until
the first result that was accepted. Run as `python -m tests.bench.standby --runs 20`.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from awe_server.store.lease import LEASE_S
from tests.crash.documents import plain
from tests.support.mongo import MongoServer
from tests.support.pair import Load, Pair, await_leader

KINDS = ("same machine", "other machine", "stopped")


def run(kind: str, folder: Path) -> dict[str, Any]:
    """One take-over; everything that was promised is looked for at its end."""
    (folder / "mongo").mkdir(parents=True)
    mongo = MongoServer(folder / "mongo")
    mongo.start()
    try:
        with Pair(folder / "site", mongo.url(), far=kind == "other machine").start() as pair:
            return measure(kind, pair)
    finally:
        mongo.close()


def measure(kind: str, pair: Pair) -> dict[str, Any]:
    """Take the leader away while eight clients work."""
    with Load(pair, lambda number: plain(f"job {number}", width=4)) as load:
        load.first_after(load.accepted_at, time.monotonic())
        time.sleep(1.0)
        old, new = pair.servers
        at_s = time.monotonic()
        old.running.pause() if kind == "stopped" else old.kill("kill server, the leader of a pair")
        await_leader(new)
        found: dict[str, Any] = {"kind": kind, "ready_s": time.monotonic() - at_s}
        found["serves_s"] = load.first_after(load.exchanged_at, at_s + found["ready_s"]) + found["ready_s"]
        found["works_s"] = load.first_after(load.accepted_at, at_s + found["ready_s"]) + found["ready_s"]
        if kind == "stopped":
            found |= wake(old)
        load.work_off()
        found["longest_request_s"] = load.longest_s
        found["jobs"] = len(load.jobs)
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in found.items()}


def wake(old: Any) -> dict[str, Any]:
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
    for _ in range(options.runs):
        for kind in options.kinds:
            load_before = os.getloadavg()[0]
            with tempfile.TemporaryDirectory(prefix="awe-bench-") as folder:
                rows.append(run(kind, Path(folder)) | {"load_average": round(load_before, 1)})
            print(json.dumps(rows[-1]), flush=True)
    print("\n".join(table(rows)), flush=True)


if __name__ == "__main__":
    main()
