"""Replies as the models that stand for them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from shared_models.errors import AweError

View = TypeVar("View", bound=BaseModel)
Item = TypeVar("Item")


@dataclass(slots=True, frozen=True)
class Page(Generic[Item]):
    """One page of a list and how many rows match in all."""

    items: list[Item] = field(default_factory=list)
    total: int = 0
    limit: int = 0
    offset: int = 0


def view(kind: type[View], data: Any) -> View:
    """Read decoded JSON as a model. Raises AweError if it is something else."""
    try:
        return kind.model_validate(data)
    except ValidationError as exc:
        raise _surprise(kind, exc) from exc


def view_of_bytes(kind: type[View], raw: bytes) -> View:
    """Read JSON as a model, without making objects of what the model does not know."""
    try:
        return kind.model_validate_json(raw)
    except ValidationError as exc:
        raise _surprise(kind, exc) from exc


def views(kind: type[View], rows: Iterable[Any] | None) -> list[View]:
    """Read each row of a list; null is the empty list."""
    return [view(kind, row) for row in rows or ()]


def _surprise(kind: type[BaseModel], exc: ValidationError) -> AweError:
    first = exc.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"])) or "as a whole"
    return AweError(
        f"the reply does not read as {kind.__name__} ({place}: {first['msg']}): is that an awe-server, "
        "and of a version that this client knows?"
    )
