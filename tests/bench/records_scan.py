"""How fast files are indexed, hashed, stored and merged, in megabytes a second."""

import argparse
import asyncio
import hashlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

from awe_server.data.blobs import BlobStore
from awe_server.data.build import build_index
from awe_server.data.merge import merge
from shared_models.limits import MIB
from tests.bench.harness.figure import Figure, Row
from tests.unit.data.samples import READS

SAM_LINE = b"r1\t0\tchr1\t100\t60\t100M\t*\t0\t0\t" + b"ACGT" * 25 + b"\t" + b"IIII" * 25 + b"\tNM:i:0\n"
WRAPPED = b"@r\n" + (b"ACGT" * 15 + b"\n") * 6 + b"+\n" + (b"@III" * 15 + b"\n") * 6
SAMPLES = {
    "fastq": READS,
    "fastq, CRLF": READS.replace(b"\n", b"\r\n"),
    "fastq, wrapped": WRAPPED * 100,
    "fasta": (b">r\n" + (b"ACGT" * 15 + b"\n") * 6) * 200,
    "sam": SAM_LINE * 400,
    "text": (b"x" * 80 + b"\n") * 1000,
}
PARTS = 100  #: that are merged

FIGURE = Figure("records_scan", 0, "Indexing, hashing, storing and merging a file")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bytes", type=int, default=200_000_000, help="of the file")


def timed(case: str, size: int, work: Callable[[], object]) -> Row:
    """How many megabytes a second some work does."""
    began = time.perf_counter()
    work()
    took_s = time.perf_counter() - began
    return {"case": case, "seconds": took_s, "mb_per_s": size / took_s / 1e6}


async def _chunks(size: int) -> AsyncIterator[bytes]:
    data = b"x" * 65_536
    for _ in range(size // len(data)):
        yield data


def _hash(algorithm: str, size: int) -> None:
    digest, block = hashlib.new(algorithm), b"x" * MIB
    for _ in range(size // MIB):
        digest.update(block)


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    size = options.bytes
    with tempfile.TemporaryDirectory(prefix="awe-bench-") as name:
        folder = Path(name)
        for kind_of_file, sample in SAMPLES.items():
            path = folder / "sample"
            path.write_bytes(sample * (size // len(sample)))
            for kind in ("record", "chunkrecord", "line"):
                yield timed(f"{kind_of_file}: {kind}", size, partial(build_index, path, kind, "sample"))
        for algorithm in ("md5", "sha256"):
            yield timed(algorithm, size, partial(_hash, algorithm, size))
        store = BlobStore(folder / "blobs", 0)
        yield timed("upload", size, lambda: asyncio.run(store.add(_chunks(size), "n")))
        parts = [folder / f"part{index}" for index in range(PARTS)]
        for part in parts:
            part.write_bytes(b"x" * (size // PARTS))
        merged = store.new_name("n")
        yield timed(
            f"merge of {PARTS} parts",
            size,
            lambda: merge(parts, 0, store.writer(merged), store.path(merged)),
        )


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
