"""What every store does. Each backend's test module runs this class; a change of meaning begins here."""

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from awe_server.store.base import (
    FORMAT_VERSION,
    INLINE_STEPS,
    AnyOf,
    Collection,
    Delete,
    DeleteWhere,
    Document,
    Match,
    Operation,
    Put,
    Query,
    Store,
)
from awe_server.store.errors import StoreLocked, StoreVersion
from shared_models.errors import BadRequest, InvalidDocument, StoreUnavailable
from shared_models.limits import MAX_STORED_BYTES


@dataclass
class Backend:
    """How to get at one place of storage, and what it can do."""

    make: Callable[[], Store]  #: each call: another store on the same place
    is_durable: bool = True  #: another store sees the documents
    is_exclusive: bool = True  #: only one store at a time
    is_atomic: bool = True  #: a failing batch leaves nothing behind
    many: int = 10_000  #: how many documents a test of many takes
    tells_true_from_1: bool = True
    is_quick: bool = True  #: large batches are made ready beside the event loop


@contextlib.asynccontextmanager
async def opened(backend: Backend) -> AsyncIterator[Store]:
    """An open store."""
    store = backend.make()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def puts(collection: Collection, documents: Iterable[Document]) -> list[Operation]:
    return [Put(collection, document) for document in documents]


async def ids(store: Store, collection: Collection, *where: Match | AnyOf, **query: Any) -> list[str]:
    page = await store.find(collection, Query(where=where, **query))
    return [document["id"] for document in page.documents]


async def scanned(store: Store, collection: Collection, *where: Match) -> list[Document]:
    return [document async for document in store.scan(collection, where)]


FRUIT: list[Document] = [
    {"id": "a", "state": "ripe", "size": 3, "tags": ["red", "sweet"], "info": {"user": "ann", "n": 1.5}},
    {"id": "b", "state": "green", "size": 10, "tags": ["sour"], "info": {"user": "bob"}, "is_eaten": True},
    {"id": "c", "state": "ripe", "size": 2, "tags": [], "info": {"user": "ann"}, "is_eaten": False},
    {"id": "d", "state": "old", "size": None, "tags": "red", "info": None, "is_eaten": 1},
    {"id": "e", "size": "big", "tags": [1, 2.5, True], "info": {"user": {"name": "eve"}}},
]

IS_1_OR_TRUE = (Match("is_eaten", (True,)), Match("is_eaten", (1,)))

HARD: dict[str, Any] = {
    "text": "naïve 日本語 \U0001f9ec \x00 \" ' \\ \u2028 </script>",
    "": {"": "empty names"},
    "numbers": [0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 1.5, 1e300, 0.1],
    "nothing": [None, [], {}, "", False, True, {"x": None}],
    "userattr": {"a.b": 1, "$x": 2, "$": 3, ".": 4, "%2E": 5, "a$b": 6, "ключ": 7, "_id": 8, "id": 9},
    "deep": [[[[{"a": [{"b.c": [{"$d": None}]}]}]]]],
}


@pytest.mark.anyio
class StoreSuite:
    """Subclasses give the fixture `backend`."""

    @pytest.fixture
    def backend(self) -> Backend:
        raise NotImplementedError

    async def test_a_document_comes_back_as_it_was_put(self, backend: Backend) -> None:
        async with opened(backend) as store:
            await store.commit([Put("tasks", {"id": "t", **HARD}), Put("tasks", {**HARD, "id": "u"})])
            assert await store.get("tasks", "t") == {"id": "t", **HARD}
            assert await store.get_many("tasks", ["u"]) == {"u": {"id": "u", **HARD}}
            assert (await store.find("tasks", Query())).documents[0] == {"id": "t", **HARD}
            assert (await scanned(store, "tasks"))[1] == {"id": "u", **HARD}

    async def test_a_large_batch_is_made_ready_beside_the_event_loop(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not backend.is_quick:
            pytest.skip("for tests and small data")
        threads: set[int] = set()
        async with opened(backend) as store:
            module = sys.modules[type(store).__module__]
            encode = module.encode

            def noted(document: Document) -> bytes:
                threads.add(threading.get_ident())
                text: bytes = encode(document)
                return text

            monkeypatch.setattr(module, "encode", noted)
            await store.commit(puts("tasks", ({"id": str(i)} for i in range(INLINE_STEPS + 1))))
        assert threads
        assert threading.get_ident() not in threads

    async def test_numbers_and_booleans_keep_their_type(self, backend: Backend) -> None:
        async with opened(backend) as store:
            await store.commit([Put("tasks", {"id": "t", "values": [1, 1.0, True, 0, 0.0, False]})])
            document = await store.get("tasks", "t")
            assert document is not None
            assert [type(value) for value in document["values"]] == [int, float, bool, int, float, bool]

    async def test_large_numbers_are_plain_numbers_again(self, backend: Backend) -> None:
        async with opened(backend) as store:
            node = {"id": "n", "file": {"size": 3 << 30}, "sizes": [2**31, {"x": 2**53}]}
            await store.commit([Put("nodes", node)])
            found = await store.get("nodes", "n")
            assert found is not None
            assert found == node
            sizes = (found["file"]["size"], found["sizes"][0], found["sizes"][1]["x"])
            assert [type(size) for size in sizes] == [int, int, int]

    async def test_a_missing_document_is_none(self, backend: Backend) -> None:
        async with opened(backend) as store:
            assert await store.get("jobs", "nothing") is None
            assert await store.get_many("jobs", ["nothing"]) == {}
            assert await store.get_many("jobs", []) == {}

    async def test_a_put_replaces_the_whole_document(self, backend: Backend) -> None:
        async with opened(backend) as store:
            await store.commit([Put("jobs", {"id": "j", "state": "queued", "notes": "old"})])
            await store.commit([Put("jobs", {"id": "j", "state": "completed"})])
            assert await store.get("jobs", "j") == {"id": "j", "state": "completed"}
            assert (await store.find("jobs", Query())).total == 1

    async def test_collections_are_separate(self, backend: Backend) -> None:
        async with opened(backend) as store:
            await store.commit(
                [Put("jobs", {"id": "x", "is": "job"}), Put("tasks", {"id": "x", "is": "task"})]
            )
            await store.commit([Delete("jobs", "x")])
            assert await store.get("jobs", "x") is None
            assert await store.get("tasks", "x") == {"id": "x", "is": "task"}

    async def test_nobody_shares_a_document_with_the_store(self, backend: Backend) -> None:
        async with opened(backend) as store:
            document: Document = {"id": "j", "info": {"name": "first"}}
            writing = asyncio.ensure_future(store.commit([Put("jobs", document)]))
            await asyncio.sleep(0)
            document["info"]["name"] = "changed while it is written"
            await writing
            read = await store.get("jobs", "j")
            assert read == {"id": "j", "info": {"name": "first"}}
            read["info"]["name"] = "changed by a reader"
            assert await store.get("jobs", "j") == {"id": "j", "info": {"name": "first"}}

    async def test_a_batch_is_applied_in_order(self, backend: Backend) -> None:
        async with opened(backend) as store:
            await store.commit(
                [
                    Put("jobs", {"id": "a", "n": 1}),
                    Delete("jobs", "a"),
                    Put("jobs", {"id": "a", "n": 2}),
                    Put("workunits", {"id": "w1", "taskid": "t", "state": "queued"}),
                    DeleteWhere("workunits", "taskid", "t"),
                    Put("workunits", {"id": "w2", "taskid": "t", "state": "queued"}),
                    Put("jobs", {"id": "b"}),
                    Delete("jobs", "b"),
                    Delete("jobs", "never there"),
                ]
            )
            assert await scanned(store, "jobs") == [{"id": "a", "n": 2}]
            assert await ids(store, "workunits") == ["w2"]

    async def test_an_empty_batch_is_fine(self, backend: Backend) -> None:
        async with opened(backend) as store:
            await store.commit([])

    async def test_delete_where_removes_exactly_the_matching(self, backend: Backend) -> None:
        async with opened(backend) as store:
            units = [
                {"id": f"{job}_{task}_{rank}", "jobid": job, "taskid": f"{job}_{task}", "state": "queued"}
                for job in ("j1", "j10", "J1")
                for task in ("a", "a_b")
                for rank in (1, 2)
            ]
            await store.commit(puts("workunits", units))
            await store.commit([DeleteWhere("workunits", "taskid", "j1_a")])
            assert len(await ids(store, "workunits")) == 10
            await store.commit([DeleteWhere("workunits", "jobid", "j1")])
            left = await store.distinct("workunits", "jobid")
            assert left == ["J1", "j10"]
            assert len(await ids(store, "workunits")) == 8
            await store.commit([DeleteWhere("workunits", "jobid", "j")])
            assert len(await ids(store, "workunits")) == 8

    @pytest.mark.parametrize(
        "document",
        [
            {"name": "no id"},
            {"id": ""},
            {"id": 7},
            {"id": "x", "n": 2**64},
            {"id": "x", "n": [{"m": 2**63}]},
            {"id": "x", "t": "\ud800"},
            {"id": "x", "t": {1: "number as name"}},
            {"id": "x", "t": object()},
            {"id": "x", "t": "x" * MAX_STORED_BYTES},
            {"id": "x", "t": [0] * (MAX_STORED_BYTES // 4)},
        ],
        ids=[
            "no id",
            "empty id",
            "number as id",
            "2**64",
            "2**63",
            "half a character",
            "name",
            "object",
            "too large",
            "as BSON",
        ],
    )
    async def test_what_cannot_be_kept_is_refused_with_the_whole_batch(
        self, backend: Backend, document: Document
    ) -> None:
        async with opened(backend) as store:
            with pytest.raises(InvalidDocument):
                await store.commit([Put("jobs", {"id": "good"}), Put("jobs", document)])
            assert await store.get("jobs", "good") is None
            await store.commit([Put("jobs", {"id": "next"})])
            assert await ids(store, "jobs") == ["next"]

    async def test_a_document_near_the_limit_is_kept(self, backend: Backend) -> None:
        async with opened(backend) as store:
            document = {"id": "big", "text": "é" * (MAX_STORED_BYTES // 2 - 50), "list": [1, 2]}
            await store.commit([Put("tasks", document)])
            assert await store.get("tasks", "big") == document

    async def test_get_many_of_5000(self, backend: Backend) -> None:
        async with opened(backend) as store:
            many = backend.many // 2
            await store.commit(puts("workunits", ({"id": f"w{n}", "rank": n} for n in range(many))))
            found = await store.get_many("workunits", ["no", *(f"w{n}" for n in range(many)), "w1"])
            assert len(found) == many
            assert found["w99"] == {"id": "w99", "rank": 99}

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            ([Match("state", ("ripe",))], "ac"),
            ([Match("state", ("ripe", "old"))], "acd"),
            ([Match("state", ())], ""),
            ([Match("id", ("a", "e", "z"))], "ae"),
            ([Match("id", ("b",), "ge")], "bcde"),
            ([Match("id", ("b",), "lt")], "a"),
            ([Match("info.user", ("ann",))], "ac"),
            ([Match("info.user.name", ("eve",))], "e"),
            ([Match("info.n", (1.5,))], "a"),
            ([Match("size", (3,))], "a"),
            ([Match("size", (3.0, 10))], "ab"),
            ([Match("size", ("3",))], ""),
            ([Match("size", (3, "big"))], "ae"),
            ([Match("size", (3,), "ge")], "ab"),
            ([Match("size", (10,), "lt")], "ac"),
            ([Match("size", ("a",), "ge")], "e"),
            ([Match("size", (2**70,), "lt")], "abc"),
            ([Match("size", (2**70,))], ""),
            ([Match("tags", ("red",))], "ad"),
            ([Match("tags", ("sour", "sweet"))], "ab"),
            ([Match("tags", (2.5,))], "e"),
            ([Match("is_eaten", (True,))], "b"),
            ([Match("is_eaten", (False,))], "c"),
            ([Match("is_eaten", (1,))], "d"),
            ([Match("tags", (True,))], "e"),
            ([Match("info", ("ann",))], ""),
            ([Match("nowhere.at.all", ("x",))], ""),
            ([Match("nowhere", ("x",), "lt")], ""),
            ([Match("state", ("ripe",)), Match("size", (3,), "lt")], "c"),
            ([AnyOf((Match("state", ("green",)), Match("size", (2,))))], "bc"),
            ([AnyOf(())], ""),
            ([AnyOf((Match("state", ("ripe",)),)), Match("info.user", ("ann",))], "ac"),
            ([Match("state", ("' OR 1=1 --",))], ""),
            ([Match("$where", ("1",))], ""),
        ],
    )
    async def test_find_with_every_operator(
        self, backend: Backend, where: list[Match | AnyOf], expected: str
    ) -> None:
        if where[0] in IS_1_OR_TRUE and not backend.tells_true_from_1:
            pytest.skip("this store takes True for 1")
        async with opened(backend) as store:
            for collection in ("jobs", "clients"):  # with and without indexes
                await store.commit(puts(collection, FRUIT))
                page = await store.find(collection, Query(where=tuple(where)))
                assert "".join(document["id"] for document in page.documents) == expected
                assert page.total == len(expected)
                if all(isinstance(condition, Match) for condition in where):
                    found = await scanned(store, collection, *where)  # type: ignore[arg-type]
                    assert "".join(document["id"] for document in found) == expected

    async def test_texts_compare_by_code_point(self, backend: Backend) -> None:
        async with opened(backend) as store:
            names = ["Z", "a", "é", "z", "日", "\uffff", "\U0001f9ec"]
            await store.commit(puts("users", ({"id": str(n), "name": name} for n, name in enumerate(names))))
            found = await store.find("users", Query(order="name"))
            assert [document["name"] for document in found.documents] == sorted(names)
            assert await ids(store, "users", Match("name", ("\uffff",), "ge"), order="name") == ["5", "6"]

    async def test_order_puts_missing_then_numbers_then_texts(self, backend: Backend) -> None:
        async with opened(backend) as store:
            await store.commit(puts("jobs", FRUIT))
            assert await ids(store, "jobs", order="size") == ["d", "c", "a", "b", "e"]
            assert await ids(store, "jobs", order="size", descending=True) == ["e", "b", "a", "c", "d"]
            assert await ids(store, "jobs", order="state") == ["e", "b", "d", "a", "c"]
            assert await ids(store, "jobs", order="info.n", descending=True) == ["a", "e", "d", "c", "b"]
            assert await ids(store, "jobs", descending=True, limit=2) == ["e", "d"]

    @pytest.mark.parametrize("order", ["id", "info.submittime", "state", "info.name", "nowhere"])
    @pytest.mark.parametrize("descending", [False, True])
    async def test_X_02_pages_of_equal_keys_show_each_document_once(
        self, backend: Backend, order: str, descending: bool
    ) -> None:
        async with opened(backend) as store:
            info = {"submittime": "2026-01-31T12:00:00.000000Z", "name": "same"}
            jobs: list[Document] = [
                {"id": f"j{n * 7919 % 300:03}", "state": "queued", "info": info} for n in range(300)
            ]
            await store.commit(puts("jobs", jobs))
            seen: list[str] = []
            while some := await ids(
                store, "jobs", order=order, descending=descending, limit=7, offset=len(seen)
            ):
                seen += some
            assert seen == sorted((job["id"] for job in jobs), reverse=descending)

    async def test_X_04_totals_count_what_the_filter_leaves(self, backend: Backend) -> None:
        async with opened(backend) as store:
            users, states = ["ann", "bob", "cat"], ["queued", "suspend", "completed"]
            jobs: list[Document] = [
                {
                    "id": f"{n:02}",
                    "state": states[n % 3],
                    "info": {"user": users[n // 3 % 3], "project": f"p{n % 5}"},
                }
                for n in range(90)
            ]
            await store.commit(puts("jobs", jobs))
            where = (
                AnyOf((Match("info.user", ("ann",)), Match("info.project", ("p1",)))),
                Match("state", ("queued", "suspend")),
            )
            expected = [
                job["id"]
                for job in jobs
                if (job["info"]["user"] == "ann" or job["info"]["project"] == "p1")
                and job["state"] != "completed"
            ]
            found: list[str] = []
            for offset in range(0, 100, 10):
                page = await store.find("jobs", Query(where, limit=10, offset=offset))
                assert page.total == len(expected)
                found += [document["id"] for document in page.documents]
            assert found == expected

    async def test_scan_streams_10000_in_id_order(self, backend: Backend) -> None:
        async with opened(backend) as store:
            units = [
                {"id": f"w{n:05}", "taskid": f"t{n % 2}", "state": "completed", "rank": n}
                for n in range(backend.many)
            ]
            await store.commit(puts("workunits", reversed(units)))
            assert await scanned(store, "workunits") == units
            assert await scanned(store, "workunits", Match("taskid", ("t1",))) == units[1::2]
            stopped_early = store.scan("workunits")
            assert [await anext(stopped_early), await anext(stopped_early)] == units[:2]
            await stopped_early.aclose()  # type: ignore[attr-defined]
            await store.commit([Put("workunits", units[0])])

    async def test_writing_while_scanning_does_not_wait(self, backend: Backend) -> None:
        async with opened(backend) as store:
            many = backend.many // 4
            await store.commit(puts("jobs", ({"id": f"{n:05}"} for n in range(many))))
            seen = 0
            async for document in store.scan("jobs"):
                if seen % 500 == 0:
                    await asyncio.wait_for(store.commit([Put("jobs", {**document, "seen": True})]), 5.0)
                seen += 1
            assert seen == many

    async def test_count_by(self, backend: Backend) -> None:
        async with opened(backend) as store:
            for collection in ("jobs", "clients"):
                await store.commit(puts(collection, FRUIT))
                assert await store.count_by(collection, "state") == {"ripe": 2, "green": 1, "old": 1, "": 1}
                assert await store.count_by(collection, "state", [Match("info.user", ("ann",))]) == {
                    "ripe": 2
                }
                eaten = [Match("id", ("d",), "lt")]
                assert await store.count_by(collection, "is_eaten", eaten) == {"true": 1, "false": 1, "": 1}
            assert await store.count_by("tasks", "state") == {}

    async def test_sum_by(self, backend: Backend) -> None:
        async with opened(backend) as store:
            for collection in ("jobs", "tasks"):
                spent = [("a", "x", 1.5), ("b", "x", 2), ("c", "y", 0), ("d", "z", None), ("e", None, 9)]
                documents = [{"id": id, "jobid": of, "time_s": time_s} for id, of, time_s in spent]
                await store.commit(puts(collection, [*documents, {"id": "f", "jobid": "x"}]))
                assert await store.sum_by(collection, "time_s", "jobid") == {"x": 3.5, "y": 0.0, "z": 0.0}
                some = [Match("jobid", ("x", "y"))]
                assert await store.sum_by(collection, "time_s", "jobid", some) == {"x": 3.5, "y": 0.0}
            assert await store.sum_by("workunits", "time_s", "jobid") == {}

    async def test_highest_number(self, backend: Backend) -> None:
        async with opened(backend) as store:
            assert await store.highest_number("jobs", "jid") == 0
            odd: list[Any] = [
                "",
                "x",
                "-7",
                "1e9",
                "1" * 19,
                "٩٩٩٩٩٩",
                7e9,
                None,
                True,
                ["123456789"],
                {"a": "1"},
            ]
            given = [{"id": f"odd-{n}", "jid": jid} for n, jid in enumerate(odd)]
            await store.commit(puts("jobs", [*given, {"id": "none"}]))
            assert await store.highest_number("jobs", "jid") == 0
            numbers = [{"id": jid, "jid": jid} for jid in ("99999", "10001", "100001", "100000")]
            await store.commit(puts("jobs", numbers))
            assert await store.highest_number("jobs", "jid") == 100_001

    async def test_distinct(self, backend: Backend) -> None:
        async with opened(backend) as store:
            for collection in ("jobs", "clients"):
                await store.commit(puts(collection, FRUIT))
                assert await store.distinct(collection, "state") == ["green", "old", "ripe"]
                assert await store.distinct(collection, "info.user") == ["ann", "bob"]
                assert await store.distinct(collection, "info.user", [Match("state", ("ripe",))]) == ["ann"]
                tags = [Match("id", ("a", "b", "d"))]
                assert await store.distinct(collection, "tags", tags) == ["red", "sour", "sweet"]
                assert await store.distinct(collection, "nowhere.at.all") == []

    async def test_a_name_that_looks_like_code_is_only_a_name(self, backend: Backend) -> None:
        field = "info.x') OR 1=1; DROP TABLE jobs; --"
        async with opened(backend) as store:
            await store.commit([Put("jobs", {"id": "j", "info": {field[5:]: "v", "$y": "w"}})])
            assert await ids(store, "jobs", Match(field, ("v",)), order=field) == ["j"]
            assert await ids(store, "jobs", Match("info.$y", ("w",))) == ["j"]
            assert await store.distinct("jobs", field) == ["v"]

    async def test_an_id_that_is_no_text_is_refused_or_not_found(self, backend: Backend) -> None:
        async with opened(backend) as store:
            with contextlib.suppress(BadRequest):
                assert await store.get("jobs", "\ud800") is None
            await store.commit([Put("jobs", {"id": "still works"})])

    async def test_check_finds_nothing(self, backend: Backend) -> None:
        async with opened(backend) as store:
            await store.commit(puts("jobs", FRUIT))
            assert await store.check() == []

    async def test_documents_outlive_the_store(self, backend: Backend) -> None:
        if not backend.is_durable:
            pytest.skip("this store forgets")
        async with opened(backend) as store:
            await store.commit(puts("jobs", FRUIT))
        async with opened(backend) as store:
            assert await scanned(store, "jobs") == FRUIT
            assert await store.get("meta", "format") == {"id": "format", "version": FORMAT_VERSION}

    async def test_closing_is_safe_at_any_time(self, backend: Backend) -> None:
        store = backend.make()
        await store.close()
        await store.open()
        await store.open()
        await store.commit([Put("jobs", {"id": "j"})])
        await store.close()
        await store.close()
        await store.open()
        assert await store.get("jobs", "j") == {"id": "j"}
        await store.close()

    async def test_a_store_that_is_not_open_is_unavailable(self, backend: Backend) -> None:
        store = backend.make()
        for call in (
            store.commit([Put("jobs", {"id": "j"})]),
            store.get("jobs", "j"),
            store.get_many("jobs", ["j"]),
            store.find("jobs", Query()),
            scanned(store, "jobs"),
            store.count_by("jobs", "state"),
            store.sum_by("jobs", "n", "state"),
            store.highest_number("jobs", "jid"),
            store.distinct("jobs", "state"),
            store.check(),
        ):
            with pytest.raises(StoreUnavailable):
                await call

    async def test_another_format_is_refused_and_left_alone(self, backend: Backend) -> None:
        if not backend.is_durable:
            pytest.skip("this store forgets")
        newer = {"id": "format", "version": 99}
        async with opened(backend) as store:
            await store.commit([Put("meta", newer), Put("jobs", {"id": "j"})])
        with pytest.raises(StoreVersion, match="99"):
            await backend.make().open()
        with pytest.raises(StoreVersion, match="99"):
            await backend.make().open()

    async def test_a_second_owner_is_refused_until_the_first_is_gone(self, backend: Backend) -> None:
        if not backend.is_exclusive:
            pytest.skip("nobody else can get at this store")
        second = backend.make()
        async with opened(backend) as first:
            with pytest.raises(StoreLocked, match="pid"):
                await second.open()
            await first.commit([Put("jobs", {"id": "j"})])
            with pytest.raises(StoreUnavailable):
                await second.get("jobs", "j")
        await second.open()
        assert await second.get("jobs", "j") == {"id": "j"}
        await second.close()
