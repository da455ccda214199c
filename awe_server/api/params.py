"""Query parameters: each route declares its own, and nothing else is accepted."""

from collections.abc import Collection
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from shared_models.errors import BadRequest, UnknownParameter
from shared_models.limits import DEFAULT_PAGE, MAX_PAGE
from shared_models.nearest import nearest

_SHOWN_CHARS = 100
MAX_COUNT_DIGITS = 18


class Parameters(BaseModel):
    """The query parameters of one route; any other name is refused, with the nearest known one."""

    model_config = ConfigDict(extra="allow", frozen=True)

    #: Names with these beginnings are accepted as they come (`info.userattr.`).
    open_prefixes: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, data: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for name in data:
            if name not in known and not cls.is_open(name, data):
                raise unknown_parameter(name, known)
        return data

    @classmethod
    def is_open(cls, name: str, given: dict[str, Any]) -> bool:
        """Whether a name that is not declared is accepted."""
        return name.startswith(cls.open_prefixes)


def unknown_parameter(name: str, known: Collection[str]) -> UnknownParameter:
    """Say which parameter is not known and which was probably meant."""
    if near := nearest(name, known):
        hint = f"did you mean '{near}'?"
    elif known:
        hint = f"known here: {', '.join(sorted(known))}"
    else:
        hint = "there are none here"
    return UnknownParameter(f"Unknown parameter '{name[:_SHOWN_CHARS]}': {hint}", name=name)


class NoParameters(Parameters):
    """For routes without query parameters."""


def _flag(value: Any) -> bool:
    """AWE: the presence of the name is enough. A value that says no would surprise either way: refused."""
    if value in ("", "1", "true", True):
        return True
    if value is False:
        return False
    raise ValueError("this is a flag: give its name without a value")


#: `?suspend`, `?suspend=`, `?suspend=1`, `?suspend=true`.
Flag = Annotated[bool, BeforeValidator(_flag)]


def split_list(value: Any) -> Any:
    """Read repeated parameters, or one with commas, as a list without empty entries."""
    texts = value if isinstance(value, list) else [value]
    return [part for text in texts for part in str(text).split(",") if part]


#: Any of these: `?state=queued,suspend` or `?state=queued&state=suspend`.
Many = Annotated[list[str], BeforeValidator(split_list), Field(default_factory=list)]


def page_rows(limit: int) -> int:
    """The limit that is really applied: 0 asks for the most that one reply holds."""
    return min(limit, MAX_PAGE) or MAX_PAGE


class Paging(Parameters):
    """Which page of a list. `limit=0` asks for the most that one reply holds."""

    limit: int = Field(
        DEFAULT_PAGE, ge=0, le=2**31, description=f"rows of one page; at most {MAX_PAGE} are given"
    )
    offset: int = Field(0, ge=0, le=2**31, description="rows to skip")
    direction: Literal["asc", "desc"] = Field("desc", description="of `order`")

    @property
    def rows(self) -> int:
        """The limit that is really applied."""
        return page_rows(self.limit)


def plain_count(text: str) -> int | None:
    """A count as headers carry it: ASCII digits, and not more than any store can keep; None for all else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_COUNT_DIGITS else None


def one_of(given: dict[str, Any], message: str) -> tuple[str, Any]:
    """The one action asked for (name and value, present ones only).

    Raises BadRequest with `message` if there is none, or naming them if there are several.
    """
    present = [(name, value) for name, value in given.items() if value is not None and value is not False]
    if len(present) == 1:
        return present[0]
    if not present:
        raise BadRequest(message)
    raise BadRequest(f"one action at a time, not {' and '.join(name for name, _ in present)}")
