"""One attempt as the daemon sees it: what was granted, and what all attempts of its task share."""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from awe_client.daemon.cache import Cached
from awe_client.daemon.container import WORKDIR
from awe_client.daemon.environment import array_first, common_environment, encode
from shared_models.ids import TaskId, make_workunit_id
from shared_models.messages import GrantMessage, TaskForClient

_BY_PART = (-1, -1)

#: Workunit id and attempt number.
AttemptKey = tuple[str, int]

STDOUT_NAME = "awe_stdout.txt"
STDERR_NAME = "awe_stderr.txt"
USERATTR_NAME = "userattr.json"


#: Types of outputs of which a client has no file: a copy is made by the server, an update is of attributes.
WITHOUT_FILE = ("copy", "update")

_PLAIN_ID = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,219}")
_ODD = re.compile(r"[^A-Za-z0-9_.\-]")


@dataclass(slots=True, frozen=True)
class Needs:
    """What an attempt occupies while it runs."""

    cores: int = 1
    memory_bytes: int = 0
    gpus: int = 0


@dataclass(slots=True)
class TaskSpec:
    """What the attempts of one task share; built once per reply.

    `base_env` is what every command of this client sees, `server_url` whom it may ask.
    """

    message: TaskForClient
    base_env: Mapping[str, str]
    server_url: str
    needs: Needs = field(init=False)
    stdout: str = field(init=False)  #: file names in the work directory
    stderr: str = field(init=False)
    stdin: str | None = field(init=False)
    outputs: list[dict[str, Any]] = field(init=False)  #: those that a client uploads
    must_push: bool = field(init=False)  #: a success leaves something to be uploaded
    image: str = field(init=False)  #: of the container the command runs in; "" = none
    must_prepare: bool = field(init=False)  #: something has to be put into the work directory first
    common_env: dict[str, str] = field(init=False)  #: what the environments of all attempts share
    common_env_bytes: dict[bytes, bytes] = field(init=False)
    array_first: int | None = field(init=False)  #: if it is an array: the index of rank 1 (or 0)
    streams: tuple[bytes | None, bytes, bytes] = field(init=False)  #: names as an executor takes them
    words: list[bytes] | None = None  #: the command's words, once known, if all attempts have the same

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
        self.image = cmd.get("Dockerimage") or cmd.get("dockerPull") or ""
        self.outputs = [out for out in message["outputs"] if out.get("type") not in WITHOUT_FILE]
        self.must_push = bool(self.outputs or any(out.get("attrfile") for out in message["outputs"]))
        self.must_prepare = bool(
            message["inputs"]
            or message["predata"]
            or cmd.get("cmd_script")
            or self.image
            or message.get("userattr")
            # Names from outside are checked when the directory is laid out.
            or any(cmd.get(name) for name in ("stdin", "stdout", "stderr"))
        )
        # Where we are says nothing about where a container is.
        base = {"HOME": WORKDIR} if self.image else self.base_env
        self.common_env = common_environment(base, message, self.needs.cores, self.server_url)
        self.common_env_bytes = encode(self.common_env)
        self.array_first = array_first(message)
        stdin = os.fsencode(self.stdin) if self.stdin else None
        self.streams = (stdin, os.fsencode(self.stdout), os.fsencode(self.stderr))


@dataclass(slots=True, frozen=True)
class Link:
    """What a work directory has a link to: an entry of the cache, or else a file of a shared file system."""

    name: str  #: of the link
    path: Path  #: of the file
    entry: Cached | None = None
    version: str = ""  #: of a shared file, before the command


@dataclass(slots=True)
class Attempt:
    """One granted attempt. `part` says which units of the cut inputs are its own, `pieces` which bytes."""

    task: TaskSpec
    id: str
    rank: int
    number: int
    token: str
    folder: str  #: its directory
    part: str = ""
    #: offset and length in each cut input, by filename; (-1, -1) = to be asked for by index and part
    pieces: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)  #: all that leads out of its directory
    #: what came out of archives, by names below the directory; kept only if an output is a pattern
    unpacked: set[str] = field(default_factory=set)
    key: AttemptKey = field(init=False)  #: what names it on the wire

    def __post_init__(self) -> None:
        self.key = (self.id, self.number)

    @property
    def directory(self) -> Path:
        """Its directory. Most attempts never need it as a path."""
        return Path(self.folder)

    @property
    def inside(self) -> str:
        """Its directory as the command sees it."""
        return WORKDIR if self.task.image else self.folder


def _folder_name(id: str) -> str:
    """A workunit id as one part of a path.

    Most as they are, odd or long ones made plain and told apart by hash.
    """
    if _PLAIN_ID.fullmatch(id):
        return id
    return f"{_ODD.sub('_', id)[:200]}-{hashlib.sha256(id.encode()).hexdigest()[:16]}"


def from_grant(grant: GrantMessage, task: TaskSpec, attempts: Path) -> Attempt:
    """Build an attempt; its directory is `<attempts>/<id[0:2]>/<id[2:4]>/<id[4:6]>/<id>.<attempt>`.

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
        folder=f"{attempts}/{id[0:2]}/{id[2:4]}/{id[4:6]}/{_folder_name(id)}.{grant['attempt']}",
        part=grant.get("part") or "",
        pieces=_pieces(grant, task.message["part_inputs"]),
    )


def _pieces(grant: GrantMessage, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    if not grant.get("part"):
        return {}
    pieces = grant.get("pieces") or [_BY_PART] * len(names)
    return {name: (offset, length) for name, (offset, length) in zip(names, pieces, strict=True)}
