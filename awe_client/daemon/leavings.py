"""What a command left on disk: its logs. Standard library only (the executor)."""

import os

#: A folder, only to look below it; a link in its place is none.
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def tail_of(root: bytes, name: bytes, limit: int) -> tuple[int, bytes]:
    """Size and last bytes of a log; a command that put something else in its place has none."""
    try:
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
