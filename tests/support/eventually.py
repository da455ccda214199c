"""Wait for a condition instead of for a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

#: Long enough for a machine that is busy with the rest of the suite; nobody waits longer than it takes.
PATIENCE_S = 60.0


class NeverHappened(AssertionError):
    """The condition did not come true in time."""


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]],
    *,
    within_s: float = PATIENCE_S,
    every_s: float = 0.01,
    show: Callable[[], Any] | None = None,
) -> None:
    """Return once the condition holds; after `within_s` fail with what `show` gives."""
    deadline = time.monotonic() + within_s
    while True:
        outcome = condition()
        if isinstance(outcome, Awaitable):
            outcome = await outcome
        if outcome:
            return
        if time.monotonic() > deadline:
            seen = "" if show is None else f"; last seen: {show()!r}"
            raise NeverHappened(f"not within {within_s} s{seen}")
        await asyncio.sleep(every_s)


def eventually_sync(
    condition: Callable[[], bool],
    *,
    within_s: float = PATIENCE_S,
    every_s: float = 0.02,
    show: Callable[[], Any] | None = None,
) -> None:
    """As `eventually`, for tests without an event loop."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            seen = "" if show is None else f"; last seen: {show()!r}"
            raise NeverHappened(f"not within {within_s} s{seen}")
        time.sleep(every_s)
