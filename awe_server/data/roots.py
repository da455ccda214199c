"""Files of a shared file system, used only below the directories that the server's owner opens to jobs.

Asked at submit and again at every use, because links change: what counts is where a path leads then.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from shared_models.errors import Forbidden
from shared_models.roots import NO_ROOTS, is_below, outside, root_of


def allowed(path: str, roots: Sequence[str]) -> Path:
    """Where a path leads, all links followed; the file need not be there.

    Raises Forbidden with the reason if that, or the path as it is written, is not below a root.
    """
    if not roots:
        raise Forbidden(NO_ROOTS)
    if root_of(path, roots) is None:
        raise Forbidden(outside(path, roots))
    real = os.path.realpath(path)
    if not _is_inside(real, path, roots) or os.path.islink(real):  # a loop of links is left as it is
        raise Forbidden(f"a link leads away: {outside(path, roots)}")
    return Path(real)


def open_allowed(path: str, roots: Sequence[str]) -> int:
    """Open a file for reading, and be sure of which: links may be changed while they are followed.

    Raises Forbidden as `allowed`, OSError.
    """
    real = allowed(path, roots)
    descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    opened = os.readlink(f"/proc/self/fd/{descriptor}")
    if opened != str(real) and not _is_inside(opened, path, roots):
        os.close(descriptor)
        raise Forbidden(f"a link leads away: {outside(path, roots)}")
    return descriptor


def open_folder_of(path: str, roots: Sequence[str]) -> int:
    """Open the directory that a file is in, or will be, and be sure of which.

    Raises Forbidden as `allowed`, OSError.
    """
    allowed(path, roots)
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    opened = os.readlink(f"/proc/self/fd/{descriptor}")
    if not _is_inside(os.path.join(opened, os.path.basename(path)), path, roots):
        os.close(descriptor)
        raise Forbidden(f"a link leads away: {outside(path, roots)}")
    return descriptor


def _is_inside(real: str, path: str, roots: Sequence[str]) -> bool:
    """Whether this is below a root. The path's own is asked first: another file system may hang."""
    own = root_of(path, roots)
    return any(is_below(real, os.path.realpath(root)) for root in sorted(roots, key=lambda one: one != own))
