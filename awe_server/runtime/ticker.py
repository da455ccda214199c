"""Lets time pass in the scheduler: leases run out, retries become due, jobs reach their start.

A process that was stopped, or whose loop was held up, has heard nobody meanwhile. That time is its own
fault, so it is given to the clients as grace before anything may expire.
"""

import asyncio
import logging

from awe_server.runtime.engine import Engine
from awe_server.scheduler.state import Context, State
from awe_server.scheduler.tick import tick
from shared_models.errors import LeadInDoubt, ShuttingDown, Unavailable

log = logging.getLogger(__name__)

STALL_S = 1.0  #: a tick that comes this much too late means that we were away
GRUMBLE_S = 5.0  #: ... and this much is worth a line in the log


class Ticker:
    """Ticks every `tick_s` seconds of monotonic time."""

    def __init__(self, engine: Engine, tick_s: float) -> None:
        self._engine = engine
        self._tick_s = tick_s
        self._last_s: float | None = None
        self._broke = False  #: the last tick did

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            self.once()
            await asyncio.sleep(self._tick_s)

    def once(self) -> None:
        """One tick. Does not wait for the disk: time goes on without it."""
        before_s, now_s = self._last_s, self._engine.clock.monotonic()
        late_s = 0.0 if before_s is None else now_s - before_s - self._tick_s
        self._last_s = now_s
        try:
            if late_s > STALL_S:
                if late_s > GRUMBLE_S:
                    log.warning("server_was_held_up", extra={"seconds": round(late_s, 1)})
                self._engine.run(give_grace, late_s)
            self._engine.run(tick)
            self._engine.see_off()
        except ShuttingDown:
            return
        except LeadInDoubt:
            self._last_s = before_s  # nobody is heard now, either
        except Unavailable:
            self._last_s = None  # the state is being read; leases begin anew with it
        except Exception:
            if self._broke or self._engine.ready:
                raise  # it broke again although the state was read anew, or nobody reads it anew
            self._broke = True
        else:
            self._broke = False


def give_grace(state: State, ctx: Context, seconds: float) -> None:
    """Shift every deadline by the time in which nobody could be heard."""
    for client in state.clients.values():
        if client.deadline_s:
            client.deadline_s += seconds
