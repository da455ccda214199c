"""Files that are many: what the names `out/` (a whole folder) and `*.bt2` (a pattern) mean.

Such an output is stored as one node, a tar; an input of the same spelling is unpacked. Members of the tar
have their names below the work directory, so a folder or a set of files goes from task to task as it is.

A pattern is matched part by part: `*` and `?` do not match `/`, nor a leading dot; `**` is any number of
folders. A folder that matches is taken with all that is in it. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from functools import lru_cache

from shared_models.documents import IO
from shared_models.limits import MAX_NAME_CHARS, MAX_PATTERNS
from shared_models.paths import check_relative_path, normal_relative_path

#: Tag of a node that holds an archive.
ARCHIVE_TAG = "archive:tar"

_MAGIC = re.compile(r"[*?]|\[[^/]+\]")
_ODD = re.compile(r"[^\w.\-]")
_ANY_FOLDERS = "**"
#: Outputs of these types have no file of their own.
_WITHOUT_FILE = ("copy", "update")

#: Places in a pattern: how much of it what was read so far may have matched.
Places = frozenset[int]


def is_folder(name: str) -> bool:
    """Whether a file name means a whole folder."""
    return name.endswith("/")


def is_pattern(name: str) -> bool:
    """Whether a file name means all files that match it."""
    return _MAGIC.search(name) is not None


def is_archive(name: str) -> bool:
    """Whether a file name means many files, kept as one tar."""
    return is_folder(name) or is_pattern(name)


def check_file_name(name: str) -> str | None:
    """Say why an input or output may not have this name, or None; as `check_relative_path`."""
    if not is_folder(name):
        return check_relative_path(name)
    reason = check_relative_path(name[:-1])
    if reason is None and is_pattern(name):
        reason = "is a folder and a pattern; leave out the '/': a folder that matches is taken whole"
    return reason


def node_name(name: str) -> str:
    """What an output's file is called; the tar of `sub/bt2/` bt2.tar, of `lambda.*.bt2` lambda._.bt2.tar."""
    if not is_archive(name):
        return name
    last = name.rstrip("/").rpartition("/")[2]
    if is_pattern(last):
        last = _ODD.sub("_", last)
    while len(last.encode()) > MAX_NAME_CHARS - len(".tar"):
        last = last[:-1]
    return f"{last}.tar"


class Pattern:
    """What an archive's name takes, below `base`: read a path part by part, or ask for it whole."""

    def __init__(self, name: str, base: str = "") -> None:
        parts = normal_relative_path(name.rstrip("/")).split("/")
        below = normal_relative_path(base).split("/") if base else ()
        make = _part if is_pattern(name) else _literal
        self._parts = [*map(_literal, below), *map(make, parts)]

    def begin(self) -> Places:
        """Where it is before the first part."""
        return self._closed({0})

    def step(self, places: Places, part: str) -> Places:
        """Where it is one part further; empty: nothing below can match."""
        found: set[int] = set()
        for i in places:
            if i == len(self._parts):
                continue
            wanted = self._parts[i]
            if wanted is None:
                if not part.startswith("."):
                    found.add(i)
            elif wanted.fullmatch(part):
                found.add(i + 1)
        return self._closed(found)

    def accepts(self, places: Places) -> bool:
        """Whether what was read so far matches."""
        return len(self._parts) in places

    def takes(self, parts: Iterable[str]) -> bool:
        """Whether this path, or a folder that it lies in, matches."""
        places = self.begin()
        for part in parts:
            places = self.step(places, part)
            if self.accepts(places):
                return True
            if not places:
                break
        return False

    def _closed(self, places: set[int]) -> Places:
        for i in list(places):
            while i < len(self._parts) and self._parts[i] is None:
                i += 1
                places.add(i)
        return frozenset(places)


@lru_cache(maxsize=1024)
def _part(part: str) -> re.Pattern[str] | None:
    if part == _ANY_FOLDERS:
        return None
    hidden = "" if part.startswith(".") else r"(?!\.)"
    return re.compile(hidden + translate(part))


def _literal(part: str) -> re.Pattern[str]:
    return re.compile(re.escape(part), re.DOTALL)


def overlaps(outputs: Sequence[IO]) -> Iterator[tuple[int, str]]:
    """Outputs that are, or contain, the same file as another one: position, and what is wrong."""
    files = [(i, io) for i, io in enumerate(outputs) if io.type not in _WITHOUT_FILE]
    taken: dict[str, int] = {}
    patterns: list[tuple[int, IO]] = []
    for i, io in files:
        path = _path(io)
        if is_pattern(io.filename):
            patterns.append((i, io))
        elif path in taken:
            if outputs[taken[path]].filename == io.filename:
                continue  # the same name twice is refused anyway
            yield i, f"{_shown(io)} is the same file as {_shown(outputs[taken[path]])}"
        else:
            taken[path] = i
    folders = {path: i for path, i in taken.items() if is_folder(outputs[i].filename)}
    if folders:
        for i, io in files:
            parts = _path(io).split("/")
            inside = (folders.get("/".join(parts[:n])) for n in range(1, len(parts)))
            within = next((k for k in inside if k is not None), None)
            if within is not None:
                yield i, f"{_shown(io)} lies in the output {_shown(outputs[within])}"
    if len(patterns) > MAX_PATTERNS:
        yield patterns[MAX_PATTERNS][0], f"a task has at most {MAX_PATTERNS} outputs that are patterns"
        return
    for i, io in patterns:
        pattern = Pattern(io.filename, io.directory)
        for path, k in taken.items():
            if pattern.takes(path.split("/")):
                yield i, f"{_shown(io)} matches the output {_shown(outputs[k])}, too"


def _path(io: IO) -> str:
    name = io.filename.rstrip("/")
    return normal_relative_path(f"{io.directory}/{name}" if io.directory else name)


def _shown(io: IO) -> str:
    full = f"{io.directory}/{io.filename}" if io.directory else io.filename
    return f"'{full[:200]}'"
