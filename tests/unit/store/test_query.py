"""The plain meaning of a query, and that the translation to SQL agrees with it on anything."""

import sqlite3
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from awe_server.store.base import AnyOf, Collection, Document, Match, Query
from awe_server.store.query import distinct_values, group_name, kind, lookup, matches, select, sort_key
from awe_server.store.sqlite_query import json_path, order, row, schema, upsert, where
from shared_models.errors import BadRequest

NAMES = st.sampled_from(["state", "info", "x", "a'b", "$", "0", "é"])
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([0.5, 1.0, 2**53 + 1, 2**63 - 1, -(2**63)]),
    st.sampled_from(["", "a", "b", "B", "é", "1", "true", "\U0001f9ec", "\uffff"]),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(".".join)
WANTED = SCALARS.filter(lambda value: value is not None)
MATCHES = st.one_of(
    st.builds(Match, PATHS, st.lists(WANTED, max_size=3).map(tuple)),
    st.builds(
        lambda path, value, op: Match(path, (value,), op), PATHS, WANTED, st.sampled_from(["ge", "lt"])
    ),
)
CONDITIONS = st.lists(MATCHES | st.builds(AnyOf, st.lists(MATCHES, max_size=3).map(tuple)), max_size=3)


def single(value: Any) -> Any:
    """What an indexed field may hold."""
    return None if isinstance(value, list | dict | bool) else value


@st.composite
def collections_of_documents(draw: st.DrawFn) -> tuple[Collection, list[Document]]:
    collection: Collection = draw(st.sampled_from(["jobs", "clients"]))
    drawn = draw(st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=5))
    documents = [{**document, "id": f"d{number}"} for number, document in enumerate(drawn)]
    if collection == "jobs":
        documents = [{**document, "state": single(document.get("state"))} for document in documents]
    return collection, documents


@settings(max_examples=400, deadline=None)
@given(collections_of_documents(), CONDITIONS, PATHS.filter(lambda path: path != "info"), st.booleans())
def test_sql_finds_what_plain_evaluation_finds(
    given_documents: tuple[Collection, list[Document]],
    conditions: list[Match | AnyOf],
    path: str,
    descending: bool,
) -> None:
    collection, documents = given_documents
    db = sqlite3.connect(":memory:")
    for statement in schema(collection):
        db.execute(statement)
    db.executemany(
        upsert(collection), [row(collection, document, orjson.dumps(document)) for document in documents]
    )
    text, values = where(collection, conditions)
    found = {id for (id,) in db.execute(f"SELECT id FROM {collection} WHERE {text}", values)}
    assert found == {document["id"] for document in documents if matches(document, conditions)}

    simple = [
        document
        for document in documents
        if kind(lookup(document, path)) != "other" or lookup(document, path) is None
    ]
    query = Query(order=path, descending=descending)
    text, values = order(collection, query)
    rows = db.execute(f"SELECT id FROM {collection} ORDER BY {text}", values)
    kept = {document["id"] for document in simple}
    expected = [document["id"] for document in select(simple, query).documents]
    assert [id for (id,) in rows if id in kept] == expected
    db.close()


def plan(collection: Collection, *conditions: Match | AnyOf) -> str:
    db = sqlite3.connect(":memory:")
    for statement in schema(collection):
        db.execute(statement)
    text, values = where(collection, conditions)
    rows = db.execute(f"EXPLAIN QUERY PLAN SELECT doc FROM {collection} WHERE {text}", values).fetchall()
    db.close()
    return "; ".join(row[3] for row in rows)


@pytest.mark.parametrize(
    ("collection", "condition", "index"),
    [
        ("workunits", Match("taskid", ("t",)), "workunits(taskid,state)"),
        ("workunits", Match("jobid", ("j",)), "sqlite_autoindex_workunits_1"),
        ("workunits", Match("id", ("a", "b")), "sqlite_autoindex_workunits_1"),
        ("tasks", Match("jobid", ("j", "k")), "tasks(jobid)"),
        ("jobs", Match("state", ("queued", "init")), "jobs(state)"),
        ("jobs", Match("_idempotency", ("key",)), "jobs(_idempotency)"),
        ("jobs", Match("info.submittime", ("2026",), "ge"), "jobs(info.submittime)"),
    ],
)
def test_indexes_are_used(collection: Collection, condition: Match, index: str) -> None:
    assert index in plan(collection, condition)


@pytest.mark.parametrize("field", ["jobid", "taskid", "id", "client"])
def test_a_condition_may_have_very_many_values(field: str) -> None:
    values = tuple(f"v{number}" for number in range(50_000))
    assert plan("workunits", Match(field, values), AnyOf((Match(field, values), Match("rank", (1,)))))
    document = {"id": "v49999", field: "v49999"}
    db = sqlite3.connect(":memory:")
    for statement in schema("workunits"):
        db.execute(statement)
    db.execute(upsert("workunits"), row("workunits", document, orjson.dumps(document)))
    text, parameters = where("workunits", [Match(field, values)])
    assert db.execute(f"SELECT id FROM workunits WHERE {text}", parameters).fetchall() == [("v49999",)]
    db.close()


def test_a_path_goes_through_objects_only() -> None:
    document = {"id": "d", "a": {"b": 1}, "l": [{"b": 2}]}
    assert lookup(document, "a.b") == 1
    assert lookup(document, "l.b") is None
    assert lookup(document, "a.b.c") is None


@pytest.mark.parametrize("path", ['a"b', "a\\b", "a\nb"])
def test_a_path_that_sqlite_cannot_look_up_is_refused(path: str) -> None:
    with pytest.raises(BadRequest):
        json_path(path)


def test_every_value_has_a_place_in_an_order() -> None:
    values = [{"x": 1}, "b", "a", 2, True, None, 0.5]
    assert sorted(values, key=sort_key) == [None, 0.5, True, 2, "a", "b", {"x": 1}]


def test_distinct_values_keep_true_and_1_apart() -> None:
    assert distinct_values([1, True, [1, "a"], None, {"x": 1}, 1.0]) == [True, 1, "a"]


def test_groups_are_named() -> None:
    assert [group_name(value) for value in (None, True, False, 3, "x")] == ["", "true", "false", "3", "x"]
