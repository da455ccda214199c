"""What reports say that their commands printed: kept as logs, whoever may report it."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from awe_server.data.logs import STREAMS, Log, Logs, Stream
from awe_server.runtime.services import Services
from awe_server.scheduler.holder import may_report
from awe_server.scheduler.state import State
from shared_models.errors import BadRequest
from shared_models.ids import ClientId
from shared_models.limits import MAX_NOTES_CHARS
from shared_models.messages import Report

_log = logging.getLogger(__name__)

Texts = Iterable[tuple[Stream, bytes]]


async def keep_printed(
    services: Services, client_id: ClientId, reports: Sequence[tuple[Report, Texts]]
) -> list[Report]:
    """Store what reports say that their commands printed; the reports, which say what could not be kept.

    Before they are settled: whoever learns that the work has ended finds its log. Of reports of attempts that
    their sender may not report, nothing is kept.
    """
    printed = [_printed(services.engine.state, client_id, r, texts) for r, texts in reports]
    lost = await Logs(services.logs_dir).keep([row for rows in printed for row in rows])
    if not lost:
        return [r for r, _ in reports]
    _log.warning("logs_not_kept", extra={"reason": next(iter(lost.values())), "count": len(lost)})
    return [
        _with_note(r, "; ".join(f"{log.stream} was not kept: {lost[log]}" for log, _ in rows if log in lost))
        for (r, _), rows in zip(reports, printed, strict=True)
    ]


def _printed(state: State, client_id: ClientId, r: Report, texts: Texts) -> list[tuple[Log, bytes]]:
    unit = state.workunits.get(r.work)
    if unit is None or not may_report(state, unit, client_id, r.attempt, r.token):
        return []
    return [(Log(r.work, unit.attempt, name), text) for name, text in texts if text]


def _with_note(r: Report, note: str) -> Report:
    """The report with something more in its message, which is cut before that is."""
    if not note:
        return r
    return replace(
        r, message=f"{r.message[: MAX_NOTES_CHARS - len(note) - 2]}; {note}" if r.message else note
    )


def stream_name(text: str) -> Stream:
    """Check the name of a log. Raises BadRequest with AWE's text."""
    for name in STREAMS:
        if text == name:
            return name
    raise BadRequest(f"log type '{text[:100]}' not found")
