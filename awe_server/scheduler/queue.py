"""The switch that stops all checkouts, and how much there is of everything."""

from awe_server.scheduler.demands import announce, ready_units
from awe_server.scheduler.state import ACTIVE_JOBS, RUNNING_TASKS, Context, State, Task
from shared_models.states import ClientStatus, JobState, TaskState

Counts = dict[str, dict[str, int]]

#: AWE's words for task states in `GET /queue?json`; `failed` counts failed and skipped ones.
_TASK_WORDS = {
    TaskState.INIT: "pending",
    TaskState.PENDING: "pending",
    TaskState.QUEUED: "queuing",
    TaskState.IN_PROGRESS: "in-progress",
    TaskState.COMPLETED: "completed",
    TaskState.SUSPEND: "suspended",
    TaskState.FAILED_PERMANENT: "failed",
    TaskState.SKIPPED: "failed",
}

_CLIENT_WORDS = {
    ClientStatus.BUSY: "busy",
    ClientStatus.IDLE: "idle",
    ClientStatus.SUSPEND: "suspended",
    ClientStatus.OFFLINE: "offline",
}


def suspend_queue(state: State, ctx: Context) -> None:
    """Refuse checkouts from now on, also after a restart; everything else goes on. Twice is once."""
    if not state.queue_suspended:
        state.queue_suspended = True
        state.changes.queue = True
        state.record("QS")


def resume_queue(state: State, ctx: Context) -> None:
    """Hand out work again; clients that wait for some are woken. Twice is once."""
    if not state.queue_suspended:
        return
    state.queue_suspended = False
    state.changes.queue = True
    state.record("QR")
    for demand in state.demand_list:
        for task in (task for lane in demand.lanes for queue in lane.jobs for task in queue.tasks):
            announce(state, task, ready_units(task))


def queue_counts(state: State) -> Counts:
    """Count jobs that are not over, their tasks and workunits, and clients: the data of `GET /queue?json`.

    Costs tasks and clients, not workunits. Clients that are not heard of are counted as `offline` only.
    """
    jobs = {"total": 0, "active": 0, "suspended": 0}
    tasks = dict.fromkeys(
        ("total", "queuing", "in-progress", "pending", "completed", "suspended", "failed"), 0
    )
    work = {"total": 0, "queuing": 0, "checkout": 0, "suspended": 0}
    for job in state.jobs.values():
        if job.state in ACTIVE_JOBS:
            jobs["active"] += 1
        elif job.state is JobState.SUSPEND:
            jobs["suspended"] += 1
        else:
            continue
        for task in job.tasks:
            tasks[_TASK_WORDS[task.state]] += 1
            _count_workunits(task, work)
    clients = _count_clients(state)
    work["checkout"] = sum(state.running.values())
    work["queuing"] -= work["checkout"]
    jobs["total"] = jobs["active"] + jobs["suspended"]
    tasks["total"] = sum(tasks.values())
    work["total"] = sum(work.values())
    return {"jobs": jobs, "tasks": tasks, "workunits": work, "clients": clients}


def _count_workunits(task: Task, work: dict[str, int]) -> None:
    """Add a task's unfinished workunits; those checked out still count as queuing here."""
    if task.state in RUNNING_TASKS:
        work["queuing"] += task.remainwork
    elif task.is_cut and task.state is TaskState.SUSPEND:
        work["suspended"] += task.remainwork


def _count_clients(state: State) -> dict[str, int]:
    clients = {"total": 0, "busy": 0, "idle": 0, "suspended": 0, "offline": 0}
    for client in state.clients.values():
        clients[_CLIENT_WORDS[client.status]] += 1
    clients["total"] = clients["busy"] + clients["idle"] + clients["suspended"]
    return clients
