"""What a command left on disk: its logs, and whether there is room. Standard library only (the executor)."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

#: A folder, only to look below it; a link in its place is none.
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def log_facts(spec: dict[str, Any]) -> dict[str, Any]:
    """Size and tail of standard output and error; when both are one file, standard error has none."""
    limit = spec["tail_bytes"]
    facts: dict[str, Any] = {"stdout_size": 0, "stdout_tail": b"", "stderr_size": 0, "stderr_tail": b""}
    with contextlib.suppress(OSError), _opened(spec["cwd"], _FOLDER) as directory:
        facts["stdout_size"], facts["stdout_tail"] = _tail(directory, spec["stdout"], limit)
        if spec["stderr"] != spec["stdout"]:
            facts["stderr_size"], facts["stderr_tail"] = _tail(directory, spec["stderr"], limit)
    return facts


def _tail(folder: int, name: bytes, limit: int) -> tuple[int, bytes]:
    """Size and last bytes of a log; a command that removed it, or put something else there, has none.

    No link is followed on the way: of a command in a container it would lead to the machine's own files.
    """
    first, _, rest = name.partition(b"/")
    try:
        if rest:
            with _opened(first, _FOLDER, folder) as below:
                return _tail(below, rest, limit)
        if not os.stat(name, dir_fd=folder, follow_symlinks=False).st_size:
            return 0, b""
        with _opened(name, _PLAIN_FILE, folder) as log:
            size = os.fstat(log).st_size
            return size, os.pread(log, limit, max(size - limit, 0))
    except OSError:
        return 0, b""


@contextlib.contextmanager
def _opened(path: bytes, flags: int, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def disk_full(path: bytes) -> bool:
    """Whether nothing more can be written where a path lies."""
    try:
        place = os.statvfs(path)
    except OSError:
        return False
    return place.f_blocks > 0 and (place.f_bavail == 0 or (place.f_files > 0 and place.f_favail == 0))
