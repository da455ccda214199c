"""What this process has open, told by folder: what other tests left open does not count."""

import os
from pathlib import Path


def open_below(folder: Path) -> list[str]:
    """Files and folders that are open there, the folder itself too; also those that were removed since."""
    top = os.path.realpath(folder)
    names = [name for fd in os.listdir("/proc/self/fd") if (name := _name_of(fd))]
    return sorted(name for name in names if name == top or name.startswith(f"{top}/"))


def _name_of(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:  # that of the look itself
        return ""
