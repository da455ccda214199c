"""Inputs were looked at: the task is cut, or suspended with the reason; outputs were made whole, or not."""

import pytest

from awe_server.scheduler.facts import InputFact, OutputFact, TaskFacts
from awe_server.scheduler.finish import task_finished, task_unfinishable
from awe_server.scheduler.invariants import check
from awe_server.scheduler.jobs import resubmit_job, resume_job, suspend_job
from awe_server.scheduler.ready import cut_is_void, task_prepared, task_refused
from awe_server.scheduler.split import MANY_INPUTS_NOTE
from awe_server.scheduler.state import DeleteNodes, FinishTask, PrepareTask
from shared_models.limits import MIB
from shared_models.states import JobState, TaskState
from tests.builders import Stored, World, a_job, changed, snapshot


def test_facts_cut_the_task(world: World) -> None:
    job = world.submit(a_job().task("t", parts=4, maxworksize=1).reads("in").writes("out", header_lines=1))
    (task,) = job.tasks
    world.state.take()
    world.prepare(task, sizes={"in": 10 * MIB}, index="chunkrecord", units=10)
    changes = world.state.take()
    assert changed(changes) == {"job": "queued", "t": "queued"}
    assert list(changes.work.values()) == [10]
    assert task.partinfo == {
        "input": "in",
        "index": "chunkrecord",
        "options": "",
        "totalindex": 10,
        "totalrecords": None,
        "maxpartsize_mb": 1,
    }
    assert (task.totalwork, task.remainwork, task.end_rank) == (10, 10, 11)
    assert task.inputs[0]["size"] == 10 * MIB
    assert task.outputs[0]["node"] == "t-out-1"
    assert task.input_bytes == MIB
    assert task.createddate == world.wall_s


def test_other_inputs_of_a_cut_task_count_whole(world: World) -> None:
    job = a_job().task("t", parts=2, partinfo={"input": "in"}).reads("in").reads("ref")
    (task,) = world.submit(job).tasks
    world.prepare(task, sizes={"in": 100, "ref": 7}, index="record", units=2)
    assert task.input_bytes == 57


def test_fewer_units_than_wanted_make_fewer_workunits_and_one_is_rank_0(world: World) -> None:
    job = world.submit(a_job().task("a", parts=9).reads("in").task("b", parts=9).reads("in"))
    world.prepare(job.tasks[0], index="record", units=3)
    world.prepare(job.tasks[1], index="record", units=1)
    assert [(t.fresh_rank, t.end_rank) for t in job.tasks] == [(1, 4), (0, 1)]
    assert job.tasks[1].partinfo is None


def test_an_input_that_cannot_be_cut_gives_one_workunit_and_a_note(world: World) -> None:
    job = world.submit(a_job().task("a", parts=3).reads("in").task("b", parts=3).reads("in"))
    world.prepare(job.tasks[0], note="not split: in is gzip")
    world.prepare(job.tasks[1])
    assert [t.notes for t in job.tasks] == [
        "not split: in is gzip",
        "not split: the input has no units to cut between",
    ]
    assert [t.totalwork for t in job.tasks] == [1, 1]


def test_several_inputs_without_partinfo_give_one_workunit_and_a_note(world: World) -> None:
    (task,) = world.submit(a_job().task("t", parts=3).reads("a").reads("b")).tasks
    world.prepare(task)
    assert (task.totalwork, task.notes) == (1, MANY_INPUTS_NOTE)


def test_only_what_is_known_of_a_file_is_written_down(world: World) -> None:
    job = world.submit(a_job().task("t").reads("a", node="n").reads("b", node="m").writes("o"))
    (task,) = job.tasks
    facts = [InputFact("a", "", 5, "f" * 32, "http://host/a")]
    task_prepared(world.state, world.ctx, task.id, 1, TaskFacts(inputs=facts))
    a, b = task.inputs
    assert (a["node"], a["size"], a["_md5"], a["url"]) == ("n", 5, "f" * 32, "http://host/a")
    assert (b["node"], b["size"]) == ("m", 0)
    assert task.outputs[0]["node"] == ""


def test_index_none_gives_every_workunit_all_inputs(world: World) -> None:
    job = a_job().task("t", parts=3, partinfo={"index": "none"}).reads("a").reads("b")
    (task,) = world.submit(job).tasks
    world.prepare(task, sizes={"a": 3, "b": 4})
    world.client()
    assert (task.totalwork, task.input_bytes, task.is_split) == (3, 7, False)
    assert [g.part for g in world.checkout(want=3)] == ["", "", ""]


def test_an_input_takes_the_node_of_its_origin(world: World) -> None:
    world.client()
    job = world.submit(a_job().task("a").writes("x").task("b").reads("x", origin="a"))
    world.prepare(job.tasks[0])
    world.done(world.take())
    world.finish(job.tasks[0])
    (io,) = job.tasks[1].inputs
    assert (io["node"], io["size"]) == ("a-x-1", 10)


def test_a_refusal_suspends_once_with_the_reason_and_resume_looks_again(world: World) -> None:
    job = world.submit(a_job().task("t").reads("in").task("u").depends("t"))
    (task, _) = job.tasks
    world.state.take()
    task_refused(world.state, world.ctx, task.id, 1, "no node n")
    changes = world.state.take()
    assert changed(changes) == {"job": "suspend", "t": "suspend"}
    assert [e.code for e in changes.events] == ["JP"]
    assert job.notes == f"failed enqueuing task {task.id}, err=no node n"
    assert (job.lastfailed, task.notes) == (task.id, "no node n")
    assert job.error == {"taskfailed": task.id, "servernotes": job.notes, "status": "suspend"}
    world.pass_s(100)
    task_refused(world.state, world.ctx, task.id, 1, "again")
    assert world.state.changes.is_empty()
    resume_job(world.state, world.ctx, job.id)
    assert PrepareTask(task.id, 1) in world.state.take().effects


def test_facts_that_come_too_late_are_void(world: World) -> None:
    job = world.submit(a_job().task("t").reads("in").writes("out"))
    (task,) = job.tasks
    suspend_job(world.state, world.ctx, job.id)
    before = snapshot(world.state)
    task_prepared(world.state, world.ctx, task.id, 1, TaskFacts())
    task_prepared(world.state, world.ctx, task.id, 2, TaskFacts())
    task_refused(world.state, world.ctx, task.id, 1, "late")
    task_finished(world.state, world.ctx, task.id, 1, [])
    task_unfinishable(world.state, world.ctx, task.id, 1, "late")
    assert snapshot(world.state) == before


class TestFinish:
    """A task with outputs is completed when they are whole."""

    def test_the_last_workunit_asks_for_the_outputs(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("t", parts=2).writes("out").task("u").depends("t"))
        (task, _) = job.tasks
        world.prepare(task)
        a, b = (g.unit for g in world.checkout(want=2))
        world.done(a)
        world.state.take()
        world.done(b)
        changes = world.state.take()
        assert changed(changes) == {
            "t": "in-progress",
            "t_2": "completed",
            "c1": "active-idle",
            "FinishTask": "t",
        }
        assert task.finishing
        world.finish(task)
        assert changed(world.state.take()) == {"job": "in-progress", "t": "completed", "u": "queued"}
        assert (task.outputs[0]["size"], task.completeddate) == (10, world.wall_s)

    def test_outputs_that_cannot_be_made_whole_suspend_and_resume_tries_again(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("t").writes("out"))
        (task,) = job.tasks
        world.prepare(task)
        world.done(world.take())
        world.state.take()
        task_unfinishable(world.state, world.ctx, task.id, 1, "part 3 is missing")
        assert changed(world.state.take()) == {"job": "suspend", "t": "suspend"}
        assert job.notes == f"failed finishing task {task.id}, err=part 3 is missing"
        resume_job(world.state, world.ctx, job.id)
        assert FinishTask(task.id, 1) in world.state.take().effects
        world.finish(task)
        assert job.state is JobState.COMPLETED

    def test_ranks_whose_results_were_lost_are_done_again_after_resume_and_no_others(
        self, world: World, stored: Stored
    ) -> None:
        world.client()
        job = world.submit(a_job().task("t", parts=4).writes("out").task("u").depends("t"))
        (task, _) = job.tasks
        world.prepare(task)
        for grant in world.checkout(want=4):
            world.done(grant.unit)
        stored.apply(world.state)
        task_unfinishable(world.state, world.ctx, task.id, 1, "parts 2, 4 are missing", [2, 4])
        assert check(world.state) == []
        assert (task.done, task.remainwork, sorted(task.units)) == (2, 2, [2, 4])
        assert snapshot(world.reloaded(stored)) == snapshot(world.state)
        changes = world.state.take()
        resume_job(world.state, world.ctx, job.id)
        changes = world.state.take()
        assert changed(changes) == {
            "job": "in-progress",
            "t": "in-progress",
            "t_2": "queued",
            "t_4": "queued",
        }
        grants = world.checkout(want=9)
        assert [(grant.rank, grant.attempt) for grant in grants] == [(2, 2), (4, 2)]
        for grant in grants:
            world.done(grant.unit)
        assert FinishTask(task.id, 1) in world.state.take().effects
        world.finish(task)
        assert task.state is TaskState.COMPLETED

    def test_outputs_of_an_older_generation_do_not_complete_a_task(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("t").writes("out"))
        (task,) = job.tasks
        world.prepare(task)
        world.done(world.take())
        suspend_job(world.state, world.ctx, job.id)
        resubmit_job(world.state, world.ctx, job.id)
        task_finished(world.state, world.ctx, task.id, 1, [OutputFact("out", "n", 1)])
        assert task.state is TaskState.PENDING

    def test_completion_removes_the_files_that_ask_for_it(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("t").reads("in", node="n1", delete=True).writes("out", delete=True))
        (task,) = job.tasks
        world.prepare(task)
        world.done(world.take())
        world.finish(task)
        changes = world.state.take()
        assert [e.node_ids for e in changes.effects if isinstance(e, DeleteNodes)] == [("n1", "t-out-1")]
        assert job.info["completedtime"] == "2026-01-01T12:00:00.000000Z"
        assert [e.code for e in changes.events if e.code in ("TD", "JD")] == ["TD", "JD"]
        assert world.state.forget_job(job.id)
        assert not world.state.tasks


def test_F_02_records_of_the_input_stand_with_the_task_and_those_processed_beside_them(world: World) -> None:
    world.client()
    job = world.submit(a_job().task("t", parts=3).reads("in"))
    (task,) = job.tasks
    world.prepare(task, index="record", units=10, records=10)
    part = {"input": "in", "index": "record", "options": "", "maxpartsize_mb": 0}
    assert task.partinfo == {**part, "totalindex": 10, "totalrecords": 10}
    for _ in range(3):
        world.done(world.take())
    assert task.state is TaskState.COMPLETED
    assert task.partinfo == {
        **part, "totalindex": 10, "totalrecords": 10, "doneindex": 10, "donerecords": 10,
    }  # fmt: skip


def test_F_02_a_cut_that_does_not_cover_hands_out_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awe_server.scheduler.ready.uncovered", lambda n, units: f"{n} of {units}")
    world.client()
    job = world.submit(a_job().task("t", parts=3).reads("in"))
    (task,) = job.tasks
    world.prepare(task, index="record", units=10)
    assert (job.state, task.state, task.is_cut) == (JobState.SUSPEND, TaskState.SUSPEND, False)
    assert task.notes == "in cannot be cut: 3 of 10"
    assert world.checkout(want=9) == []
    monkeypatch.undo()
    resume_job(world.state, world.ctx, job.id)
    world.prepare(task, index="record", units=10)
    assert len(world.checkout(want=9)) == 3


def test_F_02_a_cut_that_became_void_takes_back_what_was_handed_out(world: World) -> None:
    world.client()
    job = world.submit(a_job().task("t", parts=3).reads("in"))
    (task,) = job.tasks
    world.prepare(task, index="record", units=3)
    (grant,) = world.checkout()
    cut_is_void(world.state, world.ctx, task.id, task.generation + 1, "late")
    assert grant.is_held
    cut_is_void(world.state, world.ctx, task.id, task.generation, "in was replaced")
    assert (job.state, task.state, grant.is_held) == (JobState.SUSPEND, TaskState.SUSPEND, False)
    assert "failed handing out task" in job.notes
    assert "in was replaced" in job.notes
    cut_is_void(world.state, world.ctx, task.id, task.generation, "twice")
    assert task.notes == "in was replaced"
    resume_job(world.state, world.ctx, job.id)
    assert len(world.checkout(want=9)) == 3
