"""What a client says about itself when it registers (`POST /client`).

Read leniently, because AWE's workers of every release send a full client document: unknown keys are ignored,
and the older and newer spellings of host and current work are all understood.
Source: AWE lib/core/client.go NewProfileClient; differs: missing objects no longer crash the request.
"""

import re
from dataclasses import asdict, dataclass
from typing import Any

from shared_models.errors import BadRequest, InvalidDocument, TooLarge
from shared_models.fields import flag, free_text, rows, whole
from shared_models.ids import ClientId, WorkunitId, split_workunit_id
from shared_models.limits import (
    MAX_APPS,
    MAX_CORES,
    MAX_FILE_ROOTS,
    MAX_HOLDS,
    MAX_NAME_CHARS,
    MAX_PROFILE_BYTES,
)
from shared_models.meaning import GROUP_NAME
from shared_models.roots import normal_root, root_problem
from shared_models.strict_json import read_json

_CLIENT_ID = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TEXTS = ("user", "domain", "instance_id", "instance_type", "version", "git_commit_hash", "incarnation")


@dataclass(slots=True, kw_only=True)
class ClientProfile:
    """A checked profile."""

    id: ClientId | None  #: None = the server makes one
    name: str
    group: str
    user: str
    domain: str
    instance_id: str
    instance_type: str
    host: str  #: address, however the client spelled the key
    hostname: str
    host_ip: str
    cores: int
    memory_bytes: int  #: 0 = not said
    disk_bytes: int  #: 0 = not said
    gpus: int
    apps: list[str]  #: `*` = any; empty = it can never get work
    containers: list[str]  #: container engines it offers
    file_roots: list[str]  #: directories of shared files that it opens to jobs
    current_work: list[WorkunitId]  #: what it believes to hold
    spooled: list[tuple[WorkunitId, int]]  #: native: finished attempts of its last run, not reported yet
    proxy: bool
    subclients: int
    version: str
    git_commit_hash: str
    native: bool  #: speaks exchange
    incarnation: str  #: native: another one means that the client was started anew

    def as_dict(self) -> dict[str, Any]:
        """Give all fields by name."""
        return asdict(self)


def parse_profile(raw: bytes | dict[str, Any]) -> ClientProfile:
    """Read a registration profile, as JSON text or parsed.

    Raises InvalidDocument with the field path; TooLarge.
    """
    data = _read(raw)
    texts = {key: _label(data, key) for key in _TEXTS}
    host, hostname, host_ip = (_label(data, key) for key in ("host", "hostname", "host_ip"))
    if flag(data, "native") and not texts["incarnation"]:
        raise InvalidDocument("incarnation: is missing; a native client names each of its runs")
    return ClientProfile(
        id=_id(data),
        name=_label(data, "name"),
        group=_group(data),
        host=host or host_ip or hostname,
        hostname=hostname,
        host_ip=host_ip,
        cores=max(1, whole(data, "cores", 0, MAX_CORES, default=1)),
        memory_bytes=whole(data, "memory_bytes", 0, default=0),
        disk_bytes=whole(data, "disk_bytes", 0, default=0),
        gpus=whole(data, "gpus", 0, MAX_CORES, default=0),
        apps=_names(data, "apps"),
        containers=_names(data, "containers"),
        file_roots=_roots(data),
        current_work=current_work(data),
        spooled=_spooled(data),
        proxy=flag(data, "proxy"),
        subclients=whole(data, "subclients", 0, MAX_CORES, default=0),
        native=flag(data, "native"),
        **texts,
    )


def current_work(data: dict[str, Any]) -> list[WorkunitId]:
    """Read `current_work` of a profile or heartbeat: `{id: true}`, `{"data": [id]}`, `[id]` or null.

    What is no workunit id is left out: a client that holds it must still be able to register.
    """
    work = data.get("current_work")
    if isinstance(work, dict) and "data" in work:
        work = work["data"]
    elif isinstance(work, dict):
        work = [key for key, held in work.items() if held]
    if work is not None and not isinstance(work, list):
        raise InvalidDocument(
            "current_work: must be a map, a list, or an object {'data': list} of workunit ids"
        )
    if work is not None and len(work) > MAX_HOLDS:
        raise InvalidDocument(f"current_work: has more than {MAX_HOLDS} entries")
    return [WorkunitId(held) for held in work or () if _is_workunit(held)]


def _spooled(data: dict[str, Any]) -> list[tuple[WorkunitId, int]]:
    """Read `spooled`, pairs of workunit id and attempt; anything else in it is left out."""
    return [
        (WorkunitId(row[0]), row[1])
        for row in rows(data, "spooled", MAX_HOLDS)
        if isinstance(row, list) and len(row) == 2 and _is_workunit(row[0]) and type(row[1]) is int
    ]


def _read(raw: bytes | dict[str, Any]) -> dict[str, Any]:
    if isinstance(raw, bytes) and len(raw) > MAX_PROFILE_BYTES:
        raise TooLarge(f"the profile has {len(raw)} bytes, the limit is {MAX_PROFILE_BYTES}")
    data = read_json(raw) if isinstance(raw, bytes) else raw
    if not isinstance(data, dict):
        raise InvalidDocument("the profile must be a JSON object")
    return data


def _roots(data: dict[str, Any]) -> list[str]:
    roots = rows(data, "file_roots", MAX_FILE_ROOTS)
    for i, root in enumerate(roots):
        problem = root_problem(root) if isinstance(root, str) else "must be the path of a directory"
        if problem:
            raise InvalidDocument(f"file_roots[{i}]: {problem}")
    return list(dict.fromkeys(normal_root(root) for root in roots))


def _is_workunit(held: object) -> bool:
    try:
        split_workunit_id(held if isinstance(held, str) else "")
    except BadRequest:
        return False
    return True


def _id(data: dict[str, Any]) -> ClientId | None:
    given = _label(data, "id")
    if given and not _CLIENT_ID.fullmatch(given):
        raise InvalidDocument(f"id: '{given}' is not a client id; leave it out to get one")
    return ClientId(given) if given else None


def _group(data: dict[str, Any]) -> str:
    group = _label(data, "group") or "default"
    if not GROUP_NAME.fullmatch(group):
        raise InvalidDocument(f"group: '{group}' is not a group name (letters, digits, '_', '-' and '.')")
    return group


def _label(data: dict[str, Any], key: str) -> str:
    value = free_text(data, key)
    if len(value) > MAX_NAME_CHARS:
        raise InvalidDocument(f"{key}: is longer than {MAX_NAME_CHARS} characters")
    if _CONTROL.search(value):
        raise InvalidDocument(f"{key}: has a control character")
    return value


def _names(data: dict[str, Any], key: str) -> list[str]:
    """Read names given as a list or as comma text."""
    value = data.get(key)
    names = value.split(",") if isinstance(value, str) else [] if value is None else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidDocument(f"{key}: must be a list of names or text with commas")
    if len(names) > MAX_APPS:
        raise InvalidDocument(f"{key}: has more than {MAX_APPS} entries")
    return [_label({key: name.strip()}, key) for name in names if name.strip()]
