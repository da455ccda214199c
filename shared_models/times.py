"""Wall-clock times for documents: RFC 3339 in UTC with microseconds. Decisions never use them."""

from datetime import UTC, datetime
from functools import lru_cache

#: What a document shows for a time that was never set (AWE §2.1).
ZERO_TIME = "0001-01-01T00:00:00Z"


def rfc3339(wall_s: float) -> str:
    """Format seconds since the epoch; 0.0 means "never" and gives ZERO_TIME."""
    if wall_s <= 0.0:
        return ZERO_TIME
    whole_s = int(wall_s)
    micros = round((wall_s - whole_s) * 1e6)
    if micros == 1_000_000:
        return f"{_second(whole_s + 1)}.000000Z"
    return f"{_second(whole_s)}.{micros:06d}Z"


@lru_cache(maxsize=64)
def _second(epoch_s: int) -> str:
    """The same second is asked for again and again."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def parse_rfc3339(text: str) -> float:
    """Read a document's time back into seconds since the epoch; ZERO_TIME gives 0.0.

    Raises ValueError for anything that is not RFC 3339 with a zone.
    """
    if text.startswith("0001-01-01T00:00:00"):
        return 0.0
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"'{text}' has no time zone: expected RFC 3339 such as 2026-01-31T12:00:00Z")
    return moment.timestamp()
