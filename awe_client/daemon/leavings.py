"""What a command left on disk: its logs, and whether there is room. Standard library only (the executor)."""

import os
from typing import Any


def log_facts(spec: dict[str, Any]) -> dict[str, Any]:
    """Size and tail of standard output and error; when both are one file, standard error has none."""
    root, limit = spec["cwd"] + b"/", spec["tail_bytes"]
    facts: dict[str, Any] = {"stderr_size": 0, "stderr_tail": b""}
    facts["stdout_size"], facts["stdout_tail"] = _tail(root + spec["stdout"], limit)
    if spec["stderr"] != spec["stdout"]:
        facts["stderr_size"], facts["stderr_tail"] = _tail(root + spec["stderr"], limit)
    return facts


def _tail(path: bytes, limit: int) -> tuple[int, bytes]:
    """Size and last bytes of a log; a command that removed it, or put something else there, has none."""
    try:
        if not os.stat(path, follow_symlinks=False).st_size:
            return 0, b""
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 0, b""
    try:
        size = os.fstat(fd).st_size
        return size, os.pread(fd, limit, max(size - limit, 0))
    except OSError:
        return 0, b""
    finally:
        os.close(fd)


def disk_full(path: bytes) -> bool:
    """Whether nothing more can be written where a path lies."""
    try:
        place = os.statvfs(path)
    except OSError:
        return False
    return place.f_blocks > 0 and (place.f_bavail == 0 or (place.f_files > 0 and place.f_favail == 0))
