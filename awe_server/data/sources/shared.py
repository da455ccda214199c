"""Files of a shared file system, below the directories that are open to jobs."""

import errno
import os
import stat
from collections.abc import Sequence

from awe_server.data.passing import is_passing_errno
from awe_server.data.roots import open_allowed
from awe_server.data.sources.facts import (
    Fact,
    Place,
    SourceChanged,
    SourceMissing,
    SourceRefused,
    SourceUnreachable,
)
from shared_models.errors import AweError
from shared_models.file_urls import path_of
from shared_models.versions import file_version

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


def look(url: str, roots: Sequence[str]) -> Fact:
    """Look at the file; blocking.

    Raises Forbidden (not below a root), SourceMissing, SourceRefused, SourceUnreachable.
    """
    descriptor = _open(url, roots)
    try:
        about = os.fstat(descriptor)
    except OSError as exc:
        raise _error_of(exc) from exc
    finally:
        os.close(descriptor)
    return Fact(about.st_size, version=file_version(about), ranged=True)


class SharedFile:
    """Reads pieces of the file, which has to stay as it was when it was looked at."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._descriptor = _open(place.url, place.roots)

    def fetch(self, offset: int, length: int) -> bytes:
        """Bytes that are there. Raises SourceChanged, SourceRefused, SourceUnreachable."""
        try:
            data = os.pread(self._descriptor, length, offset)
            while (
                data and len(data) < length and (more := self._more(offset + len(data), length - len(data)))
            ):
                data += more
        except OSError as exc:
            raise _error_of(exc) from exc
        if len(data) < length:
            raise SourceChanged
        return data

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)

    def check(self) -> None:
        """Raises SourceChanged unless all that was read is of the one version."""
        try:
            about = os.fstat(self._descriptor)
        except OSError as exc:
            raise _error_of(exc) from exc
        if file_version(about) != self._place.version:
            raise SourceChanged

    def _more(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)


def _open(url: str, roots: Sequence[str]) -> int:
    try:
        descriptor = open_allowed(path_of(url), roots)
    except OSError as exc:
        raise _error_of(exc) from exc
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SourceMissing(reason="it is not a plain file")
    return descriptor


def _error_of(exc: OSError) -> AweError:
    reason = (exc.strerror or str(exc)).lower()
    if exc.errno in _ABSENT:
        return SourceMissing(reason=reason)
    return (SourceUnreachable if is_passing_errno(exc.errno) else SourceRefused)(reason=reason)
