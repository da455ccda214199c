"""Hand out workunits: the best that a client can run, in one order.

Order: priority (higher first), submission, task, rank; workunits to retry go before fresh ranks of the same
task. Strict: work of a higher priority always goes first, however long the lower waits. Under the policy
`fair`, among equal priority the user with the least running work goes first.
Source: AWE lib/core/cqmgr.go popWorks, filterWorkByClient (skip list, client group, app); differs: the order
is total, resources count, and a workunit on the skip list is given again when nobody else could run it, or
(if its input failed) nobody else has taken it for a while.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge

from awe_server.scheduler.clients import seen
from awe_server.scheduler.demands import (
    Demand,
    Lane,
    eligible_demands,
    release_due,
    unfit,
    unlist_task,
)
from awe_server.scheduler.parts import group_size
from awe_server.scheduler.split import part_range
from awe_server.scheduler.state import Client, Context, State, Task, Workunit
from shared_models.errors import ClientNotFound, ClientSuspended, QueueSuspended
from shared_models.ids import ClientId, JobId, WorkunitId
from shared_models.messages import Free
from shared_models.states import JobState, TaskState, WorkunitState
from shared_models.times import rfc3339


class Grant:
    """One attempt that a client was given."""

    __slots__ = ("attempt", "part", "rank", "task", "token", "unit")

    def __init__(self, unit: Workunit, part: str) -> None:
        self.unit = unit
        self.task = unit.task
        self.rank = unit.rank
        self.attempt = unit.attempt
        self.token = unit.token
        self.part = part  #: units of the index, "3-4"; "" when nothing is cut

    @property
    def workunit_id(self) -> WorkunitId:
        """Id of the workunit."""
        return self.unit.id

    @property
    def is_held(self) -> bool:
        """Whether its lease is still on."""
        return self.unit.attempt == self.attempt and self.unit.state is WorkunitState.CHECKOUT

    def __repr__(self) -> str:
        return f"<Grant {self.unit.id} attempt {self.attempt}>"


@dataclass(slots=True)
class Checkout:
    """What a client got; if that is nothing, how many ready tasks were passed over for which reason."""

    grants: list[Grant] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)


class Budget:
    """What the client has left to give in this checkout."""

    __slots__ = ("available_bytes", "client", "cores", "disk_bytes", "gpus", "memory_bytes", "said", "want")

    def __init__(self, client: Client, want: int, free: Free | None, available_bytes: int) -> None:
        self.client = client
        self.want = want
        self.said = free is not None  #: the client itself says what it has left
        free = free or left(client)
        self.cores = free.cores
        self.memory_bytes = free.memory_bytes
        self.disk_bytes = free.disk_bytes
        self.gpus = free.gpus
        self.available_bytes = available_bytes  #: room for inputs; < 0 = not checked

    def fits(self, demand: Demand) -> int:
        """How many workunits of a demand still fit."""
        fit = min(self.want, self.cores // demand.cores)
        if demand.memory_bytes:
            fit = min(fit, self.memory_bytes // demand.memory_bytes)
        if demand.disk_bytes:
            fit = min(fit, self.disk_bytes // demand.disk_bytes)
        if demand.gpus:
            fit = min(fit, self.gpus // demand.gpus)
        return fit

    def spend(self, demand: Demand, count: int) -> None:
        """Set aside what `count` workunits take."""
        self.want -= count
        self.cores -= count * demand.cores
        self.memory_bytes -= count * demand.memory_bytes
        self.disk_bytes -= count * demand.disk_bytes
        self.gpus -= count * demand.gpus

    def has_room(self, input_bytes: int) -> bool:
        """Whether the inputs of a workunit fit on the disk (into `available_bytes` strictly, as in AWE)."""
        if self.said and input_bytes > self.disk_bytes:
            return False
        return self.available_bytes < 0 or self.available_bytes > input_bytes


def checkout(
    state: State,
    ctx: Context,
    client_id: ClientId,
    want: int,
    free: Free | None = None,
    available_bytes: int = -1,
) -> Checkout:
    """Lease up to `want` workunits to a client.

    Without `free` it is taken to have left what it has less what it holds.
    Raises ClientNotFound, ClientSuspended, QueueSuspended.
    """
    client = state.clients.get(client_id)
    if client is None:
        raise ClientNotFound
    if client.suspended:
        raise ClientSuspended
    if state.queue_suspended:
        raise QueueSuspended
    seen(state, ctx, client)
    return grant(state, ctx, client, want, free, available_bytes)


def grant(
    state: State, ctx: Context, client: Client, want: int, free: Free | None, available_bytes: int = -1
) -> Checkout:
    """As `checkout`, for a client that may take work."""
    result = Checkout()
    release_due(state, ctx.now_s)
    budget = Budget(client, want, free, available_bytes)
    lanes = [lane for demand in eligible_demands(state, client) for lane in demand.lanes]
    emptied: list[Task] = []
    for level in _by_priority(lanes):
        order = _in_turn(state, level, budget) if state.rules.policy == "fair" else _in_order(level, budget)
        for task, most in order:
            _take(state, ctx, task, most, budget, result)
            if task.fresh_rank >= task.end_rank and not task.retry:
                emptied.append(task)
            if budget.want <= 0:
                break
    for task in emptied:
        unlist_task(task)
    if result.grants:
        client.total_checkout += len(result.grants)
        state.touch_client(client)
        _record(state, client, result.grants)
    elif want > 0:
        _explain(state, client, budget, result)
    return result


def _record(state: State, client: Client, grants: list[Grant]) -> None:
    """One event for each job, so that who follows a job hears of it."""
    by_job: dict[JobId, list[WorkunitId]] = {}
    for grant in grants:
        by_job.setdefault(grant.task.job.id, []).append(grant.unit.id)
    for job_id, work_ids in by_job.items():
        state.record("WC", jobid=job_id, workids=work_ids, clientid=client.id)


def left(client: Client) -> Free:
    """What a client that does not say so has left."""
    left = Free(client.cores or 1, client.memory_bytes, client.disk_bytes, client.gpus)
    for unit in client.holds.values():
        want = unit.task.resources
        left.cores -= want["cores"]
        left.memory_bytes -= want["memory_bytes"]
        left.disk_bytes -= want["disk_bytes"]
        left.gpus -= want["gpus"]
    return left


def _by_priority(lanes: list[Lane]) -> Iterator[list[Lane]]:
    """Lanes of equal priority together, best first."""
    levels: dict[int, list[Lane]] = {}
    for lane in lanes:
        levels.setdefault(lane.key[0], []).append(lane)
    for negative_priority in sorted(levels):
        yield levels[negative_priority]


def _walk(lane: Lane, budget: Budget) -> Iterator[tuple[int, int, Task]]:
    """The tasks of a lane in order, until its demand does not fit any more."""
    demand = lane.demand
    for queue in lane.jobs:
        for task in queue.tasks:
            if budget.fits(demand) < 1:
                return
            yield queue.jid, task.index, task


def _in_order(level: list[Lane], budget: Budget) -> Iterator[tuple[Task, int]]:
    """First come, first served: as much of each task as fits."""
    walks = [_walk(lane, budget) for lane in level]
    for _, _, task in walks[0] if len(walks) == 1 else merge(*walks):
        fit = budget.fits(task.demand) if task.demand else 0
        if fit > 0:
            yield task, fit


def _in_turn(state: State, level: list[Lane], budget: Budget) -> Iterator[tuple[Task, int]]:
    """One workunit at a time to the user who runs least; equal users in order of submission."""
    users: dict[str, list[Lane]] = {}
    for lane in level:
        users.setdefault(lane.key[1], []).append(lane)
    walks = {user: merge(*(_walk(lane, budget) for lane in lanes)) for user, lanes in users.items()}
    heads = {user: head for user, walk in walks.items() if (head := next(walk, None))}
    while heads and budget.want > 0:
        user = min(heads, key=lambda u: (state.running.get(u, 0), heads[u][:2]))
        task = heads[user][2]
        before = budget.want
        if task.demand and budget.fits(task.demand) > 0:
            yield task, 1
        if budget.want == before:
            following = next(walks[user], None)
            if following is None:
                del heads[user]
            else:
                heads[user] = following


def _take(state: State, ctx: Context, task: Task, most: int, budget: Budget, result: Checkout) -> None:
    """Lease up to `most` workunits of a task: those to retry first, then fresh ranks."""
    if not budget.has_room(task.input_bytes):
        result.skipped["disk_full"] = result.skipped.get("disk_full", 0) + 1
        return
    client = budget.client
    units = _take_retries(state, ctx, task, most, client, result) if task.retry else []
    fresh = range(task.fresh_rank, min(task.fresh_rank + most - len(units), task.end_rank))
    if fresh:
        task.fresh_rank = fresh.stop
        for rank in fresh:
            units.append(unit := Workunit(WorkunitId(task.wuid_prefix + str(rank)), task, rank))
            unit.attempt = task.first_attempt - 1
            task.units[rank] = unit
            state.workunits[unit.id] = unit
    if not units:
        return
    _lease(state, ctx, client, task, units)
    if task.is_split and (part := task.partinfo):
        groups, together = part["totalindex"], group_size(part)
        result.grants += (
            Grant(unit, part_range(unit.rank, task.totalwork, groups, together)) for unit in units
        )
    else:
        result.grants += (Grant(unit, "") for unit in units)
    budget.spend(task.demand, len(units))  # type: ignore[arg-type]


def _lease(state: State, ctx: Context, client: Client, task: Task, units: list[Workunit]) -> None:
    now_s, wall_s, new_token = ctx.now_s, ctx.wall_s, ctx.new_token
    client_id, holds, withdrawn = client.id, client.holds, client.withdrawn
    changed = state.changes.workunits
    highest = task.max_attempt
    for unit in units:
        unit.state = WorkunitState.CHECKOUT
        unit.attempt += 1
        if unit.attempt > highest:
            highest = unit.attempt
        unit.client = client_id
        unit.token = new_token()
        unit.checkout_time = wall_s
        unit.checkout_s = now_s
        unit.not_before = 0.0
        unit.exit = None
        unit.missed = False
        id = unit.id
        holds[id] = unit
        changed[id] = unit
        if withdrawn:
            withdrawn.pop(id, None)
    task.max_attempt = highest
    user = task.job.user
    state.running[user] = state.running.get(user, 0) + len(units)
    _start_running(state, ctx, task)
    state.touch_task(task)


def _start_running(state: State, ctx: Context, task: Task) -> None:
    """The first checkout moves task and job to in-progress."""
    if task.state is not TaskState.IN_PROGRESS:
        task.state = TaskState.IN_PROGRESS
        task.starteddate = ctx.wall_s
    job = task.job
    if job.state is not JobState.IN_PROGRESS:
        job.state = JobState.IN_PROGRESS
        job.info = {**job.info, "startedtime": rfc3339(ctx.wall_s)}
        job.updatetime = ctx.wall_s
        state.touch_job(job)


def _take_retries(
    state: State, ctx: Context, task: Task, most: int, client: Client, result: Checkout
) -> list[Workunit]:
    retry = task.retry
    if not client.skip:
        taken = retry[:most]
        task.retry = retry[most:]
        return taken
    taken, kept = [], []
    for at, unit in enumerate(retry):
        if len(taken) == most:
            kept += retry[at:]
            break
        skips = unit.id in client.skip and ctx.now_s < unit.others_until_s
        if skips and not is_only_choice(state, unit, client):
            kept.append(unit)
        else:
            taken.append(unit)
    if kept and len(taken) < most:
        result.skipped["skip_list"] = result.skipped.get("skip_list", 0) + len(kept)
    task.retry = kept
    return taken


def is_only_choice(state: State, unit: Workunit, client: Client) -> bool:
    """Whether no other live client could run a workunit that failed on this one.

    The client found is remembered, so that asking again costs nothing while it stays.
    """
    demand = unit.task.demand
    assert demand is not None, "a listed task has a demand"
    witness = unit.witness
    if witness is not None and _is_other(state, witness, client) and could_run(demand, unit, witness):
        return False
    for other in state.clients.values():
        if other is not client and could_run(demand, unit, other):
            unit.witness = other
            return False
    unit.witness = None
    return True


def _is_other(state: State, witness: Client, client: Client) -> bool:
    """A remembered client that is another one and was not removed since."""
    return witness is not client and state.clients.get(witness.id) is witness


def could_run(demand: Demand, unit: Workunit, client: Client) -> bool:
    return client.is_live and unit.id not in client.skip and unfit(demand, client) is None


def _explain(state: State, client: Client, budget: Budget, result: Checkout) -> None:
    """Count the ready tasks of each demand by the reason why the client got nothing of it."""
    skipped = result.skipped
    for demand in state.demand_list:
        if not demand.listed:
            continue
        reason = unfit(demand, client) or ("no_free_resources" if budget.fits(demand) < 1 else None)
        if reason:
            skipped[reason] = skipped.get(reason, 0) + demand.listed
