"""Directories that are open to jobs, on server and client. Text only: who uses a file resolves links.

A server's roots are the law of what a job may name; a client uses a file only if it is below its own roots
too, and is given no work that touches a server's root it has not.
"""

import re
from collections.abc import Iterable, Sequence
from os.path import normpath

from shared_models.limits import MAX_PATH_BYTES

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MAX_SHOWN = 5

NO_ROOTS = "no directory is open to jobs; the server's owner opens one with: awe-server serve --file-root DIR"


def root_problem(text: str) -> str | None:
    """Say why a text cannot be a root, or None."""
    if not text.startswith("/"):
        return f"{text[:200]!r} is not an absolute path"
    if _CONTROL.search(text):
        return f"{text[:200]!r} has a control character"
    try:
        length = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        return f"{text[:200]!r} is not valid Unicode"
    if length > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    return f"{text[:200]!r} has a '..' part" if ".." in text.split("/") else None


def normal_root(text: str) -> str:
    """Give the one spelling of a root."""
    return normpath(text).replace("//", "/")  # POSIX lets two leading slashes mean something else


def is_below(path: str, root: str) -> bool:
    """Whether a path is inside a root."""
    return path.startswith(root if root == "/" else f"{root}/") and path != root


def root_of(path: str, roots: Iterable[str]) -> str | None:
    """Give the innermost root that a path is inside of, or None."""
    return max((root for root in roots if is_below(path, root)), key=len, default=None)


def covers(roots: Iterable[str], wanted: Iterable[str]) -> bool:
    """Whether each of the wanted roots is one of the roots or inside one."""
    have = tuple(roots)
    return all(any(one == root or is_below(one, root) for root in have) for one in wanted)


def outside(path: str, roots: Sequence[str]) -> str:
    """Say that a path is below none of the roots, and which there are."""
    shown = ", ".join(roots[:_MAX_SHOWN]) + (", …" if len(roots) > _MAX_SHOWN else "")
    return f"'{path[:200]}' is not below a directory that is open to jobs ({shown})"
