"""Queries as SQL. Paths and values are always bound parameters; the text holds our own names only.

A table is `(id TEXT PRIMARY KEY, doc TEXT, "<indexed path>"…)`: a column for each indexed field, which holds
the field's text or number, and NULL for anything else.
"""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from awe_server.store.base import AnyOf, Collection, Document, Match, Query
from awe_server.store.indexes import FIXED, INDEXES, id_ranges, indexed_fields
from awe_server.store.query import bounded, kind, lookup
from shared_models.errors import BadRequest

Sql = tuple[str, list[Any]]

MAX_PARAMETERS = 500

_COMPARE = {"ge": ">=", "lt": "<"}
_TYPES = {
    "text": "e.type = 'text'",
    "number": "e.type IN ('integer', 'real')",
    "bool": "e.type IN ('true', 'false')",
}


def schema(collection: Collection) -> list[str]:
    """The statements that create a collection."""
    columns = "".join(f', "{path}"' for path in indexed_fields(collection))
    statements = [f"CREATE TABLE {collection} (id TEXT PRIMARY KEY, doc TEXT NOT NULL{columns})"]
    for paths in INDEXES[collection]:
        covered = ", ".join(f'"{path}"' for path in paths)
        statements.append(f'CREATE INDEX "{collection}({",".join(paths)})" ON {collection} ({covered})')
    return statements


@cache
def upsert(collection: Collection) -> str:
    """The statement that stores a row of `row()`."""
    columns = ["doc", *indexed_fields(collection)]
    names = ", ".join(f'"{column}"' for column in columns)
    marks = ", ".join("?" * (len(columns) + 1))
    changes = ", ".join(
        f'"{column}" = excluded."{column}"' for column in columns if (collection, column) not in FIXED
    )
    return f"INSERT INTO {collection} (id, {names}) VALUES ({marks}) ON CONFLICT (id) DO UPDATE SET {changes}"


def row(collection: Collection, document: Document, text: bytes) -> Sequence[Any]:
    """A document as the parameters of `upsert`. For each document of each batch: a plain loop is cheapest."""
    parameters = [document["id"], text.decode()]
    for path in indexed_fields(collection):
        value = lookup(document, path) if "." in path else document.get(path)
        parameters.append(value if type(value) is str else _column(value))
    return parameters


def _column(value: Any) -> str | int | float | None:
    if isinstance(value, str):
        return value
    return bounded(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def where(collection: Collection, conditions: Sequence[Match | AnyOf]) -> Sql:
    """All conditions as one SQL expression."""
    texts: list[str] = []
    parameters: list[Any] = []
    for condition in conditions:
        text, values = _condition(collection, condition)
        texts.append(text)
        parameters += values
    return " AND ".join(texts) or "1", parameters


def _condition(collection: Collection, condition: Match | AnyOf) -> Sql:
    if isinstance(condition, Match):
        return _match(collection, condition)
    parts = [_match(collection, match) for match in condition.matches]
    text = " OR ".join(text for text, _ in parts) or "0"
    return f"({text})", [value for _, values in parts for value in values]


def _match(collection: Collection, match: Match) -> Sql:
    kinds = {kind(value) for value in match.values}
    if match.field == "id" or (match.field in indexed_fields(collection) and "bool" not in kinds):
        return _column_match(f'"{match.field}"', match, kinds)
    text, parameters = _element_match(match, sorted(kinds))
    ranges = id_ranges(collection, match)
    if ranges:
        near = " OR ".join(["id >= ? AND id < ?"] * len(ranges))
        return f"(({near}) AND {text})", [bound for pair in ranges for bound in pair] + parameters
    return text, parameters


def _column_match(column: str, match: Match, kinds: set[str]) -> Sql:
    if match.op == "in":
        text, parameters = _in([bounded(value) for value in match.values])
        return f"{column} {text}", parameters
    types = "('text')" if kinds == {"text"} else "('integer', 'real')"
    text = f"({column} {_COMPARE[match.op]} ? AND typeof({column}) IN {types})"
    return text, [bounded(match.values[0])]


def _element_match(match: Match, kinds: list[str]) -> Sql:
    path = json_path(match.field)
    tests: list[str] = []
    parameters: list[Any] = [path, path]
    for name in kinds:
        values = [bounded(value) for value in match.values if kind(value) == name]
        compare, found = _in(values) if match.op == "in" else (f"{_COMPARE[match.op]} ?", values)
        tests.append(f"({_TYPES[name]} AND e.value {compare})")
        parameters += found
    test = " OR ".join(tests) or "0"
    text = f"(json_type(doc, ?) <> 'object' AND EXISTS (SELECT 1 FROM json_each(doc, ?) AS e WHERE {test}))"
    return text, parameters


def order(collection: Collection, query: Query) -> Sql:
    """The ORDER BY of a query, ties by id."""
    direction = "DESC" if query.descending else "ASC"
    if query.order == "id":
        return f"id {direction}", []
    text, parameters = value_of(collection, query.order)
    return f"{text} {direction}, id {direction}", parameters


def value_of(collection: Collection, path: str) -> Sql:
    """The expression for a field's value."""
    if path == "id" or path in indexed_fields(collection):
        return f'"{path}"', []
    return "json_extract(doc, ?)", [json_path(path)]


def json_path(path: str) -> str:
    """A dotted path as SQLite writes it.

    Raises BadRequest for characters that SQLite cannot look up; no field of ours has them.
    """
    if any(sign in '"\\' or sign < " " for sign in path):
        raise BadRequest(f"'{path[:200]}' is not a field path")
    return "$" + "".join(f'."{part}"' for part in path.split("."))


def _in(values: Sequence[Any]) -> Sql:
    """SQLite bounds the number of parameters; many values go as one JSON list."""
    if len(values) > MAX_PARAMETERS:
        return "IN (SELECT value FROM json_each(?))", [json.dumps(values)]
    return f"IN ({', '.join('?' * len(values))})", list(values)
