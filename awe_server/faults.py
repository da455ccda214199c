"""Dies at a named point, for crash tests; does nothing unless AWE_FAULT_POINT is set.

Points: before-commit, inside-commit (something of the batch is written, nothing is committed), after-commit,
before-reply; before-cut (a task's data was looked at), after-merge (an output is whole), before-finished,
before-delete. The value is a point, or a point and how often it has to be reached (`2 before-commit` = the
second time from when that was said), or `@file`: then the file, once it exists, says so, and a test can
arm it while the server runs.
"""

import os
import signal
from collections import Counter
from functools import cache
from pathlib import Path


@cache
def _setting() -> str:
    """Read once, and not before a point is reached: tests fork servers that have imported everything."""
    return os.environ.get("AWE_FAULT_POINT", "")


#: How often each was reached, since it was armed: what is armed, and when.
_reached: Counter[tuple[str, int]] = Counter()


def _armed() -> tuple[str, int]:
    setting = _setting()
    if not setting.startswith("@"):
        return setting, 0
    path = Path(setting[1:])
    try:
        return path.read_text().strip(), path.stat().st_mtime_ns
    except FileNotFoundError:
        return "", 0


def reach(point: str) -> None:
    """Kill this process as `kill -9` would if the point is armed."""
    if not _setting():
        return
    armed = _armed()
    number, _, name = armed[0].rpartition(" ")
    if name == point:
        _reached[armed] += 1
        if _reached[armed] >= int(number or 1):
            os.kill(os.getpid(), signal.SIGKILL)
