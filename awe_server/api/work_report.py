"""`PUT /work/{id}`: a report as AWE's workers send it, read into the one form that the scheduler knows."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.requests import Request

from awe_server.api.bodies import MAX_SMALL_BYTES, stream
from awe_server.api.multipart import is_multipart, parts
from awe_server.data.logs import STREAMS, Stream
from shared_models.errors import BadRequest
from shared_models.fields import MAX_INT
from shared_models.ids import WorkunitId
from shared_models.limits import MAX_LOG_BYTES, MAX_NAME_CHARS, MAX_NOTES_CHARS, MAX_PERF_KEYS
from shared_models.messages import Report, tail
from shared_models.states import FailureKind

#: What a worker may call the end of an attempt, and what that is here.
STATUSES = ("done", "fail", "failed-permanent", "discarded", "suspend")

#: AWE's workers say with this exit code that trying again makes no sense.
PERMANENT_EXIT = 42
#: Everything of one report together; what is larger than a log's bound is cut to its end, never refused: a
#: stock worker would send it again for ever.
_MAX_BODY_BYTES = 1024 * 1024 * 1024


@dataclass(slots=True)
class Extras:
    """What came with a report."""

    texts: dict[Stream, bytes] = field(default_factory=dict)
    notes: str = ""
    perf: dict[str, Any] = field(default_factory=dict)


async def read_extras(request: Request) -> Extras:
    """Read the parts perf, stdout, stderr, worknotes and notes; any other body is read and dropped."""
    extras = Extras()
    if not is_multipart(request):
        async for _ in stream(request, _MAX_BODY_BYTES):
            pass
        return extras
    async for part in parts(request, _MAX_BODY_BYTES):
        if part.name in STREAMS:
            extras.texts[part.name] = await _end_of(part.chunks(), MAX_LOG_BYTES)
        elif part.name == "notes":
            extras.notes = _text(await _end_of(part.chunks(), MAX_SMALL_BYTES))
        elif part.name == "perf":
            extras.perf = _perf(await _end_of(part.chunks(), MAX_SMALL_BYTES))
    return extras


async def _end_of(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    """The last `limit` bytes of a stream."""
    kept = bytearray()
    async for chunk in chunks:
        kept += chunk
        if len(kept) > 2 * limit:
            del kept[:-limit]
    return bytes(kept[-limit:])


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _perf(raw: bytes) -> dict[str, Any]:
    """Numbers of a perf file; damaged ones are not worth refusing a result for."""
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    scalars = {
        key[:MAX_NAME_CHARS]: value[:MAX_NAME_CHARS] if isinstance(value, str) else value
        for key, value in found.items()
        if isinstance(value, str | float | bool) or (isinstance(value, int) and abs(value) <= MAX_INT)
    }
    return dict(list(scalars.items())[:MAX_PERF_KEYS])


def build(
    work: WorkunitId,
    status: str,
    extras: Extras,
    *,
    attempt: int | None,
    token: str | None,
    computetime_s: float,
) -> Report:
    """The scheduler's report. Raises BadRequest for a status that is none.

    `discarded` gives the work back. `suspend` counts as a failure: for ever handing it out again to a worker
    that suspends it would be the worse reading.
    """
    if status not in STATUSES:
        raise BadRequest(f"status '{status[:100]}' is not one of {', '.join(STATUSES)}")
    failed = status not in ("done", "discarded")
    notes = extras.notes or _text(extras.texts.get("worknotes", b""))
    return Report(
        work=work,
        attempt=attempt,
        token=token,
        outcome="failed" if failed else "done" if status == "done" else "released",
        kind=FailureKind.COMMAND if failed else None,
        exit_code=PERMANENT_EXIT if status == "failed-permanent" else None,
        signal=None,
        message=(notes or ("suspended by the client" if status == "suspend" else ""))[:MAX_NOTES_CHARS],
        computetime_s=computetime_s,
        stdout_tail=tail(_text(extras.texts.get("stdout", b""))),
        stderr_tail=tail(_text(extras.texts.get("stderr", b""))),
        perf=extras.perf,
        outputs=[],
    )
