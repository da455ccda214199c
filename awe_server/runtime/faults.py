"""Dies at a named point, for crash tests; does nothing unless AWE_FAULT_POINT is set.

Points: before-commit, after-commit, before-reply. The value is a point, or `@file`: then the file, once it
exists, names the point, so a test can arm it while the server runs.
"""

import os
import signal
from pathlib import Path

_SETTING = os.environ.get("AWE_FAULT_POINT", "")


def _armed() -> str:
    if not _SETTING.startswith("@"):
        return _SETTING
    try:
        return Path(_SETTING[1:]).read_text().strip()
    except FileNotFoundError:
        return ""


def reach(point: str) -> None:
    """Kill this process as `kill -9` would if the point is armed."""
    if _SETTING and _armed() == point:
        os.kill(os.getpid(), signal.SIGKILL)
