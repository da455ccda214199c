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
    started_at: float = 0.0  #: its command was not started before, on the monotonic clock


@dataclass(slots=True, frozen=True)
class Load:
    """What is held, by what it means for asking for more."""

    held: int
    unrun_cores: int  #: cores of attempts that have not finished running
    unrun_memory: int
    unrun_gpus: int
    pushing: int
