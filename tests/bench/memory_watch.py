"""What watching the memory of running commands costs.

The commands are `sleep`s: what a look costs depends on how many processes there are, not on what they do.
The share is that of one core, at the usual pace of looks.
"""

import argparse
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from awe_client.daemon.memory import EVERY_S, MemoryWatch, share_of
from tests.bench.harness.figure import Figure, Row

MIB = 2**20
LARGE_MIB = 256

FIGURE = Figure("memory_watch", 0, "CPU of looking at the memory of running commands")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--commands", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument(
        "--others", type=int, nargs="+", default=[0, 1000], help="processes that are nobody's"
    )
    parser.add_argument("--looks", type=int, default=100)


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


def look_costs(commands: int, others: int, looks: int) -> dict[str, float | str]:
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
        "first_look_ms": (first - began) * 1e3,
        "look_ms": each * 1e3,
        "core_percent": each / EVERY_S * 100,
        "us_per_command_and_look": each / commands * 1e6,
    }


def close_look_ms(mib: int) -> float:
    """The close look at one process that is above its limit by its counters."""
    data = b"x" * (mib * MIB)
    began = time.process_time()
    share = share_of(os.getpid())
    took = time.process_time() - began
    assert share is not None
    assert share >= len(data)
    return took * 1e3


def measure(options: argparse.Namespace, number: int) -> Iterator[Row]:
    for others in options.others:
        for commands in options.commands:
            case = f"{commands} commands, {others} other processes"
            yield {"case": case, **look_costs(commands, others, options.looks)}
    yield {"case": f"close look at {LARGE_MIB} MiB", "close_look_ms": close_look_ms(LARGE_MIB)}


if __name__ == "__main__":
    FIGURE.main(measure, arguments)
