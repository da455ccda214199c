"""Whether a server grows: what it has resident, second by second, in one life, once it is warm.

Two things fill up and then stay: the events that the server remembers (some 15 MiB), and SQLite's page cache,
which holds what is stored of the last jobs at most. So it is warm when it has as many events as it remembers,
and while it is measured every job goes a minute after it was submitted, or once it has ended.
"""

import asyncio
import statistics
import time
from dataclasses import dataclass

from awe_server.runtime.events import RING
from tests.soak.world import Line
from tests.support.env import AweEnv
from tests.support.memory import rss_bytes

MIB = 2**20


@dataclass(frozen=True)
class Growth:
    """Medians of the first and the last tenth of the time."""

    first_bytes: float
    last_bytes: float
    peak_bytes: int

    @property
    def share(self) -> float:
        """0.1 = a tenth more at the end."""
        return self.last_bytes / self.first_bytes - 1

    def __str__(self) -> str:
        first, last, peak = self.first_bytes / MIB, self.last_bytes / MIB, self.peak_bytes / MIB
        return f"{first:.1f} MiB first, {last:.1f} MiB last, {100 * self.share:+.1f} %, peak {peak:.1f} MiB"


def growth(samples: list[int]) -> Growth:
    """Of samples in even steps."""
    tenth = max(1, len(samples) // 10)
    return Growth(statistics.median(samples[:tenth]), statistics.median(samples[-tenth:]), max(samples))


async def warm_up(line: Line, within_s: float) -> None:
    """Wait until the server has forgotten its first event, but not longer than that."""
    ends_at, last, count = time.monotonic() + within_s, 0, 0
    while count < RING and time.monotonic() < ends_at:
        events = await line.data("GET", f"/events?since={last}")
        count += len(events)
        if events:
            last = events[-1]["seq"]
        else:
            await asyncio.sleep(0.5)


async def watch(env: AweEnv, samples: list[int], ends_at: float, every_s: float = 0.5) -> None:
    """Add a sample every so often, until then."""
    while not samples or time.monotonic() < ends_at:
        samples.append(rss_bytes(env.server.running.pid))
        await asyncio.sleep(every_s)
