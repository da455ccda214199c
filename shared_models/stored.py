"""How much room a document takes in a store: as JSON, and as BSON, which can be eight times as much."""

from collections.abc import Mapping
from typing import Any

import orjson

#: BSON per byte of JSON at its worst: an array of small numbers, or a key of nothing but dots.
MAX_GROWTH = 8

_INT32 = 2**31
_ESCAPED = ".%\0"  #: signs of a field name that take three when stored in MongoDB


def json_size(value: object) -> int:
    """How many bytes a value takes as JSON."""
    return len(orjson.dumps(value))


def oversize(document: Mapping[str, Any], limit: int, json_bytes: int | None = None) -> int:
    """The document's size in the store that needs most for it, if that is above the limit, else 0.

    `json_bytes` is the size of its JSON, if that is known.
    """
    size = json_size(document) if json_bytes is None else json_bytes
    if size <= limit // MAX_GROWTH:
        return 0
    size = max(size, _bson_bytes(document))
    return size if size > limit else 0


def _bson_bytes(value: object) -> int:
    if isinstance(value, str):
        return 5 + len(value.encode())
    if isinstance(value, bool):
        return 1
    if isinstance(value, int):
        return 4 if -_INT32 <= value < _INT32 else 8
    if isinstance(value, float):
        return 8
    if isinstance(value, Mapping):
        return 5 + sum(2 + _name_bytes(key) + _bson_bytes(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return 5 + sum(2 + len(str(i)) + _bson_bytes(inner) for i, inner in enumerate(value))
    return 0


def _name_bytes(key: str) -> int:
    return len(key.encode()) + 2 * (1 + sum(key.count(sign) for sign in _ESCAPED))
