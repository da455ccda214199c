"""What a query means, evaluated on plain dicts. The SQL and MongoDB translations have to agree with this.

* A path goes through objects only. A missing field and null are the same.
* A list-valued field matches a condition if one of its elements does.
* Texts, numbers and booleans match and compare among themselves only (True is not 1).
* Order: missing, numbers and booleans, texts; anything else is equal among itself. Ties are ordered by id,
  and a descending order is the exact reverse of the ascending one.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from awe_server.store.base import AnyOf, Document, Match, Page, Query

#: Longer texts are no numbers: those of up to so many digits fit into 64 bits.
MAX_DIGITS = 18

SortKey = tuple[int, float | int | str]

#: Conditions of a query, joined with AND.
Where = Sequence[Match | AnyOf]


def lookup(document: Document, path: str) -> Any:
    """The value at a dotted path, None if there is none."""
    value: Any = document
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def matches(document: Document, where: Where) -> bool:
    """Whether a document meets all conditions."""
    return all(_holds(document, condition) for condition in where)


def _holds(document: Document, condition: Match | AnyOf) -> bool:
    if isinstance(condition, AnyOf):
        return any(_holds(document, match) for match in condition.matches)
    value = lookup(document, condition.field)
    elements = value if isinstance(value, list) else [value]
    return any(_compare(element, wanted, condition.op) for element in elements for wanted in condition.values)


def _compare(value: Any, wanted: str | int | float | bool, op: str) -> bool:
    if value is None or kind(value) != kind(wanted):
        return False
    if op == "in":
        return bool(value == wanted)
    return bool(value >= wanted) if op == "ge" else bool(value < wanted)


def kind(value: Any) -> str:
    """Values of different kinds never match."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "other"


def bounded(value: str | int | float | bool) -> str | int | float | bool:
    """A value for a database, whose integers have 64 bits: a larger one is compared as a real number."""
    return float(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def sort_key(value: Any) -> SortKey:
    """Where a value stands in an order."""
    if value is None:
        return (0, 0)
    if isinstance(value, int | float):
        return (1, value)
    return (2, value) if isinstance(value, str) else (3, 0)


def select(documents: Iterable[Document], query: Query) -> Page:
    """Evaluate a query over documents in memory."""
    found = [document for document in documents if matches(document, query.where)]
    found.sort(
        key=lambda document: (sort_key(lookup(document, query.order)), document["id"]),
        reverse=query.descending,
    )
    end = query.offset + query.limit if query.limit else None
    return Page(documents=found[query.offset : end], total=len(found))


def distinct_values(values: Iterable[Any]) -> list[Any]:
    """The different texts, numbers and booleans among values and elements of list values, sorted."""
    seen: dict[tuple[str, Any], Any] = {}
    for value in values:
        for element in value if isinstance(value, list) else [value]:
            if element is not None and kind(element) != "other":
                seen.setdefault((kind(element), element), element)
    return sorted(seen.values(), key=lambda value: (*sort_key(value), kind(value)))


def is_number(value: object) -> TypeGuard[str]:
    """Whether it is a text of 1 to MAX_DIGITS digits."""
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS


def group_name(value: Any) -> str:
    """The name under which count_by counts a value; missing is the empty text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
