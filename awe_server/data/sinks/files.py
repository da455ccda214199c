"""Outputs on a shared file system: what clients staged beside the target becomes the target.

Nothing passes through this server: the file of a single workunit is renamed into place, the files of several
are joined beside it first. Others write in these directories: they are held open, and a file in them is what
the opened descriptor says, so a link, or a pipe, that is put there meanwhile leads nowhere.
Before a file is put in its place a mark says which one it will be: should this be done again, because the
server died before the store knew, the file is recognised. Blocking: for a worker thread.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from awe_server.data.blobs import Writer
from awe_server.data.documents import assembly_key
from awe_server.data.files import fsync_folder
from awe_server.data.merge import merge
from awe_server.data.merge_archives import merge_archives
from awe_server.data.parts import Part
from awe_server.data.passing import is_passing_errno
from awe_server.data.ports import FileFact
from awe_server.data.roots import open_folder_of
from awe_server.data.sinks.base import RequireLead, SinkBusy, SinkRefused, reason_of
from awe_server.data.sinks.stage import Stage, version_of
from shared_models.errors import Forbidden, NoSpace
from shared_models.ids import TaskId
from shared_models.staging import STAGE_PREFIX, stage_folder, stage_name

_WHOLE = "whole"


@dataclass(slots=True, frozen=True)
class Wanted:
    """A file to be made: of which attempts, and what is known of theirs."""

    path: str
    task_id: TaskId
    generation: int  #: of the task
    parts: Sequence[tuple[int, int]]  #: (rank, attempt) of those that made some, in order of rank
    sizes: Mapping[int, int] = field(default_factory=dict)  #: by rank, as reported
    header_lines: int = 0
    is_archive: bool = False
    others: Sequence[str] = ()  #: paths of the task's other files, none of which may be this one

    @property
    def key(self) -> str:
        """Names what it is made of."""
        return assembly_key(self.parts, self.header_lines)


class FileSink:
    """Makes files below some directories."""

    def __init__(self, roots: Sequence[str], require_lead: RequireLead) -> None:
        self._roots = roots
        self._require_lead = require_lead

    def missing(self, wanted: Wanted) -> list[tuple[int, int]]:
        """Those parts that are not staged, or not as they were reported; none if the file is in its place.

        Raises SinkBusy, SinkRefused.
        """
        with _errors(wanted.path):
            try:
                with self._open(wanted) as (folder, stage):
                    if _placed(folder / os.path.basename(wanted.path), stage, wanted) is not None:
                        return []
                    present = stage.present()
                    return [part for part in wanted.parts if stage_name(*part) not in present]
            except FileNotFoundError:
                return list(wanted.parts)

    def place(self, wanted: Wanted) -> FileFact:
        """Make the file; its MD5 is "" if nobody had to read it. Repeating it changes nothing.

        Raises SinkBusy, SinkRefused, CannotJoin, LeadInDoubt.
        """
        with _errors(wanted.path, all_is_there=True), self._open(wanted) as (folder, stage):
            target = folder / os.path.basename(wanted.path)
            known = _placed(target, stage, wanted)
            if known is not None:
                return known
            _check_alone(os.path.realpath(folder), wanted)
            is_one = len(wanted.parts) == 1
            name = stage_name(*wanted.parts[0]) if is_one else _WHOLE
            md5 = "" if is_one else _join(stage, wanted).md5
            with stage.open(Path(name)) as file:
                os.fsync(file.fileno())
                version = version_of(os.fstat(file.fileno()))
                self._require_lead()
                stage.mark({"key": wanted.key, "version": version, "md5": md5})
                (stage.path / name).replace(target)
            if version_of(target.lstat()) != version:
                raise SinkBusy(f"what was staged for {wanted.path} was replaced by something else")
            fsync_folder(folder)
            return FileFact(version[1], md5, "")

    def remove(self, path: str) -> None:
        """Remove a file, or a stage folder with all in it (`path` ends in "/"); fine if it has gone.

        Raises SinkBusy, SinkRefused, LeadInDoubt.
        """
        is_stage = path.endswith("/")
        path = path.rstrip("/")
        with _errors(path), contextlib.suppress(FileNotFoundError):
            folder = open_folder_of(path, self._roots)
            try:
                name = os.path.basename(path)
                self._require_lead()
                if not is_stage:
                    os.unlink(name, dir_fd=folder)
                elif name.startswith(STAGE_PREFIX):
                    shutil.rmtree(name, dir_fd=folder)
                os.fsync(folder)
            finally:
                os.close(folder)

    @contextlib.contextmanager
    def _open(self, wanted: Wanted) -> Iterator[tuple[Path, Stage]]:
        """The target's directory and the stage folder, held open. Raises FileNotFoundError, Forbidden."""
        folder = open_folder_of(wanted.path, self._roots)
        try:
            name = os.path.basename(stage_folder(wanted.path, wanted.task_id, wanted.generation))
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            stage = os.open(name, flags, dir_fd=folder)
            sizes = {
                stage_name(*part): wanted.sizes[part[0]] for part in wanted.parts if part[0] in wanted.sizes
            }
            try:
                yield Path(f"/proc/self/fd/{folder}"), Stage(stage, sizes)
            finally:
                os.close(stage)
        finally:
            os.close(folder)


def _check_alone(folder: str, wanted: Wanted) -> None:
    """No other file of the task may be this one: links may have been put there after it was submitted.

    Raises SinkRefused.
    """
    name = os.path.basename(wanted.path)
    for other in wanted.others:
        if os.path.basename(other) == name and os.path.realpath(os.path.dirname(other)) == folder:
            raise SinkRefused(f"{wanted.path}: links make it one file with {other}")


def _join(stage: Stage, wanted: Wanted) -> FileFact:
    """Join the parts to one file of the stage folder, with the permissions of the first.

    Only these: what runs with the id of its owner would run with that of this server's user.
    """
    names = [Path(stage_name(*part)) for part in wanted.parts]
    with stage.open(names[0]) as first:
        mode = os.fstat(first.fileno()).st_mode & 0o777
    writer, target = Writer(stage.path, 0, mode=mode), stage.path / _WHOLE
    if not wanted.is_archive:
        return merge(names, wanted.header_lines, writer, target, stage.open)
    nothing = FileFact(0, "", "")
    parts = [
        Part(rank, attempt, nothing, path) for (rank, attempt), path in zip(wanted.parts, names, strict=True)
    ]
    return merge_archives(parts, writer, target, stage.open)


def _placed(target: Path, stage: Stage, wanted: Wanted) -> FileFact | None:
    """What is known of the target if it is the file that was made of these parts."""
    mark = stage.marked()
    try:
        version = version_of(target.lstat())
    except FileNotFoundError:
        return None
    if mark.get("key") != wanted.key or mark.get("version") != version:
        return None
    return FileFact(version[1], str(mark.get("md5") or ""), "")


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
        error = SinkBusy if is_passing_errno(exc.errno) else SinkRefused
        raise error(f"{path}: {reason_of((exc.strerror or str(exc)).lower())}") from exc
