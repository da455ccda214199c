"""A tree of files as a value, to be compared before and after."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Tree = dict[str, bytes | str]


def tree(top: Path, leave_out: Callable[[str], bool] = lambda name: False) -> Tree:
    """What lies below a folder: bytes of files, targets of links, `folder` of folders, by path from there.

    What `leave_out` says yes to is left out with all that is below it. What goes meanwhile is not there.
    """
    found: Tree = {}
    for folder, folders, files in os.walk(top):
        place = os.path.relpath(folder, top)
        names = {name: f"{place}/{name}".removeprefix("./") for name in (*folders, *files)}
        folders[:] = [name for name in folders if not leave_out(names[name])]
        for name in (*folders, *files):
            if not leave_out(names[name]):
                _add(found, names[name], Path(folder, name))
    return found


def _add(found: Tree, name: str, path: Path) -> None:
    with suppress(FileNotFoundError):
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = "folder"
