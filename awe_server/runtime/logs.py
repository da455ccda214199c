"""One line per fact on stderr: for a person, or as JSON for a collector.

A record's message is an event name (`job_submitted`); what it is about comes as `extra`.
"""

import json
import logging
import sys
from typing import Any, Literal, TextIO

from shared_models.times import rfc3339

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _PLAIN}


class HumanFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000000Z INFO job_submitted job_id=…`"""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_short(value)}" for key, value in _extras(record).items())
        line = f"{rfc3339(record.created)} {record.levelname} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _short(value: Any) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or " " in text or not text.isprintable() else text


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def configure(level: str, form: Literal["human", "json"], stream: TextIO = sys.stderr) -> None:
    """Send the process's log to the stream; libraries only when they warn."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else HumanFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("awe_server").setLevel(level.upper())
    # uvicorn reports each shutdown's cancelled requests as errors of its own; our own line says it once.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
