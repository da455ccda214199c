"""Job, Task, Workunit: plain `__slots__` objects, changed only by transitions (Client: client.py).

A workunit exists as an object only while it is leased, waits for another attempt, or is suspended. Ranks that
were never handed out are `task.fresh_rank <= rank < task.end_rank`; completed ones leave memory with their
batch. Nested values (info, inputs, outputs, error, ...) are replaced, never changed in place: a document of
an earlier batch may still be on its way to disk.

The `revision` of a job is derived: its own changes plus those of its tasks, so a change of a task costs no
write of the job document and a waiter still sees it.
"""

from math import inf
from typing import TYPE_CHECKING, Any, Literal

from awe_server.scheduler.context import Context
from awe_server.scheduler.parts import cut_names
from shared_models.ids import ClientId, JobId, TaskId, WorkunitId
from shared_models.states import JobState, TaskState, WorkunitState
from shared_models.times import ZERO_TIME, parse_rfc3339

if TYPE_CHECKING:
    from awe_server.scheduler.client import Client
    from awe_server.scheduler.demands import Demand, JobQueue

Document = dict[str, Any]

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
        "_by_filename",
        "blamed",
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
        "filed",
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
        "keep_failed",
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
        self.keep_failed = False  #: clients upload what a failed attempt left of its outputs
        self.generation = 1  #: grows at each reset: effects and workunits of an older one do not count
        self.is_cut = False  #: inputs were looked at and totalwork is final for this generation
        self.fresh_rank = 0  #: the next rank that was never handed out
        self.first_attempt = 1  #: number of the first attempt of each rank in this generation
        self.max_attempt = 0  #: highest attempt ever handed out
        self.revision = 0
        #: on whose account the failures stand of a task without any success; "" once it proved to be its own
        self.blamed: ClientId | Literal[""] | None = None
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
        #: its files as named_nodes.py filed them: inputs, predata, outputs
        self.filed: tuple[list[Document], list[Document], list[Document]] | None = None
        self._by_filename: tuple[list[Document], dict[str, Document]] | None = None  #: see `output`

    def output(self, filename: str) -> Document:
        """The output of this name, without a walk over all of them: thousands of inputs may ask for one each.

        Raises KeyError.
        """
        known = self._by_filename
        if known is None or known[0] is not self.outputs:
            known = self._by_filename = (self.outputs, {io["filename"]: io for io in self.outputs})
        return known[1][filename]

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
        cut = cut_names(self.partinfo) if self.is_split else ()
        self.input_bytes = sum(
            -(-io["size"] // self.totalwork) if io["filename"] in cut else io["size"] for io in self.inputs
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
        "kept",
        "lost",
        "missed",
        "node_failures",
        "not_before",
        "notes",
        "others_until_s",
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
        self.lost = 0  #: attempts that ended with their client, or with what ran their command there
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
        self.missed = False  #: the last attempt ended without its client's doing: lease ran out, or restarted
        self.perf: Document | None = None
        self.outputs: list[Document] | None = None
        self.kept = ""  #: node of what its last failed attempt left; "" = nothing is kept
        self.token = ""
        self.generation = task.generation
        self.not_before = 0.0  #: wall time of the next attempt, for people
        #: on whose account its failures stand, by side (work, node); "" once it proved to be its own fault
        self.blamed: dict[str, ClientId | Literal[""]] = {}
        # not in the document
        self.due_s = 0.0  #: monotonic; > 0 while a retry delay runs
        self.checkout_s = 0.0
        self.others_until_s = inf  #: monotonic; so long a client on which it failed leaves it to others
        self.witness: Client | None = None  #: the last other client found that could run it

    def __repr__(self) -> str:
        return f"<Workunit {self.id} {self.state} attempt {self.attempt}>"
