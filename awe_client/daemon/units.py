"""Sizes and times as people write them on a command line."""

import re

MAX_BYTES = 2**60
MAX_S = 100 * 366 * 86400

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhd]?)", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{1,2})(?::(\d{1,2}))?")
_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SECONDS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_bytes(text: str) -> int:
    """Read `4096`, `500M`, `1.5GB` (powers of 1024). Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is not a size: write a number with K, M, G or T, such as 16G")
    size = float(match.group(1)) * _BYTES[match.group(2).lower()]
    if size > MAX_BYTES:
        raise ValueError(f"'{text}' is more than there is")
    return int(size)


def parse_seconds(text: str) -> float:
    """Read `90`, `90s`, `30m`, `12h`, `7d`, or a batch system's `H:MM:SS`, `D-H:MM:SS`. Raises ValueError."""
    if clock := _CLOCK.fullmatch(text.strip()):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return _bounded(((days * 24 + hours) * 60 + minutes) * 60 + seconds, text)
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is not a time: write seconds, or a number with m, h or d, or H:MM:SS")
    return _bounded(float(match.group(1)) * _SECONDS[match.group(2).lower()], text)


def _bounded(time_s: float, text: str) -> float:
    if time_s > MAX_S:
        raise ValueError(f"'{text}' is longer than a hundred years")
    return float(time_s)
