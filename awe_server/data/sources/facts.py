"""What is found out about a file elsewhere, where it is read, and why it may not be."""

from dataclasses import dataclass, field
from typing import Literal

from shared_models.errors import AweError
from shared_models.fields import MAX_INT

Kind = Literal["web", "shock", "file", "object"]


@dataclass(slots=True, frozen=True)
class Fact:
    """A file that is there."""

    size_bytes: int
    md5: str = ""  #: "" = not told
    version: str = (
        ""  #: changes with the content, for clients to ask by (shared_models/versions.py); "" = not told
    )
    ranged: bool = False  #: pieces of it can be read


@dataclass(slots=True, frozen=True)
class Place:
    """A file whose pieces are to be read, as it was when it was looked at."""

    kind: Kind
    url: str
    size_bytes: int
    version: str
    roots: tuple[str, ...] = ()  #: of a shared file: it has to be below one of these
    token: str = field(default="", repr=False)  #: the job's data token, for a Shock that wants one


class SourceMissing(AweError):
    """there is no such file: {reason}"""

    code = "source_missing"


class SourceRefused(AweError):
    """it cannot be read from the server: {reason}"""

    code = "source_refused"


class SourceUnreachable(AweError):
    """it cannot be read now: {reason}"""

    code = "source_unreachable"
    retryable = True


class SourceChanged(AweError):
    """it was changed while it was being used"""

    code = "source_changed"


class NoRanges(AweError):
    """pieces of it cannot be read: {reason}"""

    code = "no_ranges"


def size_of(told: str | int) -> int:
    """A size as another side tells it. Raises ValueError, TypeError."""
    size = int(told)
    if not 0 <= size <= MAX_INT:
        raise ValueError(f"{str(told)[:40]} is no size")
    return size
