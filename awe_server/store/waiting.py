"""A start that waits says so in the log: what for, soon after it began, and again now and then."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator

log = logging.getLogger(__name__)

FIRST_S = 1.0  #: what takes less is no wait that anybody has to know of
AGAIN_S = 10.0


class Waiting:
    """What is being waited for at the moment."""

    def __init__(self, store: str, reason: str) -> None:
        self._store = store
        self.reason = reason

    @contextlib.asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """Tell of it for as long as the block runs."""
        telling = asyncio.create_task(self._tell())
        try:
            yield
        finally:
            telling.cancel()

    async def _tell(self) -> None:
        started = time.monotonic()
        await asyncio.sleep(FIRST_S)
        while True:
            waited_s = round(time.monotonic() - started)
            log.warning(
                "store_waits", extra={"store": self._store, "reason": self.reason, "waited_s": waited_s}
            )
            await asyncio.sleep(AGAIN_S)
