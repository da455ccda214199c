"""What happened lately, in order: a bounded ring that readers follow."""

from collections.abc import AsyncIterator
from typing import Any

Event = dict[str, Any]


class EventLog:
    """The last events, each `{seq, time, code, ...}`; seq grows by one and is newer after a restart."""

    def since(self, seq: int, *, job_id: str = "", limit: int = 1000) -> list[Event]:
        """Events newer than seq, oldest first."""
        raise NotImplementedError

    async def wait(self, seq: int, timeout_s: float) -> bool:
        """Wait until an event newer than seq exists; False when the time is over."""
        raise NotImplementedError

    def follow(self, seq: int, *, job_id: str = "") -> AsyncIterator[Event | None]:
        """Events newer than seq and then each new one; None now and then, as a sign of life."""
        raise NotImplementedError
