"""What an attempt that did not end well means for its workunit, its client and its job.

| kind | the workunit | the client |
|---|---|---|
| command signal timeout oom output | `failed` + 1 | blamed, skips the workunit |
| input | `failed` + 1 (so a missing file ends the retries) | never blamed, skips the workunit |
| node | `node_failures` + 1, own limit MAX_NODE_FAILURES | blamed, skips the workunit |
| node, of an input out of its reach | the same | not blamed, skips the workunit |
| node, while its command ran | the same, and `lost` + 1 | not blamed, skips the workunit |
| lost, also with a client that died and is back | `lost` + 1, own limit `max_lost` | it is offline, or back |
| released, or withdrawn with nobody to blame | `given_back` + 1, or 0 if it was kept for a while | nothing |
| command with exit code 42 | failed-permanent, and the job with it | not blamed |

What ends its client or executor, or fills the disk, ends those that run beside it, too. So that they do not
go on together again and again, each has a pause of its own from the second time on.

At a limit workunit, task and job are suspended. Blame is taken back where the work proves to be bad, so that
one bad input or command cannot suspend a farm (blame.py). `noretry` makes the limits of failed and lost 1.
Source: AWE lib/core/cqmgr.go handleWorkFail; differs: kinds, delays, blame taken back.
"""

from dataclasses import dataclass
from hashlib import blake2b
from math import inf

from awe_server.scheduler.blame import OWN, blame
from awe_server.scheduler.demands import delay_retry, list_retry, unlist_job
from awe_server.scheduler.state import (
    RUNNING_TASKS,
    Client,
    Context,
    Document,
    Job,
    State,
    Task,
    Workunit,
)
from awe_server.scheduler.transitions import JOB_MOVES, TASK_MOVES, check_move
from shared_models.limits import MAX_APPERROR_CHARS, MAX_NOTES_CHARS
from shared_models.states import FailureKind, JobState, TaskState, WorkunitState

PERMANENT_EXIT_CODE = 42  #: a command's way to say that trying again makes no sense
MAX_NODE_FAILURES = 10  #: attempts that clients could not carry out before a workunit is suspended
MAX_GIVEN_BACK = 100  #: attempts in a row that were given back at once before a workunit is suspended
GIVEN_BACK_SOON_LEASES = 2  #: an attempt that was held for so many leases was not given back at once
GIVEN_BACK_FREE = 3  #: attempts given back at once before there is a pause
GIVEN_BACK_BASE_S = 1.0  #: the first pause; it doubles with each further one
GIVEN_BACK_CAP_S = 300.0  #: the longest
LOST_BASE_LEASES = 0.5  #: the longest pause after the second loss
LOST_GROWTH = 4.0  #: with each further one it may be so many times as long


@dataclass(slots=True, frozen=True)
class Failure:
    """How an attempt ended."""

    kind: FailureKind
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    stderr_tail: str = ""
    out_of_reach: bool = False  #: an input, of this client
    ran: bool = False  #: of kind `node`: while its command ran, which may be what ended it
    missed: bool = False  #: without its client's doing, which may still say how it ended

    def document(self) -> Document:
        """The `exit` of a workunit's document."""
        return {
            "kind": self.kind.value,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "message": self.message[:MAX_NOTES_CHARS],
        }


def end_badly(state: State, ctx: Context, unit: Workunit, failure: Failure) -> None:
    """Settle a leased workunit whose attempt failed, was lost or was given back."""
    client = state.clients.get(unit.client)
    task = unit.task
    state.end_lease(unit, ctx.wall_s)
    unit.exit = failure.document()
    unit.missed = failure.missed
    unit.notes = failure.message[:MAX_NOTES_CHARS]
    unit.done_time = ctx.wall_s
    state.touch_workunit(unit)
    state.touch_task(task)
    if failure.kind is FailureKind.COMMAND and failure.exit_code == PERMANENT_EXIT_CODE:
        _fail_for_good(state, ctx, unit, failure)
        return
    was_kept = ctx.now_s - unit.checkout_s >= GIVEN_BACK_SOON_LEASES * state.rules.lease_s
    _count(unit, failure, was_kept=was_kept)
    reason = _limit_reached(state, unit, failure)
    if reason:
        _give_up(state, ctx, unit, failure, reason)
    else:
        _try_again(state, ctx, unit, failure.kind)
    if client is not None:
        broken = blame(state, unit, client, failure.kind, is_innocent=failure.out_of_reach or failure.ran)
        if broken:
            put_aside(state, ctx, client, broken)


def withdraw(state: State, ctx: Context, unit: Workunit, message: str) -> None:
    """Take a leased workunit back with nobody to blame and queue it again; its holder is told to discard."""
    state.end_lease(unit, ctx.wall_s, withdrawn=True)
    end_badly(state, ctx, unit, Failure(FailureKind.RELEASED, message=message))


def withdraw_all(state: State, ctx: Context, client: Client, message: str) -> None:
    """Take back all that a client holds. One by one: the first may halt the job of the next."""
    while client.holds:
        withdraw(state, ctx, next(iter(client.holds.values())), message)


def put_aside(state: State, ctx: Context, client: Client, reason: str) -> None:
    """Suspend a client; the work it holds goes back to the queue."""
    client.suspended = True
    client.suspend_reason = reason[:MAX_NOTES_CHARS]
    withdraw_all(state, ctx, client, "client suspended")
    state.touch_client(client)
    state.tell(client)
    state.changes.left = True
    state.record("CS", clientid=client.id, name=client.name, reason=client.suspend_reason)


def halt_job(
    state: State, ctx: Context, job: Job, reason: str, *, lastfailed: str = "", error: Document | None = None
) -> None:
    """Suspend a job: nothing of it is handed out, its running work is told to discard, the reason is kept.

    Costs its tasks and live workunits; ranks that were never handed out are not touched.
    Raises IllegalMove if the job has ended.
    """
    check_move(JOB_MOVES, "job", job.id, job.state, JobState.SUSPEND)
    stop_work(state, ctx, job, TaskState.SUSPEND, WorkunitState.SUSPEND)
    job.state = JobState.SUSPEND
    job.notes = reason[:MAX_NOTES_CHARS]
    if lastfailed:
        job.lastfailed = lastfailed
    job.error = {**(error or {"servernotes": job.notes}), "status": JobState.SUSPEND.value}
    job.updatetime = ctx.wall_s
    state.touch_job(job)
    state.record("JP", jobid=job.id, reason=job.notes)


def max_failures(state: State, unit: Workunit) -> int:
    """How often the workunit may fail."""
    if unit.task.job.info.get("noretry"):
        return 1
    return unit.task.max_failures or state.rules.max_work_failure


def _max_lost(state: State, unit: Workunit) -> int:
    return 1 if unit.task.job.info.get("noretry") else state.rules.max_lost


def _count(unit: Workunit, failure: Failure, *, was_kept: bool) -> None:
    kind = failure.kind
    if kind in OWN:
        unit.failed += 1
    elif kind is FailureKind.INPUT:
        unit.failed += 1
        unit.input_failures += 1
    elif kind is FailureKind.NODE:
        unit.node_failures += 1
        unit.lost += failure.ran
    elif kind is FailureKind.LOST:
        unit.lost += 1
    else:
        unit.given_back = 0 if was_kept else unit.given_back + 1


def _limit_reached(state: State, unit: Workunit, failure: Failure) -> str:
    """Why there is no further attempt; "" if there is one."""
    kind = failure.kind
    if unit.failed >= max_failures(state, unit) and (kind in OWN or kind is FailureKind.INPUT):
        return f"workunit failed {unit.failed} time(s)"
    if kind is FailureKind.LOST and unit.lost >= _max_lost(state, unit):
        return f"workunit was lost with its client {unit.lost} time(s)"
    last = f", the last: {failure.message}" if failure.message else ""
    if kind is FailureKind.NODE and failure.ran and unit.lost >= _max_lost(state, unit):
        ended = "ended with their client, or with what ran them there"
        return f"workunit given up after {unit.lost} attempts that {ended}{last}"[:MAX_NOTES_CHARS]
    if unit.node_failures >= MAX_NODE_FAILURES:
        gave_up = f"workunit given up after {unit.node_failures} attempts that clients could not carry out"
        return f"{gave_up}{last}"[:MAX_NOTES_CHARS]
    if unit.given_back >= MAX_GIVEN_BACK:
        return f"workunit was given back at once {unit.given_back} times"
    return ""


def _try_again(state: State, ctx: Context, unit: Workunit, kind: FailureKind) -> None:
    """Queue the workunit, after a delay if something failed or it goes round; a suspended job keeps it
    suspended."""
    unit.state = WorkunitState.QUEUED
    delay_s = own_delay_s(state, unit, kind)
    unit.not_before = ctx.wall_s + delay_s if delay_s else 0.0
    leave_to_others(state, unit, ctx.now_s + delay_s)
    if delay_s:
        delay_retry(state, unit, ctx.now_s + delay_s)
    else:
        list_retry(state, unit)
    state.record("WR", jobid=unit.task.job.id, workid=unit.id, kind=kind.value, delay_s=delay_s)


def leave_to_others(state: State, unit: Workunit, ready_s: float) -> None:
    """Say how long a workunit is for those on which it did not fail; it may be taken from `ready_s` on.

    An input that failed may be there again, and the others may be busy for hours: so not for ever.
    """
    unit.others_until_s = ready_s + state.rules.retry_cap_s if unit.input_failures else inf


def own_delay_s(state: State, unit: Workunit, kind: FailureKind) -> float:
    """How long a workunit whose last attempt ended so is kept back; it follows from what is stored of it."""
    if kind is FailureKind.RELEASED:
        return _pause_s(unit)
    if kind is FailureKind.LOST:
        return _lost_pause_s(state, unit)
    if kind is FailureKind.NODE:
        return max(_retry_delay_s(state, unit), _lost_pause_s(state, unit))
    return _retry_delay_s(state, unit)


def _retry_delay_s(state: State, unit: Workunit) -> float:
    rules = state.rules
    base_s = unit.task.retry_delay_s
    if base_s is None:
        base_s = rules.retry_base_s
    doublings = min(unit.failed + unit.node_failures - 1, 32)
    return float(min(base_s * 2**doublings, max(rules.retry_cap_s, base_s)))


def _pause_s(unit: Workunit) -> float:
    """How long a workunit that is given back again and again is kept from whoever would give it back."""
    more = unit.given_back - GIVEN_BACK_FREE
    return 0.0 if more < 1 else min(GIVEN_BACK_BASE_S * 2 ** (more - 1), GIVEN_BACK_CAP_S)


def _lost_pause_s(state: State, unit: Workunit) -> float:
    """How long a workunit is kept back whose clients go: not at all the first time.

    Then it is drawn, so that those that ended together begin apart: from what names the attempt, which makes
    it the same after a restart.
    """
    if unit.lost < 2:
        return 0.0
    longest_s = LOST_BASE_LEASES * state.rules.lease_s * LOST_GROWTH ** min(unit.lost - 2, 16)
    drawn = blake2b(f"{unit.id} {unit.attempt}".encode(), digest_size=4).digest()
    pause_s = min(longest_s, state.rules.retry_cap_s) * int.from_bytes(drawn) / 2**32
    return (int(pause_s * 64) + 1) / 64  # a stored time tells it exactly


def _give_up(state: State, ctx: Context, unit: Workunit, failure: Failure, reason: str) -> None:
    task = unit.task
    unit.state = WorkunitState.SUSPEND
    unit.not_before = 0.0
    task.notes = f"workunit {unit.id}: {reason}"[:MAX_NOTES_CHARS]
    state.record("WP", jobid=task.job.id, workid=unit.id, reason=reason)
    text = reason.replace("workunit", f"workunit {unit.id}", 1)
    if failure.kind is not FailureKind.NODE:  # of that the reason has the message
        text += f". msg from client: {failure.message}" if failure.message else "."
    halt_job(state, ctx, task.job, text, lastfailed=unit.id, error=_error(unit, failure, reason))


def _fail_for_good(state: State, ctx: Context, unit: Workunit, failure: Failure) -> None:
    """Exit code 42: workunit, task and job are failed-permanent, other work of the job is discarded."""
    task, job = unit.task, unit.task.job
    reason = f"exit code {PERMANENT_EXIT_CODE} encountered"
    check_move(JOB_MOVES, "job", job.id, job.state, JobState.FAILED_PERMANENT)
    unit.failed += 1
    unit.state = WorkunitState.FAILED_PERMANENT
    task.notes = f"workunit {unit.id}: {reason}"
    stop_work(state, ctx, job, TaskState.FAILED_PERMANENT, WorkunitState.FAILED_PERMANENT)
    job.state = JobState.FAILED_PERMANENT
    job.notes = f"workunit {unit.id}: {reason}"
    job.lastfailed = unit.id
    job.error = {**_error(unit, failure, reason), "status": JobState.FAILED_PERMANENT.value}
    job.updatetime = ctx.wall_s
    state.touch_job(job)
    state.record("W!", jobid=job.id, workid=unit.id)
    state.record("JF", jobid=job.id, reason=job.notes)
    state.forget_later(job)


def _error(unit: Workunit, failure: Failure, reason: str) -> Document:
    return {
        "clientfailed": unit.client,
        "workfailed": unit.id,
        "taskfailed": unit.task.id,
        "servernotes": reason[:MAX_NOTES_CHARS],
        "worknotes": failure.message[:MAX_NOTES_CHARS],
        "apperror": failure.stderr_tail[-MAX_APPERROR_CHARS:],
    }


def halt_task(state: State, ctx: Context, task: Task, verb: str, reason: str) -> None:
    """Suspend a task whose inputs or outputs are not as they must be, and its job, with the reason.

    `verb` says what failed, in AWE's words: "enqueuing", "finishing"; or "handing out".
    Raises IllegalMove once it has ended.
    """
    check_move(TASK_MOVES, "task", task.id, task.state, TaskState.SUSPEND)
    task.preparing = task.finishing = False
    task.state = TaskState.SUSPEND
    task.notes = reason[:MAX_NOTES_CHARS]
    state.touch_task(task)
    text = f"failed {verb} task {task.id}, err={reason}"[:MAX_NOTES_CHARS]
    halt_job(
        state, ctx, task.job, text, lastfailed=task.id, error={"taskfailed": task.id, "servernotes": text}
    )


def stop_work(state: State, ctx: Context, job: Job, task_state: TaskState, unit_state: WorkunitState) -> None:
    """Take a job's work off the queues and out of clients' hands; move running tasks and live workunits."""
    unlist_job(job)
    for task in job.tasks:
        task.preparing = task.finishing = False
        if task.state in RUNNING_TASKS:
            task.state = task_state
            state.touch_task(task)
        task.retry = []
        for unit in task.units.values():
            state.end_lease(unit, ctx.wall_s, withdrawn=True)
            unit.state = unit_state
            unit.due_s = 0.0
            state.touch_workunit(unit)
