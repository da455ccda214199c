"""The memory store keeps the contract."""

import asyncio

import pytest

from awe_server.store.memory import MemoryStore
from tests.contract.store_suite import Backend, StoreSuite


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def backend(self) -> Backend:
        return Backend(MemoryStore, is_durable=False, is_quick=False, is_exclusive=False)


@pytest.mark.anyio
async def test_others_go_on_while_a_batch_is_written() -> None:
    store, ran = MemoryStore(), list[str]()
    await store.open()
    asyncio.get_running_loop().call_soon(ran.append, "other")
    await store.commit([])
    assert ran == ["other"]
