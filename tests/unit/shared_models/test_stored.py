"""The size of a document in the store is never guessed too low."""

from typing import Any

import bson
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from awe_server.store.mongo_query import to_mongo
from shared_models.stored import MAX_GROWTH, oversize

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from("ab.%$\0é")), inner),
)


def needed(document: dict[str, Any]) -> tuple[int, int]:
    return len(orjson.dumps(document)), len(bson.encode(to_mongo(document)))


@given(_VALUES)
def test_neither_json_nor_bson_is_larger(value: Any) -> None:
    document = {"id": "x", "value": value}
    as_json, as_bson = needed(document)
    assert oversize(document, 0) >= max(as_json, as_bson)


@pytest.mark.parametrize(
    "value",
    [[0] * 100_000, [[]] * 100_000, [""] * 100_000, [{}] * 100_000, [0.0] * 100_000, {"." * 1_000_000: 0}],
    ids=["numbers", "lists", "texts", "maps", "floats", "dots"],
)
def test_bson_grows_no_more_than_is_reckoned_with(value: Any) -> None:
    document = {"id": "x", "value": value}
    as_json, as_bson = needed(document)
    assert as_bson <= MAX_GROWTH * as_json
    assert oversize(document, as_bson - 1) >= as_bson
    assert oversize(document, 2 * as_bson) == 0
