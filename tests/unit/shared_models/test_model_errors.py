"""Whatever a model does not like is said with its path."""

from typing import Annotated

import pytest
from pydantic import BaseModel, StringConstraints, ValidationError

from shared_models.model_errors import explain
from shared_models.problems import Problems


class Row(BaseModel):
    word: Annotated[str, StringConstraints(pattern="^a")] = "a"
    amount: int = 0


class Table(BaseModel):
    rows: list[Row]


def problems(data: object, names: dict[str, list[str]]) -> list[str]:
    found = Problems()
    with pytest.raises(ValidationError) as error:
        Table.model_validate(data)
    explain(error.value, "tasks[3]", names, found)
    return found.found


def test_a_complaint_without_words_of_ours_keeps_pydantics() -> None:
    assert problems({"rows": [{}, {"word": "b"}]}, {}) == [
        "tasks[3].rows[1].word: String should match pattern '^a'"
    ]


def test_a_place_in_a_map_is_named_by_its_key() -> None:
    assert problems({"rows": [{}, {"amount": []}]}, {"rows": ["first", "second"]}) == [
        "tasks[3].rows.second.amount: must be a whole number, not a list"
    ]
