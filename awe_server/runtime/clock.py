"""The only place that reads clocks. Decisions use the monotonic one, documents the wall one."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Clock:
    """Two ways to say now; tests put their own in."""

    monotonic: Callable[[], float] = time.monotonic  #: seconds; never steps
    wall: Callable[[], float] = time.time  #: seconds since the epoch; may step
