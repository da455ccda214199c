"""Runs all figures, one after the other, prints their table and writes docs/benchmarks.md.

`python -m tests.bench --runs 5`. Each figure is a command of its own, too: `python -m tests.bench.NAME`.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.harness.document import document
from tests.bench.harness.figure import RUNS, Table
from tests.bench.harness.machine import describe

#: The modules of the figures, by number.
FIGURES = (
    "end_to_end", "submit_latency", "exchange_cost", "exchange_rate", "million", "submit_rate", "restart",
    "idle_clients", "many_demands", "cut_file", "node_transfer", "client_overhead", "mongo_round_trips",
    "exchange_under_transfers", "growth",
)  # fmt: skip
#: Measurements of the same form that no goal is about.
OTHERS = ("memory_watch", "records_scan", "scheduler_hot", "standby", "store_commit")
DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def lines_of(name: str, runs: int) -> Iterator[dict[str, Any]]:
    """What the command of a figure prints, line by line. Raises CalledProcessError if it fails."""
    argv = [sys.executable, "-m", f"tests.bench.{name}", "--runs", str(runs)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            yield json.loads(line)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv)


def main() -> int:
    """Run them; the exit code is 1 if one of them could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="medians are of so many runs")
    parser.add_argument("--only", nargs="+", choices=(*FIGURES, *OTHERS), help="these; nothing is written")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    failed = []
    for name in options.only or FIGURES:
        try:
            found += lines_of(name, options.runs)
        except subprocess.CalledProcessError:
            failed.append(name)
    table = Table()
    for line in found:
        table.add(line)
    print("\n".join(table.lines()))
    if not options.only:
        DOCUMENT.write_text(document(describe(), found, table, options.runs), encoding="utf-8")
    if failed:
        print(f"not measured: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
