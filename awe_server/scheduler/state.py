"""All that can still change, owned by one thread of control.

The store keeps one document per entity (views.py), and load.py builds the same state from documents. Rules
that every transition keeps:

* refuse (AweError) before changing anything;
* mark what you change: `touch_job`, `touch_task`, `touch_workunit`, `touch_client`. A document is built only
  when the batch is taken, so touching is cheap and may be repeated;
* replace nested values of an entity, never change them in place (entities.py).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from awe_server.scheduler.changes import (
    Changes,
    DeleteNodes,
    DeletePlaces,
    Effect,
    Event,
    FinishTask,
    ForgetJob,
    PrepareTask,
    Removal,
)
from awe_server.scheduler.client import Client
from awe_server.scheduler.context import Context, Rules
from awe_server.scheduler.entities import (
    ACTIVE_JOBS,
    DONE_TASKS,
    ENDED_JOBS,
    RUNNING_TASKS,
    Document,
    Job,
    Task,
    Workunit,
)
from awe_server.scheduler.named_nodes import NamedNodes
from shared_models.ids import ClientId, JobId, TaskId, WorkunitId

if TYPE_CHECKING:
    from awe_server.scheduler.demands import Demand

#: Nodes, or places, named in one effect.
MAX_NOTED_NODES = 1_000

__all__ = [
    "ACTIVE_JOBS",
    "DONE_TASKS",
    "ENDED_JOBS",
    "RUNNING_TASKS",
    "Changes",
    "Client",
    "Context",
    "DeleteNodes",
    "DeletePlaces",
    "Document",
    "Effect",
    "Event",
    "FinishTask",
    "ForgetJob",
    "Job",
    "PrepareTask",
    "Removal",
    "Rules",
    "State",
    "Task",
    "Workunit",
]


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
        self.named_nodes = NamedNodes()
        self.stopped: dict[ClientId, None] = {}  #: clients removed of late: told to stop when they ask
        #: jobs that left memory before the last tick, and since then
        self._gone: tuple[list[Job], list[Job]] = ([], [])

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
        self.named_nodes.file(task)
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

    def delete_nodes(self, ctx: Context, node_ids: Sequence[str]) -> None:
        """Ask the runtime to remove data nodes, in pieces whose notes are small documents."""
        for start in range(0, len(node_ids), MAX_NOTED_NODES):
            self.emit(DeleteNodes(ctx.new_token(), tuple(node_ids[start : start + MAX_NOTED_NODES])))

    def delete_places(self, ctx: Context, places: Sequence[str], job_id: JobId) -> None:
        """Ask the runtime to remove what is elsewhere, in pieces as for `delete_nodes`."""
        job = self.jobs.get(job_id)
        for start in range(0, len(places), MAX_NOTED_NODES):
            some = tuple(places[start : start + MAX_NOTED_NODES])
            self.emit(DeletePlaces(ctx.new_token(), some, job_id, job.resumed if job else 0))

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
            self.named_nodes.remove(task)
            for unit in task.units.values():
                del self.workunits[unit.id]
        del self.jobs[job_id]
        key = (job.acl.get("owner") or "", job.idempotency)
        if self.idempotency.get(key) is job:
            del self.idempotency[key]
        self._gone[1].append(job)
        return True

    def take_apart(self) -> None:
        """Part the jobs that left memory before this was called last from their tasks, these from workunits.

        Each holds the other, and Python looks for such cycles seldom: they would pile up. Until then somebody
        who has waited for such a job may look at it.
        """
        before, since = self._gone
        for job in before:
            for task in job.tasks:
                task.units, task.retry = {}, []
            job.tasks, job.queues = [], {}
        self._gone = (since, [])

    def forget_workunits(self, task: Task, wall_s: float) -> None:
        """Take a task's live workunits out of memory and every stored one out of the store (reset).

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
