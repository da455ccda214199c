"""The folder below which a server keeps everything; files are removed in it, so it must be its own."""

import os
from collections.abc import Sequence
from pathlib import Path

from shared_models.errors import AweError

MARK = "awe-server-data"
_MARK_TEXT = "This directory is awe-server's, which removes files in it. Keep nothing of your own here.\n"
_DATABASE = "awe.sqlite"
_HARMLESS = {"lost+found"}  #: the folder is a file system's root


class CannotStart(AweError):
    """The server cannot start."""

    code = "cannot_start"


def claim(folder: Path) -> None:
    """Make and mark the folder. Raises CannotStart if it holds files of anybody else; they stay.

    A new one is closed to other users, for it holds everybody's data; one that is there stays as it is.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(folder):
            raise CannotStart(
                f"cannot use the data directory {folder}: it is not empty, and not awe-server's; "
                "name a new or an empty one"
            )
        if not (folder / MARK).exists():  # a standby writes nothing in the folder of the server that leads
            (folder / MARK).write_text(_MARK_TEXT, encoding="ascii")
    except OSError as exc:
        raise CannotStart(f"cannot use the data directory {folder}: {exc.strerror}") from exc


def keep_apart(folder: Path, file_roots: Sequence[str]) -> None:
    """See that jobs cannot name our own files. Raises CannotStart if they could, or if a root is missing."""
    data = folder.resolve()
    for name in file_roots:
        root = Path(name).resolve()
        if not root.is_dir():
            raise CannotStart(f"cannot open {name} to jobs (--file-root): there is no such directory")
        if data == root or root in data.parents or data in root.parents:
            problem = f"it and the data directory {folder} must lie outside of each other"
            raise CannotStart(f"cannot open {name} to jobs (--file-root): {problem}")


def _is_ours(folder: Path) -> bool:
    """Marked, or empty, or made by a version that did not mark its folders."""
    names = set(os.listdir(folder))
    # Looked at after the names were read: another server that starts at this moment marks the folder first.
    if (folder / MARK).exists() or names <= _HARMLESS:
        return True
    return any(name.startswith(_DATABASE) for name in names) or (folder / "nodes" / "server").is_file()
