"""What watching the memory of running commands costs. One JSON line per case.

The commands are `sleep`s: what a look costs depends on how many processes there are, not on what they do.
The share is that of one core, at the usual pace of looks. Run as
`python -m tests.bench.memory_watch --commands 1 16 64 --others 2000`.
"""

import argparse
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from awe_client.daemon.memory import EVERY_S, MemoryWatch, share_of

MIB = 2**20


@contextmanager
def sleeping(count: int) -> Iterator[list[int]]:
    """So many processes."""
    pids = [os.posix_spawn("/bin/sleep", ["sleep", "600"], {}) for _ in range(count)]
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def measure(commands: int, others: int, looks: int) -> dict[str, float]:
    """CPU of the first look, which has to sort every process of the machine, and of those after it."""
    with sleeping(commands) as pids, sleeping(others):
        watch = MemoryWatch({pid: number for number, pid in enumerate(pids)}.get)
        for number in range(commands):
            watch.add(number, 64 * MIB)
        began = time.process_time()
        assert watch.look() == []
        first = time.process_time()
        for _ in range(looks):
            watch.look()
        each = (time.process_time() - first) / looks
    return {
        "commands": commands,
        "other_processes": others,
        "first_look_ms": round((first - began) * 1e3, 2),
        "look_ms": round(each * 1e3, 3),
        "core_share_percent": round(each / EVERY_S * 100, 3),
        "us_per_command_and_look": round(each / commands * 1e6, 1),
    }


def measure_close(mib: int) -> dict[str, float]:
    """The close look at one process that is above its limit by its counters."""
    data = b"x" * (mib * MIB)
    began = time.process_time()
    share = share_of(os.getpid())
    took = time.process_time() - began
    assert share is not None
    assert share >= len(data)
    return {"process_mib": mib, "close_look_ms": round(took * 1e3, 2)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument(
        "--others", type=int, nargs="+", default=[0, 1000], help="processes that are nobody's"
    )
    parser.add_argument("--looks", type=int, default=100)
    options = parser.parse_args()
    for others in options.others:
        for commands in options.commands:
            print(json.dumps(measure(commands, others, options.looks)), flush=True)
    print(json.dumps(measure_close(256)), flush=True)


if __name__ == "__main__":
    main()
