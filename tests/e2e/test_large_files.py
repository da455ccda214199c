"""A large file comes in, is cut into many parts, and is merged again: in little memory, on both sides.

AWE_TEST_LARGE_BYTES says how large; `make large` takes 4 GiB.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from tests.support.env import AweEnv
from tests.support.memory import TreeMemory, peak_rss_bytes, tree

MIB = 1024 * 1024
SIZE = int(os.environ.get("AWE_TEST_LARGE_BYTES", 256 * MIB))
PARTS = 16
LIMIT_BYTES = 300 * MIB
#: On the server the input, the parts of the output and the output; on the client what four parts take.
ROOM = 3 * SIZE + 8 * SIZE // PARTS + 512 * MIB
DEADLINE_S = 120 + 2 * SIZE / (10 * MIB)


class Digested:
    """An iterator of bytes that knows afterwards what went through."""

    def __init__(self) -> None:
        self.md5, self.size = hashlib.md5(usedforsecurity=False), 0

    def pass_on(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.md5.update(chunk)
            self.size += len(chunk)
            yield chunk

    @property
    def facts(self) -> tuple[int, str]:
        return self.size, self.md5.hexdigest()


def reads() -> Iterator[bytes]:
    """FASTQ of about SIZE bytes, no two records alike, a MiB or so at a time."""
    letters = bytes(b"ACGT"[i & 3] for i in range(256))
    number = made = 0
    while made < SIZE:
        bases = os.urandom(MIB // 2).translate(letters)
        records = [
            b"@r%d\n%b\n+\n%b\n" % (number + at, bases[at * 150 : at * 150 + 150], b"I" * 150)
            for at in range(len(bases) // 150)
        ]
        number += len(records)
        chunk = b"".join(records)
        made += len(chunk)
        yield chunk


@pytest.fixture
def site() -> Iterator[AweEnv]:
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < ROOM:
        pytest.skip(f"{SIZE // MIB} MiB need {ROOM // MIB} MiB of disk; {free // MIB} MiB are free")
    with AweEnv.temporary() as env:
        env.server.start()
        yield env


def peaks(pid: int) -> dict[str, int]:
    """The peak in MiB of each process below one, by its command."""
    return {
        f"{pid} {Path(f'/proc/{pid}/comm').read_text().strip()}": peak_rss_bytes(pid) // MIB
        for pid in tree(pid)
    }


@pytest.mark.timeout(3 * DEADLINE_S)
def test_a_large_file_is_cut_and_merged_in_little_memory(site: AweEnv) -> None:
    client = site.start_client("--cache-bytes", "0", slots=4)
    server = site.server.running
    sent, got = Digested(), Digested()
    timeout = httpx.Timeout(DEADLINE_S)
    times = [time.monotonic()]
    with TreeMemory(server.pid, 0.1) as whole_server, TreeMemory(client.pid, 0.1) as whole_client:
        node = site.data("POST", "/node", content=sent.pass_on(reads()), timeout=timeout)["id"]
        times.append(time.monotonic())
        task = {
            "taskid": "0",
            "cmd": {"name": "cp", "args": "@reads.fastq copy"},
            "inputs": [{"filename": "reads.fastq", "node": node}],
            "outputs": [{"filename": "copy"}],
            "totalwork": PARTS,
            "partinfo": {"input": "reads.fastq", "index": "record"},
        }
        done = site.wait_for(site.submit({"tasks": [task]}), within_s=DEADLINE_S)["tasks"][0]
        times.append(time.monotonic())
        with site.http.stream(
            "GET", f"/node/{done['outputs'][0]['node']}?download", timeout=timeout
        ) as reply:
            for _ in got.pass_on(reply.iter_bytes(MIB)):
                pass
        times.append(time.monotonic())
    up, work, down = (after - before for before, after in pairwise(times))
    print(f"\n{sent.size} bytes, {PARTS} parts: up {up:.1f} s, work {work:.1f} s, down {down:.1f} s")
    for name, process, all_of_it in (("server", server, whole_server), ("client", client, whole_client)):
        print(f"{name}: peak {peaks(process.pid)} MiB, together {all_of_it.peak_bytes // MIB} MiB")
    assert done["totalwork"] == PARTS
    assert got.facts == sent.facts
    assert got.size >= SIZE
    for process, all_of_it in ((server, whole_server), (client, whole_client)):
        assert max(peak_rss_bytes(process.pid), all_of_it.peak_bytes) < LIMIT_BYTES
