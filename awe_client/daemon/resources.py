"""What this machine has, what of it is in use, and how much work to ask for."""

import os
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from awe_client.daemon.attempt import Needs
from shared_models.limits import MAX_HOLDS, MAX_WANT

#: Work is fetched ahead for about so long, as far as it is known how fast it is done.
AHEAD_S = 0.3
#: After a refused start, so long with fewer slots.
LOWERED_S = 30.0
_RATE_WINDOW_S = 2.0


@dataclass(slots=True, frozen=True)
class Totals:
    """What this machine offers to the server."""

    cores: int
    memory_bytes: int
    gpus: int


def detect_cores() -> int:
    """CPUs this process may use."""
    return len(os.sched_getaffinity(0)) or 1


def detect_memory() -> int:
    """Bytes of memory: the machine's, or the control group's if that allows less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


def detect_gpus() -> int:
    """NVIDIA devices in sight."""
    return sum(1 for entry in Path("/dev").glob("nvidia[0-9]*") if entry.name[6:].isdigit())


class Capacity:
    """Slots, memory and GPUs; who holds them; how far to fetch ahead.

    A slot is a core: an attempt that needs k cores takes k. After the machine refused to start something
    there are fewer slots for a while: half of what ran then, doubling again while starts go well.
    """

    def __init__(self, totals: Totals) -> None:
        self.totals = totals
        self._limit = totals.cores
        self._lowered_until = 0.0
        self._used_cores = 0
        self._used_memory = 0
        self._used_gpus = 0
        self._ends: deque[float] = deque()

    # --- running ---------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """Slots at present."""
        if self._limit < self.totals.cores and time.monotonic() >= self._lowered_until:
            self._limit = min(self._limit * 2, self.totals.cores)
            self._lowered_until = time.monotonic() + LOWERED_S
        return self._limit

    @property
    def is_lowered(self) -> bool:
        """Whether a refused start has taken slots away."""
        return self.slots < self.totals.cores

    def can_ever_run(self, needs: Needs) -> bool:
        """Whether an empty machine has room for this."""
        totals = self.totals
        return (
            needs.cores <= totals.cores
            and needs.memory_bytes <= totals.memory_bytes
            and needs.gpus <= totals.gpus
        )

    def take(self, needs: Needs) -> bool:
        """Take slots for a command, if there are enough.

        A lowered machine still runs one command of any size.
        """
        fits = (
            self._used_cores + needs.cores <= self.slots
            and self._used_memory + needs.memory_bytes <= self.totals.memory_bytes
            and self._used_gpus + needs.gpus <= self.totals.gpus
        )
        if not fits and self._used_cores:
            return False
        self.take_over(needs)
        return True

    def take_over(self, needs: Needs) -> None:
        """Take the slots of a command of the same size whose end is told next."""
        self._used_cores += needs.cores
        self._used_memory += needs.memory_bytes
        self._used_gpus += needs.gpus

    @property
    def free_slots(self) -> int:
        """Slots that no command has."""
        return max(self.slots - self._used_cores, 0)

    def give_back(self, needs: Needs) -> None:
        """A command is over."""
        self._used_cores -= needs.cores
        self._used_memory -= needs.memory_bytes
        self._used_gpus -= needs.gpus
        self._ends.append(time.monotonic())
        if len(self._ends) > 4096:
            self._ends.popleft()

    def start_refused(self) -> None:
        """This machine is short of processes, memory or descriptors: lower the slots."""
        self._limit = max(min(self._limit, self._used_cores) // 2, 1)
        self._lowered_until = time.monotonic() + LOWERED_S

    # --- asking ----------------------------------------------------------------------------------

    def ahead(self) -> int:
        """How many attempts to hold beyond the slots: a few, or what is done in AHEAD_S."""
        now = time.monotonic()
        while self._ends and self._ends[0] < now - _RATE_WINDOW_S:
            self._ends.popleft()
        if len(self._ends) < 2:
            return max(self.slots // 4, 1)
        rate = len(self._ends) / max(now - self._ends[0], 0.05)
        return max(self.slots // 4, 1, int(rate * AHEAD_S))

    def want(self, *, held_cores: int, held: int, unfinished_pushes: int) -> int:
        """How many more attempts to ask for.

        `held_cores` counts attempts that have not run yet or run; `held` counts all, up to the wire's bound.
        While uploads pile up, nothing is fetched ahead of them.
        """
        waiting_uploads = max(unfinished_pushes - 2 * self.slots, 0)
        wanted = self.slots + self.ahead() - held_cores - waiting_uploads
        return max(min(wanted, MAX_WANT, MAX_HOLDS - held), 0)
