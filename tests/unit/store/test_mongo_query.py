"""What MongoDB is given can be read back, and it never sees a name it cannot keep."""

from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from awe_server.data.documents import new_document, problem_of, with_file
from awe_server.data.ports import FileFact
from awe_server.store.base import AnyOf, Match
from awe_server.store.mongo_query import conditions, escape, from_mongo, path, to_mongo

NAMES = st.text(alphabet="$.%_id2E\x00aé-", max_size=6)
DOCUMENTS: st.SearchStrategy[Any] = st.dictionaries(
    NAMES,
    st.recursive(st.integers(), lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=8),
).map(lambda document: {**document, "id": "d"})


@given(DOCUMENTS)
def test_a_document_survives(document: dict[str, Any]) -> None:
    assert from_mongo(to_mongo(document)) == document


def driven(document: dict[str, Any]) -> dict[str, Any]:
    """What the driver gives back for a document: numbers from 2³¹ on are of a type of their own."""
    return bson.decode(bson.encode(to_mongo(document)))


@pytest.mark.parametrize("size", [2**31 - 1, 2**31, 3 << 30, 2**62])
def test_a_large_number_comes_back_as_a_plain_one(size: int) -> None:
    document: dict[str, Any] = {
        "id": "n",
        "size": size,
        "nested": {"list": [size, {"deep": -size}], "flag": True},
    }
    found = from_mongo(driven(document))
    assert found == document
    inner = found["nested"]["list"]
    assert {type(number) for number in (found["size"], inner[0], inner[1]["deep"])} == {int}
    assert found["nested"]["flag"] is True


def test_a_node_with_a_file_of_3_gib_makes_sense() -> None:
    fact = FileFact(3 << 30, "0" * 32, "0" * 64)
    node = with_file(new_document("n", 0.0, name="reads"), 0.0, "n.0", fact)
    assert problem_of(from_mongo(driven(node))) == ""
    assert problem_of(bson.decode(bson.encode(node))) == "", "whoever reads it: it is a number"
    for odd in (True, 3.0, "3"):
        assert problem_of({**node, "file": {**node["file"], "size": odd}})


@given(NAMES)
def test_a_stored_name_is_harmless(name: str) -> None:
    stored = escape(name)
    assert stored not in ("", "_id")
    assert not stored.startswith("$")
    assert not set(".\x00") & set(stored)


def test_usual_names_stay_as_they_are() -> None:
    for name in ("state", "_token", "first_attempt", "Status", "a-b", "ключ", "md5"):
        assert escape(name) == name


def test_paths() -> None:
    assert path("id") == "_id"
    assert path("info.submittime") == "info.submittime"
    assert path("userattr.$x") == "userattr.%24x"


def test_a_field_that_begins_the_id_uses_the_primary_key() -> None:
    near = {"$or": [{"_id": {"$gte": "j_", "$lt": "j`"}}]}
    exact = {"jobid": {"$in": ["j"]}}
    assert conditions("workunits", [Match("jobid", ("j",))]) == {"$and": [{"$and": [near, exact]}]}
    assert conditions("tasks", [Match("jobid", ("j",))]) == {"$and": [exact]}


def test_nothing_matches_an_empty_choice() -> None:
    assert conditions("jobs", [AnyOf(())]) == {"$and": [{"_id": {"$in": []}}]}
    assert conditions("jobs", []) == {}
