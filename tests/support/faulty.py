"""A store whose commits can be held back, made to fail, and watched."""

import asyncio
from collections.abc import Sequence

from awe_server.store.base import Operation
from awe_server.store.memory import MemoryStore


class FaultyStore(MemoryStore):
    """A memory store with a gate before each commit and a list of errors to raise next."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[Exception] = []
        self.attempts = 0
        self.committed: list[list[Operation]] = []

    async def commit(self, batch: Sequence[Operation]) -> None:
        self.attempts += 1
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        await super().commit(batch)
        self.committed.append(list(batch))
