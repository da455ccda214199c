"""Small worlds for scheduler tests: a job in one line, a clock that moves when told, tokens in sequence."""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from awe_server.scheduler import views
from awe_server.scheduler.checkout import Grant, checkout
from awe_server.scheduler.clients import register
from awe_server.scheduler.exchange import ExchangeReply, exchange
from awe_server.scheduler.facts import InputFact, OutputFact, TaskFacts
from awe_server.scheduler.finish import task_finished
from awe_server.scheduler.load import LoadInput, load
from awe_server.scheduler.ready import task_prepared
from awe_server.scheduler.report import report
from awe_server.scheduler.state import (
    ENDED_JOBS,
    Changes,
    Client,
    Context,
    DeleteNodes,
    Document,
    FinishTask,
    Job,
    PrepareTask,
    Rules,
    State,
    Task,
    Workunit,
)
from awe_server.scheduler.submit import submit_job
from awe_server.scheduler.tick import tick
from awe_server.store.indexes import FIXED
from awe_server.store.query import lookup
from shared_models.documents import JobDocument
from shared_models.ids import ClientId, JobId, WorkunitId
from shared_models.messages import ExchangeRequest, Free, Report
from shared_models.states import FailureKind

T0 = 1_000.0  #: monotonic
WALL0 = 1_767_268_800.0  #: 2026-01-01T12:00:00Z
GIB = 1024**3


class JobBuilder:
    """Builds a JobDocument: `a_job().task("t1", parts=4).depends("t0").build()`."""

    def __init__(self, **info: Any) -> None:
        self._info = info
        self._tasks: list[dict[str, Any]] = []

    def task(self, name: str, *, parts: int = 1, cmd: str = "run", **extra: Any) -> "JobBuilder":
        """Add a task; the next calls of depends, reads, writes mean it. `extra` goes into the document."""
        self._tasks.append({"taskid": name, "cmd": {"name": cmd}, "totalwork": parts, **extra})
        return self

    def depends(self, *names: str) -> "JobBuilder":
        """Let the last task wait for others."""
        self._tasks[-1].setdefault("dependsOn", []).extend(names)
        return self

    def reads(self, filename: str, origin: str = "", node: str = "", **extra: Any) -> "JobBuilder":
        """Give the last task an input: a file that another task makes, or a node."""
        io = {"filename": filename, "origin": origin, "node": node or ("" if origin else f"node-{filename}")}
        self._tasks[-1].setdefault("inputs", []).append({**io, **extra})
        return self

    def writes(self, filename: str, **extra: Any) -> "JobBuilder":
        """Give the last task an output."""
        self._tasks[-1].setdefault("outputs", []).append({"filename": filename, **extra})
        return self

    def build(self) -> JobDocument:
        """The checked document."""
        return JobDocument.model_validate({"info": self._info, "tasks": self._tasks})


def a_job(**info: Any) -> JobBuilder:
    """Begin a job; keywords go into its info."""
    return JobBuilder(**info)


def job_id(number: int = 1) -> JobId:
    """The id of the number-th job."""
    return JobId(f"{number:08d}-0000-4000-8000-000000000000")


def a_profile(**extra: Any) -> dict[str, Any]:
    """What a native client with 8 cores says of itself."""
    profile = {
        "name": "node",
        "group": "default",
        "apps": ["*"],
        "cores": 8,
        "memory_bytes": 16 * GIB,
        "disk_bytes": 100 * GIB,
        "gpus": 0,
        "native": True,
        "incarnation": "i1",
    }
    return {**profile, **extra}


PLENTY = Free(cores=10_000, memory_bytes=10_000 * GIB, disk_bytes=10_000 * GIB, gpus=100)


class World:
    """A scheduler state with a clock and clients that behave."""

    def __init__(self, **rules: Any) -> None:
        self.state = State(Rules(**rules))
        self.now_s = T0
        self.wall_s = WALL0
        self._tokens = count(1)
        self._jobs = count(1)
        self._requests: dict[str, Iterator[int]] = {}

    @property
    def ctx(self) -> Context:
        """Now."""
        return Context(self.now_s, self.wall_s, lambda: f"token-{next(self._tokens)}")

    def pass_s(self, seconds: float) -> None:
        """Let time pass, and let the scheduler notice."""
        self.now_s += seconds
        self.wall_s += seconds
        tick(self.state, self.ctx)

    def submit(self, job: JobBuilder | JobDocument, *, owner: str = "anna", key: str = "") -> Job:
        """Submit a job under the next id."""
        document = job.build() if isinstance(job, JobBuilder) else job
        id = job_id(next(self._jobs))
        return submit_job(self.state, self.ctx, document, job_id=id, owner=owner, idempotency_key=key)

    def client(self, id: str = "c1", **profile: Any) -> Client:
        """Register a client."""
        return register(self.state, self.ctx, a_profile(**profile), ClientId(id), ClientId(id))

    def stock_client(self, id: str = "c1", **profile: Any) -> Client:
        """Register a worker as AWE's own: no exchange, no incarnation."""
        return self.client(id, native=False, incarnation="", **profile)

    def prepare(self, task: Task, *, sizes: Mapping[str, int] | None = None, **facts: Any) -> None:
        """Answer a PrepareTask: all inputs exist (1 MiB unless sizes say), outputs get nodes."""
        files = [*task.inputs, *task.predata]
        inputs = [
            InputFact(io["filename"], io["node"], (sizes or {}).get(io["filename"], 1024**2)) for io in files
        ]
        outputs = [
            OutputFact(io["filename"], f"{task.name}-{io['filename']}-{task.generation}")
            for io in task.outputs
        ]
        task_prepared(
            self.state, self.ctx, task.id, task.generation, TaskFacts(inputs=inputs, outputs=outputs, **facts)
        )

    def finish(self, task: Task) -> None:
        """Answer a FinishTask: every output is whole, 10 bytes long."""
        outputs = [OutputFact(io["filename"], io["node"], 10, "0" * 32) for io in task.outputs]
        task_finished(self.state, self.ctx, task.id, task.generation, outputs)

    def checkout(self, client: str = "c1", want: int = 1, **more: Any) -> list[Grant]:
        """Check out with plenty of everything free."""
        more.setdefault("free", PLENTY)
        return checkout(self.state, self.ctx, ClientId(client), want, **more).grants

    def take(self, client: str = "c1") -> Workunit:
        """Check out exactly one workunit."""
        (grant,) = self.checkout(client)
        return grant.unit

    def report(
        self, r: Report, client: str = "c1", finished: Mapping[WorkunitId, Document] | None = None
    ) -> str:
        """Report as the client."""
        return report(self.state, self.ctx, ClientId(client), r, finished or {})

    def done(self, unit: Workunit, **extra: Any) -> str:
        """Its holder reports success."""
        return self.report(a_report(unit, **extra), unit.client)

    def fail(self, unit: Workunit, kind: FailureKind = FailureKind.COMMAND, **extra: Any) -> str:
        """Its holder reports a failure."""
        extra.setdefault("exit_code", 1 if kind is FailureKind.COMMAND else None)
        return self.report(a_report(unit, outcome="failed", kind=kind, **extra), unit.client)

    def release(self, unit: Workunit) -> str:
        """Its holder gives it back."""
        return self.report(a_report(unit, outcome="released"), unit.client)

    def exchange(self, client: str = "c1", request_id: int | None = None, **x: Any) -> ExchangeReply:
        """Send an exchange with the next request id; without `holds` the client lists what it holds."""
        ids = self._requests.setdefault(client, count(1))
        if "holds" not in x:
            holder = self.state.clients.get(ClientId(client))
            x["holds"] = [(u.id, u.attempt) for u in holder.holds.values()] if holder else []
        fields: dict[str, Any] = {
            "incarnation": "i1",
            "request_id": next(ids) if request_id is None else request_id,
            "reports": [],
            "want": 0,
            "wait_s": 0.0,
            "free": PLENTY,
            "draining": False,
            "leaving": False,
        }
        finished = x.pop("finished", {})
        request = ExchangeRequest(**{**fields, **x})
        return exchange(self.state, self.ctx, ClientId(client), request, finished)

    def reloaded(self, stored: "Stored") -> State:
        """The state as a restart would see it: everything marked is stored, then loaded."""
        stored.apply(self.state)
        return load(stored.load_input(self.state.rules), self.ctx)


def a_report(unit: Workunit, **extra: Any) -> Report:
    """A report of success by the present holder, changed by `extra`."""
    fields: dict[str, Any] = {
        "work": unit.id,
        "attempt": unit.attempt,
        "token": unit.token,
        "outcome": "done",
        "kind": None,
        "exit_code": 0,
        "signal": None,
        "message": "",
        "computetime_s": 2.0,
        "stdout_tail": "",
        "stderr_tail": "",
        "perf": {},
        "outputs": [],
    }
    return Report(**{**fields, **extra})


class Stored:
    """What a store would hold: applies batches as the engine does."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, Document]] = {}

    def apply(self, state: State) -> Changes:
        """Take the batch and store it."""
        changes = state.take()
        for removal in changes.removals:
            held = self.documents.get(removal.collection, {})
            self.documents[removal.collection] = {
                id: d for id, d in held.items() if d.get(removal.field) != removal.value
            }
        for collection, document in views.documents(state, changes):
            held = self.documents.setdefault(collection, {})
            for known, path in FIXED:
                if known == collection and (old := held.get(document["id"])) is not None:
                    assert lookup(old, path) == lookup(document, path), f"{path} of {document['id']} changed"
            held[document["id"]] = document
        return changes

    def load_input(self, rules: Rules) -> LoadInput:
        """What recovery reads: jobs that have not ended with what is theirs, all clients, meta."""
        ended = ("completed", "failed-permanent", "deleted")
        jobs = {id: d for id, d in self.documents.get("jobs", {}).items() if d["state"] not in ended}
        meta = self.documents.get("meta", {})
        return LoadInput(
            jobs=list(jobs.values()),
            tasks=[d for d in self.documents.get("tasks", {}).values() if d["jobid"] in jobs],
            workunits=[d for d in self.documents.get("workunits", {}).values() if d["jobid"] in jobs],
            clients=list(self.documents.get("clients", {}).values()),
            counters=meta.get("counters"),
            queue=meta.get("queue"),
            rules=rules,
        )


def snapshot(state: State) -> dict[str, Any]:
    """Everything about a state that a restart must keep, as plain values: compare two with `==`.

    Without monotonic times and caches; ended jobs are left out, as they leave memory.
    """
    jobs = {id: job for id, job in state.jobs.items() if job.state not in ENDED_JOBS}
    units = [u for u in state.workunits.values() if u.task.job.id in jobs]
    return {
        "jobs": {id: {**views.job_document(job), "open": job.open_tasks} for id, job in jobs.items()},
        "tasks": {task.id: _task(task) for job in jobs.values() for task in job.tasks},
        "workunits": {u.id: {**views.unit_document(u), "delayed": u.due_s > 0} for u in units},
        "clients": {id: _client(client) for id, client in state.clients.items()},
        "queues": _queues(state),
        "named": {
            node: kept
            for node, tasks in state.named_nodes.as_dict().items()
            if (kept := {id for id in tasks if state.tasks[id].job.id in jobs})
        },
        "running": dict(state.running),
        "suspended": state.queue_suspended,
        "jid": state.last_jid,
    }


def _task(task: Task) -> Document:
    return {
        **views.task_document(task),
        "end_rank": task.end_rank,
        "done": task.done,
        "waiting_for": task.waiting_for,
        "dependants": sorted(d.name for d in task.dependants),
        "input_bytes": task.input_bytes,
        "preparing": task.preparing,
        "finishing": task.finishing,
        "listed": task.is_listed,
        "retry": [u.rank for u in task.retry],
        "units": sorted(task.units),
    }


def _client(client: Client) -> Document:
    return {**views.client_document(client), "holds": sorted(client.holds)}


def _queues(state: State) -> Document:
    return {
        str(demand.key): [
            (lane.key, [(queue.jid, [task.index for task in queue.tasks]) for queue in lane.jobs])
            for lane in demand.lanes
        ]
        for demand in state.demand_list
        if demand.listed
    }


def changed(changes: Changes) -> dict[str, str]:
    """What a transition changed, as {short id: new state}: `t1`, `t1_2`, client ids, `job`; effects by name.

    For worlds with one job. A surplus change shows up as a surplus key.
    """
    found: dict[str, str] = {}
    for job in changes.jobs.values():
        found["job"] = job.state.value
    for task in changes.tasks.values():
        found[task.name] = task.state.value
    for unit in changes.workunits.values():
        found[f"{unit.task.name}_{unit.rank}"] = unit.state.value
    for client in changes.clients.values():
        found[client.id] = client.status.value
    for removal in changes.removals:
        found[f"removed {removal.collection} {removal.value}"] = removal.field
    for effect in changes.effects:
        found[type(effect).__name__] = _target(effect)
    return found


def _target(effect: object) -> str:
    if isinstance(effect, PrepareTask | FinishTask):
        return effect.task_id.split("_", 1)[1]
    return ",".join(effect.node_ids) if isinstance(effect, DeleteNodes) else "job"
