"""The memory store keeps the contract."""

import pytest

from awe_server.store.memory import MemoryStore
from tests.contract.store_suite import Backend, StoreSuite


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def backend(self) -> Backend:
        return Backend(MemoryStore, is_durable=False, is_exclusive=False)
