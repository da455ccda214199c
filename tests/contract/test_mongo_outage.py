"""MongoDB away, hanging, slow to come, or in passing trouble; and what a failing batch leaves behind."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import ClientBulkWriteException, InvalidOperation, OperationFailure, PyMongoError

from awe_server.store.base import Delete, DeleteWhere, Operation, Put, Query
from awe_server.store.mongo import TRIES, MongoStore
from shared_models.errors import BadRequest, StoreUnavailable
from tests.support.mongo import MongoServer, mock_client

pytestmark = pytest.mark.anyio

QUICK = "?serverSelectionTimeoutMS=300&connectTimeoutMS=300&socketTimeoutMS=1000"
JOB_WITH_TASK: list[Operation] = [Put("tasks", {"id": "t"}), Put("jobs", {"id": "j"})]


@pytest.fixture(scope="module")
def unsteady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoServer]:
    """A server that the tests of this module may stop."""
    server = MongoServer(tmp_path_factory.mktemp("unsteady"))
    server.start()
    yield server
    server.close()


async def test_D_07_a_server_that_went_away_and_came_back(unsteady: MongoServer) -> None:
    store = MongoStore(unsteady.url() + QUICK)
    await store.open()
    await store.commit([Put("jobs", {"id": "before"})])
    unsteady.stop()
    for call in (store.commit([Put("jobs", {"id": "x"})]), store.get("jobs", "before"), store.check()):
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"mongodb://127\.0\.0\.1:\d+/test_"):
            await call
        assert time.monotonic() - started < 5.0
    unsteady.start()
    await store.commit([Put("jobs", {"id": "after"})])
    assert [job["id"] for job in (await store.find("jobs", Query())).documents] == ["after", "before"]
    await store.close()


async def test_a_server_that_hangs_is_unavailable(unsteady: MongoServer) -> None:
    store = MongoStore(unsteady.url() + QUICK)
    await store.open()
    unsteady.pause()
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.commit(JOB_WITH_TASK)
    assert time.monotonic() - started < 15.0
    unsteady.go_on()
    await store.commit(JOB_WITH_TASK)
    assert await store.get("jobs", "j") == {"id": "j"}
    await store.close()


async def test_D_02_a_start_waits_for_the_server(unsteady: MongoServer) -> None:
    url = unsteady.url() + QUICK
    first = MongoStore(url)
    await first.open()
    await first.commit([Put("jobs", {"id": f"j{n}"}) for n in range(20)])
    await first.close()
    unsteady.stop()
    second = MongoStore(url)
    starting = asyncio.create_task(second.open())
    await asyncio.sleep(0.5)
    assert not starting.done()
    await asyncio.to_thread(unsteady.start)
    await asyncio.wait_for(starting, 20.0)
    assert (await second.find("jobs", Query())).total == 20
    await second.close()


async def test_a_start_gives_up_with_a_message_without_secrets(unsteady: MongoServer) -> None:
    unsteady.stop()
    url = unsteady.url("awe").replace("://", "://ann:s3cret@") + QUICK
    store = MongoStore(url, open_wait_s=0.0)
    with pytest.raises(StoreUnavailable, match=r"/awe: cannot open") as refusal:
        await store.open()
    assert "s3cret" not in store.name + refusal.value.message
    await store.close()
    unsteady.start()


async def test_an_unusable_url_is_refused_without_secrets() -> None:
    for url in ("mongodb://u:p@ss:w/x:y@host/db", "mongodb://host:99999999/db?appName=p@ss"):
        with pytest.raises(BadRequest) as refusal:
            await MongoStore(url).open()
        assert "p@ss" not in refusal.value.message


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    """A database that wants a login."""
    server = MongoServer(tmp_path, "--auth")
    server.start()
    yield server.url()
    server.close()


async def test_a_start_that_is_not_allowed_in_says_so_at_once(guarded: str) -> None:
    for url in (guarded, guarded.replace("://", "://ann:wrong@") + "?authSource=admin"):
        with pytest.raises(StoreUnavailable, match=r"[Aa]uthenticat") as refusal:
            await asyncio.wait_for(MongoStore(url).open(), 20.0)
        assert "wrong" not in refusal.value.message


class Trouble:
    """Makes writes of one store fail half way."""

    def __init__(self, store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: list[PyMongoError] = []
        self._name = "_write_at_once" if store._writes_at_once else "_write"
        self._write = getattr(store, self._name)
        monkeypatch.setattr(store, self._name, self)

    async def __call__(self, *args: Any) -> Any:
        if not self.errors:
            return await self._write(*args)
        at = 1 if self._name == "_write_at_once" else 0
        await self._write(*args[:at], args[at][:1], *args[at + 1 :])
        raise self.errors.pop(0)


def passing_trouble() -> PyMongoError:
    return OperationFailure(
        "WriteConflict", 112, {"ok": 0, "code": 112, "errorLabels": ["TransientTransactionError"]}
    )


@pytest.fixture(params=["all at once, as MongoDB 8", "one collection after the other"])
async def store(mongo_url: str, request: pytest.FixtureRequest) -> AsyncIterator[MongoStore]:
    store = MongoStore(mongo_url)
    await store.open()
    assert store._writes_at_once
    store._writes_at_once = request.param.startswith("all at once")
    yield store
    await store.close()


async def test_a_failing_transaction_leaves_nothing(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = Trouble(store, monkeypatch)
    trouble.errors = [OperationFailure("no", 1)]
    with pytest.raises(StoreUnavailable):
        await store.commit(JOB_WITH_TASK)
    assert await store.get("tasks", "t") is None
    await store.commit(JOB_WITH_TASK)
    assert await store.get("tasks", "t") == {"id": "t"}


async def test_passing_trouble_is_tried_again(store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = Trouble(store, monkeypatch)
    trouble.errors = [passing_trouble() for _ in range(TRIES - 1)]
    await store.commit(JOB_WITH_TASK)
    assert await store.get("jobs", "j") == {"id": "j"}
    trouble.errors = [passing_trouble() for _ in range(TRIES)]
    with pytest.raises(StoreUnavailable, match="WriteConflict"):
        await store.commit([Put("jobs", {"id": "k"})])
    assert await store.get("jobs", "k") is None


REFUSALS = [
    OperationFailure("BulkWrite may not be run without featureFlagBulkWriteCommand enabled", 115),
    OperationFailure("no such command: 'bulkWrite'", 59),
    InvalidOperation("MongoClient.bulk_write requires MongoDB server version 8.0+."),
    ClientBulkWriteException({"error": OperationFailure("not supported", 115)}, verbose=False),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=["compatibility 7.0", "unknown", "fail-over", "wrapped"])
async def test_a_server_that_takes_one_collection_at_a_time_after_all_is_written_so(
    mongo_url: str, monkeypatch: pytest.MonkeyPatch, refusal: PyMongoError
) -> None:
    store, asked = MongoStore(mongo_url), list[int]()
    await store.open()
    assert store._writes_at_once

    async def bulk_write(writes: list[Any], **_: Any) -> None:
        asked.append(len(writes))
        raise refusal

    monkeypatch.setattr(store._client, "bulk_write", bulk_write, raising=False)
    for number in range(2):
        await store.commit([Put("tasks", {"id": f"t{number}"}), Put("jobs", {"id": f"j{number}"})])
    await store.commit([Put("jobs", {"id": f"many{number}"}) for number in range(300)])
    assert asked == [3], "it is asked once"
    assert await store.get("tasks", "t0") == {"id": "t0"}
    assert await store.get("jobs", "j1") == {"id": "j1"}
    assert (await store.find("jobs", Query())).total == 302
    await store.close()


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A database on a server that is no replica set."""
    server = MongoServer(tmp_path, "--standalone")
    server.start()
    yield server.url()
    server.close()


async def test_without_transactions_a_torn_batch_is_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    with mock_client() as client:
        store = MongoStore("mongodb://mock/test", connect=client)
        await store.open()
        trouble = Trouble(store, monkeypatch)
        trouble.errors = [OperationFailure("no", 1)]
        with pytest.raises(StoreUnavailable):
            await store.commit(JOB_WITH_TASK)
        assert await store.get("tasks", "t") == {"id": "t"}
        assert await store.get("jobs", "j") is None
        await store.commit(JOB_WITH_TASK)
        assert await store.get("jobs", "j") == {"id": "j"}
        await store.close()


async def test_a_standalone_server_is_written_in_order(
    standalone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MongoStore(standalone)
    await store.open()
    await store.commit([*JOB_WITH_TASK, DeleteWhere("tasks", "jobid", "none"), Delete("jobs", "none")])
    assert await store.get("jobs", "j") == {"id": "j"}
    trouble = Trouble(store, monkeypatch)
    trouble.errors = [OperationFailure("no", 1)]
    with pytest.raises(StoreUnavailable):
        await store.commit([Put("tasks", {"id": "t2"}), Put("jobs", {"id": "j2"})])
    assert await store.get("tasks", "t2") == {"id": "t2"}
    assert await store.get("jobs", "j2") is None
    await store.close()


async def test_the_background_renewal_outlives_an_outage(unsteady: MongoServer) -> None:
    store = MongoStore(unsteady.url(Path(__file__).stem) + QUICK, lease_s=0.5)
    await store.open()
    unsteady.stop()
    await asyncio.sleep(1.0)
    unsteady.start()
    await store.commit([Put("jobs", {"id": "j"})])
    await store.close()
