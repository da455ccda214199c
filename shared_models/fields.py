"""Read one field of a JSON object that came from outside, or say what is wrong with it.

For validators that are written by hand because they are hot or lenient. Each raises InvalidDocument naming
the key; the caller puts the rest of the path in front.
"""

from typing import Any

from shared_models.errors import InvalidDocument

MAX_INT = 2**63 - 1  #: the largest whole number every store can keep


def rows(data: dict[str, Any], key: str, limit: int) -> list[Any]:
    """Read a list; absent or null is an empty one."""
    value = data.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidDocument(f"{key}: must be a list")
    if len(value) > limit:
        raise InvalidDocument(f"{key}: has more than {limit} entries")
    return value


def mapping(data: dict[str, Any], key: str) -> dict[Any, Any]:
    """Read an object; absent or null is an empty one."""
    value = data.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidDocument(f"{key}: must be an object")
    return value


def text(data: dict[str, Any], key: str, limit: int) -> str:
    """Read a text that must be there and not be empty."""
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidDocument(f"{key}: is missing; must be text")
    if len(value) > limit:
        raise InvalidDocument(f"{key}: is longer than {limit} characters")
    return value


def free_text(data: dict[str, Any], key: str) -> str:
    """Read a text; absent or null is an empty one."""
    value = data.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidDocument(f"{key}: must be text")
    return value


def whole(
    data: dict[str, Any], key: str, least: int, most: int = MAX_INT, *, default: int | None = None
) -> int:
    """Read a whole number; `true` and `1.0` are none."""
    value = data.get(key, default)
    if type(value) is not int or not least <= value <= most:
        bound = f"{least} or more" if most == MAX_INT else f"between {least} and {most}"
        raise InvalidDocument(f"{key}: must be a whole number, {bound}")
    return value


def whole_or_none(data: dict[str, Any], key: str) -> int | None:
    """Read a whole number of 32 bits that may be absent or null."""
    return None if data.get(key) is None else whole(data, key, -(2**31), 2**32 - 1)


def seconds(data: dict[str, Any], key: str) -> float:
    """Read a duration; absent is 0.0."""
    value = data.get(key, 0.0)
    if type(value) not in (int, float) or not 0.0 <= value < 1e12:
        raise InvalidDocument(f"{key}: must be a number of seconds, 0 or more")
    return float(value)


def flag(data: dict[str, Any], key: str) -> bool:
    """Read a truth value; absent is false."""
    value = data.get(key, False)
    if not isinstance(value, bool):
        raise InvalidDocument(f"{key}: must be true or false")
    return value
