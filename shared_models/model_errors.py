"""Says in our words, with the field path, what a pydantic model did not like."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from shared_models.nearest import did_you_mean
from shared_models.problems import Problems, shown

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "list_type": "a list",
}
_SENTENCES: dict[str, Callable[[dict[str, Any]], str]] = {
    "missing": lambda c: "is missing",
    "greater_than_equal": lambda c: f"must be {c['ge']:.0f} or more",
    "less_than_equal": lambda c: f"must be at most {c['le']:.0f}",
    "string_too_long": lambda c: f"is longer than {c['max_length']} characters",
    "too_long": lambda c: f"has more than {c['max_length']} entries",
}

#: What stands below this key of a command's environment is repeated to nobody.
_SECRET = "private"


def explain(
    error: ValidationError, path: str, names: Mapping[str, Sequence[str]], problems: Problems
) -> None:
    """Note every problem of a model found at `path`.

    `names` gives, for lists that the user wrote as maps, the keys that stood for the positions.
    """
    for detail in error.errors(include_url=False):
        problems.add(_path(detail["loc"], path, names), _sentence(detail))


def _sentence(detail: ErrorDetails) -> str:
    kind, value = detail["type"], detail["input"]
    if kind in _WANTED:
        wanted = f"must be {_WANTED[kind]}"
        return wanted if _SECRET in detail["loc"] else f"{wanted}, not {shown(value)}"
    if kind == "literal_error":
        expected = detail["ctx"]["expected"]
        known = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ") if word != "''"]
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        return f"must be one of {', '.join(known)}, not {shown(value)}{hint}"
    if kind in _SENTENCES:
        sentence = _SENTENCES[kind](detail.get("ctx", {}))
        return f"{sentence}, not {value}" if kind.endswith("_equal") else sentence
    return f"{detail['msg']}"


def _path(loc: tuple[int | str, ...], path: str, names: Mapping[str, Sequence[str]]) -> str:
    for position, step in enumerate(loc):
        if isinstance(step, str):
            path = f"{path}.{step[:100]}" if path else step[:100]
        elif position == 1 and loc[0] in names:
            path = f"{path}.{names[str(loc[0])][step][:100]}"
        else:
            path = f"{path}[{step}]"
    return path
