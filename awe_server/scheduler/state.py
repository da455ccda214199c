"""The entities, their indexes, and what a transition changed.

Plain `__slots__` objects owned by one thread of control; the store keeps one document per entity (views.py),
and load.py builds the same state from documents. Rules that every transition keeps:

* refuse (AweError) before changing anything;
* mark what you change: `touch_job`, `touch_task`, `touch_workunit`, `touch_client`. A document is built only
  when the batch is taken, so touching is cheap and may be repeated;
* nested values (info, inputs, outputs, error, ...) are replaced, never changed in place: a document of an
  earlier batch may still be on its way to disk.

A workunit exists as an object only while it is leased, waits for another attempt, or is suspended. Ranks that
were never handed out are `task.fresh_rank <= rank < task.end_rank`; completed ones leave memory with their
batch.

The `revision` of a job is derived: its own changes plus those of its tasks, so a change of a task costs no
write of the job document and a waiter still sees it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from shared_models.ids import ClientId, JobId, TaskId, WorkunitId
from shared_models.states import ClientStatus, JobState, TaskState, WorkunitState
from shared_models.times import ZERO_TIME, parse_rfc3339

if TYPE_CHECKING:
    from awe_server.scheduler.demands import Demand, JobQueue

Document = dict[str, Any]

#: What a client says of itself that no rule looks at.
PROFILE_KEYS = (
    "user",
    "domain",
    "instance_id",
    "instance_type",
    "host",
    "hostname",
    "host_ip",
    "proxy",
    "subclients",
    "version",
    "git_commit_hash",
)

#: Tasks in these states count as done for their dependants and for the job.
DONE_TASKS = frozenset({TaskState.COMPLETED, TaskState.SKIPPED})
#: Jobs in these states hand out work.
ACTIVE_JOBS = frozenset({JobState.INIT, JobState.QUEUED, JobState.IN_PROGRESS})
#: Jobs in these states leave memory; a suspended job stays.
ENDED_JOBS = frozenset({JobState.COMPLETED, JobState.FAILED_PERMANENT, JobState.DELETED})
#: Tasks in these states have been cut and may hand out workunits.
RUNNING_TASKS = frozenset({TaskState.QUEUED, TaskState.IN_PROGRESS})


# Shared first values of a task: values are replaced, never changed in place, and jobs have many tasks.
_NOTHING: Document = {}
_NO_FILES: list[Document] = []
_ONE_CORE: Document = {"cores": 1, "memory_bytes": 0, "disk_bytes": 0, "gpus": 0}


@dataclass(slots=True, frozen=True)
class Rules:
    """The scheduler's settings."""

    lease_s: float = 60.0
    max_work_failure: int = 3
    max_client_failure: int = 5
    max_lost: int = 5
    retry_base_s: float = 1.0
    retry_cap_s: float = 300.0
    policy: Literal["fcfs", "fair"] = "fcfs"


@dataclass(slots=True)
class Context:
    """What a transition may not find out for itself."""

    now_s: float  #: monotonic; decides
    wall_s: float  #: since the epoch; only written into documents
    new_token: Callable[[], str]  #: a fresh random lease token


class Job:
    """A DAG of tasks that was submitted as one document."""

    __slots__ = (
        "acl",
        "datatoken",
        "error",
        "expiration",
        "id",
        "idempotency",
        "info",
        "jid",
        "lastfailed",
        "notes",
        "open_tasks",
        "own_revision",
        "queues",
        "resumed",
        "revision",
        "shockhost",
        "start_s",
        "state",
        "tasks",
        "updatetime",
        "user",
    )

    def __init__(self, id: JobId, jid: int, info: Document, acl: Document) -> None:
        self.id = id
        self.jid = jid  #: grows with every submit of the domain: the order of submission
        self.info = info
        self.acl = acl  #: {owner, read, write, delete}
        owner = acl.get("owner") or ""
        #: whose share it uses under the fair policy: the owner's; without login the document's label says
        self.user = owner if owner not in ("", "public") else str(info.get("user") or "")
        self.state = JobState.INIT
        self.tasks: list[Task] = []  #: in document order
        self.expiration = 0.0  #: wall; 0 = never
        self.updatetime = 0.0
        self.notes = ""
        self.lastfailed = ""
        self.error: Document | None = None
        self.resumed = 0
        self.shockhost = ""
        self.idempotency = ""
        self.datatoken = ""
        self.own_revision = 0  #: changes of the job itself
        self.revision = 0  #: derived: own_revision + those of all tasks
        self.open_tasks = 0  #: derived: tasks that are not done
        self.start_s = 0.0  #: monotonic; no task becomes ready before (info.start_at); 0 = at once
        self.queues: dict[Demand, JobQueue] = {}  #: derived: where its ready tasks wait

    @property
    def priority(self) -> int:
        """Higher goes first."""
        return int(self.info.get("priority") or 0)

    def set_start(self, ctx: Context) -> None:
        """Work out on the monotonic clock when its tasks may start (info.start_at)."""
        wait_s = parse_rfc3339(self.info.get("start_at") or ZERO_TIME) - ctx.wall_s
        self.start_s = ctx.now_s + wait_s if wait_s > 0 else 0.0

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.state}>"


class Task:
    """One command of a job, cut into workunits once its dependencies are done and its inputs known."""

    __slots__ = (
        "clientgroups",
        "cmd",
        "completeddate",
        "computetime",
        "createddate",
        "demand",
        "dependants",
        "depends_on",
        "done",
        "end_rank",
        "finishing",
        "first_attempt",
        "fresh_rank",
        "generation",
        "id",
        "index",
        "input_bytes",
        "inputs",
        "is_cut",
        "is_listed",
        "job",
        "max_attempt",
        "max_failures",
        "maxworksize",
        "name",
        "notes",
        "outputs",
        "partinfo",
        "partinfo_wanted",
        "predata",
        "preparing",
        "private_env",
        "resources",
        "retry",
        "retry_delay_s",
        "revision",
        "skip",
        "starteddate",
        "state",
        "time_limit_s",
        "totalwork",
        "totalwork_wanted",
        "units",
        "userattr",
        "waiting_for",
        "wuid_prefix",
    )

    def __init__(self, id: TaskId, job: Job, name: str, index: int) -> None:
        self.id = id
        self.job = job
        self.name = name
        self.index = index  #: position in the job
        self.state = TaskState.INIT
        self.cmd = _NOTHING
        self.private_env: dict[str, str] = _NOTHING
        self.depends_on: tuple[TaskId, ...] = ()  #: dependsOn and the origins of inputs
        self.inputs = _NO_FILES
        self.outputs = _NO_FILES
        self.predata = _NO_FILES
        self.partinfo_wanted: Document | None = None  #: as submitted
        self.partinfo: Document | None = None  #: as cut: with totalindex and maxpartsize_mb
        self.maxworksize = 0
        self.totalwork = 1
        self.totalwork_wanted = 1  #: as submitted; totalwork is what it was cut into
        self.computetime = 0.0
        self.createddate = 0.0
        self.starteddate = 0.0
        self.completeddate = 0.0
        self.userattr = _NOTHING
        self.clientgroups = ""
        self.resources = _ONE_CORE
        self.time_limit_s = 0.0
        self.max_failures: int | None = None
        self.retry_delay_s: float | None = None
        self.notes = ""
        self.skip = 0
        self.generation = 1  #: grows at each reset: effects and workunits of an older one do not count
        self.is_cut = False  #: inputs were looked at and totalwork is final for this generation
        self.fresh_rank = 0  #: the next rank that was never handed out
        self.first_attempt = 1  #: number of the first attempt of each rank in this generation
        self.max_attempt = 0  #: highest attempt ever handed out
        self.revision = 0
        # derived
        self.end_rank = 0  #: one past the last rank
        self.done = 0  #: completed ranks
        self.waiting_for = 0  #: dependencies that are not done
        self.dependants: list[Task] = []
        self.input_bytes = 0  #: what one workunit has to fetch
        self.units: dict[int, Workunit] = {}  #: live workunits by rank
        self.retry: list[Workunit] = []  #: queued and due, by rank; handed out before fresh ranks
        self.demand: Demand | None = None
        self.is_listed = False  #: waits in its demand's queue
        self.preparing = False  #: PrepareTask is on its way
        self.finishing = False  #: FinishTask is on its way
        self.wuid_prefix = f"{id}_"

    @property
    def is_done(self) -> bool:
        """Whether its dependants need not wait for it."""
        return self.state in DONE_TASKS

    @property
    def remainwork(self) -> int:
        """Workunits that are not completed."""
        return self.totalwork - self.done

    @property
    def is_split(self) -> bool:
        """Whether each workunit gets a part of an input."""
        return self.is_cut and self.totalwork > 1 and bool((self.partinfo or {}).get("totalindex"))

    def set_input_bytes(self) -> None:
        """Add up what one workunit fetches: all inputs, of a cut one its share."""
        cut_name = (self.partinfo or {}).get("input") if self.is_split else None
        self.input_bytes = sum(
            -(-io["size"] // self.totalwork) if io["filename"] == cut_name else io["size"]
            for io in self.inputs
        )

    def __repr__(self) -> str:
        return f"<Task {self.id} {self.state}>"


class Workunit:
    """One rank of a task that was handed out at least once."""

    __slots__ = (
        "attempt",
        "blamed",
        "checkout_s",
        "checkout_time",
        "client",
        "computetime",
        "done_time",
        "due_s",
        "exit",
        "failed",
        "generation",
        "given_back",
        "id",
        "input_failures",
        "lost",
        "node_failures",
        "not_before",
        "notes",
        "outputs",
        "perf",
        "rank",
        "state",
        "task",
        "token",
        "witness",
    )

    def __init__(self, id: WorkunitId, task: Task, rank: int) -> None:
        self.id = id
        self.task = task
        self.rank = rank
        self.state = WorkunitState.QUEUED
        self.failed = 0  #: failures of its own; the threshold counts them
        self.lost = 0  #: leases that ran out
        self.input_failures = 0  #: inputs that could not be fetched; part of failed
        self.node_failures = 0  #: clients that could not start it
        self.given_back = 0  #: attempts that ended with nobody to blame
        self.attempt = 0
        self.client = ClientId("")  #: who holds or held it last
        self.checkout_time = 0.0
        self.computetime = 0.0
        self.done_time = 0.0
        self.notes = ""
        self.exit: Document | None = None
        self.perf: Document | None = None
        self.outputs: list[Document] | None = None
        self.token = ""
        self.generation = task.generation
        self.not_before = 0.0  #: wall time of the next attempt, for people
        #: on whose account its failures stand, by side (work, node); "" once it proved to be its own fault
        self.blamed: dict[str, ClientId | Literal[""]] = {}
        # not in the document
        self.due_s = 0.0  #: monotonic; > 0 while a retry delay runs
        self.checkout_s = 0.0
        self.witness: Client | None = None  #: the last other client found that could run it

    def __repr__(self) -> str:
        return f"<Workunit {self.id} {self.state} attempt {self.attempt}>"


class Client:
    """A daemon on a compute node."""

    __slots__ = (
        "apps",
        "blamed",
        "containers",
        "cores",
        "deadline_s",
        "disk_bytes",
        "draining",
        "eligible",
        "eligible_epoch",
        "eligible_seen",
        "gpus",
        "group",
        "holds",
        "id",
        "idle_since",
        "incarnation",
        "last_grants",
        "last_request",
        "lastcompleted",
        "memory_bytes",
        "name",
        "native",
        "offline",
        "offline_s",
        "profile",
        "regtime",
        "skip",
        "suspend_reason",
        "suspended",
        "total_checkout",
        "total_completed",
        "total_failed",
        "withdrawn",
    )

    def __init__(self, id: ClientId) -> None:
        self.id = id
        self.name = ""
        self.group = ""
        self.apps: tuple[str, ...] = ()
        self.containers: tuple[str, ...] = ()  #: container engines it offers
        self.cores = 0
        self.memory_bytes = 0
        self.disk_bytes = 0
        self.gpus = 0
        self.profile: Document = {}  #: what it said of itself that no rule looks at (host, version, ...)
        self.native = False  #: speaks exchange
        self.incarnation = ""
        self.regtime = 0.0  #: when it registered first
        self.idle_since = 0.0  #: when it came, or held work last
        self.suspended = False
        self.suspend_reason = ""
        self.offline = False
        self.total_checkout = 0
        self.total_completed = 0
        self.total_failed = 0
        self.lastcompleted = 0.0
        self.blamed: dict[WorkunitId, None] = {}  #: failures in a row that stand on its account
        self.skip: dict[WorkunitId, None] = {}  #: workunits that failed here, oldest first
        # not in the document
        self.holds: dict[WorkunitId, Workunit] = {}  #: leased to it
        self.deadline_s = 0.0  #: monotonic; its leases run out then
        self.offline_s = 0.0  #: monotonic; since when it is offline
        self.draining = False
        self.last_request = 0  #: highest request_id of this incarnation
        self.last_grants: list[Any] = []  #: what last_request was given
        self.withdrawn: dict[WorkunitId, None] = {}  #: to be told `discard` at a heartbeat without a list
        self.eligible: list[Demand] = []  #: cache, see demands.py
        self.eligible_seen = 0
        self.eligible_epoch = -1

    def describe(self, profile: Document) -> None:
        """Take over what the client says of itself: a checked profile, or its own document."""
        self.name = str(profile.get("name") or "")
        self.group = str(profile.get("group") or "")
        self.apps = tuple(profile.get("apps") or ())
        self.containers = tuple(profile.get("containers") or ())
        self.cores = int(profile.get("cores") or 0)
        self.memory_bytes = int(profile.get("memory_bytes") or 0)
        self.disk_bytes = int(profile.get("disk_bytes") or 0)
        self.gpus = int(profile.get("gpus") or 0)
        self.native = bool(profile.get("native"))
        self.profile = {key: profile[key] for key in PROFILE_KEYS if key in profile}

    @property
    def status(self) -> ClientStatus:
        """What it is doing."""
        if self.offline:
            return ClientStatus.OFFLINE
        if self.suspended:
            return ClientStatus.SUSPEND
        return ClientStatus.BUSY if self.holds else ClientStatus.IDLE

    @property
    def is_live(self) -> bool:
        """Up and allowed to take work."""
        return not (self.offline or self.suspended or self.draining)

    def __repr__(self) -> str:
        return f"<Client {self.id} {self.status}>"


@dataclass(slots=True, frozen=True)
class PrepareTask:
    """Look at the task's inputs, then call task_prepared or task_refused."""

    task_id: TaskId
    generation: int


@dataclass(slots=True, frozen=True)
class FinishTask:
    """Make the task's outputs whole, then call task_finished or task_unfinishable."""

    task_id: TaskId
    generation: int


@dataclass(slots=True, frozen=True)
class DeleteNodes:
    """Remove data nodes nobody needs any more."""

    node_ids: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class ForgetJob:
    """Evict a finished job from memory once the batch is durable."""

    job_id: JobId


Effect = PrepareTask | FinishTask | DeleteNodes | ForgetJob


@dataclass(slots=True, frozen=True)
class Removal:
    """Documents to delete: those of `collection` whose `field` equals `value` (field `id`: one document)."""

    collection: Literal["jobs", "tasks", "workunits", "clients"]
    field: str
    value: str


@dataclass(slots=True, frozen=True)
class Event:
    """Something that happened, for people and tools that follow along; codes are AWE's two letters."""

    code: str
    fields: Document


@dataclass(slots=True)
class Changes:
    """Everything that transitions changed since the last take, each entity once, in order of first touch.

    Apply removals first, then documents: workunits, tasks, clients, counters, and jobs last, so that a torn
    batch never shows a job ahead of its parts.
    """

    jobs: dict[JobId, Job] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    workunits: dict[WorkunitId, Workunit] = field(default_factory=dict)
    clients: dict[ClientId, Client] = field(default_factory=dict)
    counters: bool = False  #: meta document "counters"
    queue: bool = False  #: meta document "queue"
    removals: list[Removal] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    revised: dict[JobId, None] = field(default_factory=dict)  #: jobs with a new revision: wake waiters
    work: "dict[Demand, int]" = field(default_factory=dict)  #: workunits that appeared: wake clients
    told: dict[ClientId, None] = field(default_factory=dict)  #: clients that must hear something now

    def is_empty(self) -> bool:
        """Nothing to store, to do or to tell."""
        return not (
            self.jobs
            or self.tasks
            or self.workunits
            or self.clients
            or self.counters
            or self.queue
            or self.removals
            or self.effects
            or self.events
            or self.revised
            or self.work
            or self.told
        )


class State:
    """All that can still change: jobs that are not finished, their tasks, live workunits, clients."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.jobs: dict[JobId, Job] = {}
        self.tasks: dict[TaskId, Task] = {}
        self.workunits: dict[WorkunitId, Workunit] = {}
        self.clients: dict[ClientId, Client] = {}
        self.queue_suspended = False
        self.last_jid = 10_000
        self.changes = Changes()
        # derived
        self.demands: dict[Any, Demand] = {}  #: by key
        self.demand_list: list[Demand] = []  #: in order of creation; clients remember a position
        self.demand_epoch = 0  #: grows when demand_list was rebuilt
        self.demands_kept = 0  #: how many were left then
        self.running: dict[str, int] = {}  #: leased workunits by user
        self.delayed: list[tuple[float, int, Workunit]] = []  #: heap; stale entries are skipped
        self.starting: list[tuple[float, int, Job]] = []  #: heap of jobs that may not start yet
        self.delayed_seq = 0
        self.idempotency: dict[tuple[str, str], Job] = {}  #: by owner and key
        self.stopped: dict[ClientId, None] = {}  #: clients that were removed: told to stop when they ask

    def take(self) -> Changes:
        """Hand over what was changed and start afresh."""
        changes, self.changes = self.changes, Changes()
        return changes

    def touch_job(self, job: Job) -> None:
        """The job's own document changed."""
        job.own_revision += 1
        job.revision += 1
        self.changes.jobs[job.id] = job
        self.changes.revised[job.id] = None

    def touch_task(self, task: Task) -> None:
        """The task's document changed."""
        task.revision += 1
        job = task.job
        job.revision += 1
        self.changes.tasks[task.id] = task
        self.changes.revised[job.id] = None

    def touch_workunit(self, workunit: Workunit) -> None:
        """The workunit's document changed; touch its task too when people should notice."""
        self.changes.workunits[workunit.id] = workunit

    def touch_client(self, client: Client) -> None:
        """The client's document changed."""
        self.changes.clients[client.id] = client

    def emit(self, effect: Effect) -> None:
        """Ask the runtime to do something once the batch is durable."""
        self.changes.effects.append(effect)

    def record(self, code: str, **fields: Any) -> None:
        """Note that something happened."""
        self.changes.events.append(Event(code, fields))

    def tell(self, client: Client) -> None:
        """Wake the client's waiting exchange: there is something it must hear."""
        self.changes.told[client.id] = None

    def forget_later(self, job: Job) -> None:
        """The job has ended: have it evicted from memory once that is durable."""
        self.emit(ForgetJob(job.id))

    def forget_job(self, job_id: JobId) -> bool:
        """Evict an ended job from memory; False if it is not there or was started again meanwhile."""
        job = self.jobs.get(job_id)
        if job is None or job.state not in ENDED_JOBS:
            return False
        for task in job.tasks:
            del self.tasks[task.id]
            for unit in task.units.values():
                del self.workunits[unit.id]
        del self.jobs[job_id]
        key = (job.acl.get("owner") or "", job.idempotency)
        if self.idempotency.get(key) is job:
            del self.idempotency[key]
        return True

    def forget_workunits(self, task: Task, wall_s: float) -> None:
        """Take a task's live workunits out of memory and every stored one out of the store (reset, removal).

        Leases end: their holders are told to discard. The caller has taken the task off its queue.
        """
        for unit in task.units.values():
            self.workunits.pop(unit.id, None)
            self.end_lease(unit, wall_s, withdrawn=True)
            unit.due_s = 0.0
        task.units = {}
        task.retry = []
        changes = self.changes
        changes.workunits = {id: unit for id, unit in changes.workunits.items() if unit.task is not task}
        changes.removals.append(Removal("workunits", "taskid", task.id))

    def end_lease(self, unit: Workunit, wall_s: float, *, withdrawn: bool = False) -> None:
        """Take the workunit out of its holder's hands; `withdrawn`: the holder did not ask for it, tell it.

        Does nothing if the workunit is not held. The caller moves the workunit on.
        """
        client = self.clients.get(unit.client)
        if client is None or client.holds.get(unit.id) is not unit:
            return
        del client.holds[unit.id]
        user = unit.task.job.user
        left = self.running.get(user, 0) - 1
        if left > 0:
            self.running[user] = left
        else:
            self.running.pop(user, None)
        if withdrawn:
            client.withdrawn[unit.id] = None
            self.tell(client)
        if not client.holds:
            client.idle_since = wall_s
            self.touch_client(client)
