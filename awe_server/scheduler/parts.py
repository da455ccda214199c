"""What `partinfo` says: which inputs are cut together, and how many records stay together."""

from collections.abc import Mapping
from typing import Any

from shared_models.records_option import records_together


def cut_names(part: Mapping[str, Any] | None) -> list[str]:
    """The inputs that are cut, all at the same units; [] = `partinfo` names none."""
    if not part:
        return []
    return list(part.get("inputs") or ([part["input"]] if part.get("input") else []))


def group_size(part: Mapping[str, Any] | None) -> int:
    """How many units of the index belong together; `totalindex` counts such groups."""
    return records_together((part or {}).get("options") or "") or 1


def is_grouped(part: Mapping[str, Any] | None) -> bool:
    """Whether single records are counted: several files, or groups of records, are cut at the same ones."""
    return bool(part) and (group_size(part) > 1 or len(cut_names(part)) > 1)
