"""What the runners of all peers share. They run in the peers' own environment: nothing of ours is there."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path


def cpu_s(pid: int) -> float:
    """What a process used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(condition: Callable[[], object], every_s: float = 0.005, within_s: float = 600.0) -> None:
    """Raises TimeoutError if it never comes true."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it never happened")
        time.sleep(every_s)


def throughput(count: int, run: Callable[[], object], server_pid: int) -> None:
    """Run all; print the rate and the CPU of the server."""
    before, began = cpu_s(server_pid), time.perf_counter()
    run()
    took_s = time.perf_counter() - began
    say(tasks=count, tasks_per_s=count / took_s, server_cpu_us=(cpu_s(server_pid) - before) / count * 1e6)


def latency(count: int, one: Callable[[], object], warm: int = 5) -> None:
    """Run one after the other; print the percentiles (nearest rank)."""
    for _ in range(warm):
        one()
    took_ms = []
    for _ in range(count):
        began = time.perf_counter()
        one()
        took_ms.append((time.perf_counter() - began) * 1e3)
    took_ms.sort()
    p50, p99 = (took_ms[max(-(-count * percent // 100), 1) - 1] for percent in (50, 99))
    say(jobs=count, p50_ms=p50, p99_ms=p99)


def say(**found: float) -> None:
    """The last line of output is the result."""
    print(json.dumps(found), flush=True)


def arguments() -> tuple[str, int]:
    """`throughput` or `latency`, and how many."""
    return sys.argv[1], int(sys.argv[2])
