"""What MongoDB is given can be read back, and it never sees a name it cannot keep."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

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
