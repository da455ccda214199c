"""The other faces of a job: how far it is, why it waits, what it printed, how long it took."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from shared_models.shown import Shown
from shared_models.times import ZERO_TIME
from shared_models.views import JobError


class _Light(BaseModel):
    """Keeps nothing of what it does not know: a big job is read in a fraction of a second."""

    model_config = ConfigDict(extra="ignore", defer_build=True)


class TaskProgress(_Light):
    """How far a task is."""

    id: str = ""
    task_name: str = ""
    state: str = ""
    totalwork: int = 1  #: workunits
    remainwork: int = 0  #: those that are not done
    notes: str | list[str] | None = None


class JobProgress(_Light):
    """How far a job is."""

    id: str = ""
    jid: str = ""
    state: str = ""
    revision: int | None = None  #: grows with every change; the original server has none
    tasks: list[TaskProgress] | None = None


class JobRow(Shown):
    """A job in one line."""

    id: str = ""
    name: str = ""
    size: int = 0  #: bytes of the first task's inputs
    submittime: str = ZERO_TIME
    completedtime: str = ZERO_TIME
    computetime: int = 0  #: seconds, of all its workunits
    task: list[int] = Field(default_factory=list)  #: positions of the tasks that it is at
    state: list[str] = Field(default_factory=list)  #: of these tasks, or of the job when it stands still
    tasks_omitted: int = 0  #: further tasks that it is at, too many to be named
    userattr: dict[str, Any] = Field(default_factory=dict)
    jid: str = ""
    user: str = ""
    job_state: str = ""  #: of the job itself; this and the next two are not known to the original server
    totalwork: int | None = None  #: workunits of all its tasks
    remainwork: int | None = None  #: those that are not done


class WhyRow(Shown):
    """What one thing waits for."""

    entity: str = ""  #: job, task or workunit
    id: str = ""
    state: str = ""
    reason: str = ""


class WorkunitReport(Shown):
    """What one workunit printed."""

    wuid: str = ""
    rank: int = 0
    logs: dict[str, str] = Field(default_factory=dict)  #: stdout, stderr, worknotes; their ends if long
    notes: str = ""  #: how its last attempt ended, and which of its logs could not be kept


class TaskReport(Shown):
    """What the workunits of a task printed."""

    taskid: str = ""
    state: str = ""
    totalwork: int = 1
    completeddate: str = ZERO_TIME
    workunits: list[WorkunitReport] = Field(default_factory=list)


class JobReport(Shown):
    """How a job stands and what its commands printed."""

    id: str = ""
    state: str = ""
    updatetime: str = ZERO_TIME
    notes: str = ""
    lastfailed: str = ""
    error: JobError | None = None
    resumed: int = 0
    tasks: list[TaskReport] = Field(default_factory=list)


class _Span(Shown):
    """When something was queued, started and done: seconds since the epoch, 0 = not yet."""

    queued: int = 0
    start: int = 0
    end: int = 0
    resp: int = 0  #: seconds from queued to done


class TaskPerf(_Span):
    """When a task ran and how much it read and wrote."""

    size_infile: list[int] = Field(default_factory=list)
    size_outfile: list[int] = Field(default_factory=list)


class WorkPerf(Shown):
    """When a workunit ran and where; what its client measured is in further keys."""

    checkout: int = 0
    done: int = 0
    resp: int = 0  #: seconds from checkout to done
    runtime: int = 0
    client_id: str = ""


class JobPerf(_Span):
    """When a job, its tasks and its workunits ran."""

    id: str = ""
    task_stats: dict[str, TaskPerf] = Field(default_factory=dict)
    work_stats: dict[str, WorkPerf] = Field(default_factory=dict)
