"""Figure 10: how long it takes to cut a FASTQ file into 64 parts, from the submission to the first workunit.

The file lies in the node store and is warm, as its upload has just left it, and that made its index, too; a
client waits for the work. `index_ms` is what the index takes by itself: part of the upload, not of the cut.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop

from awe_server.data.build import build_index
from tests.bench.harness.figure import Figure, Goal, Row, ratio
from tests.bench.harness.http import AsyncLine, Line
from tests.bench.harness.load import connect
from tests.bench.harness.site import Site

READS = Path(__file__).parents[1] / "data" / "emp_reads.fastq"
BLOCK_BYTES = 8 << 20

FIGURE = Figure(
    "cut_file",
    10,
    "Cut a FASTQ file in the node store into 64 parts (warm, as its upload left it, and indexed by it): from "
    "submit until its workunits are handed out",
    [
        Goal("cut 1 GB FASTQ into 64 parts ≤ 50 ms", "small", "cut_ms", 50.0),
        Goal("… no slower at 10 GB: ≤ 1.2 × the time for 1 GB", "large", "of_small", 1.2),
    ],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--small-bytes", type=int, default=1_000_000_000)
    parser.add_argument("--large-bytes", type=int, default=10_000_000_000)
    parser.add_argument("--parts", type=int, default=64)


def upload(port: int, size: int) -> str:
    """A node of real reads, of about that size (whole copies of a small file); its id."""
    reads = READS.read_bytes()
    block = reads * max(BLOCK_BYTES // len(reads), 1)
    with Line(port) as line:
        whole = size // len(reads) * len(reads)
        return str(line.upload("POST", "/node?file_name=reads.fastq", block, whole)["id"])


def job(node: str, parts: int) -> dict[str, object]:
    """One task that reads a node in parts."""
    task = {
        "taskid": "only",
        "cmd": {"name": "/bin/true", "args": "@reads.fastq"},
        "inputs": [{"filename": "reads.fastq", "node": node}],
        "totalwork": parts,
        "partinfo": {"input": "reads.fastq", "index": "chunkrecord"},
    }
    return {"info": {"name": "cut"}, "tasks": [task]}


async def cut_s(port: int, document: dict[str, object], parts: int) -> float:
    """Seconds from before the submission until a waiting client has all parts."""
    [client] = await connect(port, 1)
    waits = asyncio.create_task(client.exchange(parts, 60.0))
    line = await AsyncLine.open(port)
    await asyncio.sleep(0.05)  # the poll is there
    began = time.perf_counter()
    await line.call("POST", "/job", document)
    handed_out = await waits
    took_s = time.perf_counter() - began
    assert handed_out == parts, f"{handed_out} of {parts} parts"
    return took_s


def index_s(site: Site) -> float:
    """Seconds to make the index of the only file once more, elsewhere."""
    stored = [path for path in (site.data / "nodes" / "blobs").rglob("*") if path.is_file()]
    again = site.data.parent / "again"
    os.link(max(stored, key=lambda path: path.stat().st_size), again)
    began = time.perf_counter()
    build_index(again, "chunkrecord", "reads.fastq", may_scan=False)
    return time.perf_counter() - began


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    small_ms = 0.0
    for case, size in (("small", options.small_bytes), ("large", options.large_bytes)):
        with Site() as site:
            node = upload(site.port, size)
            took_ms = uvloop.run(cut_s(site.port, job(node, options.parts), options.parts)) * 1e3
            row = {
                "case": case,
                "bytes": size,
                "parts": options.parts,
                "cut_ms": took_ms,
                "index_ms": index_s(site) * 1e3,
            }
            if case == "small":
                small_ms = took_ms
                yield row
            else:
                yield {**row, "of_small": ratio(took_ms, small_ms)}


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
