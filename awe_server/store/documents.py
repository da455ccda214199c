"""The form in which every store takes a document.

All of them refuse and keep the same things, so that moving between them never fails.
"""

from typing import Any

import orjson

from shared_models.errors import InvalidDocument
from shared_models.limits import MAX_STORED_BYTES
from shared_models.stored import MAX_GROWTH, oversize

_MAX_INT = 2**63 - 1  #: of BSON; JSON and Python know larger ones


def encode(document: dict[str, Any]) -> bytes:
    """Give a document's JSON; the caller's dict may change afterwards.

    Raises InvalidDocument if it has no id, is not JSON (integers: 64 bits), or larger than
    MAX_STORED_BYTES as JSON or as BSON.
    """
    id = document.get("id")
    if not isinstance(id, str) or not id:
        raise InvalidDocument("id: a stored document needs a text here")
    try:
        text = orjson.dumps(document, option=orjson.OPT_STRICT_INTEGER)
    except TypeError:
        text = _with_huge(id, document)
    if len(text) > MAX_STORED_BYTES // MAX_GROWTH and (
        size := oversize(document, MAX_STORED_BYTES, len(text))
    ):
        raise InvalidDocument(f"{id}: {size} bytes are too many to store; at most {MAX_STORED_BYTES}")
    return text


def _with_huge(id: str, document: dict[str, Any]) -> bytes:
    """The JSON of a document with numbers of more than 53 bits, which are looked at one by one."""
    try:
        if _has_huge(document):
            raise TypeError("a whole number has more than 64 bits, its sign included")
        return orjson.dumps(document)
    except TypeError as exc:
        raise InvalidDocument(f"{id}: cannot be stored as JSON: {exc}") from exc


def _has_huge(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_huge, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_huge, value))
    return isinstance(value, int) and not -_MAX_INT - 1 <= value <= _MAX_INT


class Odd(dict[str, Any]):
    """Read in place of a stored text that is JSON, but no document of its id: as much of one as there is."""


def decode_document(id: str, text: bytes | str) -> dict[str, Any]:
    """Read a document back, an `Odd` one if it is no object, or of another id.

    Raises ValueError if it is not JSON.
    """
    found = decode(text)
    if isinstance(found, dict) and found.get("id") == id:
        return found
    return Odd({**(found if isinstance(found, dict) else {}), "id": id})


def decode(text: bytes | str) -> Any:
    """Read a document back. Raises ValueError if it is not JSON."""
    return orjson.loads(text)
