"""The job document of `awe run`: one task, written from what stands on the command line."""

import getpass
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from awe_client.cli.inputs import keys_of
from shared_models.arguments import as_typed
from shared_models.errors import BadRequest

#: Where the command's standard output goes unless it is declared otherwise; it is kept as an output.
STDOUT_NAME = "stdout.txt"

TASK_NAME = "run"


#: Where an input may be cut.
INDEXES = ("record", "line", "size", "chunkrecord")


def check_splitting(
    *,
    inputs: int,
    split: str,
    parts: int | None,
    index: str,
    array: str,
    paired: bool = False,
    records: int = 1,
) -> None:
    """Refuse options of which one would make another meaningless. Raises BadRequest."""
    cut = bool(split or parts)
    if paired and inputs < 2:
        raise BadRequest("--paired cuts the first two inputs at the same records: name both with --input")
    if (paired or records > 1) and not cut:
        raise BadRequest("--paired and --records say how inputs are cut: give --split or --parts with them")
    if (paired or records > 1) and index == "size":
        raise BadRequest("--index size cuts through records, which --paired and --records count")
    if index and index not in INDEXES:
        raise BadRequest(f"--index {index}: is not one of {', '.join(INDEXES)}")
    if split and parts:
        raise BadRequest("--split and --parts both say how the input is cut: give one of them")
    if array and (cut or index):
        options = "--split, --parts or --index"
        raise BadRequest(f"--array runs whole inputs once per index; it cannot be joined with {options}")
    if index and not cut:
        raise BadRequest("--index says where an input is cut: give --split or --parts with it")
    if cut and not inputs:
        raise BadRequest("--split and --parts cut an input: name one with --input")


def check_environ(environ: dict[str, str]) -> dict[str, str]:
    """Refuse variables that the client sets itself. Raises BadRequest."""
    for name in environ:
        if name.startswith("AWE_"):
            raise BadRequest(f"--env {name}: names that begin with AWE_ are set by the client")
    return environ


def login_name() -> str:
    """Who is logged in here; nobody where the system does not know."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


@dataclass(slots=True)
class OneTask:
    """What `awe run` was asked for."""

    command: Sequence[str]
    inputs: dict[str, str] = field(default_factory=dict)  #: file name → node id or URL
    outputs: Sequence[str] = ()
    split_mb: int = 0  #: cut the (first) input into parts of at most this many MB
    parts: int = 0  #: cut the (first) input into this many parts
    index: str = ""  #: where it may be cut: record, line, size, chunkrecord
    paired: bool = False  #: the first two inputs are cut, at the same records
    records: int = 1  #: how many records belong together
    array: tuple[int, int] | None = None  #: first and last index
    name: str = ""
    user: str = ""
    group: str = ""
    priority: int = 1
    environ: dict[str, str] = field(default_factory=dict)
    cores: int = 1
    memory_bytes: int = 0
    time_limit_s: int = 0
    retries: int | None = None

    def document(self) -> dict[str, Any]:
        """Write the job document."""
        program, *arguments = self.command
        public = dict(self.environ)
        if self.array is not None:
            public["AWE_ARRAY_FIRST"] = str(self.array[0])
        task: dict[str, Any] = {
            "taskid": TASK_NAME,
            "cmd": {
                "name": program,
                # A shell has read these words already: the command gets them as they are.
                "args_array": [as_typed(word) for word in arguments],
                "stdout": STDOUT_NAME,
                "environ": {"public": public},
            },
            "inputs": [{"filename": name, **keys_of(place)} for name, place in self.inputs.items()],
            "outputs": [{"filename": name} for name in (STDOUT_NAME, *self.outputs)],
            "resources": {"cores": self.cores, "memory_bytes": self.memory_bytes},
            "time_limit_s": self.time_limit_s,
            **self._splitting(),
        }
        if self.retries is not None:
            task["max_failures"] = self.retries + 1
        info = {
            "name": self.name or program,
            "user": self.user,
            "pipeline": "awe-run",
            "clientgroups": self.group,
            "priority": self.priority,
        }
        return {"info": info, "tasks": [task]}

    def _splitting(self) -> dict[str, Any]:
        if self.array is not None:
            count = self.array[1] - self.array[0] + 1
            return {"totalwork": count, "partinfo": {"index": "none"}}
        if not (self.split_mb or self.parts):
            return {}
        names = list(self.inputs)
        partinfo: dict[str, Any] = {"input": names[:2] if self.paired else names[0]}
        if self.index:
            partinfo["index"] = self.index
        if self.records > 1:
            partinfo["options"] = f"records={self.records}"
        return {"maxworksize": self.split_mb, "totalwork": max(self.parts, 1), "partinfo": partinfo}
