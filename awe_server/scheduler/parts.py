"""What `partinfo` says: which inputs are cut together, and how many records stay together."""

from collections.abc import Mapping
from typing import Any


def cut_names(part: Mapping[str, Any] | None) -> list[str]:
    """The inputs that are cut, all at the same units; [] = `partinfo` names none."""
    if not part:
        return []
    return list(part.get("inputs") or ([part["input"]] if part.get("input") else []))
