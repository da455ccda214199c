"""How long to wait before the next try."""

import math
import random
import time

import anyio

from shared_models.errors import AweError


def jittered_delay_s(attempt: int, *, base_s: float, cap_s: float, asked_s: float = 0.0) -> float:
    """Delay before try number `attempt` + 1 (attempts count from 1).

    Exponential with a cap, drawn from the upper half of the interval, so that many clients that lost the
    same server at the same moment do not come back in step. A server's Retry-After (`asked_s`) is the least
    we wait, bounded by four caps: no server may put a client to sleep for a day.
    """
    ceiling = min(cap_s, base_s * 2.0 ** min(attempt - 1, 30))
    drawn = ceiling * (0.5 + random.random() / 2)
    asked = min(asked_s, 4 * cap_s)
    return max(drawn, asked + drawn / 2 if asked else 0.0)


class Patience:
    """Waits for a server that is away, up to a bound; for loops that outlive a restart."""

    def __init__(self, bound_s: float = math.inf) -> None:
        self._bound_s = bound_s
        self._failures, self._since = 0, 0.0

    def restore(self) -> None:
        """The server has answered."""
        self._failures = 0

    async def wait(self, error: AweError) -> None:
        """Wait before the next try. Raises the error when trying again makes no sense, or lasted too long."""
        if not error.retryable:
            raise error
        now = time.monotonic()
        if not self._failures:
            self._since = now
        self._failures += 1
        if now - self._since > self._bound_s or not self._bound_s:
            raise error
        asked_s = float(error.fields.get("retry_after_s", 0.0))
        await anyio.sleep(jittered_delay_s(self._failures, base_s=0.5, cap_s=10.0, asked_s=asked_s))
