"""What a command left on disk: its logs. Standard library only (the executor)."""

import os
from typing import Any

#: A folder, only to look below it; a link in its place is none.
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def log_facts(spec: dict[str, Any]) -> dict[str, Any]:
    """Size and tail of standard output and error; when both are one file, standard error has none."""
    root, limit = spec["cwd"], spec["tail_bytes"]
    facts: dict[str, Any] = {"stderr_size": 0, "stderr_tail": b""}
    facts["stdout_size"], facts["stdout_tail"] = _tail(root, spec["stdout"], limit)
    if spec["stderr"] != spec["stdout"]:
        facts["stderr_size"], facts["stderr_tail"] = _tail(root, spec["stderr"], limit)
    return facts


def _tail(root: bytes, name: bytes, limit: int) -> tuple[int, bytes]:
    """Size and last bytes of a log; a command that removed it, or put something else there, has none."""
    try:
        if not os.lstat(root + b"/" + name).st_size:
            return 0, b""  # whatever it is, also where a command has put a link
        log = open_log(root, name)
    except OSError:
        return 0, b""
    try:
        size = os.fstat(log).st_size
        return size, os.pread(log, limit, max(size - limit, 0)) if size else b""
    except OSError:
        return 0, b""
    finally:
        os.close(log)


def open_log(root: bytes, name: bytes) -> int:
    """Open a file in a work directory for reading. Raises OSError.

    No link is followed on the way, also if one is made meanwhile: of a command in a container it would lead
    to files of this machine.
    """
    *folders, last = name.split(b"/")
    here = os.open(root, _FOLDER)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
        return os.open(last, _PLAIN_FILE, dir_fd=here)
    finally:
        os.close(here)
