"""The invariant checker of the field reports: what must hold at the end of every test that had a server.

It looks at three things and shares no code with the product: what the server *answered* (`Ledger`, filled by
hooks of the tests' HTTP clients), what it *told* (`GET /events`), and what is *stored* (plain documents, read
past the server: `read_sqlite`, `read_mongo`, or a scan of the store in process). The numbers are those of
cases/field-reports.md:

1. at most one accepted result per workunit;
2. nothing leaves a terminal state but by recompute, resubmit, resume of a suspended job, or delete;
3. no child is checked out before all its parents are done;
4. counters equal a recount: tasks left of a job, workunits left, handed out and attempted of a task, what
   clients hold, job numbers; what a client completed is at least what is stored of it and was handed out
   since it was registered;
5. every acknowledged job, result and upload is there;
6. no process, temporary file or lease is left.

`check_documents`, `check_events`, `check_ledger` and `check_told` say what is wrong, a line each; `check_all`
joins them. They are asked at the end of every test on a site of env.py, pair.py or api/conftest.py. Not in
e2e/test_demo.py and e2e/test_examples.py: their scripts have servers of their own, and what comes out counts.
"""

import hashlib
import itertools
import json
import math
import os
import re
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

import httpx

from shared_models.times import rfc3339
from tests.support import tally
from tests.support.raw_http import FIRST

Document = dict[str, Any]
Documents = Mapping[str, Sequence[Document]]
Facts = Iterator[str]

COLLECTIONS: tuple[Literal["jobs", "tasks", "workunits", "clients", "nodes", "meta"], ...] = (
    "jobs", "tasks", "workunits", "clients", "nodes", "meta",
)  # fmt: skip
ACTIVE = frozenset({"init", "queued", "in-progress"})
ENDED = frozenset({"completed", "failed-permanent", "deleted"})
DONE_TASKS = frozenset({"completed", "skipped"})
#: Verbs after which results of a job may be made again. Those of a resumed one stay.
REOPENING = ("recompute", "resubmit")
NEVER = "0001-01-01T00:00:00Z"
_HASHED_BYTES = 2**20  #: blobs up to this size are read
#: An executor whose daemon was killed clears up for 10 s at most; the rest is for a busy machine.
ENDING_S = 20.0
_LISTEN_S = 5.0  #: a server that is stalled tells nothing


# -- what was answered ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class Reopening:
    """A verb, not refused, after which results of a job may be made again."""

    ended: float = math.inf  #: tick of its answer; what was sent before that may have come before or after it


@dataclass(eq=False)
class Going:
    """A removal, or an expiration, that was asked for and not refused."""

    since: str = NEVER  #: from when on the job may be gone; at once, also if its answer never came


@dataclass
class Ledger:
    """Every promise that a client of the tests was given. May be filled from several threads.

    Results are told apart by how often their job was reopened before. Those whose report was under way
    together with such a verb prove nothing and are left out.
    """

    jobs: set[str] = field(default_factory=set)  #: acknowledged
    #: jobs that somebody had removed (NEVER, or if the answer did not come), or let expire: from when on they
    #: may be gone
    going: dict[str, list[Going]] = field(default_factory=lambda: defaultdict(list))
    all_removed: bool = False  #: a verb on many jobs at once: which ones is not told
    reopenings: dict[str, list[Reopening]] = field(default_factory=lambda: defaultdict(list))
    #: accepted attempts of a workunit between two reopenings, each with the exchange that told so
    results: dict[tuple[str, int], set[tuple[int, str, int]]] = field(
        default_factory=lambda: defaultdict(set)
    )
    done: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  #: workunit: attempt (0 = stock), reopenings
    nodes: dict[str, tuple[str, str]] = field(default_factory=dict)  #: uploads: md5, and when they expire
    made: dict[str, Mapping[str, str]] = field(default_factory=dict)  #: md5 by output, of each of `done`
    changed_nodes: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ticks: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def of(cls, url: str) -> "Ledger":
        """The one of the server there, so that whoever talks to it need not be told."""
        return _ledgers.setdefault(url, cls())

    @classmethod
    def begin(cls, url: str) -> "Ledger":
        """A new one for a new server there; clients of an earlier one at that address keep theirs."""
        _ledgers[url] = begun = cls()
        return begun

    def forget(self) -> None:
        """Nothing was promised so far."""
        with self._lock:
            for kept in (
                self.jobs, self.going, self.reopenings, self.results, self.done, self.nodes, self.made,
                self.changed_nodes,
            ):  # fmt: skip
                kept.clear()

    def hooks(self) -> dict[str, list[Any]]:
        """`event_hooks` of an httpx.Client."""
        return {"request": [self.asks], "response": [self.saw]}

    def async_hooks(self) -> dict[str, list[Any]]:
        """`event_hooks` of an httpx.AsyncClient."""
        return {"request": [self.aasks], "response": [self.asaw]}

    def asks(self, request: httpx.Request) -> None:
        """A request goes out: what it is going to undo, if it arrives, is no promise any more."""
        method, path, query = request.method, request.url.path, request.url.params
        kind, id = path.split("/")[1], _id_of(request)
        with self._lock:
            request.extensions["asked"] = next(self._ticks)
            if kind == "node" and method != "GET" and id and "work" not in query:
                self.changed_nodes.add(id)
            if kind != "job":
                return
            if method == "PUT" and (any(verb in query for verb in REOPENING)):
                request.extensions["reopening"] = reopening = Reopening()
                self.reopenings[id].append(reopening)
            elif "expiration" in query or (method == "DELETE" and "full" in query):
                request.extensions["going"] = going = Going()
                self.going[id].append(going)
                self.all_removed |= not id

    async def aasks(self, request: httpx.Request) -> None:
        """As `asks`."""
        self.asks(request)

    def saw(self, response: httpx.Response) -> None:
        """An answer has come; its body is read only if it promises something."""
        self._answered(response)
        if _may_promise(response):
            response.read()
            self._note(response)

    async def asaw(self, response: httpx.Response) -> None:
        """As `saw`."""
        self._answered(response)
        if _may_promise(response):
            await response.aread()
            self._note(response)

    def _answered(self, response: httpx.Response) -> None:
        request, id = response.request, _id_of(response.request)
        reopening, going = (request.extensions.get(what) for what in ("reopening", "going"))
        with self._lock:
            if reopening is not None:
                reopening.ended = next(self._ticks)
            first = response.headers.get(FIRST, "400")
            if response.is_client_error and first.startswith("4"):  # it has not happened
                _withdraw(self.reopenings, id, reopening)
                _withdraw(self.going, id, going)

    def _note(self, response: httpx.Response) -> None:
        """Write down what a successful answer promises."""
        request, envelope = response.request, response.json()
        data, method, query = envelope["data"], request.method, request.url.params
        _, kind, *rest = request.url.path.split("/")
        with self._lock:
            if (going := request.extensions.get("going")) is not None:
                if said := re.match(r"expiration '([^']+)'", str(data)):
                    going.since = said[1]
            elif kind == "job" and method == "POST" and not rest:
                self.jobs.add(data["id"])
            elif kind == "client":
                self._exchange(request, data)
            elif kind == "work" and query.get("status") == "done" and len(rest) == 1:
                if envelope.get("code") is None:  # a stock worker's late report is answered 200 with a code
                    self._accepted(request, rest[0], int(query.get("attempt") or 0))
            elif (kind, method, rest) == ("node", "POST", []):
                md5 = data["file"]["checksum"].get("md5")
                if md5:
                    self.nodes[data["id"]] = (md5, data["expiration"])

    def _exchange(self, request: httpx.Request, data: Document) -> None:
        asked = json.loads(request.content)
        reports = {(r["work"], r["attempt"]): r for r in asked.get("reports", ())}
        for result in data["results"]:
            work, attempt = result["work"], result["attempt"]
            report = reports.get((work, attempt), {})
            if report.get("outcome") != "done" or result["result"] not in ("accepted", "duplicate"):
                continue
            reopened = self._accepted(request, work, attempt)
            self.made[work] = {o["filename"]: o["md5"] for o in report.get("outputs") or () if o.get("md5")}
            if result["result"] == "accepted" and reopened is not None:
                told = (attempt, str(asked.get("incarnation")), int(asked["request_id"]))
                self.results[work, reopened].add(told)

    def _accepted(self, request: httpx.Request, work: str, attempt: int) -> int | None:
        reopenings = self.reopenings_of(work)
        if any(reopening.ended > request.extensions["asked"] for reopening in reopenings):
            self.done.pop(work, None)
            return None
        self.done[work] = (attempt, len(reopenings))
        return len(reopenings)

    def reopenings_of(self, work: str) -> list[Reopening]:
        """Those of a workunit's job, answered or not."""
        return self.reopenings.get(work.partition("_")[0], [])


#: By address, as long as somebody uses them.
_ledgers: WeakValueDictionary[str, Ledger] = WeakValueDictionary()


def _withdraw(verbs: dict[str, list[Any]], id: str, verb: object) -> None:
    if verb is not None:
        verbs[id].remove(verb)
        if not verbs[id]:
            del verbs[id]


def _id_of(request: httpx.Request) -> str:
    """Of what the request is about, "" if it is about all."""
    return next(iter(request.url.path.split("/")[2:]), "")


def _may_promise(response: httpx.Response) -> bool:
    request = response.request
    kind = request.url.path.split("/")[1]
    return (
        response.status_code == 200
        and request.method in ("POST", "PUT")
        and (kind in ("job", "work", "node") or request.url.path.endswith("/exchange"))
        and response.headers.get("content-type", "").startswith("application/json")
    )


def check_ledger(ledger: Ledger, documents: Documents, tape: "Tape", now: str = "") -> Facts:
    """(1) and (5): what was promised is there, once. `now`: by the server's clock; "": nobody knows."""
    jobs = {job["id"]: job for job in documents["jobs"]}
    nodes = {node["id"]: node for node in documents["nodes"]}
    gone = {e["jobid"] for life in tape.lives for e in life if e["code"] in ("JE", "JR")}
    gone |= {id for id, verbs in ledger.going.items() if any(not now or v.since <= now for v in verbs)}
    for id in ledger.jobs - jobs.keys() - gone:
        if not ledger.all_removed:
            yield f"(5) job {id} was acknowledged and is not stored"
    yield from _results(ledger, documents, tape)
    for id, (md5, expiration) in ledger.nodes.items():
        if id in ledger.changed_nodes or (id in nodes and nodes[id].get("job")):
            continue
        if expiration != NEVER and id not in nodes and (not now or expiration <= now):
            continue
        file = (nodes.get(id) or {}).get("file")
        if file is None or file["checksum"]["md5"] != md5:
            yield f"(5) the upload of node {id} was acknowledged, stored is {file}"


def _results(ledger: Ledger, documents: Documents, tape: "Tape") -> Facts:
    """Whether what was accepted as done is done, once.

    A report that was accepted becomes a failure if the attempt's outputs are not as it says.
    """
    units = {unit["id"]: unit for unit in documents["workunits"]}
    jobs = {job["id"] for job in documents["jobs"]}
    told = Told.of(tape)
    torn = {  # by its last failure, of which nobody was told
        id
        for id, unit in units.items()
        if not told.unfit[id] and (unit["exit"] or {}).get("kind") == "output"
    }
    remade = {id for id in units if _task_of(id) in told.undone}
    for (work, _), answers in ledger.results.items():
        if len(answers) > 1 + told.unfit[work] + (work in torn) and work not in remade:
            yield f"(1) {len(answers)} results of workunit {work} were accepted: {sorted(answers)}"
    for work, (attempt, reopened) in ledger.done.items():
        if work.partition("_")[0] not in jobs or len(ledger.reopenings_of(work)) != reopened:
            continue
        if work in torn or told.is_undone(work):
            continue
        unit = units.get(work)
        if unit is None or unit["state"] != "completed":
            found = unit["state"] if unit else "not stored"
            yield f"(5) the result of {work} attempt {attempt} was acknowledged, the workunit is {found}"
        elif attempt and unit["attempt"] != attempt:
            yield f"(1) {work}: attempt {attempt} was accepted, stored is that of {unit['attempt']}"
        else:
            yield from _outputs(work, ledger.made.get(work, {}), unit)


def _outputs(work: str, made: Mapping[str, str], unit: Document) -> Facts:
    """What the report of a result said that was uploaded is what is stored of it."""
    stored = {output["filename"]: output.get("md5") for output in unit.get("outputs") or ()}
    for name, md5 in made.items():
        if stored.get(name) != md5:
            yield f"(5) output {name} of {work} was {md5}, stored is {stored.get(name)}"


# -- what is stored ------------------------------------------------------------------------------------------


def check_documents(documents: Documents, *, clock_steps: bool = False) -> Facts:
    """(3), (4), and leases that nobody holds; of a store that nobody writes to any more."""
    tasks: dict[str, list[Document]] = defaultdict(list)
    units: dict[str, list[Document]] = defaultdict(list)
    for task in documents["tasks"]:
        tasks[task["jobid"]].append(task)
    for unit in documents["workunits"]:
        units[unit["taskid"]].append(unit)
    jobs = {job["id"]: job for job in documents["jobs"]}
    clients = {client["id"]: client for client in documents["clients"]}
    going = {note.get("job") for note in documents["meta"] if note["id"].startswith("delete-nodes-")}
    for id in tasks.keys() - jobs.keys() - going:
        yield f"(4) {len(tasks[id])} tasks are stored of job {id}, which is not"
    known = {task["id"] for task in documents["tasks"]}
    for id in units.keys() - known:
        yield f"(4) {len(units[id])} workunits are stored of task {id}, which is not"
    yield from _job_numbers(documents)
    for job in jobs.values():
        mine = sorted(tasks[job["id"]], key=lambda task: int(task["index"]))
        yield from (f"job {job['id']} ({job['state']}): {fact}" for fact in _job(job, mine))
        by_id = {task["id"]: task for task in mine}
        for task in mine:
            facts = [*_task(task, units[task["id"]]), *_parents(task, by_id, units[task["id"]], clock_steps)]
            for unit in units[task["id"]]:
                facts += (
                    f"rank {unit['rank']} ({unit['state']}): {f}" for f in _unit(job, task, unit, clients)
                )
            yield from (f"task {task['id']} ({task['state']}): {fact}" for fact in facts)
    yield from _clients(documents, clock_steps)


def _job_numbers(documents: Documents) -> Facts:
    counters = next((d for d in documents["meta"] if d["id"] == "counters"), {"jid": 0})
    times = Counter(job["_jid"] for job in documents["jobs"])
    for jid, count in times.items():
        if count > 1 or jid > counters["jid"]:
            yield f"(4) job number {jid} was given {count} times, the counter is at {counters['jid']}"


def _job(job: Document, tasks: list[Document]) -> Facts:
    if [task["task_name"] for task in tasks] != job["task_names"]:
        yield f"(5) its tasks are {job['task_names']}, stored are {[task['task_name'] for task in tasks]}"
    left = sum(task["state"] not in DONE_TASKS for task in tasks)
    if job["remaintasks"] != left:
        yield f"(4) remaintasks is {job['remaintasks']}, {left} are not done"
    if (job["state"] == "completed" and left) or (job["state"] in ACTIVE and not left):
        yield f"(4) {left} tasks are not done"
    for task in tasks:
        if task["state"] in ("queued", "in-progress") and job["state"] not in ACTIVE:
            yield f"(2) its task {task['task_name']} is {task['state']}"
    if job["state"] in ("suspend", "failed-permanent") and not job["notes"]:
        yield "it does not say why"


def _task(task: Document, units: list[Document]) -> Facts:
    done = sum(unit["state"] == "completed" for unit in units)
    if not task["_is_cut"]:
        if units:
            yield f"(4) it was not cut and has {len(units)} workunits"
        return
    first = 0 if task["totalwork"] == 1 else 1
    if task["remainwork"] != task["totalwork"] - done:
        yield f"(4) remainwork is {task['remainwork']}, {done} of {task['totalwork']} are completed"
    if sorted(unit["rank"] for unit in units) != list(range(first, task["fresh_rank"])):
        yield f"(4) handed out were ranks {first} to {task['fresh_rank'] - 1}, stored are {len(units)}"
    if task["state"] == "completed" and done != task["totalwork"]:
        yield f"(4) {done} of {task['totalwork']} workunits are completed"
    if task["state"] in ("pending", "queued") and task["fresh_rank"] > first:
        yield "(4) workunits were handed out"
    if task["state"] == "in-progress" and not units:
        yield "(4) no workunit was handed out"


def _parents(
    task: Document, tasks: Mapping[str, Document], units: list[Document], clock_steps: bool
) -> Facts:
    parents = [tasks[id] for id in task["dependsOn"] if id in tasks]
    if task["_is_cut"] or task["state"] == "skipped":
        for parent in parents:
            if parent["state"] not in DONE_TASKS:
                yield f"(3) it was cut, its parent {parent['task_name']} is {parent['state']}"
    ready = max((parent["completeddate"] for parent in parents), default=NEVER)
    for unit in units:
        if not clock_steps and unit["checkout_time"] != NEVER and unit["checkout_time"] < ready:
            begun = unit["checkout_time"]
            yield f"(3) rank {unit['rank']} was handed out at {begun}, a parent was done at {ready}"


def _unit(job: Document, task: Document, unit: Document, clients: Mapping[str, Document]) -> Facts:
    if unit["generation"] != task["generation"]:
        yield f"(4) it is of generation {unit['generation']}, its task of {task['generation']}"
    if not task["first_attempt"] <= unit["attempt"] <= task["max_attempt"]:
        yield f"(4) attempt {unit['attempt']}, its task had {task['first_attempt']} to {task['max_attempt']}"
    state = unit["state"]
    if state in ("checkout", "queued") and job["state"] not in ACTIVE:
        yield f"(6) its job is {job['state']}"
    if state == "suspend" and job["state"] in (*ACTIVE, "completed"):
        yield f"(2) its job is {job['state']}"
    if state == "checkout":
        client = clients.get(unit["client"])
        if client is None or client["suspended"] or client["Status"] == "offline":
            status = client["Status"] if client else "not known"
            yield f"(6) it is leased to client {unit['client']}, which is {status}"
        if not unit["_token"]:
            yield "(6) it is leased without a token"


def _clients(documents: Documents, clock_steps: bool) -> Facts:
    held = Counter(u["client"] for u in documents["workunits"] if u["state"] == "checkout")
    done: dict[str, list[str]] = defaultdict(list)  #: when what it completed was handed out
    for unit in documents["workunits"]:
        if unit["state"] == "completed":
            done[unit["client"]].append(unit["checkout_time"])
    for client in documents["clients"]:
        shown, id = client["Status"], client["id"]
        is_busy = "active-busy" if held[id] else "active-idle"
        expected = "suspend" if client["suspended"] else is_busy
        if shown not in ("offline", expected):
            why = client["suspend_reason"] or "not suspended"
            yield f"(4) client {id} is {shown} and holds {held[id]} workunits, {why}"
        if client["suspended"] and not client["suspend_reason"]:
            yield f"client {id} is suspended and does not say why"
        mine = 0 if clock_steps else sum(at > client["regtime"] for at in done[id])
        if client["total_completed"] < mine:
            yield f"(4) client {id} completed {client['total_completed']}, stored are {mine} of its workunits"


# -- what was told -------------------------------------------------------------------------------------------


class Tape:
    """The events of one server, over its restarts; what it told between a read and a kill is lost."""

    def __init__(self) -> None:
        self.lives: list[list[Document]] = [[]]  #: by stretch without a gap
        self.last = 0
        self._life = 0
        self._lock = threading.Lock()  # who kills in another thread reads first

    def add(self, events: Sequence[Document]) -> None:
        """Events as `GET /events?since=last` gave them."""
        for event in events:
            if self.lives[-1] and event["seq"] != self.last + 1:
                self.gap()  # more than the server keeps
            self.lives[-1].append(event)
            self.last = event["seq"]

    def gap(self) -> None:
        """The server is about to be killed, or was: events may be missing here."""
        self.lives.append([])

    def read(self, http: httpx.Client, life: int = 0) -> None:
        """Take what is new, page by page; nothing if the server does not answer. `life`: which start of the
        server this is; after another one begins a new stretch.
        """
        with self._lock:
            if life != self._life:
                if (self._life, life) != (0, 1):
                    self.gap()
                self._life = life
            try:
                while page := self._page(http):
                    self.add(page)
            except (httpx.HTTPError, ValueError, KeyError):
                self.gap()

    def _page(self, http: httpx.Client) -> list[Document]:
        reply = http.get("/events", params={"since": self.last}, timeout=_LISTEN_S)
        events: list[Document] = reply.json()["data"]
        return events


#: What may still happen to a job in a terminal state.
_AFTER = {
    "JD": {"JC", "JL", "JR", "JE"},
    "JF": {"JL", "JR", "JE"},
    "JL": {"JR", "JE"},
    "JR": set(),
    "JE": set(),
}


def check_events(tape: Tape, parents: Mapping[str, Sequence[str]]) -> Facts:
    """(1), (2), (3): in the order in which it was told. `parents` are those of each task, by id."""
    for life in tape.lives:
        yield from _life(life, parents)


def _done_again(event: Document, parents: Mapping[str, Sequence[str]]) -> Callable[[str], bool]:
    """Tells of which tasks a job that is done again begins anew: one and all that depend on it, or all."""
    prefix, task = f"{event['jobid']}_", event.get("taskid")
    if task not in parents:
        return lambda id: id.startswith(prefix)
    again = {task}
    while more := {id for id, before in parents.items() if id not in again and again.intersection(before)}:
        again |= more
    return again.__contains__


def _life(events: Sequence[Document], parents: Mapping[str, Sequence[str]]) -> Facts:
    ended: dict[str, str] = {}  #: job: the event that ended it
    done: set[str] = set()  #: tasks
    results: set[str] = set()
    held: dict[str, str] = {}
    seen: set[str] = set()  #: jobs whose whole story is in this stretch
    for event in events:
        code, job = event["code"], event.get("jobid", "")
        what = f"event {event['seq']} {code}"
        if code == "JQ":
            seen.add(job)
        if job in ended and code not in _AFTER[ended[job]]:
            yield f"(2) {what}: job {job} had ended ({ended[job]})"
        if code in _AFTER:
            ended[job] = code
        elif code == "JC":
            ended.pop(job, None)
            is_again = _done_again(event, parents)
            done = {task for task in done if not is_again(task)}
            results = {work for work in results if not is_again(_task_of(work))}
        elif code == "JP":
            if task_id := _unfinished(event):
                results = {work for work in results if _task_of(work) != task_id}
            for work in [work for work in held if work.startswith(f"{job}_")]:
                del held[work]
        elif code in ("TD", "TS"):
            if event["taskid"] in done:
                yield f"(2) {what}: task {event['taskid']} was done already"
            done.add(event["taskid"])
        elif code == "WC":
            for work in event["workids"]:
                if work in results:
                    yield f"(2) {what}: workunit {work} was done"
                if work in held:
                    yield f"(1) {what}: {work} is given to {event['clientid']}, {held[work]} has it"
                held[work] = event["clientid"]
                missing = [p for p in parents.get(_task_of(work), ()) if p not in done]
                if missing and job in seen:
                    yield f"(3) {what}: {work} before {missing}"
        elif code in ("WD", "WF", "WR", "WP", "W!"):
            work = event["workid"]
            if work in results:
                yield f"({1 if code == 'WD' else 2}) {what}: workunit {work} was done already"
            if code == "WD":
                results.add(work)
            held.pop(work, None)


def _task_of(work: str) -> str:
    return work.rpartition("_")[0]


def _unfinished(event: Document) -> str:
    """The task whose outputs could not be made whole: those of its results that are lost are made again."""
    found = re.match(r"failed finishing task ([^,]+), err=", event.get("reason", ""))
    return found[1] if found else ""


@dataclass
class Told:
    """What was told of results, over all lives, whatever is missing between them."""

    #: workunit: the life in which it was done last, and which event of all that was
    done: dict[str, tuple[int, int]] = field(default_factory=dict)
    unfit: Counter[str] = field(default_factory=Counter)  #: how often its outputs were not as reported
    again: set[str] = field(default_factory=set)  #: workunits done again in a later life
    reopened: set[str] = field(default_factory=set)  #: jobs that were done again, or have gone
    completed: set[str] = field(default_factory=set)  #: jobs
    submitted: set[str] = field(default_factory=set)
    #: workunits whose outputs were not as reported, and tasks of which some are lost: by which event of all
    undone: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, tape: Tape) -> "Told":
        told = cls()
        events = ((number, event) for number, life in enumerate(tape.lives) for event in life)
        for at, (life, event) in enumerate(events):
            told._hear(life, at, event)
        return told

    def is_undone(self, work: str) -> bool:
        """Whether its result did not count, or is lost, and was not made again since."""
        undone_at = max(self.undone.get(id, -1) for id in (work, _task_of(work)))
        return undone_at > self.done.get(work, (0, -1))[1]

    def _hear(self, life: int, at: int, event: Document) -> None:
        code, job, work = event["code"], event.get("jobid", ""), event.get("workid", "")
        if code == "JQ":
            self.submitted.add(job)
        elif code == "JD":
            self.completed.add(job)
        elif code in ("JC", "JL", "JR", "JE"):
            self.reopened.add(job)
        elif code == "JP" and (task := _unfinished(event)):
            self.undone[task] = at
        elif code == "WF" and event.get("kind") == "output":
            self.unfit[work] += 1
            self.undone[work] = at
        elif code == "WD":
            if work in self.done and self.done[work][0] != life and not self.is_undone(work):
                self.again.add(work)
            self.done[work] = (life, at)


def check_told(tape: Tape, ledger: Ledger, documents: Documents) -> Facts:
    """(1) and (5): what was told is stored, and no result was told of in two lives.

    An event is told after its commit, so no kill may undo it. Only of jobs that nobody did again or removed;
    where events are missing, a later generation of one of its tasks says that, too.
    """
    told, jobs = Told.of(tape), {job["id"]: job for job in documents["jobs"]}
    units = {unit["id"]: unit for unit in documents["workunits"]}
    moved = told.reopened | ledger.reopenings.keys()
    if len(tape.lives) > 1:
        moved |= {task["jobid"] for task in documents["tasks"] if task["generation"] > 1}
        moved |= {job["id"] for job in documents["jobs"] if job["state"] == "deleted"}
    if not ledger.all_removed:
        lost = told.submitted - moved - ledger.going.keys() - ledger.jobs - jobs.keys()
        yield from (f"(5) job {job} was told of and is not stored" for job in sorted(lost))
    for job in sorted((told.completed - moved) & jobs.keys()):
        if jobs[job]["state"] != "completed":
            yield f"(5) job {job} was said to be completed, stored is {jobs[job]['state']}"
    for work in told.done:
        job = work.partition("_")[0]
        if job in moved or job not in jobs:
            continue
        state = units[work]["state"] if work in units else "not stored"
        if state != "completed" and not told.is_undone(work) and work not in ledger.done:
            yield f"(5) the result of {work} was told of, the workunit is {state}"
        if work in told.again:
            yield f"(1) the result of {work} was told of in two lives of the server"


# -- what is left --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Someone:
    """A process as it was seen; one that gets its number later is somebody else."""

    pid: int
    started: str  #: ticks since the machine was started
    command: str

    @classmethod
    def of(cls, pids: Iterable[int]) -> "list[Someone]":
        """Those of them that live."""
        return [
            cls(pid, stat.started, _command(_about(pid, "cmdline")) or stat.name)
            for pid in pids
            if (stat := _Stat.of(pid)) is not None
        ]

    @property
    def lives(self) -> bool:
        """Whether it still runs; what has ended and only waits for its parent does not."""
        stat = _Stat.of(self.pid)
        return stat is not None and stat.started == self.started

    def __str__(self) -> str:
        stat = _Stat.of(self.pid)
        now = f", state {stat.state}, child of {stat.parent}" if stat else ""
        return f"{self.pid} is left: {self.command}{now}"


@dataclass(frozen=True)
class _Stat:
    """What /proc says of a process that lives."""

    name: str
    state: str
    parent: str
    started: str

    @classmethod
    def of(cls, pid: int) -> "_Stat | None":
        name, _, rest = _about(pid, "stat").decode(errors="replace").rpartition(")")
        fields = rest.split()
        if not fields or fields[0] in "ZX":
            return None
        return cls(name.partition("(")[2], fields[0], fields[1], fields[19])


def _about(pid: int, what: str) -> bytes:
    """A file of a process; nothing once it is gone, or if it is nobody's business."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


def _command(cmdline: bytes) -> str:
    return cmdline.replace(b"\0", b" ").decode(errors="replace").strip()[:200]


def processes_of(folder: Path) -> dict[int, Someone]:
    """Living processes that have to do with a folder: started in it, or it is in their arguments or
    environment."""
    about_it = re.compile(re.escape(os.fsencode(folder)) + rb"(?![\w.-])")  # not that of a longer name
    found: list[int] = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            cwd = os.readlink(f"/proc/{entry}/cwd".encode())
        except OSError:
            continue
        if any(
            about_it.search(text)
            for text in (cwd, _about(int(entry), "cmdline"), _about(int(entry), "environ"))
        ):
            found.append(int(entry))
    return {someone.pid: someone for someone in Someone.of(found)}


def check_processes(
    folders: Iterable[Path], others: Iterable[Someone] = (), within_s: float = ENDING_S
) -> Facts:
    """(6): daemon and server were killed; all that they started ends by itself within this time.

    `others`: descendants that were seen before, whatever they hide.
    """
    until, folders, others = time.monotonic() + within_s, list(folders), list(others)
    while True:
        left = {pid: someone for folder in folders for pid, someone in processes_of(folder).items()}
        left |= {someone.pid: someone for someone in others if someone.lives}
        if not left or time.monotonic() > until:
            break
        time.sleep(0.05)
    yield from (f"(6) process {someone}" for someone in left.values())


_TEMPORARY = re.compile(r"(^\.tmp-|\.part$|\.new$)")


def check_files(data: Path, documents: Documents) -> Facts:
    """(5) and (6): each node's file is there and whole; nothing half-made lies about.

    Only of a server that was not killed: uploads that a kill cut off are swept an hour later.
    """
    blobs = data / "nodes" / "blobs"
    for node in documents["nodes"]:
        if node.get("file") is None:
            continue
        path = blobs / str(node["_blob"])
        if not path.is_file():
            yield f"(5) node {node['id']}: its file {path} is gone"
        elif path.stat().st_size != node["file"]["size"]:
            yield f"(5) node {node['id']}: its file has {path.stat().st_size} bytes of {node['file']['size']}"
        elif path.stat().st_size <= _HASHED_BYTES:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if digest != node["file"]["checksum"]["sha256"]:
                yield f"(5) node {node['id']}: its file is damaged"


def check_temporary(folder: Path, older_than_s: float = math.inf) -> Facts:
    """(6): nothing half-made lies about that was written before a time, in seconds since the epoch."""
    for path in folder.rglob("*"):
        if _TEMPORARY.search(path.name) and path.is_file() and path.stat().st_mtime < older_than_s:
            yield f"(6) {path} is left"


def check_logs(folder: Path) -> Facts:
    """No server or client has said that something went wrong that it did not expect."""
    for log in sorted(folder.glob("*.err")):
        text = log.read_text(errors="replace")
        if (at := text.find("Traceback (most")) >= 0:
            yield f"{log}: {text[max(0, at - 500) : at + 3000]}"


def check_given_back(documents: Documents) -> Facts:
    """(6): a server that was stopped gave its claim to a MongoDB database back."""
    lease = next((d for d in documents["meta"] if d["id"] == "lease"), None)
    if lease is not None and lease.get("owner"):
        yield f"(6) the writer's lease is still that of {lease['owner']}"


# -- all of it -----------------------------------------------------------------------------------------------


def check_all(
    documents: Documents,
    tape: Tape,
    ledger: Ledger | None = None,
    *,
    wall_s: float = 0.0,
    clock_steps: bool = False,
) -> list[str]:
    """Whatever is wrong with what was stored, told and answered.

    `wall_s` is what the server's clock shows, if that is not the machine's; `clock_steps`: it was moved, and
    times say nothing.
    """
    now = "" if clock_steps else rfc3339(wall_s or time.time())
    parents = {task["id"]: task["dependsOn"] for task in documents["tasks"]}
    broken = [*check_documents(documents, clock_steps=clock_steps), *check_events(tape, parents)]
    if ledger is not None:
        broken += [*check_ledger(ledger, documents, tape, now), *check_told(tape, ledger, documents)]
    return broken


#: What a fact is about, and its number; what processes said may have numbers, too.
_FACT = re.compile(r"(?:(?:job|task|rank) [^\n]*?: )*\((\d)\) ")


def _of_kind(number: str, broken: Sequence[str]) -> list[str]:
    return [line for line in broken if (fact := _FACT.match(line)) and fact[1] == number]


def counted(broken: Sequence[str]) -> Sequence[str]:
    """What was found wrong of one site, counted for the end of the run."""
    tally.count(tally.CHECKED)
    tally.count_broken(tally.LOST, _of_kind("5", broken))
    tally.count_broken(tally.DOUBLED, _of_kind("1", broken))
    return broken


def read_sqlite(data: Path) -> dict[str, list[Document]]:
    """Every document of a data directory whose server does not run."""
    database = sqlite3.connect(f"{(data / 'awe.sqlite').absolute().as_uri()}?mode=ro", uri=True)
    try:
        return {
            name: [json.loads(text) for (text,) in database.execute(f"SELECT doc FROM {name} ORDER BY id")]
            for name in COLLECTIONS
        }
    finally:
        database.close()


def read_mongo(url: str) -> dict[str, list[Document]]:
    """Every document of a MongoDB database."""
    from pymongo import MongoClient

    client: MongoClient[Document] = MongoClient(url, serverSelectionTimeoutMS=5_000)
    with client:
        database = client.get_default_database()
        return {
            name: [_renamed(document) for document in database[name].find().sort("_id")]
            for name in COLLECTIONS
        }


def _renamed(document: Document) -> Document:
    """As other stores have it: the id is `id`."""
    renamed = dict(document)
    renamed.setdefault("id", renamed.pop("_id", None))
    return renamed
