"""Collects what is wrong with a document, so that a user hears of several mistakes at once."""

from typing import NoReturn

from shared_models.errors import InvalidDocument

MAX_PROBLEMS = 20


class Problems:
    """A list of `<field path>: <what is wrong>`; when it is full, the document is refused at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, path: str, what: str) -> None:
        """Note one problem. Raises InvalidDocument with all of them when it is the last that fits."""
        self.found.append(f"{path}: {what}" if path else what)
        if len(self.found) >= MAX_PROBLEMS:
            self.refuse()

    def add_below(self, path: str, problem: str) -> None:
        """Note a problem that names, as `<key>: <what is wrong>`, a key of the object at `path`."""
        self.add("", f"{path}.{problem}")

    def raise_if_any(self) -> None:
        """Raise InvalidDocument if anything was noted."""
        if self.found:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raise InvalidDocument with what was noted."""
        raise InvalidDocument(self.found)


def shown(value: object) -> str:
    """Name a value for a message: short, and never more than a hint of its content."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text '{value[:40]}{'…' if len(value) > 40 else ''}'"
    if isinstance(value, int | float):
        return f"the number {value}"
    return "a list" if isinstance(value, list) else "an object"
