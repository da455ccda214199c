"""What a query parameter asks of an attribute: a value, a range of values, or that there is one.

Source: Shock shock-server/controller/node/multi.go ReadMany (an empty value asks whether the key exists;
numbers in a URL match numbers and texts); differs: several values of one key mean any of them, and ranges.
"""

import contextlib
import re
import sys

from awe_server.api.job_list import any_type
from awe_server.store.base import AnyOf, Match
from shared_models.errors import BadRequest

_RANGE = re.compile(r"\[([^;]*);([^;]*)\)")


def is_range(text: str) -> bool:
    """Whether a value is written as a range, `[from;below)`."""
    return _RANGE.fullmatch(text) is not None


def attribute_is(key: str, texts: list[str]) -> list[Match | AnyOf]:
    """The conditions that one key of a URL and its values make, with or without `attributes.` in front.

    Raises BadRequest for a range among several values, or one that has no end at all.
    """
    path = key if key.startswith("attributes.") else f"attributes.{key}"
    if "" in texts:
        return [_exists(path)]
    if not any(map(is_range, texts)):
        return [Match(path, any_type(texts))]
    if len(texts) > 1:
        raise BadRequest(f"{key}: one range, or any number of values")
    return _within(path, texts[0])


def _exists(path: str) -> AnyOf:
    """Any text, number or boolean."""
    smallest = -sys.float_info.max
    return AnyOf((Match(path, ("",), "ge"), Match(path, (smallest,), "ge"), Match(path, (True, False))))


def _within(path: str, text: str) -> list[Match | AnyOf]:
    """Numbers if both ends are, else texts by code point."""
    match = _RANGE.fullmatch(text)
    ends = match.groups() if match else ("", "")
    if not any(ends):
        raise BadRequest(f"{path}: a range such as [1;5), [1;) or [;5)")
    values: list[list[str | float]] = [list(ends)]
    with contextlib.suppress(ValueError):
        values.append([float(end) if end else "" for end in ends])
    first, end = values[-1]
    found: list[Match | AnyOf] = [] if first == "" else [Match(path, (first,), "ge")]
    return found if end == "" else [*found, Match(path, (end,), "lt")]
