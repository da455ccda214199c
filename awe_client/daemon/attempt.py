"""One attempt as the daemon sees it: what was granted, and what all attempts of its task share."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared_models.ids import TaskId, make_workunit_id
from shared_models.messages import GrantMessage, TaskForClient

#: Workunit id and attempt number.
AttemptKey = tuple[str, int]

STDOUT_NAME = "awe_stdout.txt"
STDERR_NAME = "awe_stderr.txt"
SCRIPT_NAME = "awe_script.sh"
USERATTR_NAME = "userattr.json"


@dataclass(slots=True, frozen=True)
class Needs:
    """What an attempt occupies while it runs."""

    cores: int = 1
    memory_bytes: int = 0
    gpus: int = 0


@dataclass(slots=True)
class TaskSpec:
    """What the attempts of one task share; built once per reply."""

    message: TaskForClient
    needs: Needs = field(init=False)
    stdout: str = field(init=False)  #: file names in the work directory
    stderr: str = field(init=False)
    stdin: str | None = field(init=False)
    outputs: list[dict[str, Any]] = field(init=False)  #: those that a client uploads
    must_prepare: bool = field(init=False)  #: something has to be put into the work directory first

    def __post_init__(self) -> None:
        message = self.message
        cmd, resources = message["cmd"], message.get("resources") or {}
        self.needs = Needs(
            max(int(resources.get("cores") or 1), 1),
            int(resources.get("memory_bytes") or 0),
            int(resources.get("gpus") or 0),
        )
        self.stdout = cmd.get("stdout") or STDOUT_NAME
        self.stderr = cmd.get("stderr") or STDERR_NAME
        self.stdin = cmd.get("stdin") or None
        # A copy is made by the server, and an update writes only attributes.
        self.outputs = [out for out in message["outputs"] if out.get("type") not in ("copy", "update")]
        self.must_prepare = bool(
            message["inputs"]
            or message["predata"]
            or cmd.get("cmd_script")
            or message.get("userattr")
            or "/" in self.stdout + self.stderr
        )


@dataclass(slots=True)
class Attempt:
    """One granted attempt. `part`, `offset`, `length` say which piece of the cut input is its own."""

    task: TaskSpec
    id: str
    rank: int
    number: int
    token: str
    directory: Path
    part: str = ""
    offset: int = -1
    length: int = -1

    @property
    def key(self) -> AttemptKey:
        """What names this attempt on the wire."""
        return self.id, self.number

    @property
    def cut_input(self) -> str | None:
        """The input of which this attempt gets only a part."""
        return self.task.message.get("part_input") if self.part or self.length >= 0 else None


def from_grant(grant: GrantMessage, task: TaskSpec, work_root: Path) -> Attempt:
    """Build an attempt; its directory is `<work>/<id[0:2]>/<id[2:4]>/<id[4:6]>/<id>.<attempt>`.

    Source: AWE lib/core/workunit.go Path; differs: the attempt is part of the name, so none ever finds
    what another left.
    """
    id = make_workunit_id(TaskId(grant["task"]), grant["rank"])
    return Attempt(
        task=task,
        id=id,
        rank=grant["rank"],
        number=grant["attempt"],
        token=grant["token"],
        directory=work_root / id[0:2] / id[2:4] / id[4:6] / f"{id}.{grant['attempt']}",
        part=grant.get("part") or "",
        offset=grant.get("offset", -1),
        length=grant.get("length", -1),
    )
