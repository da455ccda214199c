"""Compare all stored documents with each other, those of ended jobs included, while no server runs.

`recovery.survey` says what a server would stumble over at its start. Here counters are counted again, owners
are looked for, and what ended is looked at, which no server reads until somebody asks for it. Each line says
what is wrong and, after an arrow, what to do. Costs one look at each document; memory grows with jobs and
tasks, not with workunits.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from awe_server.data.documents import is_whole
from awe_server.runtime.deletions import PREFIX
from awe_server.scheduler.state import ACTIVE_JOBS, DONE_TASKS, ENDED_JOBS, RUNNING_TASKS
from awe_server.scheduler.views import stored_ranks
from awe_server.store.base import Document, Store
from shared_models.ids import JobId, TaskId, make_task_id, make_workunit_id
from shared_models.states import ClientStatus, JobState, TaskState, WorkunitState

MAX_LINES = 20  #: of one kind; what half a store lost is not told a line for each document


class Remedy(Enum):
    """Kinds of advice; what calls for the same is told together."""

    START = auto()  #: the server does it
    SWEEP = auto()
    WAIT = auto()
    SHOWN = auto()  #: nothing need be done
    BACKUP = auto()
    REMOVE = auto()
    AGAIN = auto()  #: make it again
    LET_GO_ON = auto()
    NUMBER = auto()


Advice = tuple[Remedy, str]  #: what to do, in words
Finding = tuple[str, Advice]  #: what is wrong, what to do about it

_START = Remedy.START, "the server puts it right when it starts"
_SWEEP = Remedy.SWEEP, "left of what was removed; a running server sweeps it away within the hour"
_SHOWN = Remedy.SHOWN, "only what is shown is wrong, of the work nothing is lost"
_BACKUP = Remedy.BACKUP, "restore a backup of it"

_JOB_KEYS = ("id", "state", "jid", "_jid", "remaintasks", "task_names", "notes")
_TASK_KEYS = (
    "id", "jobid", "task_name", "index", "state", "dependsOn", "totalwork", "remainwork", "generation",
    "fresh_rank", "first_attempt", "max_attempt", "_is_cut",
)  # fmt: skip
_TASK_NUMBERS = (
    "index", "totalwork", "remainwork", "generation", "fresh_rank", "first_attempt", "max_attempt",
)  # fmt: skip

_TASK_KINDS: dict[str, type] = {"jobid": str, "task_name": str, "dependsOn": list, "_is_cut": bool}

#: What the job of a workunit may be.
_JOB_OF_UNIT: dict[WorkunitState, frozenset[JobState]] = {
    WorkunitState.QUEUED: ACTIVE_JOBS,
    WorkunitState.CHECKOUT: ACTIVE_JOBS,
    WorkunitState.SUSPEND: frozenset({JobState.SUSPEND, JobState.DELETED}),
    WorkunitState.FAILED_PERMANENT: frozenset({JobState.FAILED_PERMANENT, JobState.DELETED}),
    WorkunitState.COMPLETED: frozenset(JobState),
}


@dataclass(slots=True)
class _Ranks:
    """How many workunits of a task are stored."""

    stored: int = 0
    completed: int = 0


@dataclass(slots=True)
class _Known:
    """What other documents are compared with."""

    clients: dict[str, Document] = field(default_factory=dict)
    jobs: dict[str, Document] = field(default_factory=dict)
    tasks: dict[str, Document] = field(default_factory=dict)
    odd: dict[str, list[str]] = field(default_factory=dict)  #: of tasks, what makes no sense
    ranks: defaultdict[str, _Ranks] = field(default_factory=lambda: defaultdict(_Ranks))
    held: Counter[str] = field(default_factory=Counter)  #: leases of each client
    going: set[str] = field(default_factory=set)  #: noted for deletion: nodes, and all that is of a job


async def survey_documents(store: Store) -> list[str]:
    """What does not fit together, a line each; changes nothing. Raises StoreUnavailable, StoreCorrupt."""
    known, found = _Known(), _Findings()
    known.clients = {document["id"]: document async for document in store.scan("clients")}
    known.jobs = {document["id"]: _slim(document, _JOB_KEYS) async for document in store.scan("jobs")}
    known.tasks = {document["id"]: _slim(document, _TASK_KEYS) async for document in store.scan("tasks")}
    known.odd = {id: odd for id, task in known.tasks.items() if (odd := _odd_keys(task))}
    async for note in store.scan("meta"):
        if note["id"].startswith(PREFIX):
            known.going |= {*(note.get("node_ids") or ()), note.get("job") or ""}
    async for unit in store.scan("workunits"):
        found.add("workunit", unit, _workunit, known)
    async for node in store.scan("nodes"):
        found.add("node", node, _node, known)
    tasks: defaultdict[str, list[Document]] = defaultdict(list)
    for task in known.tasks.values():
        found.add("task", task, _task, known)
        tasks[str(task.get("jobid"))].append(task)
    for job in known.jobs.values():
        found.add("job", job, _job, tasks[job["id"]])
    for client in known.clients.values():
        found.add("client", client, _client, known)
    counters = await store.get("meta", "counters") or {"id": "counters", "jid": 0}
    found.add("meta", counters, _numbers, known)
    return found.lines()


class _Findings:
    """Everything that was found, by kind of document and by what to do about it."""

    def __init__(self) -> None:
        self._told: defaultdict[tuple[str, Remedy], list[str]] = defaultdict(list)
        self._more: Counter[tuple[str, Remedy]] = Counter()

    def add(self, kind: str, document: Document, rule: Callable[..., Iterator[Finding]], known: Any) -> None:
        """Ask what is wrong with a document; one that the question cannot be asked of makes no sense."""
        try:
            findings = list(rule(document, known))
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            findings = [(f"makes no sense ({type(exc).__name__}: {exc})", _BACKUP)]
        state = f" ({document['state']})" if isinstance(document.get("state"), str) else ""
        for fact, advice in findings:
            remedy, words = advice
            alike = kind, remedy
            if len(self._told[alike]) < MAX_LINES:
                self._told[alike].append(f"{kind} {document['id']}{state}: {fact} -> {words}")
            else:
                self._more[alike] += 1

    def lines(self) -> list[str]:
        """The first of each kind, and how many more there are."""
        lines: list[str] = []
        for alike, told in self._told.items():
            lines += told
            if more := self._more[alike]:
                lines.append(f"{alike[0]}: {more} more of which the same is to be said as of the last")
        return lines


def _slim(document: Document, keys: Sequence[str]) -> Document:
    return {key: document[key] for key in keys if key in document}


def _again(job: Document, task_name: str = "") -> Advice:
    """What an operator does about a job of which something is lost."""
    id, state = job["id"], job["state"]
    if state in (JobState.DELETED, JobState.FAILED_PERMANENT):
        return _removed(id)
    first = f"awe suspend {id}, then " if state in ACTIVE_JOBS else ""
    return Remedy.AGAIN, f"{first}awe recompute {id} {task_name} makes it again"


def _removed(job_id: str) -> Advice:
    return Remedy.REMOVE, f"awe rm --full {job_id} removes the job"


def _restored(job_id: str) -> Advice:
    """A backup, or if there is none, at least the rest of the store is sound."""
    return Remedy.BACKUP, f"{_BACKUP[1]}, or {_removed(job_id)[1]}"


def _workunit(unit: Document, known: _Known) -> Iterator[Finding]:
    """One workunit against its task, its job and its client; it is counted for them."""
    task, job = known.tasks.get(unit["taskid"]), known.jobs.get(unit["jobid"])
    if task is None or job is None:
        if job is None and unit["jobid"] in known.going:
            return
        yield f"its {'task' if job else 'job'} is not stored", _removed(unit["jobid"]) if job else _SWEEP
        return
    if job.get("state") not in tuple(JobState) or task["id"] in known.odd:
        known.held[unit["client"]] += unit["state"] == WorkunitState.CHECKOUT
        return  # of these it is told themselves
    is_live = job["state"] not in ENDED_JOBS
    again = _again(job, task["task_name"])
    if unit["state"] not in tuple(WorkunitState):
        yield f"nobody knows the state '{unit['state']}'", _START if is_live else again
    elif unit["generation"] != task["generation"]:
        advice = _SHOWN if is_live else again
        yield f"is of generation {unit['generation']}, its task of {task['generation']}", advice
    else:
        yield from _rank(unit, task, known.ranks[task["id"]], again)
        if job["state"] not in _JOB_OF_UNIT[unit["state"]]:
            yield f"its job is {job['state']}", _START if is_live else again
        elif unit["state"] == WorkunitState.CHECKOUT:
            known.held[unit["client"]] += 1
            yield from _lease(unit, known.clients.get(unit["client"]))


def _rank(unit: Document, task: Document, ranks: _Ranks, again: Advice) -> Iterator[Finding]:
    """Whether it is a workunit that the task can have handed out; it is counted."""
    ranks.stored += 1
    ranks.completed += unit["state"] == WorkunitState.COMPLETED
    rank, attempt = unit["rank"], unit["attempt"]
    if unit["id"] != make_workunit_id(TaskId(task["id"]), rank) or unit["jobid"] != task["jobid"]:
        owner = f"task {task['id']} of job {unit['jobid']}"
        yield f"says that it is rank {rank} of {owner}", _restored(unit["jobid"])
    elif task["_is_cut"] and (rank not in stored_ranks(task) or rank >= task["fresh_rank"]):
        yield f"rank {rank} of its task was never handed out", again  # not cut: it is told of the task
    if not task["first_attempt"] <= attempt <= task["max_attempt"]:
        had = f"{task['first_attempt']} to {task['max_attempt']}"
        yield f"is attempt {attempt}, its task had {had}", _SHOWN


def _lease(unit: Document, client: Document | None) -> Iterator[Finding]:
    if client is None:
        yield f"is leased to client {unit['client']}, which is not known", _START
    elif client["suspended"] or client["Status"] == ClientStatus.OFFLINE:
        yield f"is leased to client {unit['client']}, which is {client['Status']}", _START
    if not unit["_token"]:
        words = "the lease runs out after a start, then it is handed out again"
        yield "is leased without a token", (Remedy.WAIT, words)


def _node(node: Document, known: _Known) -> Iterator[Finding]:
    job_id = node["job"]
    if job_id and job_id not in known.jobs and not {job_id, node["id"]} & known.going:
        yield f"was made for job {job_id}, which is not stored", _SWEEP


def _odd_keys(task: Document) -> list[str]:
    """What a task lacks, or has as something that makes no sense; nothing else is told of it then."""
    odd = [key for key in _TASK_NUMBERS if not is_whole(task.get(key))]
    odd += [key for key, kind in _TASK_KINDS.items() if not isinstance(task.get(key), kind)]
    return odd if task.get("state") in tuple(TaskState) else [*odd, "state"]


def _task(task: Document, known: _Known) -> Iterator[Finding]:
    """One task against its job, its parents and the count of its workunits."""
    job_id, odd = JobId(str(task.get("jobid"))), known.odd.get(task["id"])
    job = known.jobs.get(job_id)
    if odd:
        yield f"makes no sense ({', '.join(odd)})", _restored(job_id) if job else _BACKUP
        return
    if job is None:
        if job_id not in known.going:
            yield f"its job {job_id} is not stored", _SWEEP
        return
    if job.get("state") not in tuple(JobState):
        return  # of which it is told
    if task["id"] != make_task_id(job_id, task["task_name"]):
        yield f"says that it is task {task['task_name']} of job {job_id}", _restored(job_id)
        return
    is_live = job["state"] not in ENDED_JOBS
    for id in task["dependsOn"]:
        if id not in known.tasks:
            yield f"depends on task {id}, which is not stored", _removed(job_id)
            continue
        parent = known.tasks[id]
        if task["_is_cut"] and id not in known.odd and parent["state"] not in DONE_TASKS:
            advice = _START if is_live else _again(job, parent["task_name"])
            yield f"went on before its parent {id} was done, which is {parent['state']}", advice
    if task["state"] in RUNNING_TASKS and job["state"] not in ACTIVE_JOBS:
        yield f"its job is {job['state']}", _START if is_live else _again(job, task["task_name"])
    yield from _counts(task, job, known.ranks[task["id"]])


def _counts(task: Document, job: Document, ranks: _Ranks) -> Iterator[Finding]:
    again = _again(job, task["task_name"])
    mended = again if job["state"] in ENDED_JOBS else _START
    if not task["_is_cut"]:
        if ranks.stored:
            yield f"was not cut, and {ranks.stored} workunits of it are stored", mended
        return
    left = task["totalwork"] - ranks.completed
    handed_out = task["fresh_rank"] - stored_ranks(task).start
    if task["state"] == TaskState.COMPLETED and left:
        yield f"results of {left} of its {task['totalwork']} workunits are not stored", again
    elif handed_out != ranks.stored:
        yield f"{handed_out} workunits were handed out, {ranks.stored} are stored", mended
    elif task["remainwork"] != left:
        yield f"remainwork is {task['remainwork']}, {left} are not completed", _SHOWN


def _job(job: Document, tasks: Sequence[Document]) -> Iterator[Finding]:
    """One job against its tasks."""
    state = JobState(job["state"])
    if not _has_number(job):
        yield "makes no sense (_jid)", _restored(job["id"])
    if any(map(_odd_keys, tasks)):
        return  # of which it is told
    names = [task["task_name"] for task in sorted(tasks, key=lambda task: int(task["index"]))]
    if names != job["task_names"]:
        lost = ", ".join(sorted(set(job["task_names"]) ^ set(names))) or "their order"
        yield f"its tasks are not those that it names ({lost})", _removed(job["id"])
        return
    open_tasks = [task["task_name"] for task in tasks if task["state"] not in DONE_TASKS]
    if state is JobState.COMPLETED and open_tasks:
        yield f"these of its tasks are not done: {', '.join(open_tasks)}", _again(job, open_tasks[0])
    elif job["remaintasks"] != len(open_tasks):
        yield f"remaintasks is {job['remaintasks']}, {len(open_tasks)} are not done", _SHOWN
    if state is JobState.SUSPEND and not job["notes"]:
        yield "does not say why", (Remedy.LET_GO_ON, f"awe resume {job['id']} lets it go on")


def _has_number(job: Document) -> bool:
    return is_whole(job.get("_jid")) and job.get("jid") == str(job["_jid"])


def _client(client: Document, known: _Known) -> Iterator[Finding]:
    """One client against its leases."""
    held, status = known.held[client["id"]], ClientStatus(client["Status"])
    expected = ClientStatus.BUSY if held else ClientStatus.IDLE
    if client["suspended"]:
        expected = ClientStatus.SUSPEND
    if status is not ClientStatus.OFFLINE and status is not expected:
        yield f"is {status} and holds {held} workunits", _SHOWN
    if client["suspended"] and not client["suspend_reason"]:
        words = f"awe clients --resume {client['id']} lets it work"
        yield "is suspended and does not say why", (Remedy.LET_GO_ON, words)


def _numbers(counters: Document, known: _Known) -> Iterator[Finding]:
    """Job numbers are given once, and the next one was never given."""
    jids = Counter(job["_jid"] for job in known.jobs.values() if _has_number(job))  # of others it is told
    for jid, times in jids.items():
        if times > 1:
            advice = Remedy.NUMBER, "name these jobs by their ids"
            yield f"job number {jid} was given {times} times", advice
    if jids and max(jids) > counters["jid"]:
        yield f"the last job number is {counters['jid']}, {max(jids)} was given", _START
