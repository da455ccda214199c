"""How much room there is."""

import os
from pathlib import Path


def free_disk(path: Path) -> int:
    """Bytes that may still be written below a path; 0 if it cannot be told."""
    try:
        place = os.statvfs(path)
    except OSError:
        return 0
    return place.f_bavail * place.f_frsize
