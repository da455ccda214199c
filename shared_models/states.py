"""States and kinds as they appear on the wire. Legal moves are in awe_server.scheduler.transitions."""

from enum import StrEnum


class JobState(StrEnum):
    """Where a job stands."""

    INIT = "init"  #: stored, no task looked at yet
    QUEUED = "queued"  #: at least one task was looked at, nothing was handed out yet
    IN_PROGRESS = "in-progress"  #: at least one workunit was handed out
    COMPLETED = "completed"  #: every task is done; ends only by recompute or resubmit
    SUSPEND = "suspend"  #: paused by a failure or a person; ends by resume, recompute, resubmit
    FAILED_PERMANENT = "failed-permanent"  #: a command said (exit 42) that trying again makes no sense
    DELETED = "deleted"  #: removed by a person; the document is kept


class TaskState(StrEnum):
    """Where a task stands."""

    INIT = "init"  #: stored; the scheduler has not looked at it yet
    PENDING = "pending"  #: waits for other tasks, or its inputs are being looked at
    QUEUED = "queued"  #: cut into workunits, none handed out yet
    IN_PROGRESS = "in-progress"  #: at least one workunit was handed out
    COMPLETED = "completed"  #: all workunits done and outputs whole
    SUSPEND = "suspend"  #: a workunit failed too often, its inputs were refused, or the job was suspended
    FAILED_PERMANENT = "failed-permanent"  #: a command exited with 42
    SKIPPED = "skipped"  #: left out on purpose


class WorkunitState(StrEnum):
    """Where a workunit stands."""

    QUEUED = "queued"  #: waits for a client
    CHECKOUT = "checkout"  #: leased to a client
    COMPLETED = "completed"  #: its result was accepted
    SUSPEND = "suspend"  #: failed too often, or its job was suspended
    FAILED_PERMANENT = "failed-permanent"  #: its command exited with 42


class ClientStatus(StrEnum):
    """What a client is doing."""

    IDLE = "active-idle"  #: up, holds no work
    BUSY = "active-busy"  #: up, holds work
    SUSPEND = "suspend"  #: gets no work until resumed
    OFFLINE = "offline"  #: not heard of for longer than its lease; its work was requeued


class FailureKind(StrEnum):
    """Why an attempt did not end well (DESIGN section 5 says who is blamed for what)."""

    COMMAND = "command"  #: exit code other than 0
    SIGNAL = "signal"  #: killed by a signal
    TIMEOUT = "timeout"  #: ran into its time limit
    OOM = "oom"  #: ran out of memory
    INPUT = "input"  #: an input could not be fetched
    OUTPUT = "output"  #: a declared output is missing or could not be stored
    NODE = "node"  #: the client's machine could not start it
    LOST = "lost"  #: the lease ran out
    RELEASED = "released"  #: the client gave it back
