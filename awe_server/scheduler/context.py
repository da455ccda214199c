"""What a transition may not find out for itself: settings, time, chance."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(slots=True, frozen=True)
class Rules:
    """The scheduler's settings."""

    lease_s: float = 60.0
    max_work_failure: int = 3
    max_client_failure: int = 5
    max_lost: int = 5
    retry_base_s: float = 1.0
    retry_cap_s: float = 300.0
    policy: Literal["fcfs", "fair"] = "fcfs"
    file_roots: tuple[str, ...] = ()  #: directories that are open to jobs


@dataclass(slots=True)
class Context:
    """What a transition may not find out for itself."""

    now_s: float  #: monotonic; decides
    wall_s: float  #: since the epoch; only written into documents
    new_token: Callable[[], str]  #: a fresh random lease token
