"""How much memory processes take: the kernel's own peak of one, and the sampled peak of a tree."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Self


def peak_rss_bytes(pid: int) -> int:
    """The most that a running process ever had resident (VmHWM); `reset_peak` starts anew."""
    return _status_bytes(pid, "VmHWM")


def rss_bytes(pid: int) -> int:
    """What a process has resident now; 0 if it is gone."""
    try:
        return _status_bytes(pid, "VmRSS")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def reset_peak(pid: int) -> None:
    """Let the peak of a process begin at what it has now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in children.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


class TreeMemory:
    """Samples a process tree while the with statement lasts; `peak_bytes` is the largest sum seen.

    Pages that processes share count once for each of them.
    """

    def __init__(self, pid: int, every_s: float = 0.02) -> None:
        self.peak_bytes = 0
        self.samples = 0
        self._pid, self._every_s = pid, every_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(10)

    def _watch(self) -> None:
        while not self._done.wait(self._every_s):
            self._sample()

    def _sample(self) -> None:
        self.peak_bytes = max(self.peak_bytes, sum(rss_bytes(pid) for pid in tree(self._pid)))
        self.samples += 1


def _status_bytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)
