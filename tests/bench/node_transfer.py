"""Figure 11: upload to the node store (hashed, fsynced) and download from it, beside md5 alone and nginx."""

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.harness.figure import Figure, Goal, Row, ratio
from tests.bench.harness.http import Line
from tests.bench.harness.site import Site
from tests.bench.peers.nginx import Nginx

BLOCK_BYTES = 1 << 20

FIGURE = Figure(
    "node_transfer",
    11,
    "Upload 1 GB to a node (md5 and sha256, fsync) and download it, against an md5 pass and nginx",
    [
        Goal("node upload ≥ 0.5 × one md5 pass", "awe upload", "of_md5", 0.5, True),
        Goal("node download ≥ 0.5 × nginx on the same file", "awe download", "of_nginx", 0.5, True),
    ],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bytes", type=int, default=1_000_000_000)


def md5_rate(block: bytes, size: int) -> float:
    """Megabytes a second of one pass over what is in memory."""
    digest, began = hashlib.md5(), time.perf_counter()
    for _ in range(-(-size // len(block))):
        digest.update(block)
    return size / (time.perf_counter() - began) / 1e6


def download_rate(port: int, path: str, size: int) -> float:
    """Megabytes a second, dropped as they come; the second of two downloads, so that the file is warm."""
    with Line(port) as line:
        line.drain(path)
        began = time.perf_counter()
        assert line.drain(path) == size
        return size / (time.perf_counter() - began) / 1e6


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    block, size = os.urandom(BLOCK_BYTES), options.bytes
    md5 = md5_rate(block, size)
    yield {"case": "md5 pass", "mb_per_s": md5}
    with tempfile.TemporaryDirectory(prefix="awe-bench-") as folder, Nginx(Path(folder)) as nginx:
        with (Path(folder) / "file").open("wb") as file:
            for _ in range(size // len(block)):
                file.write(block)
            file.write(block[: size % len(block)])
        theirs = download_rate(nginx.port, "/file", size)
    yield {"case": "nginx download", "mb_per_s": theirs, "version": nginx.version}
    with Site() as site, Line(site.port) as line:
        before, began = site.server.cpu_s(), time.perf_counter()
        node = line.upload("POST", "/node?file_name=file", block, size)["id"]
        rate = size / (time.perf_counter() - began) / 1e6
        used_s = site.server.cpu_s() - before
        yield {"case": "awe upload", "mb_per_s": rate, "of_md5": ratio(rate, md5), "server_cpu_s": used_s}
        ours = download_rate(site.port, f"/node/{node}?download", size)
        yield {"case": "awe download", "mb_per_s": ours, "of_nginx": ratio(ours, theirs)}


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
