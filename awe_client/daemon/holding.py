"""What a workshop holds: an attempt, its machine, and what is under way for it."""

import asyncio
from dataclasses import dataclass

from awe_client.daemon import machine as m
from awe_client.daemon.attempt import Attempt
from awe_client.daemon.places import Place
from awe_client.daemon.progress import Meter


@dataclass(slots=True)
class Holding:
    """One attempt and what is under way for it."""

    attempt: Attempt
    machine: m.Machine
    step: asyncio.Task[m.Event] | None = None
    meter: Meter | None = None  #: of the step, if it moves files
    place: Place | None = None  #: of the step, among those that move files
    command: int = 0  #: key in the executor
    image: str = ""  #: what the container engine knows the task's image by
    disk_was_full: bool = False  #: at some moment while its command ran; another attempt met it
    is_beside: bool = False  #: another attempt could write while its command ran
    is_recalled: bool = False  #: it is lined up, and was asked for
    started_at: float = 0.0  #: its command was not started before, on the monotonic clock


@dataclass(slots=True, frozen=True)
class Load:
    """What is held, by what it means for asking for more."""

    held: int
    unrun_cores: int  #: cores of attempts that have not finished running
    unrun_memory: int
    unrun_gpus: int
    pushing: int


#: An attempt in one of these has not finished running.
_UNRUN = frozenset(m.Stage) - {m.Stage.REPORTING, m.Stage.PUSHING, m.Stage.GONE}
#: In one of these it may write to the disk.
_WRITING = (m.Stage.FETCHING, m.Stage.LINED, m.Stage.RUNNING)


class Tally:
    """What is held, kept up to date: nobody has to look at all of it for each command."""

    def __init__(self) -> None:
        self._stages = dict.fromkeys(m.Stage, 0)
        self._cores = self._memory = self._gpus = 0
        self._alone: Holding | None = None  # of those that write, the one that has always been alone

    def moved(self, holding: Holding, before: m.Stage | None) -> None:
        """An attempt is in another stage than before; None = it was not held."""
        after = holding.machine.stage
        if before is after:
            return
        if before is not None:
            self._stages[before] -= 1
        if after is not m.Stage.GONE:
            self._stages[after] += 1
        if (sign := (after in _UNRUN) - (before in _UNRUN)) != 0:
            needs = holding.attempt.task.needs
            self._cores += sign * needs.cores
            self._memory += sign * needs.memory_bytes
            self._gpus += sign * needs.gpus
        if self._alone is holding and after not in _WRITING:
            self._alone = None

    def begins_to_write(self, holding: Holding) -> None:
        """If the disk is full for a moment, only who was alone then is known to have filled it."""
        holding.is_beside = sum(map(self._stages.__getitem__, _WRITING)) > 1
        if not holding.is_beside:
            self._alone = holding
        elif self._alone is not None and self._alone is not holding:
            self._alone.is_beside, self._alone = True, None

    @property
    def is_working(self) -> bool:
        """Whether something is held that is not just waiting for the server's acknowledgement."""
        return sum(self._stages.values()) > self._stages[m.Stage.REPORTING]

    @property
    def load(self) -> Load:
        """Add it up."""
        pushing = self._stages[m.Stage.PUSHING]
        return Load(sum(self._stages.values()), self._cores, self._memory, self._gpus, pushing)
