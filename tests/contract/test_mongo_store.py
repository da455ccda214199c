"""The MongoDB store keeps the contract: on a mock, a server of the wire protocol, and a real one if given."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import MongoClient, monitoring

from awe_server.store import mongo
from awe_server.store.base import Delete, DeleteWhere, Put
from awe_server.store.mongo import MongoStore
from tests.contract.store_suite import Backend, StoreSuite
from tests.support.mongo import mock_client, real_mongo_url


class TestMockStore(StoreSuite):
    @pytest.fixture
    def backend(self) -> Iterator[Backend]:
        with mock_client() as client:
            yield Backend(
                lambda: MongoStore("mongodb://mock/test", connect=client),
                is_atomic=False,
                many=400,
                tells_true_from_1=False,
            )


class TestWireStore(StoreSuite):
    @pytest.fixture
    def backend(self, mongo_url: str) -> Backend:
        return Backend(lambda: MongoStore(mongo_url))


class TestOlderWireStore(StoreSuite):
    """A server that takes writes to one collection in a request, as before MongoDB 8."""

    @pytest.fixture
    def backend(self, mongo_url: str, monkeypatch: pytest.MonkeyPatch) -> Backend:
        monkeypatch.setattr(mongo, "_ALL_AT_ONCE", 1_000)
        return Backend(lambda: MongoStore(mongo_url))


class Commands(monitoring.CommandListener):
    """Names of the commands that were sent."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.names.append(event.command_name)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: monitoring.CommandFailedEvent) -> None: ...


@pytest.mark.anyio
@pytest.mark.parametrize("size", [1, 300])
async def test_a_batch_takes_two_round_trips_whatever_its_size(mongo_url: str, size: int) -> None:
    commands = Commands()
    store = MongoStore(mongo_url, connect=partial(AsyncIOMotorClient, event_listeners=[commands]))
    await store.open()
    commands.names.clear()
    try:
        await store.commit(
            [Delete("tasks", "gone")]
            + [Put("workunits", {"id": f"w{number}"}) for number in range(size)]
            + [
                DeleteWhere("workunits", "taskid", "gone"),
                Put("tasks", {"id": "t"}),
                Put("jobs", {"id": "j"}),
            ]
        )
    finally:
        await store.close()
    assert commands.names[:2] == ["bulkWrite", "commitTransaction"]
    assert set(commands.names[2:]) <= {"hello", "update", "commitTransaction", "endSessions"}


if real_mongo_url():

    class TestRealStore(StoreSuite):
        @pytest.fixture
        def backend(self) -> Iterator[Backend]:
            url = real_mongo_url()
            yield Backend(lambda: MongoStore(url))
            with MongoClient[dict[str, Any]](url) as client:
                client.drop_database(client.get_default_database().name)

else:

    @pytest.mark.skip(reason="AWE_TEST_MONGODB_URL is not set")
    def test_the_contract_on_a_real_server() -> None:
        """Stands for the whole suite."""
