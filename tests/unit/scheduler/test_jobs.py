"""What a person may do with a job, and what follows at once."""

from typing import Any

import pytest

from awe_server.scheduler import jobs
from awe_server.scheduler.facts import InputFact, TaskFacts
from awe_server.scheduler.finish import task_unfinishable
from awe_server.scheduler.invariants import check
from awe_server.scheduler.ready import task_prepared, task_refused
from awe_server.scheduler.report import report
from awe_server.scheduler.restart import descendants
from awe_server.scheduler.state import DeleteNodes, FinishTask, ForgetJob, Job, PrepareTask
from shared_models.errors import (
    BadRequest,
    Conflict,
    IllegalMove,
    InvalidDocument,
    JobNotFound,
    LeaseLost,
    TaskNotFound,
    WorkunitNotFound,
)
from shared_models.ids import ClientId, JobId
from shared_models.limits import MAX_PRIORITY, MAX_TEXT_CHARS
from shared_models.states import FailureKind, JobState, TaskState, WorkunitState
from shared_models.times import ZERO_TIME
from tests.builders import Stored, World, a_job, a_report, changed, snapshot
from tests.support.cost import cpu_below


def suspend(world: World, job: Job) -> None:
    jobs.suspend_job(world.state, world.ctx, job.id)


def resume(world: World, job: Job) -> None:
    jobs.resume_job(world.state, world.ctx, job.id)


def recompute(world: World, job: Job, task: str) -> None:
    jobs.recompute_job(world.state, world.ctx, job.id, task)


def states(job: Job) -> list[TaskState]:
    return [task.state for task in job.tasks]


def a_diamond() -> Any:
    """a → b, c → d, and e beside them; all without files."""
    return (
        a_job()
        .task("a")
        .task("b", parts=2)
        .depends("a")
        .task("c")
        .depends("a")
        .task("d")
        .depends("c", "b")
        .task("e")
    )


def run_all(world: World, job: Job) -> None:
    """Complete whatever can be completed."""
    world.client("runner")
    while grants := world.checkout("runner", 10):
        for grant in grants:
            world.done(grant.unit)
    assert job.state is JobState.COMPLETED


# -- suspend ---------------------------------------------------------------------------------------------


def test_suspend_stops_everything_at_once_and_tells_who_runs_it(world: World) -> None:
    job = world.submit(a_job().task("t1", parts=3).task("t2").depends("t1"))
    client = world.client()
    unit = world.take()
    world.state.take()

    suspend(world, job)

    changes = world.state.take()
    assert changed(changes) == {"job": "suspend", "t1": "suspend", "t1_1": "suspend", "c1": "active-idle"}
    assert [event.code for event in changes.events] == ["JP"]
    assert changes.told == {client.id: None}
    assert (job.notes, job.error) == (
        "manually suspended",
        {"servernotes": "manually suspended", "status": "suspend"},
    )
    assert world.checkout() == []
    assert world.exchange(holds=[(unit.id, unit.attempt)]).discard == [(unit.id, unit.attempt)]


def test_suspending_twice_is_suspending_once(world: World) -> None:
    job = world.submit(a_job().task("t1"))
    suspend(world, job)
    revision = job.revision
    assert jobs.suspend_job(world.state, world.ctx, job.id, "another reason") is job
    assert (job.revision, job.notes) == (revision, "manually suspended")


@pytest.mark.parametrize("ended", ["completed", "deleted", "failed-permanent"])
def test_a_job_that_has_ended_cannot_be_suspended(world: World, ended: str) -> None:
    job = world.submit(a_job().task("t1"))
    world.client()
    if ended == "completed":
        run_all(world, job)
    elif ended == "deleted":
        jobs.delete_job(world.state, world.ctx, job.id)
    else:
        world.fail(world.take(), exit_code=42)
    before = snapshot(world.state)
    with pytest.raises(IllegalMove, match=f"cannot go from '{ended}' to 'suspend'"):
        suspend(world, job)
    assert snapshot(world.state) == before


def test_S_05_S_07_suspend_is_complete_without_any_client_also_while_inputs_are_looked_at(
    world: World,
) -> None:
    """Nobody has to answer for the verb to be done, and what comes late changes nothing."""
    job = world.submit(a_job().task("t1").reads("in").task("t2"))
    task = job.tasks[0]
    suspend(world, job)
    assert (job.state, states(job)) == (JobState.SUSPEND, [TaskState.PENDING, TaskState.SUSPEND])
    task_prepared(world.state, world.ctx, task.id, task.generation, TaskFacts())
    task_refused(world.state, world.ctx, task.id, task.generation, "too late")
    assert states(job) == [TaskState.PENDING, TaskState.SUSPEND]
    assert job.notes == "manually suspended"
    world.client()
    assert world.checkout() == []


def test_S_08_what_a_killed_attempt_reports_starts_no_other(world: World) -> None:
    """Failures after a suspend are refused; they trigger neither retry nor failure."""
    job = world.submit(a_job().task("t1", parts=10))
    world.client()
    units = [grant.unit for grant in world.checkout(want=4)]
    suspend(world, job)
    for unit in units:
        with pytest.raises(LeaseLost):
            world.fail(unit)
    assert (job.state, job.tasks[0].state) == (JobState.SUSPEND, TaskState.SUSPEND)
    assert {unit.failed for unit in units} == {0}
    world.pass_s(1_000)
    assert world.checkout() == []


# -- resume ----------------------------------------------------------------------------------------------


def test_resume_keeps_finished_ranks_and_hands_out_the_rest_once(world: World) -> None:
    """AWE resumed a half-done split so that any two of its parts completed it."""
    job = world.submit(a_job().task("t1", parts=4))
    world.client()
    first, second, third = (grant.unit for grant in world.checkout(want=3))
    world.done(first)
    world.done(second)
    suspend(world, job)

    resume(world, job)

    task = job.tasks[0]
    assert (job.state, task.state, task.remainwork, job.resumed) == (
        JobState.IN_PROGRESS,
        TaskState.IN_PROGRESS,
        2,
        1,
    )
    again = [grant.unit for grant in world.checkout(want=10)]
    assert [(unit.rank, unit.attempt) for unit in again] == [(3, 2), (4, 1)]
    assert again[0] is third
    for unit in again:
        assert job.state is JobState.IN_PROGRESS
        world.done(unit)
    assert job.state is JobState.COMPLETED


def test_resume_of_what_was_never_handed_out_is_queued_again(world: World) -> None:
    job = world.submit(a_job().task("t1", parts=2))
    suspend(world, job)
    world.state.take()
    resume(world, job)
    changes = world.state.take()
    assert changed(changes) == {"job": "queued", "t1": "queued"}
    assert sum(changes.work.values()) == 2
    assert job.error is None


def test_resume_forgives_failures_and_a_lone_client_may_try_again(world: World) -> None:
    """AWE: skip lists survived a resume, so the only client never got the workunit again."""
    job = world.submit(a_job().task("t1", retry_delay_s=0.0))
    client = world.client()
    for _ in range(3):
        unit = world.take()
        world.fail(unit)
    assert (job.state, job.lastfailed) == (JobState.SUSPEND, unit.id)
    assert list(client.skip) == [unit.id]
    bystander = world.client("c2")
    bystander.skip["of another job"] = None  # type: ignore[index]

    resume(world, job)

    assert (unit.failed, unit.state, unit.not_before) == (0, WorkunitState.QUEUED, 0.0)
    assert not client.skip
    assert bystander.skip
    assert world.take() is unit
    assert unit.attempt == 4


def told(job: Job) -> tuple[str, str, object, list[str]]:
    """What a job says of a failure."""
    return job.notes, job.lastfailed, job.error, [task.notes for task in job.tasks]


@pytest.mark.parametrize("verb", ["resume", "recompute", "resubmit"])
@pytest.mark.parametrize("fails", ["work", "finishing"])
def test_a_job_that_goes_on_does_not_say_any_more_that_it_failed(world: World, verb: str, fails: str) -> None:
    builder = a_job(noretry=True).task("t1").writes("out") if fails == "finishing" else a_job(noretry=True)
    job = world.submit(builder.task("t2", parts=2))
    world.client()
    work = job.tasks[-1]
    if fails == "finishing":
        world.prepare(job.tasks[0])
        world.done(world.take())
        task_unfinishable(world.state, world.ctx, job.tasks[0].id, 1, "nobody takes it")
    else:
        world.fail(world.take())
    assert job.state is JobState.SUSPEND
    assert all([*told(job)[:3], "".join(told(job)[3])])
    assert check(world.state) == []
    expected = ""
    if verb == "resume":
        resume(world, job)
    elif verb == "recompute":
        recompute(world, job, work.name)
        expected = f"recomputed from task {work.id}"
    else:
        jobs.resubmit_job(world.state, world.ctx, job.id)
        expected = "restarted from the beginning"
    assert told(job) == (expected, "", None, [""] * len(job.tasks))
    assert check(world.state) == []


def test_resume_keeps_why_a_task_was_not_split(world: World) -> None:
    job = world.submit(a_job(noretry=True).task("t1").task("t2"))
    world.client()
    job.tasks[0].notes = "not split: no"
    failing = next(grant.unit for grant in world.checkout(want=2) if grant.unit.task is job.tasks[1])
    world.fail(failing)
    resume(world, job)
    assert told(job) == ("", "", None, ["not split: no", ""])


def test_resume_looks_again_at_refused_inputs(world: World) -> None:
    job = world.submit(a_job().task("t1").reads("in"))
    task = job.tasks[0]
    task_refused(world.state, world.ctx, task.id, 1, "node gone")
    assert states(job) == [TaskState.SUSPEND]
    world.state.take()

    resume(world, job)

    assert world.state.take().effects == [PrepareTask(task.id, 1)]
    assert (job.state, task.state, task.notes) == (JobState.INIT, TaskState.PENDING, "")
    world.prepare(task)
    assert (job.state, task.state) == (JobState.QUEUED, TaskState.QUEUED)


@pytest.mark.parametrize("kind", [FailureKind.INPUT, FailureKind.COMMAND])
def test_resume_looks_again_at_inputs_that_a_client_could_not_use(world: World, kind: FailureKind) -> None:
    job = world.submit(a_job().task("t1", max_failures=1).reads("in").writes("out").task("t2").depends("t1"))
    task = job.tasks[0]
    world.prepare(task)
    world.client()
    failed = world.take()
    attempt = failed.attempt
    world.fail(failed, kind)
    world.state.take()

    resume(world, job)

    prepares = [effect for effect in world.state.take().effects if isinstance(effect, PrepareTask)]
    if kind is not FailureKind.INPUT:
        assert (prepares, states(job)) == ([], [TaskState.IN_PROGRESS, TaskState.PENDING])
        return
    assert prepares == [PrepareTask(task.id, 2)]
    assert (job.state, states(job)) == (JobState.INIT, [TaskState.PENDING] * 2)
    world.prepare(task)
    unit = world.take()
    assert unit.attempt > attempt
    world.done(unit)
    world.finish(task)
    assert (task.state, job.tasks[1].waiting_for) == (TaskState.COMPLETED, 0)


def test_resume_keeps_finished_ranks_although_an_input_failed(world: World) -> None:
    job = world.submit(a_job().task("t1", parts=2, max_failures=1))
    world.client()
    world.done(world.take())
    world.fail(world.take(), FailureKind.INPUT)
    resume(world, job)
    assert (states(job), job.tasks[0].remainwork) == ([TaskState.IN_PROGRESS], 1)


def test_resume_finishes_outputs_that_were_being_merged(world: World) -> None:
    job = world.submit(a_job().task("t1").writes("out"))
    task = job.tasks[0]
    world.prepare(task)
    world.client()
    world.done(world.take())
    suspend(world, job)
    world.finish(task)  # late: void
    assert states(job) == [TaskState.SUSPEND]
    world.state.take()

    resume(world, job)

    assert world.state.take().effects == [FinishTask(task.id, 1)]
    assert states(job) == [TaskState.IN_PROGRESS]
    world.finish(task)
    assert job.state is JobState.COMPLETED


def test_only_a_suspended_job_can_be_resumed(world: World) -> None:
    job = world.submit(a_job().task("t1"))
    with pytest.raises(Conflict, match=f"^job {job.id} is not in 'suspend' status$"):
        resume(world, job)


def test_a_resumed_job_still_waits_for_its_start(world: World) -> None:
    job = world.submit(a_job(start_at="2026-01-01T13:00:00Z").task("t1").reads("in"))
    suspend(world, job)
    resume(world, job)
    assert (job.state, job.tasks[0].preparing) == (JobState.INIT, False)
    world.pass_s(3_601)
    assert job.tasks[0].preparing


# -- recompute and resubmit ------------------------------------------------------------------------------


def test_that_a_job_goes_on_is_told_before_what_follows_from_it(world: World) -> None:
    job = world.submit(a_job().task("t1"))
    world.client()
    for again, code in (
        (lambda: recompute(world, job, "t1"), "JC"),
        (lambda: jobs.resubmit_job(world.state, world.ctx, job.id), "JC"),
        (lambda: resume(world, job), "JU"),
    ):
        if code == "JU":
            suspend(world, job)
        else:
            world.done(world.take())
        world.state.take()
        again()
        codes = [event.code for event in world.state.take().events]
        assert codes == ([code, "TQ"] if code == "JC" else [code])


def test_S_04_recompute_makes_finished_children_wait_at_once(world: World) -> None:
    """B and C are not handed out before A is done again; over every path of a diamond."""
    job = world.submit(a_diamond())
    run_all(world, job)
    recompute(world, job, "a")
    pending, done = TaskState.PENDING, TaskState.COMPLETED
    assert states(job) == [TaskState.QUEUED, pending, pending, pending, done]
    assert (job.state, job.open_tasks, job.resumed) == (JobState.IN_PROGRESS, 4, 1)
    assert job.info["completedtime"] == ZERO_TIME
    assert [grant.task.name for grant in world.checkout("runner", 10)] == ["a"]


def test_S_04_recompute_in_the_middle_leaves_what_comes_before_alone(world: World) -> None:
    job = world.submit(a_diamond())
    run_all(world, job)
    world.state.take()
    recompute(world, job, "b")
    b = job.tasks[1]
    removed = {f"removed workunits {job.id}_{name}": "taskid" for name in ("b", "d")}
    assert changed(world.state.take()) == {"job": "in-progress", "b": "queued", "d": "pending", **removed}
    assert (b.generation, b.first_attempt, b.remainwork) == (2, 2, 2)
    assert job.notes == f"recomputed from task {b.id}"
    run_all(world, job)


def test_a_recompute_leaves_nothing_of_what_was_known_of_an_input_that_will_be_made_anew(
    world: World,
) -> None:
    world.client()
    job = world.submit(a_job().task("a").writes("x").task("b").reads("x", origin="a"))
    a, b = job.tasks
    before = b.inputs
    world.prepare(a)
    world.done(world.take())
    world.finish(a)
    fact = InputFact("x", "", 9, "f" * 32, "http://h/x", version='"1"', index="key")
    task_prepared(world.state, world.ctx, b.id, 1, TaskFacts(inputs=[fact]))
    assert {"_md5", "_version", "_index"} < b.inputs[0].keys()
    suspend(world, job)
    recompute(world, job, "a")
    assert b.inputs == before


def test_an_attempt_after_a_recompute_has_a_number_of_its_own(world: World) -> None:
    """A report of an earlier generation can never be taken for one of the new."""
    job = world.submit(a_job().task("t1", parts=2, retry_delay_s=0.0))
    world.client()
    stale = world.take()
    world.fail(stale)
    world.client("c2")
    old = world.take("c2")
    assert (old.rank, old.attempt) == (1, 2)
    suspend(world, job)
    recompute(world, job, "t1")
    new = world.take()
    assert (new.id, new.attempt, new.generation) == (old.id, 3, 2)
    with pytest.raises(LeaseLost):
        report(world.state, world.ctx, ClientId("c2"), a_report(old), {})
    assert new.state is WorkunitState.CHECKOUT


def test_a_result_and_a_recompute_in_one_batch_leave_no_stale_document(world: World, stored: Stored) -> None:
    job = world.submit(a_job().task("t1"))
    world.client()
    stored.apply(world.state)
    world.done(world.take())
    recompute(world, job, "t1")
    stored.apply(world.state)
    assert not stored.documents["workunits"]


def test_recompute_restores_the_wished_split_and_drops_old_outputs(world: World) -> None:
    document = a_job().task("t1", parts=8).reads("in").writes("out").task("t2").reads("out", origin="t1")
    job = world.submit(document)
    first, second = job.tasks
    world.prepare(first, index="record", units=3)
    world.client()
    for grant in world.checkout(want=10):
        world.done(grant.unit)
    world.finish(first)
    assert (first.totalwork, second.inputs[0]["node"]) == (3, "t1-out-1")
    world.prepare(second)
    run_all(world, job)
    world.state.take()

    recompute(world, job, "t1")

    changes = world.state.take()
    deletion, preparation = changes.effects
    assert isinstance(deletion, DeleteNodes)
    assert (deletion.node_ids, preparation) == (("t1-out-1",), PrepareTask(first.id, 2))
    assert (first.totalwork, first.partinfo, first.outputs[0]["node"]) == (8, None, "")
    assert first.inputs[0]["node"] == "node-in"
    assert second.inputs[0]["node"] == ""
    assert (first.computetime, first.createddate, first.completeddate, first.notes) == (0.0, 0.0, 0.0, "")
    world.prepare(first, index="record", units=20)
    assert first.totalwork == 8
    assert first.outputs[0]["node"] == "t1-out-2"


def test_recompute_of_a_suspended_job_resumes_its_other_tasks(world: World) -> None:
    job = world.submit(a_job().task("t1", parts=2).task("t2", parts=2).task("t3").depends("t2"))
    world.client()
    units = [grant.unit for grant in world.checkout(want=4)]
    world.done(units[0])
    world.done(units[2])
    suspend(world, job)

    recompute(world, job, "t2")

    first, second, third = job.tasks
    assert (first.done, second.done, third.state) == (1, 0, TaskState.PENDING)
    again = world.checkout(want=10)
    assert [(grant.task.name, grant.rank) for grant in again] == [("t1", 2), ("t2", 1), ("t2", 2)]


def test_recompute_forgets_what_clients_skip_of_these_tasks_only(world: World) -> None:
    job = world.submit(a_job().task("t1", retry_delay_s=0.0).task("t2", max_failures=1))
    client = world.client()
    one, two = (grant.unit for grant in world.checkout(want=2))
    world.fail(one)
    world.fail(two)
    assert list(client.skip) == [one.id, two.id]
    world.state.take()
    recompute(world, job, "t2")
    assert list(client.skip) == []
    assert client.id in world.state.take().clients


def test_a_task_that_was_left_out_is_left_out_again(world: World) -> None:
    document = a_job().task("t1").writes("out").task("t2", skip=True).reads("out", origin="t1").writes("out2")
    job = world.submit(document.task("t3").depends("t2"))
    first = job.tasks[0]
    for _ in range(2):
        world.prepare(first)
        world.client()
        world.done(world.take())
        world.finish(first)
        assert job.tasks[1].state is TaskState.SKIPPED
        world.done(world.take())
        assert job.state is JobState.COMPLETED
        recompute(world, job, "t1")
        assert states(job) == [TaskState.PENDING] * 3


def test_what_refuses_a_recompute(world: World) -> None:
    job = world.submit(a_job().task("t1"))
    for verb in (recompute, lambda w, j, _: jobs.resubmit_job(w.state, w.ctx, j.id)):
        with pytest.raises(Conflict, match=f"^job {job.id} is already active$"):
            verb(world, job, "t1")
    run_all(world, job)
    other = world.submit(a_job().task("t2"))
    before = snapshot(world.state)
    for name in ("nothing", other.tasks[0].id, ""):
        with pytest.raises(TaskNotFound, match="task not found:"):
            recompute(world, job, name)
    assert snapshot(world.state) == before
    jobs.delete_job(world.state, world.ctx, job.id)
    with pytest.raises(Conflict, match=f"^job {job.id} is not in 'completed' or 'suspend' status$"):
        recompute(world, job, "t1")


def test_resubmit_does_everything_again_under_the_same_id(world: World) -> None:
    job = world.submit(a_diamond())
    run_all(world, job)
    submitted = job.info["submittime"]
    jobs.resubmit_job(world.state, world.ctx, job.id)
    assert (job.state, job.notes, job.open_tasks) == (JobState.QUEUED, "restarted from the beginning", 5)
    assert {task.generation for task in job.tasks} == {2}
    assert job.info["submittime"] == submitted
    assert [grant.task.name for grant in world.checkout("runner", 10)] == ["a", "e"]


def test_a_reopened_job_stays_in_memory(world: World) -> None:
    """Its eviction was asked for when it completed, and may come after the recompute."""
    job = world.submit(a_job().task("t1"))
    run_all(world, job)
    assert ForgetJob(job.id) in world.state.take().effects
    recompute(world, job, "t1")
    assert not world.state.forget_job(job.id)
    assert world.state.jobs[job.id] is job


def test_descendants_follow_every_path(world: World) -> None:
    job = world.submit(a_diamond())
    a, b, c, d, _ = job.tasks
    assert set(descendants(a)) == {a, b, c, d}
    assert set(descendants(b)) == {b, d}
    assert set(descendants(c)) == {c, d}


# -- recover, delete -------------------------------------------------------------------------------------


def test_recover_does_nothing_successfully(world: World) -> None:
    job = world.submit(a_job().task("t1"))
    before = snapshot(world.state)
    assert jobs.recover_job(world.state, world.ctx, job.id) is job
    assert snapshot(world.state) == before


def test_delete_withdraws_running_work_and_keeps_the_document(world: World, stored: Stored) -> None:
    job = world.submit(a_job().task("t1", parts=3).task("t2").depends("t1"))
    world.client()
    unit = world.take()
    stored.apply(world.state)

    jobs.delete_job(world.state, world.ctx, job.id)

    changes = stored.apply(world.state)
    assert [event.code for event in changes.events] == ["JL"]
    assert changes.effects == [ForgetJob(job.id)]
    assert stored.documents["jobs"][job.id]["state"] == "deleted"
    assert stored.documents["workunits"][unit.id]["state"] == "suspend"
    assert world.checkout() == []
    assert world.exchange(holds=[(unit.id, unit.attempt)]).discard == [(unit.id, unit.attempt)]
    with pytest.raises(LeaseLost):
        world.done(unit)
    assert job.state is JobState.DELETED


def test_delete_full_leaves_nothing(world: World, stored: Stored) -> None:
    job = world.submit(a_job().task("t1").writes("out").task("t2").depends("t1"), key="k")
    world.prepare(job.tasks[0])
    world.client()
    unit = world.take()
    stored.apply(world.state)

    jobs.delete_job(world.state, world.ctx, job.id, full=True)

    changes = stored.apply(world.state)
    nodes, rest = changes.effects
    assert isinstance(nodes, DeleteNodes)
    assert isinstance(rest, DeleteNodes)
    assert (nodes.node_ids, nodes.job) == (("t1-out-1",), "")
    assert (rest.node_ids, rest.job) == ((), job.id)
    assert [event.code for event in changes.events] == ["JL", "JR"]
    assert [removal.collection for removal in changes.removals] == ["jobs"]
    assert not stored.documents["jobs"]
    state = world.state
    assert not any((state.jobs, state.tasks, state.workunits, state.idempotency))
    with pytest.raises(WorkunitNotFound):
        world.done(unit)
    assert world.exchange(holds=[(unit.id, unit.attempt)]).discard == [(unit.id, unit.attempt)]
    with pytest.raises(JobNotFound):
        jobs.delete_job(world.state, world.ctx, job.id)


def test_deleting_twice_is_deleting_once_and_full_may_follow(world: World) -> None:
    job = world.submit(a_job().task("t1"))
    jobs.delete_job(world.state, world.ctx, job.id)
    revision = job.revision
    jobs.delete_job(world.state, world.ctx, job.id)
    assert job.revision == revision
    jobs.delete_job(world.state, world.ctx, job.id, full=True)
    assert job.id not in world.state.jobs


def test_a_completed_and_a_failed_job_can_be_deleted(world: World) -> None:
    done = world.submit(a_job().task("t1"))
    run_all(world, done)
    failed = world.submit(a_job().task("t1"))
    world.fail(world.take("runner"), exit_code=42)
    for job, task in ((done, TaskState.COMPLETED), (failed, TaskState.FAILED_PERMANENT)):
        jobs.delete_job(world.state, world.ctx, job.id)
        assert (job.state, states(job)) == (JobState.DELETED, [task])


# -- settings --------------------------------------------------------------------------------------------


def test_priority_moves_queued_work(world: World) -> None:
    low, high = world.submit(a_job().task("t1")), world.submit(a_job().task("t1"))
    world.client()
    jobs.set_priority(world.state, world.ctx, high.id, 7)
    assert (high.info["priority"], high.priority) == (7, 7)
    assert [grant.task.job for grant in world.checkout(want=2)] == [high, low]


@pytest.mark.parametrize("wrong", [MAX_PRIORITY + 1, -MAX_PRIORITY - 1, True, 1.5, "3"])
def test_Q_04_a_bad_priority_is_refused(world: World, wrong: Any) -> None:
    job = world.submit(a_job().task("t1"))
    with pytest.raises(BadRequest, match="priority must be a whole number between"):
        jobs.set_priority(world.state, world.ctx, job.id, wrong)
    jobs.set_priority(world.state, world.ctx, job.id, -MAX_PRIORITY)
    assert job.info["priority"] == job.priority == 1, "at least 1, as at submission"


def test_clientgroups_move_queued_work_to_other_clients(world: World) -> None:
    job = world.submit(a_job(clientgroups="big").task("t1").task("t2", clientgroups="own"))
    world.client(group="small")
    assert world.checkout() == []
    jobs.set_clientgroups(world.state, world.ctx, job.id, "other, small")
    assert [grant.task.name for grant in world.checkout(want=2)] == ["t1"]
    assert job.info["clientgroups"] == "other,small"
    with pytest.raises(BadRequest):
        jobs.set_clientgroups(world.state, world.ctx, job.id, "x" * (MAX_TEXT_CHARS + 1))
    with pytest.raises(InvalidDocument, match=r"clientgroups: 'b!' is not a group name"):
        jobs.set_clientgroups(world.state, world.ctx, job.id, "a, b!")
    assert job.info["clientgroups"] == "other,small"


def test_pipeline_and_data_token_are_kept(world: World, stored: Stored) -> None:
    job = world.submit(a_job().task("t1"))
    jobs.set_pipeline(world.state, world.ctx, job.id, "two-step")
    jobs.set_datatoken(world.state, world.ctx, job.id, "secret")
    stored.apply(world.state)
    document = stored.documents["jobs"][job.id]
    assert (document["info"]["pipeline"], document["info"]["auth"]) == ("two-step", True)
    assert document["_datatoken"] == "secret"
    assert "secret" not in str({key: value for key, value in document.items() if not key.startswith("_")})


@pytest.mark.parametrize(("token", "why"), [("", "no token received"), ("x" * 8_193, "too long")])
def test_a_bad_token_is_refused(world: World, token: str, why: str) -> None:
    job = world.submit(a_job().task("t1"))
    with pytest.raises(BadRequest, match=why):
        jobs.set_datatoken(world.state, world.ctx, job.id, token)
    assert job.info["auth"] is False


@pytest.mark.parametrize(("text", "seconds"), [("0M", 0), ("5M", 300), ("2H", 7_200), ("10D", 864_000)])
def test_expiration_counts_from_now(world: World, text: str, seconds: int) -> None:
    job = world.submit(a_job().task("t1"))
    assert jobs.set_expiration(world.state, world.ctx, job.id, text).expiration == world.wall_s + seconds


@pytest.mark.parametrize("text", ["", "5", "M", "5m", "-5M", "5M ", "5.5H", "٣D", "1000000D", "9" * 30 + "M"])
def test_a_bad_expiration_is_refused(world: World, text: str) -> None:
    job = world.submit(a_job().task("t1"))
    with pytest.raises(BadRequest) as refusal:
        jobs.set_expiration(world.state, world.ctx, job.id, text)
    assert refusal.value.message == f"expiration format '{text}' is invalid"
    assert job.expiration == 0.0


def test_every_verb_on_an_unknown_job_is_not_found(world: World) -> None:
    state, ctx, unknown = world.state, world.ctx, JobId("nobody")
    for verb in (
        jobs.suspend_job,
        jobs.resume_job,
        jobs.resubmit_job,
        jobs.recover_job,
        jobs.delete_job,
        lambda s, c, j: jobs.recompute_job(s, c, j, "t1"),
        lambda s, c, j: jobs.set_priority(s, c, j, 1),
        lambda s, c, j: jobs.set_clientgroups(s, c, j, "a"),
        lambda s, c, j: jobs.set_pipeline(s, c, j, "p"),
        lambda s, c, j: jobs.set_expiration(s, c, j, "1H"),
        lambda s, c, j: jobs.set_datatoken(s, c, j, "t"),
    ):
        with pytest.raises(JobNotFound, match="job not found:nobody"):
            verb(state, ctx, unknown)


def test_a_million_ranks_cost_nothing(world: World) -> None:
    """Each verb looks at tasks and live workunits, never at ranks."""
    job = world.submit(a_job().task("t1", parts=1_000_000).task("t2", parts=1_000_000).depends("t1"))
    world.client()
    world.take()
    state, ctx = world.state, world.ctx
    with cpu_below(0.5):
        for _ in range(10):
            jobs.suspend_job(state, ctx, job.id)
            jobs.resume_job(state, ctx, job.id)
            jobs.set_priority(state, ctx, job.id, 3)
            jobs.set_clientgroups(state, ctx, job.id, "default")
            jobs.suspend_job(state, ctx, job.id)
            jobs.recompute_job(state, ctx, job.id, "t1")
            jobs.suspend_job(state, ctx, job.id)
            jobs.resubmit_job(state, ctx, job.id)
        jobs.delete_job(state, ctx, job.id, full=True)


def test_a_failed_input_is_not_the_same_as_a_failed_command_after_resume(world: World) -> None:
    """All counters that lead to a suspension begin anew."""
    job = world.submit(a_job().task("t1", parts=2, retry_delay_s=0.0, max_failures=1))
    world.client()
    world.done(world.take())
    unit = world.take()
    world.fail(unit, FailureKind.INPUT)
    assert (unit.failed, unit.input_failures) == (1, 1)
    resume(world, job)
    assert (unit.failed, unit.input_failures, unit.node_failures, unit.lost, unit.given_back) == (0,) * 5


def test_many_nodes_are_deleted_in_pieces_that_make_small_documents(world: World) -> None:
    world.state.delete_nodes(world.ctx, [f"node-{i}" for i in range(2_500)])
    deletions = [effect for effect in world.state.take().effects if isinstance(effect, DeleteNodes)]
    assert [len(deletion.node_ids) for deletion in deletions] == [1_000, 1_000, 500]
    assert len({deletion.id for deletion in deletions}) == 3
