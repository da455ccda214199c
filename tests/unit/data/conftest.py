"""A node store on a fresh folder."""

from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import pytest

from awe_server.data.nodes import NodeStore
from tests.unit.data.port import MemoryPort

NewStore = Callable[..., NodeStore]


@pytest.fixture
async def port() -> MemoryPort:
    port = MemoryPort()
    await port.open()
    return port


@pytest.fixture
def new_store(tmp_path: Path, port: MemoryPort) -> NewStore:
    """Make node stores on the same folder and documents, as restarts do."""
    numbers = count(1)

    def make(
        root: Path = tmp_path / "data",
        floor: int = 0,
        wall: float = 1_700_000_000.0,
        quota: int = 0,
        dedup: bool = False,
    ) -> NodeStore:
        return NodeStore(root, port, lambda: f"node-{next(numbers)}", lambda: wall, floor, quota, dedup)

    return make


@pytest.fixture
async def nodes(new_store: NewStore, anyio_backend: str) -> AsyncIterator[NodeStore]:
    store = new_store()
    await store.start()
    yield store
    await store.stop()
