"""JSON from outside, read strictly: every key once, every number representable, depth and size bounded.

Two parsers: orjson settles quickly whether the bytes are JSON at all (it refuses NaN, bad UTF-8, half
surrogates and nesting that would exhaust the stack); where it may have hidden a key, or changed a number,
the standard library's then shows every one. Bounds are checked before anything costs time or memory in
proportion.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson

from shared_models.errors import InvalidDocument, TooLarge
from shared_models.fields import MAX_INT
from shared_models.limits import MAX_DEPTH, MAX_DOCUMENT_BYTES, MAX_VALUES
from shared_models.placeholders import placeholder_hint

_MAX_PROBLEMS = 20
_LONG_NUMBER = re.compile(rb"\d{19}")


class _Repeated(dict[str, Any]):
    """An object with a key that was given more than once."""

    keys_twice: list[str]


class _BadNumber:
    """A number that cannot be kept."""

    def __init__(self, text: str) -> None:
        self.text = text


def read_json(raw: bytes) -> Any:
    """Parse a document.

    Raises TooLarge above MAX_DOCUMENT_BYTES or MAX_VALUES, InvalidDocument for what is not clean JSON.
    """
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise TooLarge(f"the document has {len(raw)} bytes, the limit is {MAX_DOCUMENT_BYTES}")
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > MAX_VALUES:
        raise TooLarge(f"the document has more than {MAX_VALUES} values")
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if not raw.strip():
        raise InvalidDocument("the document is empty")
    data, keys = _parse_quickly(raw)
    if raw.count(b":") == keys and b"\\u0000" not in raw and not _LONG_NUMBER.search(raw):
        return data  # a colon for each key: none is hidden
    found: list[object] = []
    data = _parse(raw.decode("utf-8"), found)
    if found or b"\\u0000" in raw:
        problems = list(_defects(data))[:_MAX_PROBLEMS]
        if problems:
            raise InvalidDocument(problems)
    return data


def _parse_quickly(raw: bytes) -> tuple[Any, int]:
    """Parse what may be JSON; how many keys there are. What is wrong with keys and numbers is not seen."""
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        hint = placeholder_hint(raw[exc.pos : exc.pos + 40].decode("utf-8", "replace"))
        raise InvalidDocument(f"the document is not valid JSON: {exc}{hint}") from exc
    level, keys = [data], 0
    for _ in range(MAX_DEPTH + 1):
        keys += sum([len(parent) for parent in level if type(parent) is dict])
        level = [
            child
            for parent in level
            if type(parent) in (dict, list)
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) in (dict, list)
        ]
        if not level:
            return data, keys
    raise InvalidDocument(f"the document is nested more than {MAX_DEPTH} deep")


def _parse(text: str, found: list[object]) -> Any:
    """Parse valid JSON; what a dict would hide or no store could keep is marked, and listed in `found`."""

    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        plain = dict(pairs)
        if len(plain) == len(pairs):
            return plain
        marked = _Repeated(plain)
        times = Counter(key for key, _ in pairs)
        marked.keys_twice = [key for key, n in times.items() if n > 1][:_MAX_PROBLEMS]
        found.append(marked)
        return marked

    def read_number(text: str) -> Any:
        if len(text) <= 18:
            return int(text)
        if len(text) <= 20 and -MAX_INT - 1 <= (value := int(text)) <= MAX_INT:
            return value
        bad = _BadNumber(text)
        found.append(bad)
        return bad

    return json.loads(text, object_pairs_hook=read_object, parse_int=read_number)


def _defects(value: Any, path: str = "") -> Iterator[str]:
    """Name every repeated key, unusable key and unusable number below a value."""
    where = f"{path}: " if path else ""
    if isinstance(value, _BadNumber):
        yield f"{where}the number {value.text[:40]} is out of range (64 bit)"
    elif isinstance(value, dict):
        if isinstance(value, _Repeated):
            yield from (f"{where}the key '{key[:100]}' is given more than once" for key in value.keys_twice)
        for key, child in value.items():
            if "\0" in key:
                yield f"{where}the key {key[:100]!r} has a NUL character"
            yield from _defects(child, f"{path}.{key[:100]}" if path else key[:100])
    elif isinstance(value, list):
        for i, child in enumerate(value):
            yield from _defects(child, f"{path}[{i}]")
