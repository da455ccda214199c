"""Submit: what a new job looks like, and what is refused before anything exists."""

import pytest

from awe_server.scheduler.facts import InputFact, OutputFact, TaskFacts
from awe_server.scheduler.graph import find_cycle
from awe_server.scheduler.jobs import (
    recompute_job,
    resume_job,
    set_datatoken,
    set_pipeline,
    suspend_job,
)
from awe_server.scheduler.ready import task_prepared, task_refused
from awe_server.scheduler.state import Job, PrepareTask
from awe_server.scheduler.submit import submit_job
from awe_server.scheduler.views import documents
from shared_models.documents import IO, JobDocument
from shared_models.errors import AlreadyExists, BadRequest, InvalidDocument, TooLarge
from shared_models.limits import (
    MAX_IO,
    MAX_NEW_STORED_BYTES,
    MAX_STORED_BYTES,
    MAX_TEXT_CHARS,
    MAX_TOKEN_CHARS,
)
from shared_models.states import JobState, TaskState
from shared_models.stored import oversize
from tests.builders import Stored, World, a_job, changed, job_id, snapshot
from tests.support.cost import cpu_below


def refused(world: World, document: object) -> list[str]:
    """The problems a document is refused with; checks that nothing of it is kept."""
    before = snapshot(world.state)
    with pytest.raises(InvalidDocument) as refusal:
        world.submit(document)  # type: ignore[arg-type]
    assert snapshot(world.state) == before
    assert world.state.changes.is_empty()
    assert not world.state.tasks
    return refusal.value.problems


def test_a_submitted_job_asks_for_its_inputs_to_be_looked_at(world: World) -> None:
    job = world.submit(a_job().task("t0").writes("x").task("t1").depends("t0"))
    changes = world.state.take()
    assert changed(changes) == {"job": "init", "t0": "pending", "t1": "pending", "PrepareTask": "t0"}
    assert changes.counters
    assert list(changes.revised) == [job.id]
    assert [event.code for event in changes.events] == ["JQ"]
    assert not changes.work


def test_a_task_without_files_is_ready_at_once(world: World) -> None:
    job = world.submit(a_job(name="n", project="p", user="u").task("array", parts=3))
    changes = world.state.take()
    assert changed(changes) == {"job": "queued", "array": "queued"}
    assert [event.code for event in changes.events] == ["JQ", "TQ"]
    assert changes.events[0].fields == {"jobid": job.id, "name": "n", "project": "p", "user": "u"}
    assert list(changes.work.values()) == [3]
    assert (job.tasks[0].fresh_rank, job.tasks[0].end_rank, job.tasks[0].remainwork) == (1, 4, 3)


def test_the_owner_is_on_all_lists_and_times_are_set(world: World) -> None:
    job = world.submit(a_job(priority=7).task("t"), owner="anna")
    assert job.acl == {"owner": "anna", "read": ["anna"], "write": ["anna"], "delete": ["anna"]}
    assert job.info["submittime"] == "2026-01-01T12:00:00.000000Z"
    assert job.info["completedtime"] == "0001-01-01T00:00:00Z"
    assert job.priority == 7
    assert world.submit(a_job().task("t"), owner="").acl["read"] == []


def test_private_environment_leaves_the_command(world: World) -> None:
    cmd = {"name": "x", "environ": {"public": {"A": "1"}, "private": {"KEY": "secret"}}}
    job = world.submit(a_job().task("t", cmd="x", **{"resources": {"cores": 2}}))
    assert job.tasks[0].cmd["has_private_env"] is False
    document = JobDocument.model_validate({"tasks": [{"taskid": "t", "cmd": cmd}]})
    task = world.submit(document).tasks[0]
    assert task.cmd["environ"] == {"public": {"A": "1"}}
    assert task.cmd["has_private_env"] is True
    assert task.private_env == {"KEY": "secret"}


def test_jids_grow_and_are_never_repeated(world: World) -> None:
    first = world.submit(a_job().task("t"))
    refused(world_without_jobs := World(), a_job().task("t").task("t"))
    assert world_without_jobs.state.last_jid == World().state.last_jid
    second = world.submit(a_job().task("t"))
    assert second.jid == first.jid + 1


def test_the_same_key_gives_the_same_job_but_only_to_its_owner(world: World) -> None:
    first = world.submit(a_job().task("t"), key="k")
    world.state.take()
    assert world.submit(a_job().task("other"), key="k") is first
    assert world.state.changes.is_empty()
    assert world.submit(a_job().task("t"), key="k", owner="bob") is not first
    assert world.submit(a_job().task("t")) is not world.submit(a_job().task("t"))


def test_an_id_is_used_once(world: World) -> None:
    job = world.submit(a_job().task("t"))
    with pytest.raises(AlreadyExists):
        submit_job(world.state, world.ctx, a_job().task("t").build(), job_id=job.id, owner="x")


def test_origins_add_dependencies(world: World) -> None:
    job = world.submit(a_job().task("a").writes("x").task("b").reads("x", origin="a").depends("a"))
    a, b = job.tasks
    assert b.depends_on == (a.id,)
    assert a.dependants == [b]
    assert b.waiting_for == 1


def test_an_update_waits_for_the_task_that_makes_the_node(world: World) -> None:
    document = (
        a_job().task("a").writes("x").task("b").writes("x", type="update", origin="a", nodeattr={"k": 1})
    )
    a, b = world.submit(document).tasks
    assert b.depends_on == (a.id,)


S3 = "s3://bucket/x"
COPY = {"type": "copy", "formoptions": {"parent_name": "x"}}


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (
            a_job().task("a").writes("x").task("b").writes("y", type="update", origin="a"),
            "tasks[1].outputs[0]: task 'a' does not make 'y', it makes x",
        ),
        (
            a_job().task("a").writes("x", type="update", origin="a"),
            "tasks[0].outputs[0].origin: task 'a' depends on itself",
        ),
        (
            a_job().task("a").writes("x", url=S3).task("b").writes("x", type="update", origin="a"),
            f"tasks[1].outputs[0].origin: task 'a' stores the file at {S3}; only a node of this server can "
            "be updated",
        ),
        (
            a_job()
            .task("a")
            .writes("x", host="http://s")
            .task("b")
            .reads("x", origin="a")
            .writes("y", **COPY),
            "tasks[1].inputs[0].origin: task 'a' stores the file at http://s; only a node of this server can "
            "be a parent",
        ),
        (
            a_job().task("a").writes("x", url=S3).task("b").reads("x", origin="a", attrfile="x.json"),
            "tasks[1].inputs[0].attrfile: task 'a' stores the file at a URL, which has no attributes",
        ),
    ],
)
def test_what_is_done_with_nodes_needs_an_origin_that_makes_one(
    world: World, job: object, problem: str
) -> None:
    assert refused(world, job) == [problem]


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (a_job().task("a").task("a"), "tasks[1].taskid: 'a' is the name of tasks[0] already"),
        (a_job().task("a").depends("a"), "tasks[0].dependsOn[0]: task 'a' depends on itself"),
        (
            a_job().task("prepare").task("b").depends("prepar"),
            "tasks[1].dependsOn[0]: there is no task 'prepar'; did you mean 'prepare'?",
        ),
        (
            a_job().task("a").writes("foo").task("b").reads("fooo", origin="a"),
            "tasks[1].inputs[0]: task 'a' does not make 'fooo', it makes foo; did you mean 'foo'?",
        ),
        (
            a_job().task("a").task("b").reads("bar", origin="a"),
            "tasks[1].inputs[0]: task 'a' does not make 'bar', it makes no files",
        ),
        (a_job().task("a").reads("x", origin="zz"), "tasks[0].inputs[0].origin: there is no task 'zz'"),
        (a_job().task("a").reads("x", origin="a"), "tasks[0].inputs[0].origin: task 'a' depends on itself"),
        (
            a_job().task("a", skip=True),
            "tasks[0].skip: only a task with exactly one input and one output can be left out",
        ),
        (
            a_job().task("a").depends("b").task("b").depends("a"),
            "tasks: dependency cycle: a -> b -> a",
        ),
    ],
)
def test_S_01_S_02_a_graph_that_cannot_run_is_refused(world: World, job: object, problem: str) -> None:
    assert refused(world, job) == [problem]


def test_S_01_a_cycle_through_origins_only_is_found(world: World) -> None:
    job = a_job().task("a").writes("x").reads("y", origin="b").task("b").writes("y").reads("x", origin="a")
    assert refused(world, job) == ["tasks: dependency cycle: a -> b -> a"]


def test_S_01_a_cycle_reached_from_a_valid_task_names_only_its_members(world: World) -> None:
    job = a_job().task("in").task("a").depends("in", "c").task("b").depends("a").task("c").depends("b")
    (problem,) = refused(world, job.task("out").depends("c"))
    assert problem == "tasks: dependency cycle: a -> c -> b -> a"


def test_all_problems_are_told_at_once_but_not_more_than_20(world: World) -> None:
    job = a_job()
    for i in range(30):
        job.task(f"t{i}").depends("nowhere")
    assert len(refused(world, job)) == 20
    both = a_job().task("a").depends("x").task("a").depends("b2")
    assert len(refused(world, both)) == 3


def test_S_01_a_long_chain_with_one_back_edge_is_refused_quickly_and_runs_without_it(world: World) -> None:
    job = a_job().task("t0")
    for i in range(1, 5_000):
        job.task(f"t{i}").depends(f"t{i - 1}")
    good = job.build()
    bad = good.model_copy(deep=True)
    bad.tasks[0].dependsOn = ["t4999"]
    with cpu_below(2):
        (problem,) = refused(world, bad)
    assert problem.startswith("tasks: dependency cycle: t0 -> t4999 -> ")
    assert "(4989 more)" in problem
    assert len(world.submit(good).tasks) == 5_000


def test_S_01_a_chain_of_5000_tasks_can_be_steered_and_loaded(world: World, stored: Stored) -> None:
    """What walks along dependencies does not recurse."""
    document = a_job().task("t0")
    for i in range(1, 5_000):
        document.task(f"t{i}").depends(f"t{i - 1}")
    job = world.submit(document)
    world.client()
    world.done(world.take())
    with cpu_below(2.0):
        suspend_job(world.state, world.ctx, job.id)
        resume_job(world.state, world.ctx, job.id)
        suspend_job(world.state, world.ctx, job.id)
        recompute_job(world.state, world.ctx, job.id, "t0")
    assert [task.name for task in job.tasks if task.state is TaskState.QUEUED] == ["t0"]
    assert snapshot(world.reloaded(stored)) == snapshot(world.state)


def test_X_01_20_000_tasks_are_taken_in_within_seconds(world: World) -> None:
    """Half of it is the garbage collector's, which takes longer while others use the memory too."""
    job = a_job()
    for i in range(20_000):
        job.task(f"t{i}").reads("in").writes("out")
        if i:
            job.depends(f"t{i // 2}" if i > 1 else "t0")
    document = job.build()
    with cpu_below(4):
        world.submit(document)


@pytest.mark.parametrize(
    "userattr",
    [{"k": "v" * MAX_NEW_STORED_BYTES}, {"k": [0] * (MAX_NEW_STORED_BYTES // 8)}],
    ids=["as JSON", "as BSON"],
)
def test_X_01_a_task_that_would_not_fit_into_a_store_document_is_refused(
    world: World, userattr: dict[str, object]
) -> None:
    text = too_large(world, a_job().task("a").task("b", userattr=userattr))
    assert text.startswith("tasks[1]: needs ")
    assert text.endswith(f"the limit is {MAX_NEW_STORED_BYTES}")


def test_X_01_a_job_whose_own_document_would_not_fit_is_refused(world: World) -> None:
    job = a_job()
    for i in range(40_000):
        job.task(f"{i:0255}")
    assert too_large(world, job).startswith("info and the ids of all 40000 tasks: need ")


def too_large(world: World, job: object) -> str:
    """The text a document is refused with for its size; checks that nothing of it is kept."""
    before = snapshot(world.state)
    with pytest.raises(TooLarge) as refusal:
        world.submit(job)  # type: ignore[arg-type]
    assert snapshot(world.state) == before
    assert world.state.changes.is_empty()
    return refusal.value.message


LONG = "\x01" * 100_000  #: in signs that need most room


def the_largest_job(world: World) -> Job:
    """One that only just may be submitted, and so may its task."""
    files = [{"filename": f"{i:04}{'f' * 250}"} for i in range(MAX_IO)]
    document = a_job(noretry=True, userattr={"k": "v" * (MAX_NEW_STORED_BYTES - 10_000)}).task("t").build()
    (task,) = document.tasks
    task.inputs, task.outputs = ([IO(**file) for file in files] for _ in range(2))  # type: ignore[arg-type]
    task.userattr = {"k": "v" * (MAX_NEW_STORED_BYTES - 2_000_000)}
    return world.submit(document)


def all_can_be_stored(world: World) -> bool:
    found = documents(world.state, world.state.take())
    return not [document["id"] for _, document in found if oversize(document, MAX_STORED_BYTES)]


def test_X_01_a_prepared_and_failed_job_can_be_stored_however_large_it_was(world: World) -> None:
    job = the_largest_job(world)
    (task,) = job.tasks
    world.client()
    facts = TaskFacts(
        inputs=[InputFact(io["filename"], "n" * 36, 1_000_000, "m" * 32) for io in task.inputs],
        outputs=[OutputFact(io["filename"], "n" * 36) for io in task.outputs],
        note=LONG,
    )
    task_prepared(world.state, world.ctx, task.id, 1, facts)
    set_pipeline(world.state, world.ctx, job.id, "\x01" * MAX_TEXT_CHARS)
    set_datatoken(world.state, world.ctx, job.id, "t" * MAX_TOKEN_CHARS)
    assert all_can_be_stored(world)
    world.fail(world.take(), message=LONG, stderr_tail=LONG)
    assert job.state == JobState.SUSPEND
    assert all_can_be_stored(world)


def test_X_01_a_refused_job_can_be_stored_however_large_it_was(world: World) -> None:
    job = the_largest_job(world)
    task_refused(world.state, world.ctx, job.tasks[0].id, 1, LONG)
    assert job.state == JobState.SUSPEND
    assert all_can_be_stored(world)


def test_a_data_token_comes_with_the_job_or_not_at_all(world: World) -> None:
    document = a_job().task("t").build()
    job = submit_job(world.state, world.ctx, document, job_id=job_id(1), owner="o", datatoken="secret")
    assert job.datatoken == "secret"
    assert job.info["auth"] is True
    before = snapshot(world.state)
    with pytest.raises(BadRequest):
        submit_job(
            world.state, world.ctx, document, job_id=job_id(2), owner="o",
            datatoken="x" * (MAX_TOKEN_CHARS + 1),
        )  # fmt: skip
    assert snapshot(world.state) == before


def test_no_task_starts_before_start_at(world: World) -> None:
    job = world.submit(a_job(start_at="2026-01-01T12:01:00Z").task("t"))
    assert (job.state, job.tasks[0].state) == (JobState.INIT, TaskState.PENDING)
    world.pass_s(59)
    assert job.state is JobState.INIT
    world.state.take()
    world.pass_s(1)
    assert changed(world.state.take()) == {"job": "queued", "t": "queued"}


def test_a_job_that_left_memory_is_no_cycle_after_a_while(world: World) -> None:
    job = world.submit(a_job(start_at="2026-01-01T12:01:00Z").task("t"))
    job.state = JobState.DELETED
    assert world.state.forget_job(job.id)
    (task,) = job.tasks
    world.pass_s(1)
    assert job.tasks == [task], "who has waited for it may look at it"
    world.pass_s(1)
    assert job.tasks == []


def test_a_job_that_was_forgotten_is_not_started_later(world: World) -> None:
    job = world.submit(a_job(start_at="2026-01-01T12:01:00Z").task("t"), key="k")
    job.state = JobState.DELETED
    assert world.state.forget_job(job.id)
    assert not world.state.forget_job(job_id(7))
    world.pass_s(60)
    assert not world.state.tasks
    assert world.submit(a_job().task("t"), key="k") is not job


class TestSkip:
    """A task to be left out: its dependants take its input in place of its output."""

    def test_a_chain_of_left_out_tasks_hands_the_input_on(self, world: World) -> None:
        job = (
            a_job()
            .task("a", skip=True).reads("in", node="n1", size=5).writes("x")
            .task("b", skip=True).reads("x", origin="a").writes("y")
            .task("c").reads("y", origin="b")
        )  # fmt: skip
        submitted = world.submit(job)
        changes = world.state.take()
        assert changed(changes) == {
            "job": "init",
            "a": "skipped",
            "b": "skipped",
            "c": "pending",
            "PrepareTask": "c",
        }
        (io,) = submitted.tasks[2].inputs
        assert (io["filename"], io["node"], io["size"]) == ("y", "n1", 5)
        assert [e.code for e in changes.events] == ["JQ", "TS", "TS"]
        assert submitted.open_tasks == 1

    def test_a_job_of_which_everything_is_left_out_is_completed(self, world: World) -> None:
        job = world.submit(a_job().task("a", skip=True).reads("in").writes("x"))
        assert changed(world.state.take()) == {"job": "completed", "a": "skipped", "ForgetJob": "job"}
        assert job.state is JobState.COMPLETED

    def test_thousands_left_out_in_a_row_do_not_recurse(self, world: World) -> None:
        job = a_job().task("t0", skip=True).reads("in").writes("f0")
        for i in range(1, 3_000):
            job.task(f"t{i}", skip=True).reads(f"f{i - 1}", origin=f"t{i - 1}").writes(f"f{i}")
        assert world.submit(job).state is JobState.COMPLETED


def test_dependants_start_when_the_last_of_their_dependencies_is_done(world: World) -> None:
    world.client()
    job = world.submit(a_job().task("a").task("b").task("c").depends("a", "b").writes("o"))
    a, b = world.take(), world.take()
    world.done(a)
    assert not any(isinstance(e, PrepareTask) for e in world.state.take().effects)
    world.done(b)
    assert PrepareTask(job.tasks[2].id, 1) in world.state.take().effects


def test_find_cycle_of_a_graph_without_one_is_empty() -> None:
    assert find_cycle({"a": [], "b": ["a"], "c": ["a", "b"]}) == []
