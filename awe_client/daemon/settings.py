"""What a daemon was told on its command line."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True, frozen=True)
class Settings:
    """Units are in the names; 0 stands for "no limit" where that makes sense."""

    servers: tuple[str, ...]
    work: Path
    group: str = "default"
    apps: tuple[str, ...] = ("*",)
    slots: int = 1
    name: str = ""
    user: str = ""  #: whose it is
    domain: str = "default"
    instance_id: str = ""  #: of the virtual machine it runs on
    instance_type: str = ""
    memory_bytes: int = 0  #: offered to the server; 0 = what the machine has
    gpus: int = 0
    containers: str = "auto"  #: engine to offer: auto, none, or its name
    wall_time_s: float = 0.0  #: the allocation ends after so long
    idle_exit_s: float = 0.0  #: end after so long without work
    grace_s: float = 10.0  #: between TERM and KILL
    keep_failed_s: float = 1800.0  #: directories of failed attempts
    free_floor_bytes: int = 256 * 1024 * 1024  #: below so much free disk no work is asked for
    cache_bytes: int = 20 * 1024 * 1024 * 1024  #: of files kept for later attempts
    transfers: int = 8  #: attempts that move files at once, in each direction
    transfer_timeout_s: float = 60.0  #: a transfer that brings no byte for so long has failed
    file_roots: tuple[str, ...] = ()  #: directories of shared files that are open to jobs
    executors: int = 2
    authorization: str = field(default="", repr=False)  #: whole header value; never shown
