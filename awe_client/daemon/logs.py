"""The daemon's own log: one line per fact on standard error, for people or (`--json-logs`) for programs."""

import logging
import sys
import time

import orjson

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00Z WARNING exchange_failed error=…`: UTC, as the server's log."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        facts = "".join(f" {name}={_plain(value)}" for name, value in facts_of(record).items())
        trace = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return f"{when} {record.levelname} {record.getMessage()}{facts}{trace}"


class _Json(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": record.created,
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **facts_of(record),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def facts_of(record: logging.LogRecord) -> dict[str, object]:
    """What was given as `extra`."""
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def configure(*, as_json: bool, verbose: bool) -> None:
    """Send this program's log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if as_json else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("awe_client").setLevel(logging.DEBUG if verbose else logging.INFO)


def _plain(value: object) -> str:
    text = str(value)
    return repr(text) if " " in text or "\n" in text or not text else text
