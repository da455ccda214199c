"""How many workunits a store commits per second, in batches as the engine writes them. JSON lines out.

Each workunit is put twice: first as checked out, then as completed. Run as
`python -m tests.bench.store_commit --url sqlite --batch 256 --puts 100000`.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from awe_server.store.base import Document, Operation, Put
from awe_server.store.open import open_store

CLIENT = "c1b2c3d4-aaaa-bbbb-cccc-ddddeeeeffff"
JOB = "0b6f3c52-7d1e-4c55-8f3e-2f8b0f3f7a11"


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


async def measure(url: str, folder: Path, puts: int, size: int) -> dict[str, object]:
    """Commit them all, one batch after the other."""
    store = open_store(url, folder)
    await store.open()
    prepared = list(batches(puts, size))
    took_s: list[float] = []
    cpu_s = time.process_time()
    for batch in prepared:
        started = time.perf_counter()
        await store.commit(batch)
        took_s.append(time.perf_counter() - started)
    cpu_s = time.process_time() - cpu_s
    await store.close()
    took_s.sort()
    return {
        "bench": "store_commit",
        "store": store.name.partition(":")[0],
        "batch": size,
        "puts": sum(map(len, prepared)),
        "puts_per_s": round(sum(map(len, prepared)) / sum(took_s)),
        "cpu_us_per_put": round(cpu_s / sum(map(len, prepared)) * 1e6, 2),
        "commit_p50_ms": round(statistics.median(took_s) * 1e3, 2),
        "commit_p99_ms": round(took_s[int(len(took_s) * 0.99)] * 1e3, 2),
        "commit_max_ms": round(took_s[-1] * 1e3, 2),
    }


def main() -> None:
    """Measure once for each batch size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--url", default="sqlite", help="as awe-server's --store; a fresh sqlite file by default"
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64, 256, 512], help="puts of a commit")
    parser.add_argument("--puts", type=int, default=100_000, help="puts in all, for each batch size")
    parser.add_argument("--dir", type=Path, help="where the sqlite file goes (default: the temporary folder)")
    options = parser.parse_args()
    for size in options.batch:
        with tempfile.TemporaryDirectory(dir=options.dir) as folder:
            puts = min(options.puts, 4_000 * size)
            print(json.dumps(asyncio.run(measure(options.url, Path(folder), puts, size))), flush=True)


if __name__ == "__main__":
    main()
