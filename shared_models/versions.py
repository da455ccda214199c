"""How the version of a file on a shared file system is told, alike on the server and on every client."""

import os


def file_version(about: os.stat_result) -> str:
    """Time of change and size; to the microsecond, because not every file system tells more.

    It has the form of a strong ETag.
    """
    return f'"{about.st_mtime_ns // 1000:x}-{about.st_size:x}"'
