"""How fast files are indexed and stored: python -m tests.bench.records_scan [MB] (default 200)."""

import asyncio
import hashlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

from awe_server.data.blobs import BlobStore
from awe_server.data.build import build_index
from awe_server.data.merge import merge
from shared_models.limits import MIB
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


def report(what: str, size: int, work: Callable[[], object]) -> None:
    """Print how long something took and the bytes per second."""
    before = time.perf_counter()
    result = work()
    took_s = time.perf_counter() - before
    print(f"{what:32} {took_s:8.3f} s {size / took_s / 1e6:10.0f} MB/s   {result}")


async def _chunks(data: bytes, size: int) -> AsyncIterator[bytes]:
    for _ in range(size // len(data)):
        yield data


def main() -> None:
    """Measure everything once."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else 200) * 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        for name, sample in SAMPLES.items():
            path = Path(folder) / "sample"
            path.write_bytes(sample * (size // len(sample)))
            for kind in ("record", "chunkrecord", "line"):
                report(f"{name}: {kind}", size, partial(build_index, path, kind, name))
        block = b"x" * MIB
        for algorithm in ("md5", "sha256"):
            report(algorithm, 500 * MIB, partial(_hash, algorithm, block))
        store = BlobStore(Path(folder) / "blobs", 0)
        report("upload", size, lambda: asyncio.run(store.add(_chunks(b"x" * 65_536, size), "n"))[1].size)
        parts = [Path(folder) / f"part{number}" for number in range(100)]
        for part in parts:
            part.write_bytes(b"x" * (size // 100))
        name = store.new_name("n")
        report("merge of 100 parts", size, lambda: merge(parts, 0, store.writer(name), store.path(name)).size)


def _hash(algorithm: str, block: bytes) -> str:
    digest = hashlib.new(algorithm)
    for _ in range(500):
        digest.update(block)
    return ""


if __name__ == "__main__":
    main()
