"""How long to wait before the next try."""

import random


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
