"""How many workunits a store commits per second, in batches as the engine writes them.

Each workunit is put twice: first as checked out, then as completed.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from awe_server.store.base import Document, Operation, Put
from awe_server.store.open import open_store
from tests.bench.harness.figure import Figure, Row, percentile
from tests.bench.harness.machine import file_system

CLIENT = "c1b2c3d4-aaaa-bbbb-cccc-ddddeeeeffff"
JOB = "0b6f3c52-7d1e-4c55-8f3e-2f8b0f3f7a11"

FIGURE = Figure("store_commit", 0, "Workunits committed by a store, in batches as the engine writes them")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", default="sqlite", help="as awe-server's --store; a fresh sqlite file by default"
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64, 256, 512], help="puts of a commit")
    parser.add_argument("--puts", type=int, default=100_000, help="puts in all, for each batch size")


def workunit(rank: int, state: str) -> Document:
    """A workunit document of the usual size (about 650 bytes)."""
    return {
        "id": f"{JOB}_blast_{rank}",
        "jobid": JOB,
        "taskid": f"{JOB}_blast",
        "rank": rank,
        "state": state,
        "failed": 0,
        "lost": 0,
        "attempt": 1,
        "client": CLIENT,
        "checkout_time": "2026-01-31T12:00:00.123456Z",
        "computetime": 0,
        "done_time": "0001-01-01T00:00:00Z",
        "notes": "",
        "exit": None,
        "perf": None,
        "outputs": [
            {"filename": "out.fa", "node": CLIENT, "size": 123456, "md5": "d41d8cd98f00b204e9800998ecf8427e"}
        ],
        "_token": "AbCdEfGhIjKlMnOpQrStUv",
        "generation": 1,
        "not_before": "0001-01-01T00:00:00Z",
    }


def batches(puts: int, size: int) -> Iterator[list[Operation]]:
    """Every rank checked out, then every rank completed."""
    for state in ("checkout", "completed"):
        for first in range(0, puts // 2, size):
            ranks = range(first, min(first + size, puts // 2))
            yield [Put("workunits", workunit(rank, state)) for rank in ranks]


async def commit_all(url: str, folder: Path, puts: int, size: int) -> dict[str, float | str]:
    """Commit them all, one batch after the other."""
    store = open_store(url, folder)
    await store.open()
    prepared = list(batches(puts, size))
    count = sum(map(len, prepared))
    took_ms: list[float] = []
    cpu_s = time.process_time()
    for batch in prepared:
        began = time.perf_counter()
        await store.commit(batch)
        took_ms.append((time.perf_counter() - began) * 1e3)
    cpu_s = time.process_time() - cpu_s
    await store.close()
    return {
        "store": store.name.partition(":")[0],
        "puts": count,
        "puts_per_s": count / sum(took_ms) * 1e3,
        "cpu_us_per_put": cpu_s / count * 1e6,
        "commit_p50_ms": percentile(took_ms, 50),
        "commit_p99_ms": percentile(took_ms, 99),
        "commit_max_ms": max(took_ms),
        "fs": file_system(folder),
    }


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    for size in options.batch:
        with tempfile.TemporaryDirectory(prefix="awe-bench-") as folder:
            puts = min(options.puts, 4_000 * size)
            yield {"case": f"batch {size}", **asyncio.run(commit_all(options.url, Path(folder), puts, size))}


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
