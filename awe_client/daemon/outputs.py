"""What a command left of the outputs that its task declares: files, folders, and what matches a pattern."""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from awe_client.daemon.archive import ArchiveBody, Entry, Finder, NotKept
from awe_client.daemon.attempt import STDERR_NAME, STDOUT_NAME, USERATTR_NAME, Attempt
from awe_client.daemon.environment import SCRIPT_NAME
from awe_client.daemon.transfer import StepError
from awe_client.daemon.workdir import NotInside, find, listing
from awe_client.sdk.bodies import CountedBody, FileBody
from shared_models.archives import Pattern, is_archive, is_folder, is_pattern
from shared_models.paths import normal_relative_path
from shared_models.states import FailureKind

#: What we put into a work directory ourselves: no pattern takes it.
_OUR_NAMES = (STDOUT_NAME, STDERR_NAME, USERATTR_NAME, SCRIPT_NAME)


@dataclass(slots=True, frozen=True)
class Found:
    """An output that is there: a file, or many as one archive."""

    output: Mapping[str, Any]
    path: Path | None = None  #: of a single file
    archive: ArchiveBody | None = None

    def body(self) -> CountedBody:
        """Its bytes, to be sent. Looks at the file: for a worker thread."""
        if self.archive is not None:
            return self.archive
        assert self.path is not None
        return FileBody(self.path)


def find_outputs(attempt: Attempt) -> list[Found]:
    """The declared outputs that are there.

    Raises StepError for one that is missing, empty, cannot be kept, or has a file of another one.
    """
    found = []
    for output in attempt.task.outputs:
        full = full_name(output)
        try:
            one = _find_archive(attempt, output) if is_archive(output["filename"]) else _find(attempt, output)
        except FileNotFoundError:
            one = None
        except (NotKept, NotInside, OSError) as exc:
            raise StepError(FailureKind.OUTPUT, f"output {full}: {words_of(exc)}") from exc
        if one is not None:
            found.append(one)
        elif not (output.get("optional") or output.get("nofile")):
            raise StepError(FailureKind.OUTPUT, f"declared output {full} missing; {_what_is_there(attempt)}")
    return found


def find_left(attempt: Attempt) -> ArchiveBody | None:
    """What is there of the declared outputs after a failure, as one archive; None if there is nothing.

    Members have their names below the work directory. Raises NotKept for too much of it, OSError.
    """
    body = ArchiveBody(lambda: _left(attempt))
    return body if body.count else None


def full_name(output: Mapping[str, Any]) -> str:
    """An output's name below the work directory."""
    folder = output.get("directory") or ""
    return f"{folder}/{output['filename']}" if folder else output["filename"]


def words_of(exc: Exception) -> str:
    """An error as part of a sentence for a person."""
    if isinstance(exc, OSError) and exc.errno:
        return "links in a circle" if exc.errno == errno.ELOOP else os.strerror(exc.errno).lower()
    return str(exc)


def _find(attempt: Attempt, output: Mapping[str, Any]) -> Found:
    name, full = output["filename"], full_name(output)
    path = find(attempt.directory, name, output.get("directory") or "")
    info = path.stat()
    if stat.S_ISDIR(info.st_mode):
        hint = f"write '{name}/' to keep the whole folder"
        raise StepError(FailureKind.OUTPUT, f"output {full} is a directory; a file was declared; {hint}")
    if not stat.S_ISREG(info.st_mode):
        raise StepError(FailureKind.OUTPUT, f"output {full} is not a plain file; a file was declared")
    if output.get("nonzero") and info.st_size == 0:
        raise StepError(FailureKind.OUTPUT, f"output {full} is empty, and nonzero was declared")
    return Found(output, path)


def _find_archive(attempt: Attempt, output: Mapping[str, Any]) -> Found | None:
    name, full = output["filename"], full_name(output)
    if is_folder(name):
        path = find(attempt.directory, name.rstrip("/"), output.get("directory") or "")
        if not path.is_dir():
            hint = f"write '{name.rstrip('/')}' to keep the file"
            raise StepError(FailureKind.OUTPUT, f"output {full} is no folder; {hint}")
    archive = ArchiveBody(lambda: _members(attempt, output))
    if not archive.count:
        return None
    if output.get("nonzero") and not archive.has_bytes:
        raise StepError(FailureKind.OUTPUT, f"output {full} has only empty files, and nonzero was declared")
    return Found(output, archive=archive)


def _members(attempt: Attempt, output: Mapping[str, Any]) -> Iterator[Entry]:
    """The members of an archive. Raises NotKept for one that is in another output, too."""
    name, base = output["filename"], output.get("directory") or ""
    finder = Finder(attempt.directory, _left_out(attempt) if is_pattern(name) else frozenset())
    others = _patterns(attempt, but=output) if is_pattern(name) else []
    for entry in finder.find(Pattern(name, ""), base):
        path = f"{base}/{entry.name}" if base else entry.name
        for full, pattern in others:
            if pattern.takes(path.split("/")):
                raise NotKept(f"'{path[:200]}' is in the output {full}, too")
        yield entry


def _left(attempt: Attempt) -> Iterator[Entry]:
    before: list[Pattern] = []
    for name, pattern in _patterns(attempt):
        left_out = _left_out(attempt) if is_pattern(name) else frozenset()
        for entry in Finder(attempt.directory, left_out, leave_bad=True).find(pattern):
            if not any(other.takes(entry.name.split("/")) for other in before):
                yield entry
        before.append(pattern)


def _patterns(attempt: Attempt, but: Mapping[str, Any] | None = None) -> list[tuple[str, Pattern]]:
    outputs = [output for output in attempt.task.outputs if output is not but]
    return [
        (full_name(output), Pattern(output["filename"], output.get("directory") or "")) for output in outputs
    ]


def _left_out(attempt: Attempt) -> AbstractSet[str]:
    """Names that no pattern takes: our own files, and what was brought for the command, with its folders."""
    message = attempt.task.message
    names = set(_OUR_NAMES)
    for entry in (*message["inputs"], *message["predata"]):
        brought = [entry.get("attrfile") or ""]
        if not (entry.get("nofile") or is_archive(entry["filename"])):
            brought.append(entry["filename"])
        for name in filter(None, brought):
            path = normal_relative_path(name)
            names |= {path, *(str(folder) for folder in PurePosixPath(path).parents)}
    return names | attempt.unpacked


def _what_is_there(attempt: Attempt) -> str:
    return f"the work directory has: {listing(attempt.directory)}"
