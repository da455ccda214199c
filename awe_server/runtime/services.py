"""What the API gets from the composition root: one object, handed to every router."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from awe_server.settings import Settings

if TYPE_CHECKING:
    from awe_server.data.nodes import NodeStore
    from awe_server.data.root_threads import RootThreads
    from awe_server.runtime.cuts import Cuts
    from awe_server.runtime.engine import Engine


@dataclass(slots=True, frozen=True)
class Services:
    """The rooms of a running server."""

    engine: "Engine"
    nodes: "NodeStore"
    cuts: "Cuts"
    root_threads: "RootThreads"
    settings: Settings
    logs_dir: Path  #: full logs, see data/logs.py; removed with the job
    new_id: Callable[[], str]  #: uuid4 text
    wall: Callable[[], float]  #: seconds since the epoch, for documents
