"""The MongoDB store keeps the contract: on a mock, a server of the wire protocol, and a real one if given."""

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

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
