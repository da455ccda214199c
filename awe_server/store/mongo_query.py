"""Documents and queries as MongoDB wants them."""

import re
from collections.abc import Sequence
from typing import Any

from awe_server.store.base import AnyOf, Collection, Document, Match
from awe_server.store.indexes import id_ranges
from awe_server.store.query import bounded

_COMPARE = {"ge": "$gte", "lt": "$lt"}

# MongoDB cannot keep or look up every field name that JSON may have: these signs are written as %XX.
_SPECIAL = re.compile(r"[%.\x00]|^\$|^_id$")
_WRITTEN = re.compile(r"%([0-9A-F]{2})")
_EMPTY = "%"


def to_mongo(document: Document) -> Document:
    """A document with `_id` and field names that MongoDB takes."""
    stored: Document = _renamed(document, escape)
    stored["_id"] = stored.pop("id")
    return stored


def from_mongo(stored: Document) -> Document:
    """The reverse."""
    id = stored.pop("_id")
    document: Document = {"id": id}
    document.update(_renamed(stored, unescape))
    return document


def _renamed(value: Any, rename: Any) -> Any:
    if isinstance(value, dict):
        return {rename(key): _renamed(inner, rename) for key, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(inner, rename) for inner in value]
    # The driver has a type of its own for what is kept in 64 bits: every number from 2³¹ on.
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def escape(name: str) -> str:
    """A field name as it is stored."""
    if name.isalnum():
        return name
    written = _SPECIAL.sub(lambda found: "".join(f"%{ord(sign):02X}" for sign in found[0]), name)
    return written or _EMPTY


def unescape(name: str) -> str:
    """A stored field name as it was."""
    if "%" not in name:
        return name
    return "" if name == _EMPTY else _WRITTEN.sub(lambda found: chr(int(found[1], 16)), name)


def path(field: str) -> str:
    """A dotted path of ours as a path of MongoDB's."""
    return "_id" if field == "id" else ".".join(escape(part) for part in field.split("."))


def conditions(collection: Collection, where: Sequence[Match | AnyOf]) -> Document:
    """All conditions as one filter."""
    filters = [_condition(collection, condition) for condition in where]
    return {"$and": filters} if filters else {}


def _condition(collection: Collection, condition: Match | AnyOf) -> Document:
    if isinstance(condition, Match):
        return _match(collection, condition)
    if not condition.matches:
        return {"_id": {"$in": []}}
    return {"$or": [_match(collection, match) for match in condition.matches]}


def _match(collection: Collection, match: Match) -> Document:
    field = path(match.field)
    if match.op != "in":
        return {field: {_COMPARE[match.op]: bounded(match.values[0])}}
    exact: Document = {field: {"$in": [bounded(value) for value in match.values]}}
    ranges = id_ranges(collection, match)
    if not ranges:
        return exact
    near = {"$or": [{"_id": {"$gte": first, "$lt": end}} for first, end in ranges]}
    return {"$and": [near, exact]}
