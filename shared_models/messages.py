"""The exchange between the native client and the server: its messages, and the check of what a client sends.

The TypedDicts are the JSON on the wire, both directions. What the server works with is built by
`check_exchange`: hand-written, because it runs for every exchange of every client. Keys it does not know are
ignored, so that a newer client can talk to an older server.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict

from shared_models.archives import check_file_name
from shared_models.errors import BadRequest, InvalidDocument
from shared_models.fields import MAX_INT, flag, free_text, mapping, rows, seconds, text, whole, whole_or_none
from shared_models.ids import WorkunitId, split_workunit_id
from shared_models.limits import (
    MAX_HOLDS,
    MAX_IO,
    MAX_NAME_CHARS,
    MAX_NOTES_CHARS,
    MAX_PERF_KEYS,
    MAX_REPORTS,
    MAX_TAIL_BYTES,
    MAX_WAIT_S,
    MAX_WANT,
)
from shared_models.states import FailureKind

Outcome = Literal["done", "failed", "released"]
ReportResult = Literal["accepted", "duplicate", "lease_lost", "unknown"]

MAX_RANK_DIGITS = 10
_WORKUNIT = re.compile(  #: most ids; saves the check
    rf"[0-9a-f-]{{36}}_[\w.\-]{{1,255}}_[0-9]{{1,{MAX_RANK_DIGITS}}}", re.ASCII
)
_STAGES = ("fetching", "pushing")
_MD5 = re.compile(r"[0-9a-f]{32}")
#: What a client may say about a failure. Only the server says `lost`; `released` is an outcome of its own.
_REPORTABLE = {str(k): k for k in FailureKind if k not in (FailureKind.LOST, FailureKind.RELEASED)}


class OutputMessage(TypedDict):
    """One uploaded output file."""

    filename: str
    size: int
    md5: str


class ReportMessage(TypedDict):
    """How one attempt ended."""

    work: str
    attempt: int
    token: str
    outcome: Outcome
    kind: NotRequired[str | None]  #: only with `failed`
    exit_code: NotRequired[int | None]
    signal: NotRequired[int | None]
    message: NotRequired[str]
    computetime_s: NotRequired[float]
    stdout_tail: NotRequired[str]
    stderr_tail: NotRequired[str]
    perf: NotRequired[dict[str, Any]]
    outputs: NotRequired[list[OutputMessage]]
    kept: NotRequired[str]  #: node of what the failed attempt left, if that was kept
    out_of_reach: NotRequired[bool]  #: with `node`: because of an input; no client is blamed
    ran: NotRequired[bool]  #: with `node`: its command ran when the machine failed; counts as `lost`, too


class FreeMessage(TypedDict):
    """What the client has left to give."""

    cores: int
    memory_bytes: int
    disk_bytes: int
    gpus: int


#: Workunit id, stage (fetching, pushing), bytes done, bytes in all (-1 = not known).
ProgressRow = tuple[str, str, int, int]
#: Workunit id, why its transfer does not move: of rows in `progress`, only while it waits.
WaitsRow = tuple[str, str]


class RequestMessage(TypedDict):
    """`POST /client/{id}/exchange`."""

    incarnation: str
    request_id: (
        int  #: grows by one with each new exchange of this incarnation; the same number repeats the request
    )
    holds: NotRequired[list[tuple[str, int]]]
    reports: NotRequired[list[ReportMessage]]
    want: NotRequired[int]
    wait_s: NotRequired[float]
    free: NotRequired[FreeMessage | None]
    draining: NotRequired[bool]
    progress: NotRequired[list[ProgressRow]]  #: of transfers that take a while
    waits: NotRequired[list[WaitsRow]]  #: of those that do not move now
    leaving: NotRequired[bool]  #: the last exchange of this incarnation
    trouble: NotRequired[str]  #: why the client takes less than it could, or nothing


class TaskForClient(TypedDict):
    """What all workunits of a task share; sent once per reply."""

    id: str
    jobid: str
    task_name: str
    generation: int  #: grows when the task is set back
    totalwork: int
    info: dict[str, Any]
    cmd: dict[str, Any]
    private_env: dict[str, str]
    datatoken: NotRequired[str]  #: of the job, if files come from other Shocks
    inputs: list[dict[str, Any]]  #: `url` of an own node is relative: `/node/<id>?download`
    outputs: list[dict[str, Any]]
    predata: list[dict[str, Any]]
    part_inputs: list[str]  #: filenames of the inputs that are cut, all at the same units
    index: str | None
    userattr: dict[str, Any]
    resources: dict[str, int]
    time_limit_s: float
    keep_failed: bool


class GrantMessage(TypedDict):
    """One workunit handed out; the last two only if inputs are cut."""

    task: str
    rank: int
    attempt: int
    token: str
    part: NotRequired[str]  #: units of the task's `index`: "3-4", or "5"
    #: offset and length for each of the task's `part_inputs`; (-1, -1) = to be asked for by index and part
    pieces: NotRequired[list[tuple[int, int]]]


class ResultMessage(TypedDict):
    """What became of one report."""

    work: str
    attempt: int
    result: ReportResult


class ReplyMessage(TypedDict):
    """The `data` of the reply."""

    lease_s: float
    results: list[ResultMessage]
    tasks: dict[str, TaskForClient]
    work: list[GrantMessage]
    discard: list[tuple[str, int]]
    suspended: bool
    suspend_reason: NotRequired[str]
    stop: bool
    superseded: bool
    logs: NotRequired[list[tuple[str, int]]]  #: attempts whose live log somebody follows


@dataclass(slots=True)
class Free:
    """What a client has left to give."""

    cores: int
    memory_bytes: int
    disk_bytes: int
    gpus: int


@dataclass(slots=True)
class Report:
    """How one attempt ended. `attempt` and `token` are None only for a stock AWE worker: it has neither."""

    work: WorkunitId
    attempt: int | None
    token: str | None
    outcome: Outcome
    kind: FailureKind | None  #: set exactly when outcome is `failed`
    exit_code: int | None
    signal: int | None
    message: str
    computetime_s: float
    stdout_tail: str
    stderr_tail: str
    perf: dict[str, Any]
    outputs: list[dict[str, Any]]  #: {filename, size, md5}
    kept: str = ""  #: node of what the failed attempt left
    out_of_reach: bool = False  #: an input is, for this client; or a command changed it in the client's cache
    ran: bool = False  #: its command ran when the machine failed


@dataclass(slots=True)
class ExchangeRequest:
    """A checked exchange."""

    incarnation: str
    request_id: int
    holds: list[tuple[WorkunitId, int]]
    reports: list[Report]
    want: int
    wait_s: float
    free: Free | None
    draining: bool
    leaving: bool = False
    progress: list[tuple[WorkunitId, str, int, int]] = field(default_factory=list)
    waits: dict[WorkunitId, str] = field(default_factory=dict)
    trouble: str = ""


def check_exchange(data: object) -> ExchangeRequest:
    """Check a parsed exchange body.

    Long texts are cut to their limit, counts above it are refused.
    Raises InvalidDocument with the field path.
    """
    if not isinstance(data, dict):
        raise InvalidDocument("the exchange must be a JSON object")
    holds = rows(data, "holds", MAX_HOLDS)
    reports = rows(data, "reports", MAX_REPORTS)
    free = data.get("free")
    prefixes: set[str] = set()
    return ExchangeRequest(
        incarnation=text(data, "incarnation", MAX_NAME_CHARS),
        request_id=whole(data, "request_id", 1),
        holds=[_hold(row, i, prefixes) for i, row in enumerate(holds)],
        reports=_reports(reports, prefixes),
        want=whole(data, "want", 0, MAX_WANT, default=0),
        wait_s=min(seconds(data, "wait_s"), MAX_WAIT_S),
        free=None if free is None else _free(free),
        draining=flag(data, "draining"),
        leaving=flag(data, "leaving"),
        progress=[_progress(row, i) for i, row in enumerate(rows(data, "progress", MAX_HOLDS))],
        waits=dict(_waits(row, i) for i, row in enumerate(rows(data, "waits", MAX_HOLDS))),
        trouble=free_text(data, "trouble")[:MAX_NOTES_CHARS],
    )


def check_report(data: object, prefixes: set[str] | None = None) -> Report:
    """Check one report; `prefixes` as for `_workunit`.

    What most reports leave out, or empty, is not looked at twice. Raises InvalidDocument with the field path
    inside the report.
    """
    if not isinstance(data, dict):
        raise InvalidDocument("must be an object")
    outcome = data.get("outcome")
    if outcome not in ("done", "failed", "released"):
        raise InvalidDocument("outcome: must be 'done', 'failed' or 'released'")
    get = data.get
    return Report(
        work=_workunit(get("work"), "work", set() if prefixes is None else prefixes),
        attempt=whole(data, "attempt", 0),
        token=text(data, "token", MAX_NAME_CHARS),
        outcome=outcome,
        kind=_kind(get("kind")) if outcome == "failed" else None,
        exit_code=whole_or_none(data, "exit_code"),
        signal=None if get("signal") is None else whole_or_none(data, "signal"),
        message=free_text(data, "message")[:MAX_NOTES_CHARS] if get("message", "") != "" else "",
        computetime_s=seconds(data, "computetime_s"),
        stdout_tail=tail(free_text(data, "stdout_tail")) if get("stdout_tail", "") != "" else "",
        stderr_tail=tail(free_text(data, "stderr_tail")) if get("stderr_tail", "") != "" else "",
        perf=_perf(mapping(data, "perf")),
        outputs=_outputs(data) if get("outputs", []) != [] else [],
        kept=free_text(data, "kept")[:MAX_NAME_CHARS] if get("kept", "") != "" else "",
        out_of_reach=get("out_of_reach", False) is not False and flag(data, "out_of_reach"),
        ran=get("ran", False) is not False and flag(data, "ran"),
    )


def tail(log: str, limit: int = MAX_TAIL_BYTES) -> str:
    """Keep the last `limit` bytes of a text, without half a character at its start."""
    if len(log) * 4 <= limit:
        return log
    encoded = log.encode("utf-8", "replace")
    return log if len(encoded) <= limit else encoded[-limit:].decode("utf-8", "ignore")


def _reports(rows: list[Any], prefixes: set[str]) -> list[Report]:
    found: list[Report] = []
    try:
        for row in rows:
            found.append(check_report(row, prefixes))
    except InvalidDocument as exc:
        raise InvalidDocument(f"reports[{len(found)}].{exc.message}") from exc
    return found


def _hold(row: object, i: int, prefixes: set[str]) -> tuple[WorkunitId, int]:
    if not isinstance(row, list | tuple) or len(row) != 2:
        raise InvalidDocument(f"holds[{i}]: must be [workunit id, attempt]")
    work, attempt = row
    if type(attempt) is not int or not 0 <= attempt <= MAX_INT:
        raise InvalidDocument(f"holds[{i}][1]: must be a whole number, 0 or more")
    return _workunit(work, f"holds[{i}][0]", prefixes), attempt


def _progress(row: object, i: int) -> tuple[WorkunitId, str, int, int]:
    if not isinstance(row, list | tuple) or len(row) != 4:
        raise InvalidDocument(f"progress[{i}]: must be [workunit id, stage, bytes done, bytes in all]")
    work, stage, done, total = row
    if stage not in _STAGES:
        raise InvalidDocument(f"progress[{i}][1]: must be one of {', '.join(_STAGES)}")
    if any(type(count) is not int or not -1 <= count <= MAX_INT for count in (done, total)) or done < 0:
        raise InvalidDocument(f"progress[{i}]: bytes are whole numbers; -1 in all if not known")
    return _workunit(work, f"progress[{i}][0]", set()), stage, done, total


def _waits(row: object, i: int) -> tuple[WorkunitId, str]:
    if not isinstance(row, list | tuple) or len(row) != 2 or not isinstance(row[1], str):
        raise InvalidDocument(f"waits[{i}]: must be [workunit id, reason]")
    return _workunit(row[0], f"waits[{i}][0]", set()), row[1][:MAX_NOTES_CHARS]


def _free(data: object) -> Free:
    if not isinstance(data, dict):
        raise InvalidDocument("free: must be an object {cores, memory_bytes, disk_bytes, gpus}")
    try:
        return Free(*(whole(data, k, 0, default=0) for k in ("cores", "memory_bytes", "disk_bytes", "gpus")))
    except InvalidDocument as exc:
        raise InvalidDocument(f"free.{exc.message}") from exc


def _output(row: object, i: int) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise InvalidDocument(f"outputs[{i}]: must be an object {{filename, size, md5}}")
    try:
        filename = text(row, "filename", MAX_NAME_CHARS * 8)
        reason = check_file_name(filename)
        if reason:
            raise InvalidDocument(f"filename: '{filename[:200]}' {reason}")
        md5 = free_text(row, "md5")
        if md5 and not _MD5.fullmatch(md5):
            raise InvalidDocument("md5: must be 32 hexadecimal digits in lower case")
        return {"filename": filename, "size": whole(row, "size", 0), "md5": md5}
    except InvalidDocument as exc:
        raise InvalidDocument(f"outputs[{i}].{exc.message}") from exc


def _workunit(value: object, path: str, prefixes: set[str]) -> WorkunitId:
    """Check an id; `prefixes` are those of ids that were found to be good, and get its own."""
    if isinstance(value, str):
        prefix, _, rank = value.rpartition("_")
        # Most ids of an exchange differ in their rank only.
        is_like = prefix in prefixes and len(rank) <= MAX_RANK_DIGITS and rank.isdecimal() and rank.isascii()
        if is_like or _WORKUNIT.fullmatch(value):
            prefixes.add(prefix)
            return WorkunitId(value)
    if not isinstance(value, str) or len(value) > 2 * MAX_NAME_CHARS:
        raise InvalidDocument(f"{path}: must be a workunit id <job>_<task>_<rank>")
    try:
        split_workunit_id(value)
    except BadRequest as exc:
        raise InvalidDocument(f"{path}: {exc.message}") from exc
    return WorkunitId(value)


def _kind(value: object) -> FailureKind:
    kind = _REPORTABLE.get(value) if isinstance(value, str) else None
    if kind is None:
        raise InvalidDocument(f"kind: a failed report needs one of {', '.join(_REPORTABLE)}")
    return kind


def _perf(perf: dict[Any, Any]) -> dict[str, Any]:
    if len(perf) > MAX_PERF_KEYS:
        raise InvalidDocument(f"perf: has more than {MAX_PERF_KEYS} entries")
    for key, value in perf.items():
        kind = type(value)
        is_number = kind is float or (kind is int and abs(value) <= MAX_INT)
        if not is_number or len(key) > MAX_NAME_CHARS:
            break
    else:
        return perf  # as most are
    return {str(key)[:MAX_NAME_CHARS]: _scalar(value, key) for key, value in perf.items()}


def _outputs(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [_output(row, i) for i, row in enumerate(rows(data, "outputs", MAX_IO))]


def _scalar(value: object, key: object) -> object:
    if isinstance(value, str):
        return value[:MAX_NAME_CHARS]
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) <= MAX_INT):
        return value
    raise InvalidDocument(f"perf.{str(key)[:100]}: must be a number, text, true, false or null")
