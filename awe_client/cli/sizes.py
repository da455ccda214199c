"""What people write for sizes and array ranges, and what it means."""

import re

from shared_models.errors import BadRequest
from shared_models.limits import MAX_TOTALWORK, MIB

_UNITS = {"": 1, "K": 1024, "M": MIB, "G": 1024 * MIB, "T": 1024 * 1024 * MIB}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def parse_size(text: str) -> int:
    """Read a size such as `50MB`, `1.5G`, `4096` into bytes; units are powers of 1024.

    Raises BadRequest for anything else.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise BadRequest(f"'{text}' is not a size: write a number with B, KB, MB, GB or TB, such as 50MB")
    return int(float(match.group(1)) * _UNITS[match.group(2).upper()])


def parse_megabytes(text: str) -> int:
    """Read a size that a job document gives in whole MB (2^20 bytes).

    Raises BadRequest when it is less than 1 MB or not a whole number of MB.
    """
    size_bytes = parse_size(text)
    if size_bytes < MIB or size_bytes % MIB:
        raise BadRequest(f"'{text}' is not a whole number of MB: inputs are split by whole MB, at least 1MB")
    return size_bytes // MIB


def parse_array(text: str) -> tuple[int, int]:
    """Read an array range, `1-100` or a single `7`, into its first and last index.

    Raises BadRequest when it is not a range, runs backwards or is too long.
    """
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise BadRequest(f"'{text}' is not an array range: write FIRST-LAST, such as 1-100")
    first = int(match.group(1))
    last = int(match.group(2) or first)
    if last < first:
        raise BadRequest(f"'{text}' runs backwards: write FIRST-LAST, such as 1-100")
    if last - first + 1 > MAX_TOTALWORK:
        raise BadRequest(f"'{text}' has {last - first + 1} members; {MAX_TOTALWORK} are allowed")
    return first, last


def format_bytes(size_bytes: int) -> str:
    """Write a size for people: `89.0 kB` as `86.9 KB`, always in powers of 1024."""
    value = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024:
            return f"{size_bytes} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TB"
