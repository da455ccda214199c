"""Queues of ready tasks by demand: what a task asks of a client.

All tasks with the same client groups, application, resources, directories of shared files and need of a
container wait in one Demand. A
client is compared with a demand once, not with every workunit; what fits is cached on the client until the
client changes or demands are cleared away. Within a demand tasks are ordered in steps, so that verbs on a job
move one entry: lanes by priority (and user, under the fair policy), in a lane jobs by submission, in a job
tasks by position. A task is listed exactly while it has a workunit that may be handed out now.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from functools import lru_cache
from heapq import heappop, heappush
from operator import attrgetter

from awe_server.scheduler.parts import is_grouped
from awe_server.scheduler.state import (
    ACTIVE_JOBS,
    RUNNING_TASKS,
    Client,
    Document,
    Job,
    State,
    Task,
    Workunit,
)
from shared_models.archives import is_archive
from shared_models.file_urls import is_file_url, path_of
from shared_models.locations import is_web_url
from shared_models.roots import covers, root_of
from shared_models.states import WorkunitState

#: clientgroups, app, cores, memory_bytes, disk_bytes, gpus, needs a container, needs our own client, roots
DemandKey = tuple[frozenset[str], str, int, int, int, int, bool, bool, frozenset[str]]

_NO_ROOTS: frozenset[str] = frozenset()
#: Stands for the root of a file that is below none: no client has it.
CLOSED = ""

#: priority turned round, user (fair policy only)
LaneKey = tuple[int, str]

#: So many new demands are let in before those that no task has are cleared away.
MAX_EMPTY_DEMANDS = 1_000

_by_index = attrgetter("index")
_by_jid = attrgetter("jid")
_by_rank = attrgetter("rank")
_by_key = attrgetter("key")


class JobQueue:
    """The listed tasks of one job in one demand, by position."""

    __slots__ = ("jid", "job", "lane", "tasks")

    def __init__(self, job: Job, lane: "Lane") -> None:
        self.job = job
        self.jid = job.jid
        self.lane = lane
        self.tasks: list[Task] = []


class Lane:
    """Jobs of one priority (and user) in one demand, by submission."""

    __slots__ = ("demand", "jobs", "key")

    def __init__(self, key: LaneKey, demand: "Demand") -> None:
        self.key = key
        self.demand = demand
        self.jobs: list[JobQueue] = []


class Demand:
    """What a task asks of a client, and the tasks that ask it."""

    __slots__ = (
        "app",
        "cores",
        "disk_bytes",
        "file_roots",
        "gpus",
        "groups",
        "key",
        "lanes",
        "listed",
        "memory_bytes",
        "needs_container",
        "needs_native",
    )

    def __init__(self, key: DemandKey) -> None:
        self.key = key
        self.groups, self.app, self.cores, self.memory_bytes, self.disk_bytes, self.gpus = key[:6]
        self.needs_container, self.needs_native, self.file_roots = key[6:]
        self.lanes: list[Lane] = []  #: best first
        self.listed = 0  #: tasks that have work now


def demand_key(task: Task, roots: Sequence[str]) -> DemandKey:
    """What the task asks of a client; its own client groups replace the job's.

    `roots` are the directories that the server opens to jobs.
    Source: AWE lib/core/cqmgr.go filterWorkByClient; differs: blanks around group names do not count.
    """
    want = task.resources
    cmd = task.cmd
    return (
        _groups(task.clientgroups or str(task.job.info.get("clientgroups") or "")),
        str(cmd.get("name") or ""),
        int(want.get("cores", 1)),
        int(want.get("memory_bytes", 0)),
        int(want.get("disk_bytes", 0)),
        int(want.get("gpus", 0)),
        bool(cmd.get("Dockerimage") or cmd.get("dockerPull")),
        _is_more_than_awe(task),
        _touched(task, roots),
    )


@lru_cache(maxsize=1024)
def _groups(names: str) -> frozenset[str]:
    return frozenset(filter(None, (name.strip() for name in names.split(","))))


def _touched(task: Task, roots: Sequence[str]) -> frozenset[str]:
    """The server's roots in which the task has files."""
    files = [io["url"] for io in (*task.inputs, *task.outputs, *task.predata) if is_file_url(io["url"])]
    return frozenset(root_of(path_of(url), roots) or CLOSED for url in files) if files else _NO_ROOTS


def _is_more_than_awe(task: Task) -> bool:
    """Whether the task asks for what a stock AWE worker does not know and would leave out in silence.

    Source: AWE lib/worker; `cmd_script` is run in containers only, and of an array's inputs, which nobody
    cuts, it would ask for parts; of paired ones it would cut only one. It reads http, of any content, and its
    outputs go to nodes of one Shock.
    """
    cmd = task.cmd
    return bool(
        (cmd.get("cmd_script") and not (cmd.get("Dockerimage") or cmd.get("dockerPull")))
        or cmd.get("stdin")
        or cmd.get("stdout")
        or cmd.get("stderr")
        or task.time_limit_s
        or task.keep_failed
        or is_grouped(task.partinfo_wanted)
        or ((task.inputs or task.outputs or task.predata) and _has_more_than_awe(task))
    )


def _has_more_than_awe(task: Task) -> bool:
    """The same of its files."""
    return bool(
        any(io.get("optional") or _is_elsewhere(io) for io in task.outputs)
        or any(is_archive(io["filename"]) for io in (*task.inputs, *task.outputs))
        or any(io["url"] and not is_web_url(io["url"]) for io in (*task.inputs, *task.predata))
        or any(io.get("md5") and not io.get("_md5") for io in (*task.inputs, *task.predata))
        or (task.inputs and task.totalwork_wanted > 1 and (task.partinfo_wanted or {}).get("index") == "none")
        or any(io.get("_index") for io in task.inputs)  # only this server knows the pieces
    )


def _is_elsewhere(output: Document) -> bool:
    """Whether an output is not just a new node of this server."""
    return bool(output["host"] or output["url"] or output["type"] not in ("", "basic"))


def demand_of(state: State, task: Task) -> Demand:
    """The demand a task belongs to, made if it is the first of its kind."""
    if task.demand is None:
        key = demand_key(task, state.rules.file_roots)
        demand = state.demands.get(key)
        if demand is None:
            demand = state.demands[key] = Demand(key)
            state.demand_list.append(demand)
        task.demand = demand
    return task.demand


def demand_as_is(state: State, task: Task) -> Demand:
    """The demand a task belongs to or would belong to, to look at: nothing is made part of the state."""
    if task.demand is not None:
        return task.demand
    key = demand_key(task, state.rules.file_roots)
    return state.demands.get(key) or Demand(key)


def has_work(task: Task) -> bool:
    """Whether a workunit of the task may be handed out now, queue and clients aside."""
    return (
        (task.fresh_rank < task.end_rank or bool(task.retry))
        and task.state in RUNNING_TASKS
        and task.job.state in ACTIVE_JOBS
    )


def ready_units(task: Task) -> int:
    """How many workunits of the task may be handed out now."""
    return task.end_rank - task.fresh_rank + len(task.retry)


def list_task(state: State, task: Task) -> None:
    """Put the task into its demand's queue if it has work; wakes clients."""
    if task.is_listed or not has_work(task):
        return
    demand = demand_of(state, task)
    job = task.job
    queue = job.queues.get(demand)
    if queue is None:
        lane = _lane(state, demand, job)
        queue = job.queues[demand] = JobQueue(job, lane)
        insort(lane.jobs, queue, key=_by_jid)
    if queue.tasks and queue.tasks[-1].index > task.index:
        insort(queue.tasks, task, key=_by_index)
    else:
        queue.tasks.append(task)
    task.is_listed = True
    demand.listed += 1
    announce(state, task, ready_units(task))


def announce(state: State, task: Task, count: int) -> None:
    """Say that workunits appeared: waiting clients wake."""
    work = state.changes.work
    demand = demand_of(state, task)
    work[demand] = work.get(demand, 0) + count


def offer_skipped(state: State) -> None:
    """Once for all clients of a batch that take no more work: what failed on others may be theirs again."""
    if not state.changes.left:
        return
    for client in state.clients.values():
        if not client.skip or not client.is_live:
            continue
        for id in client.skip:
            unit = state.workunits.get(id)
            if unit is not None and unit.state is WorkunitState.QUEUED and unit.task.is_listed:
                announce(state, unit.task, 1)


def unlist_task(task: Task) -> None:
    """Take the task out of its demand's queue."""
    if not task.is_listed:
        return
    demand = task.demand
    assert demand is not None, "a listed task has a demand"
    queue = task.job.queues[demand]
    del queue.tasks[bisect_left(queue.tasks, task.index, key=_by_index)]
    task.is_listed = False
    demand.listed -= 1
    if not queue.tasks:
        _drop_queue(queue)
        del task.job.queues[demand]


def unlist_job(job: Job) -> None:
    """Take all tasks of a job out of the queues; costs its listed tasks, not its workunits."""
    for demand, queue in job.queues.items():
        for task in queue.tasks:
            task.is_listed = False
        demand.listed -= len(queue.tasks)
        _drop_queue(queue)
    job.queues = {}


def relist_job(state: State, job: Job) -> None:
    """Sort the job in anew: its priority, client groups or state changed."""
    unlist_job(job)
    for task in job.tasks:
        task.demand = None
        list_task(state, task)


def list_retry(state: State, unit: Workunit) -> None:
    """Offer a queued workunit again; it goes before fresh ranks of its task."""
    task = unit.task
    unit.due_s = 0.0
    insort(task.retry, unit, key=_by_rank)
    if task.is_listed:
        announce(state, task, 1)
    else:
        list_task(state, task)


def delay_retry(state: State, unit: Workunit, due_s: float) -> None:
    """Offer a queued workunit again, but not before `due_s`."""
    unit.due_s = due_s
    state.delayed_seq += 1
    heappush(state.delayed, (due_s, state.delayed_seq, unit))


def release_due(state: State, now_s: float) -> None:
    """Offer the workunits whose retry delay is over. Entries that were withdrawn meanwhile fall away."""
    delayed = state.delayed
    while delayed and delayed[0][0] <= now_s:
        due_s, _, unit = heappop(delayed)
        if unit.due_s == due_s and unit.state is WorkunitState.QUEUED:
            list_retry(state, unit)


def clear_empty_demands(state: State) -> None:
    """Forget demands that no task has, once many were added since the last time."""
    if len(state.demand_list) <= 2 * state.demands_kept + MAX_EMPTY_DEMANDS:
        return
    used = {task.demand for task in state.tasks.values()}
    state.demand_list = [demand for demand in state.demand_list if demand in used]
    state.demands = {demand.key: demand for demand in state.demand_list}
    state.demands_kept = len(state.demand_list)
    state.demand_epoch += 1


def _lane(state: State, demand: Demand, job: Job) -> Lane:
    key = (-job.priority, job.user if state.rules.policy == "fair" else "")
    at = bisect_left(demand.lanes, key, key=_by_key)
    if at < len(demand.lanes) and demand.lanes[at].key == key:
        return demand.lanes[at]
    lane = Lane(key, demand)
    demand.lanes.insert(at, lane)
    return lane


def _drop_queue(queue: JobQueue) -> None:
    lane = queue.lane
    del lane.jobs[bisect_left(lane.jobs, queue.jid, key=_by_jid)]
    if not lane.jobs:
        demand = lane.demand
        del demand.lanes[bisect_left(demand.lanes, lane.key, key=_by_key)]


# -- who fits what -----------------------------------------------------------------------------------------


def wrong_group(demand: Demand, client: Client) -> str | None:
    """The task names client groups and the client is in none of them."""
    return None if not demand.groups or client.group in demand.groups else "wrong_group"


def wrong_app(demand: Demand, client: Client) -> str | None:
    """The client does not offer the command."""
    return None if demand.app in client.apps or "*" in client.apps else "wrong_app"


def no_container(demand: Demand, client: Client) -> str | None:
    """The command needs a container engine and the client has none; a stock AWE worker does not say."""
    return "no_container" if demand.needs_container and client.native and not client.containers else None


def stock_worker(demand: Demand, client: Client) -> str | None:
    """The task asks for more than a stock AWE worker can do."""
    return "stock_worker" if demand.needs_native and not client.native else None


def out_of_reach(demand: Demand, client: Client) -> str | None:
    """The task has files in directories that the client does not open to jobs."""
    return None if covers(client.file_roots, demand.file_roots) else "out_of_reach"


def too_small(demand: Demand, client: Client) -> str | None:
    """The client as a whole has less than one workunit takes. Unknown cores (0) count as one."""
    if demand.cores > (client.cores or 1):
        return "not_enough_cores"
    if demand.memory_bytes > client.memory_bytes:
        return "not_enough_memory"
    if demand.disk_bytes > client.disk_bytes:
        return "not_enough_disk"
    return "not_enough_gpus" if demand.gpus > client.gpus else None


PREDICATES = (wrong_group, wrong_app, no_container, stock_worker, out_of_reach, too_small)


def unfit(demand: Demand, client: Client) -> str | None:
    """Why the client can never run what the demand asks; None if it can. The first reason wins."""
    for predicate in PREDICATES:
        reason = predicate(demand, client)
        if reason:
            return reason
    return None


def eligible_demands(state: State, client: Client) -> list[Demand]:
    """The demands that the client can serve, from its cache; only demands that are new are looked at."""
    known = state.demand_list
    if client.eligible_epoch != state.demand_epoch:
        client.eligible, client.eligible_seen = [], 0
        client.eligible_epoch = state.demand_epoch
    if client.eligible_seen < len(known):
        client.eligible += [d for d in known[client.eligible_seen :] if unfit(d, client) is None]
        client.eligible_seen = len(known)
    return client.eligible


def forget_eligible(client: Client) -> None:
    """The client changed: compare it with every demand again when it next asks."""
    client.eligible_epoch = -1
