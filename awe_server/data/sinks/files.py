"""Outputs on a shared file system: what clients staged beside the target becomes the target.

Nothing passes through this server: the file of a single workunit is renamed into place, the files of several
are joined beside it first. Directories are held open, so a link that is changed meanwhile leads nowhere.
Before a file is put in its place a mark says which one it will be: should this be done again, because the
server died before the store knew, the file is recognised. Blocking: for a worker thread.
"""

import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from awe_server.data.blobs import Writer
from awe_server.data.documents import assembly_key
from awe_server.data.files import fsync_folder
from awe_server.data.merge import merge
from awe_server.data.merge_archives import merge_archives
from awe_server.data.parts import Part
from awe_server.data.ports import FileFact
from awe_server.data.roots import open_folder_of
from awe_server.data.sinks.base import SinkBusy, SinkRefused, reason_of
from shared_models.errors import Forbidden, NoSpace
from shared_models.ids import TaskId
from shared_models.staging import STAGE_PREFIX, stage_folder, stage_name

MARK = "placed"
_WHOLE = "whole"
#: What a person has to put right first. The rest is tried again: a network file system has its moments.
_FOR_GOOD = frozenset({
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP,
    errno.ENOTEMPTY, errno.EEXIST, errno.EXDEV,
})  # fmt: skip


@dataclass(slots=True, frozen=True)
class Wanted:
    """A file to be made: of which attempts, and what is known of theirs."""

    path: str
    task_id: TaskId
    parts: Sequence[tuple[int, int]]  #: (rank, attempt) of those that made some, in order of rank
    sizes: Mapping[int, int] = field(default_factory=dict)  #: by rank, as reported
    header_lines: int = 0
    is_archive: bool = False

    @property
    def key(self) -> str:
        """Names what it is made of."""
        return assembly_key(self.parts, self.header_lines)


class FileSink:
    """Makes files below some directories."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots

    def missing(self, wanted: Wanted) -> list[tuple[int, int]]:
        """Those parts that are not staged, or not as they were reported; none if the file is in its place.

        Raises SinkBusy, SinkRefused.
        """
        with _errors(wanted.path):
            try:
                with self._open(wanted) as (folder, stage):
                    if _placed(folder / os.path.basename(wanted.path), stage, wanted) is not None:
                        return []
                    # A listing is fresh where the look at a single name may be remembered.
                    names = set(os.listdir(stage))
                    return [part for part in wanted.parts if not _is_there(stage, part, names, wanted.sizes)]
            except FileNotFoundError:
                return list(wanted.parts)

    def place(self, wanted: Wanted) -> FileFact:
        """Make the file; its MD5 is "" if nobody had to read it. Repeating it changes nothing.

        Raises SinkBusy, SinkRefused, CannotJoin.
        """
        with _errors(wanted.path, all_is_there=True), self._open(wanted) as (folder, stage):
            target = folder / os.path.basename(wanted.path)
            known = _placed(target, stage, wanted)
            if known is not None:
                return known
            if len(wanted.parts) == 1:
                source = stage / stage_name(*wanted.parts[0])
                with source.open("rb") as file:
                    os.fsync(file.fileno())
                fact = FileFact(source.stat().st_size, "", "")
            else:
                source = stage / _WHOLE
                joined = _join(stage, source, wanted)
                fact = FileFact(joined.size, joined.md5, "")
            _mark(stage, {"key": wanted.key, "version": _version(source), "md5": fact.md5})
            source.replace(target)
            fsync_folder(folder)
            return fact

    def remove(self, path: str) -> None:
        """Remove a file, or a stage folder with all in it (`path` ends in "/"); fine if it has gone.

        Raises SinkBusy, SinkRefused.
        """
        is_stage = path.endswith("/")
        path = path.rstrip("/")
        with _errors(path), contextlib.suppress(FileNotFoundError):
            folder = open_folder_of(path, self._roots)
            try:
                name = os.path.basename(path)
                if not is_stage:
                    os.unlink(name, dir_fd=folder)
                elif name.startswith(STAGE_PREFIX):
                    shutil.rmtree(name, dir_fd=folder)
                os.fsync(folder)
            finally:
                os.close(folder)

    @contextlib.contextmanager
    def _open(self, wanted: Wanted) -> Iterator[tuple[Path, Path]]:
        """The target's directory and the stage folder, held open. Raises FileNotFoundError, Forbidden."""
        folder = open_folder_of(wanted.path, self._roots)
        try:
            name = os.path.basename(stage_folder(wanted.path, wanted.task_id))
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            stage = os.open(name, flags, dir_fd=folder)
            try:
                yield Path(f"/proc/self/fd/{folder}"), Path(f"/proc/self/fd/{stage}")
            finally:
                os.close(stage)
        finally:
            os.close(folder)


def _is_there(stage: Path, part: tuple[int, int], names: set[str], sizes: Mapping[int, int]) -> bool:
    name = stage_name(*part)
    if name not in names:
        return False
    about = (stage / name).lstat()
    return stat.S_ISREG(about.st_mode) and sizes.get(part[0], about.st_size) == about.st_size


def _join(stage: Path, target: Path, wanted: Wanted) -> FileFact:
    nothing = FileFact(0, "", "")
    parts = [
        Part(rank, attempt, nothing, stage / stage_name(rank, attempt)) for rank, attempt in wanted.parts
    ]
    writer = Writer(stage, 0)
    if wanted.is_archive:
        fact = merge_archives(parts, writer, target)
    else:
        fact = merge([part.path for part in parts], wanted.header_lines, writer, target)
    target.chmod(stat.S_IMODE(parts[0].path.stat().st_mode))
    return fact


def _mark(stage: Path, what: dict[str, Any]) -> None:
    temporary = stage / f"{MARK}.new"
    temporary.unlink(missing_ok=True)
    # Others may write here: never through a link of theirs.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o644), "w") as file:
        json.dump(what, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(stage / MARK)
    fsync_folder(stage)


def _placed(target: Path, stage: Path, wanted: Wanted) -> FileFact | None:
    """What is known of the target if it is the file that was made of these parts."""
    try:
        mark = json.loads((stage / MARK).read_bytes())
        version = _version(target)
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(mark, dict) or mark.get("key") != wanted.key or mark.get("version") != version:
        return None
    return FileFact(version[1], str(mark.get("md5") or ""), "")


def _version(path: Path) -> list[int]:
    about = path.lstat()
    return [about.st_ino, about.st_size, about.st_mtime_ns]


@contextlib.contextmanager
def _errors(path: str, *, all_is_there: bool = False) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as exc:
        if not all_is_there:
            raise
        raise SinkBusy(f"what was staged for {path} has gone meanwhile") from exc
    except Forbidden as exc:
        raise SinkRefused(exc.message) from exc
    except NoSpace as exc:
        raise SinkBusy(f"no space left for {path}") from exc
    except OSError as exc:
        error = SinkRefused if exc.errno in _FOR_GOOD else SinkBusy
        raise error(f"{path}: {reason_of((exc.strerror or str(exc)).lower())}") from exc
