"""What transitions changed: documents to store, effects to carry out, people and clients to wake."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from awe_server.scheduler.client import Client
from awe_server.scheduler.entities import Document, Job, Task, Workunit
from shared_models.ids import ClientId, JobId, TaskId, WorkunitId

if TYPE_CHECKING:
    from awe_server.scheduler.demands import Demand


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
    """Remove data nodes nobody needs any more; with `job`, which is gone, also all others that are there for
    it, its workunits and its tasks.

    Nothing else that is stored would say so, so the runtime keeps a note of it, under `id`, until it is done.
    """

    id: str
    node_ids: tuple[str, ...]
    job: str = ""


@dataclass(slots=True, frozen=True)
class DeletePlaces:
    """Remove what is elsewhere and nobody needs any more (see places.py), with the data token of the job.

    Noted until it is done, as DeleteNodes is, and apart from it: another host may be away for long. Once the
    job was `resumed` again, an address that it gave is left alone: what is there may be new.
    """

    id: str
    places: tuple[str, ...]
    job: str
    resumed: int = 0  #: of the job, when this was asked for


@dataclass(slots=True, frozen=True)
class ForgetJob:
    """Evict a finished job from memory once the batch is durable."""

    job_id: JobId


Effect = PrepareTask | FinishTask | DeleteNodes | DeletePlaces | ForgetJob


@dataclass(slots=True, frozen=True)
class Removal:
    """Documents to delete: those of `collection` whose `field` equals `value` (field `id`: one document)."""

    collection: Literal["jobs", "tasks", "workunits", "clients"]
    field: str
    value: str


@dataclass(slots=True)  # not frozen: there is one for each result
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
    left: bool = False  #: a client takes no more work: before the take, `offer_skipped`

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
            or self.left
        )
