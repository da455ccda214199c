"""What a sink is given, and how it fails.

`SinkBusy` may pass by itself: the delivery is repeated, so every sink has to take the same content twice and
have it once. `SinkRefused` will not: somebody has to do something first. No text holds a secret: addresses
are shown without their queries.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from awe_server.data.downloads import ByteReader
from shared_models.data_tokens import without
from shared_models.errors import AweError

MAX_REASON_CHARS = 300


class SinkRefused(AweError):
    """The output was refused where it should go."""

    code = "sink_refused"


class SinkBusy(AweError):
    """The output cannot be delivered now; it is tried again."""

    code = "sink_busy"
    retryable = True


class SinkSilent(SinkBusy):
    """What serves the place gives no answer: others that it serves would not get one, either."""


#: Raises LeadInDoubt when another server may lead by now: asked, in any thread, before anything is changed.
RequireLead = Callable[[], object]


class Content(Protocol):
    """A whole file, to be read once or more often."""

    @property
    def size(self) -> int:
        """How many bytes it has."""

    @property
    def md5(self) -> str:
        """Of them, in hex."""

    async def chunks(self) -> ByteReader:
        """Read it from its beginning."""


class Memo(Protocol):
    """What is remembered of a delivery, whatever dies meanwhile."""

    @property
    def marker(self) -> str:
        """The name of a node that this delivery makes, until its file is there."""

    async def read(self) -> dict[str, Any]:
        """What was noted last; {} if nothing was."""

    async def note(self, what: dict[str, Any]) -> None:
        """Note something, durably."""


async def verified(chunks: ByteReader, content: Content, require_lead: RequireLead) -> AsyncIterator[bytes]:
    """What is read of a content; its last piece only once all of it proved to be what came in.

    So what was damaged on our disk is whole nowhere else, nor is what another server may have delivered
    anew. Raises SinkRefused, LeadInDoubt, and what the chunks raise.
    """
    found = hashlib.md5(usedforsecurity=False)
    held = b""
    async for chunk in chunks:
        if held:
            require_lead()
            yield held
        found.update(chunk)
        held = chunk
    md5 = found.hexdigest()
    if md5 != content.md5:
        raise SinkRefused(f"it was damaged on this server's disk: its md5 was {content.md5}, now it is {md5}")
    if held:
        require_lead()
        yield held


@dataclass(slots=True, frozen=True)
class About:
    """What belongs to an output besides its bytes."""

    name: str
    attributes: dict[str, Any] | None = None
    token: str = ""  #: the job's data token


def shown(url: str) -> str:
    """An address for messages: without query and fragment, which may hold secrets."""
    return re.split(r"[?#]", url, maxsplit=1)[0][:MAX_REASON_CHARS]


def reason_of(text: str, token: str = "") -> str:
    """What somebody else said, as part of a sentence: one line, bounded, without the token."""
    return " ".join(without(token, text).split())[:MAX_REASON_CHARS]
