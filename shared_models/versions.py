"""How the version of a file is told that is not ours, alike on the server and on every client."""

import os
from collections.abc import Mapping


def file_version(about: os.stat_result) -> str:
    """Time of change and size; to the microsecond, because not every file system tells more.

    It has the form of a strong ETag.
    """
    return f'"{about.st_mtime_ns // 1000:x}-{about.st_size:x}"'


def web_version(headers: Mapping[str, str], like: str = "") -> str:
    """Give the version of what a web server sent, in the kind of `like` if one is given.

    "" if it is not told. `headers` knows its keys in lower case. A strong ETag is best; a weak one can be
    compared, but not asked by.
    """
    etag, date = str(headers.get("etag", "")), str(headers.get("last-modified", ""))
    if like.startswith(('"', "W/")):
        return like if etag.removeprefix("W/") == like.removeprefix("W/") else etag
    if like:
        return date
    return etag if etag.startswith('"') else date or etag


def only_if(version: str) -> dict[str, str]:
    """Give the header by which a web server refuses to send another version; {} if there is none."""
    if not version or version.startswith("W/"):
        return {}
    return {"If-Match" if version.startswith('"') else "If-Unmodified-Since": version}
