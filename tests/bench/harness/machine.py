"""The machine of a measurement: what it is, how busy it was before, and what processes used of it."""

import os
import platform
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

HZ = os.sysconf("SC_CLK_TCK")


def busy_share(over_s: float = 0.3) -> float:
    """The share of all cores that was busy just now, while nothing of ours ran; 0 to 1."""
    busy, total = _ticks()
    time.sleep(over_s)
    busy_then, total_then = _ticks()
    return round((busy_then - busy) / max(total_then - total, 1), 3)


def _ticks() -> tuple[int, int]:
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def cpu_s(pid: int, *, children: bool = False) -> float:
    """What a process and all its threads used, in seconds; `children`: those it has waited for, too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    used = int(fields[11]) + int(fields[12])
    if children:
        used += int(fields[13]) + int(fields[14])
    return used / HZ


def written_bytes(pid: int) -> int:
    """What a process let the kernel write to storage so far: whole pages, journals apart."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "write_bytes":
            return int(value)
    raise ProcessLookupError(pid)


def file_system(folder: Path) -> str:
    """The type of the file system that a folder is on: ext4, tmpfs, …"""
    path, best, kind = str(folder.resolve()), "", ""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, this = line.split()[:3]
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, this
    return kind


def describe() -> dict[str, str]:
    """What a reader has to know to compare."""
    cpus = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = int(Path("/proc/meminfo").read_text().split()[1]) // 2**20
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {
        "cores": f"{os.cpu_count()} × {cpus[0] if cpus else platform.machine()}",
        "memory": f"{memory} GiB",
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "sqlite": sqlite3.sqlite_version,
        "commit": commit.stdout.strip() or "unknown",
    }
