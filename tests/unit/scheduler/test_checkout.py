"""Who gets what, in which order, and what a checkout changes."""

from collections.abc import Callable
from typing import Any

import pytest

from awe_server.scheduler.checkout import checkout
from awe_server.scheduler.clients import register
from awe_server.scheduler.demands import offer_skipped
from awe_server.scheduler.jobs import resume_job, set_clientgroups, set_priority, suspend_job
from awe_server.scheduler.queue import resume_queue, suspend_queue
from awe_server.scheduler.suspension import remove_client, resume_client, suspend_client
from awe_server.scheduler.tick import tick
from awe_server.scheduler.why import why_job
from shared_models.documents import JobDocument
from shared_models.errors import ClientNotFound, ClientSuspended, QueueSuspended
from shared_models.ids import ClientId
from shared_models.messages import Free
from shared_models.states import FailureKind, JobState
from tests.builders import GIB, PLENTY, World, a_job, a_profile, changed, snapshot
from tests.support.cost import cpu_below


def names(world: World, client: str = "c1", want: int = 100, **more: object) -> list[str]:
    """What a client gets, as job number, task name and rank."""
    return [f"{g.task.job.jid - 10_000}{g.task.name}{g.rank}" for g in world.checkout(client, want, **more)]


def skipped(
    world: World, client: str = "c1", free: Free | None = PLENTY, available: int = -1
) -> dict[str, int]:
    """Why a client got nothing."""
    result = checkout(world.state, world.ctx, ClientId(client), 1, free, available)
    assert result.grants == []
    return result.skipped


def test_the_first_checkout_changes_workunit_task_job_and_client(world: World) -> None:
    world.client()
    job = world.submit(a_job().task("t", parts=3))
    world.state.take()
    unit = world.take()
    changes = world.state.take()
    assert changed(changes) == {
        "job": "in-progress",
        "t": "in-progress",
        "t_1": "checkout",
        "c1": "active-busy",
    }
    told = [(e.code, e.fields) for e in changes.events]
    assert told == [("WC", {"jobid": job.id, "workids": [unit.id], "clientid": "c1"})]
    assert (unit.attempt, unit.token, unit.client, unit.checkout_time) == (1, "token-1", "c1", world.wall_s)
    assert job.info["startedtime"] == "2026-01-01T12:00:00.000000Z"
    assert job.tasks[0].starteddate == world.wall_s
    assert (job.tasks[0].fresh_rank, job.tasks[0].max_attempt) == (2, 1)
    world.take()
    assert changed(world.state.take()) == {"t": "in-progress", "t_2": "checkout", "c1": "active-busy"}


def test_a_checkout_is_told_for_each_job_of_its_own(world: World) -> None:
    world.client()
    one, two = (world.submit(a_job().task("t", parts=2)) for _ in range(2))
    world.state.take()
    world.checkout(want=4)
    told = [(e.code, e.fields["jobid"], len(e.fields["workids"])) for e in world.state.take().events]
    assert told == [("WC", one.id, 2), ("WC", two.id, 2)]


def test_a_million_ranks_cost_nothing_until_they_run(world: World) -> None:
    world.client()
    (task,) = world.submit(a_job().task("t", parts=1_000_000)).tasks
    assert not world.state.workunits
    assert len(world.checkout(want=64)) == 64
    assert len(world.state.workunits) == 64
    assert task.fresh_rank == 65


def test_suspending_and_resuming_a_million_ranks_touches_none_of_them(world: World) -> None:
    world.client()
    job = world.submit(a_job().task("t", parts=1_000_000))
    units = [g.unit for g in world.checkout(want=3)]
    world.state.take()
    with cpu_below(0.1):
        suspend_job(world.state, world.ctx, job.id)
        resume_job(world.state, world.ctx, job.id)
    assert list(world.state.take().workunits.values()) == units
    assert [g.rank for g in world.checkout(want=5)] == [1, 2, 3, 4, 5]


def test_priority_then_submission_then_task_then_rank(world: World) -> None:
    world.client()
    world.submit(a_job(priority=1).task("a", parts=2).task("b"))
    world.submit(a_job(priority=1).task("a"))
    world.submit(a_job(priority=5).task("a", parts=2))
    assert names(world) == ["3a1", "3a2", "1a1", "1a2", "1b0", "2a0"]


def test_the_order_holds_over_different_demands(world: World) -> None:
    world.client()
    for i in range(3):
        world.submit(a_job().task("a", cmd=f"x{i}").task("b", cmd="y"))
    assert names(world) == ["1a0", "1b0", "2a0", "2b0", "3a0", "3b0"]


def test_a_workunit_to_retry_goes_before_fresh_ranks(world: World) -> None:
    world.client()
    world.client("c2")
    world.submit(a_job().task("t", parts=5))
    a, b = (g.unit for g in world.checkout(want=2))
    world.release(b)
    world.release(a)
    assert names(world, "c2", 3) == ["1t1", "1t2", "1t3"]
    assert (a.attempt, a.token != b.token) == (2, True)


def test_a_new_priority_and_new_groups_count_at_the_next_checkout(world: World) -> None:
    world.client(group="g")
    first, second = (world.submit(a_job().task("t", parts=2)) for _ in range(2))
    assert names(world, want=1) == ["1t1"]
    set_priority(world.state, world.ctx, second.id, 9)
    assert names(world, want=1) == ["2t1"]
    set_clientgroups(world.state, world.ctx, first.id, "other")
    assert names(world) == ["2t2"]
    set_clientgroups(world.state, world.ctx, first.id, "other, g")
    assert names(world) == ["1t2"]


def test_Q_04_a_higher_priority_goes_first_however_long_the_lower_waits(world: World) -> None:
    """Strict, as docs/job.md says: no ageing. Once there is room for it, the lower one runs."""
    low = world.submit(a_job(priority=1).task("low", parts=10))
    clients = ("c1", "c2", "c3", "c4")
    for name in clients:
        world.client(name)
    for _ in range(300):  # five minutes
        ready = sum(t.end_rank - t.fresh_rank for t in world.state.tasks.values() if t.job is not low)
        if ready < 50:
            world.submit(a_job(priority=2).task("high", parts=50))
        for name in clients:
            world.exchange(name)
            (grant,) = world.checkout(name)
            assert grant.task.name == "high"
            world.done(grant.unit)
        world.pass_s(1)
    assert low.state is JobState.QUEUED
    while low.state is not JobState.COMPLETED:
        grants = world.checkout("c1", 20)
        assert grants
        for grant in grants:
            world.done(grant.unit)


class TestFair:
    """Among equal priority the user with the least running work goes first."""

    @pytest.fixture
    def world(self) -> World:
        world = World(policy="fair")
        world.client()
        return world

    def test_Q_04_users_take_turns(self, world: World) -> None:
        world.submit(a_job().task("a", parts=100), owner="anna")
        world.submit(a_job().task("b", parts=2), owner="bob")
        assert names(world, want=5) == ["1a1", "2b1", "1a2", "2b2", "1a3"]

    def test_Q_04_ten_workunits_do_not_wait_for_ten_thousand(self, world: World) -> None:
        world.submit(a_job().task("a", parts=10_000), owner="anna")
        held = world.checkout(want=4)
        small = world.submit(a_job().task("b", parts=10), owner="bob")
        rounds = 0
        while small.state is not JobState.COMPLETED:
            rounds += 1
            assert rounds <= 40
            world.done(held.pop(0).unit)
            held += world.checkout(want=1)

    def test_running_work_counts_and_finished_does_not(self, world: World) -> None:
        world.submit(a_job().task("a", parts=100), owner="anna")
        held = world.checkout(want=4)
        world.submit(a_job().task("b", parts=100), owner="bob")
        assert names(world, want=4) == ["2b1", "2b2", "2b3", "2b4"]
        for grant in held:
            world.done(grant.unit)
        assert names(world, want=2) == ["1a5", "1a6"]

    def test_priority_goes_before_fairness(self, world: World) -> None:
        world.submit(a_job(priority=2).task("a", parts=3), owner="anna")
        world.submit(a_job(priority=1).task("b"), owner="bob")
        assert names(world) == ["1a1", "1a2", "1a3", "2b0"]

    def test_without_login_the_label_tells_users_apart(self, world: World) -> None:
        world.submit(a_job(user="x").task("a", parts=9), owner="public")
        world.submit(a_job(user="y").task("b", parts=9), owner="public")
        assert names(world, want=4) == ["1a1", "2b1", "1a2", "2b2"]

    def test_demands_of_one_user_merge_and_what_does_not_fit_is_passed_over(self, world: World) -> None:
        world.submit(a_job().task("a").task("big", resources={"cores": 6}).task("c"), owner="anna")
        world.submit(a_job().task("b"), owner="bob")
        assert names(world, free=Free(3, 0, 0, 0)) == ["1a0", "2b0", "1c0"]


class TestEligible:
    """Each predicate gives its reason."""

    def test_wrong_group(self, world: World) -> None:
        world.client(group="small")
        world.submit(a_job(clientgroups="big, huge").task("t"))
        assert skipped(world) == {"wrong_group": 1}
        world.client("c2", group="huge")
        assert names(world, "c2") == ["1t0"]

    def test_the_groups_of_a_task_replace_those_of_the_job(self, world: World) -> None:
        world.client(group="small")
        world.submit(a_job(clientgroups="big").task("t", clientgroups="small"))
        assert names(world) == ["1t0"]

    def test_wrong_app(self, world: World) -> None:
        world.client(apps=["blast"])
        world.submit(a_job().task("t", cmd="bowtie2").task("u", cmd="bowtie2"))
        assert skipped(world) == {"wrong_app": 2}
        world.submit(a_job().task("t", cmd="blast"))
        assert names(world) == ["2t0"]

    @pytest.mark.parametrize(
        ("wants", "reason"),
        [
            ({"cores": 9}, "not_enough_cores"),
            ({"memory_bytes": 17 * GIB}, "not_enough_memory"),
            ({"disk_bytes": 101 * GIB}, "not_enough_disk"),
            ({"gpus": 1}, "not_enough_gpus"),
        ],
    )
    def test_the_client_as_a_whole_is_too_small(
        self, world: World, wants: dict[str, int], reason: str
    ) -> None:
        world.client()
        world.submit(a_job().task("t", resources=wants))
        assert skipped(world) == {reason: 1}

    def test_a_container_needs_an_engine_unless_a_stock_worker_keeps_silent(self, world: World) -> None:
        cmd = {"name": "x", "Dockerimage": "repo/x:1"}
        world.submit(JobDocument.model_validate({"tasks": [{"taskid": "t", "cmd": cmd, "totalwork": 2}]}))
        world.client()
        world.client("c2", containers=["podman"])
        world.stock_client("c3")
        assert skipped(world) == {"no_container": 1}
        assert names(world, "c2", 1) == ["1t1"]
        assert names(world, "c3", 1) == ["1t2"]

    @pytest.mark.parametrize(
        "keys",
        [
            {"cmd": {"cmd_script": ["echo"]}},
            {"cmd": {"name": "x", "stdout": "out.txt"}},
            {"cmd": {"name": "x"}, "time_limit_s": 1.0},
            {"cmd": {"name": "x"}, "outputs": [{"filename": "out", "optional": True}]},
            {"cmd": {"name": "x"}, "partinfo": {"input": "a", "inputs": ["a", "b"]}},
            {"cmd": {"name": "x"}, "partinfo": {"input": "a", "options": "records=2"}},
        ],
    )
    def test_what_a_stock_worker_would_leave_out_is_not_for_it(
        self, world: World, keys: dict[str, Any]
    ) -> None:
        job = world.submit(JobDocument.model_validate({"tasks": [{"taskid": "t", **keys}]}))
        if "outputs" in keys:
            world.prepare(job.tasks[0])
        world.stock_client("c1")
        assert skipped(world) == {"stock_worker": 1}
        assert "more than AWE's own workers" in str(why_job(world.state, world.ctx, job.id))
        world.client("c2")
        assert names(world, "c2", 1) == ["1t0"]

    @pytest.mark.parametrize(
        ("files", "roots", "fits"),
        [
            ({"inputs": [{"filename": "a", "url": "file:///data/a"}]}, [], False),
            ({"inputs": [{"filename": "a", "url": "file:///data/a"}]}, ["/data"], True),
            ({"inputs": [{"filename": "a", "url": "file:///data/a"}]}, ["/"], True),
            ({"inputs": [{"filename": "a", "url": "file:///data/a"}]}, ["/data/a"], False),
            ({"inputs": [{"filename": "a", "url": "file:///data/a"}]}, ["/database", "/more"], False),
            ({"predata": [{"filename": "a", "url": "file:///my%20data/a"}]}, ["/data"], False),
            ({"predata": [{"filename": "a", "url": "file:///my%20data/a"}]}, ["/my data"], True),
            ({"outputs": [{"filename": "a", "url": "file:///data/out/a"}]}, ["/data"], True),
            ({"outputs": [{"filename": "a", "url": "file:///data/a"}]}, ["/data/out"], False),
            ({"outputs": [{"filename": "a", "url": "file:///data/out/a"}]}, ["/data/out"], True),
            (
                {
                    "inputs": [{"filename": "a", "url": "file:///data/a"}],
                    "outputs": [{"filename": "a", "url": "file:///my%20data/a"}],
                },
                ["/data", "/more"],
                False,
            ),
            ({"inputs": [{"filename": "a", "url": "file:///not/open/a"}]}, ["/"], False),
            ({"inputs": [{"filename": "a", "url": "http://h/a"}]}, [], True),
            ({"inputs": [{"filename": "a", "url": "s3://b/a"}]}, [], True),
        ],
    )
    def test_shared_files_go_to_clients_that_open_their_directories(
        self, files: dict[str, Any], roots: list[str], fits: bool
    ) -> None:
        world = World(file_roots=("/data", "/data/out", "/my data"))
        document = {"tasks": [{"taskid": "t", "cmd": {"name": "x"}, **files}]}
        world.prepare(world.submit(JobDocument.model_validate(document)).tasks[0])
        world.client(file_roots=roots)
        if fits:
            assert names(world, "c1", 1) == ["1t0"]
        else:
            assert skipped(world) == {"out_of_reach": 1}

    def test_a_client_that_opens_a_directory_gets_its_work(self, world: World) -> None:
        world = World(file_roots=("/data",))
        files = {"inputs": [{"filename": "a", "url": "file:///data/a"}]}
        document = {"tasks": [{"taskid": "t", "cmd": {"name": "x"}, **files}]}
        job = world.submit(JobDocument.model_validate(document))
        world.prepare(job.tasks[0])
        world.client()
        assert world.checkout() == []
        world.client(incarnation="i2", file_roots=["/data"])
        unit = world.take()
        world.done(unit)
        assert job.state == "completed"

    def test_where_a_task_finds_its_files_is_known_when_its_origin_is_done(self) -> None:
        world = World(file_roots=("/data",))
        document = a_job().task("t").writes("x", url="file:///data/x").task("u").reads("x", origin="t")
        job = world.submit(document)
        world.client("c1", file_roots=["/data"])
        world.client("c2")
        world.prepare(job.tasks[0])
        world.done(world.take())
        world.finish(job.tasks[0])
        world.prepare(job.tasks[1])
        assert names(world, "c2", 1) == []
        assert names(world, "c1", 1) == ["1u0"]

    @pytest.mark.parametrize(
        "files",
        [
            {"inputs": [{"filename": "a", "url": "file:///data/a"}]},
            {"inputs": [{"filename": "a", "url": "gs://b/a"}]},
            {"predata": [{"filename": "a", "url": "az://b/a"}]},
            {"outputs": [{"filename": "a", "url": "http://h/a"}]},
            {"outputs": [{"filename": "a", "host": "http://shock:7445"}]},
            {"outputs": [{"filename": "a", "type": "copy", "formoptions": {"parent_node": "n"}}]},
        ],
    )
    def test_a_stock_worker_gets_no_places_that_it_does_not_know(
        self, world: World, files: dict[str, Any]
    ) -> None:
        document = {"tasks": [{"taskid": "t", "cmd": {"name": "x"}, **files}]}
        world.prepare(world.submit(JobDocument.model_validate(document)).tasks[0])
        world.stock_client("c1", file_roots=["/data"])
        assert skipped(world) == {"stock_worker": 1}

    @pytest.mark.parametrize(
        "files",
        [
            {"inputs": [{"filename": "a", "url": "http://h/a"}]},
            {
                "inputs": [
                    {"filename": "a", "host": "http://s", "node": "n", "url": "http://s/node/n?download"}
                ]
            },
            {"outputs": [{"filename": "a", "type": "basic"}]},
        ],
    )
    def test_a_stock_worker_reads_the_web_and_other_shocks(self, world: World, files: dict[str, Any]) -> None:
        document = {"tasks": [{"taskid": "t", "cmd": {"name": "x"}, **files}]}
        world.prepare(world.submit(JobDocument.model_validate(document)).tasks[0])
        world.stock_client("c1")
        assert names(world, "c1", 1) == ["1t0"]

    def test_what_is_free_bounds_how_many(self, world: World) -> None:
        world.client()
        want = {"cores": 2, "memory_bytes": GIB, "disk_bytes": GIB, "gpus": 0}
        world.submit(a_job().task("t", parts=99, resources=want))
        assert len(world.checkout(want=99, free=Free(8, 99 * GIB, 99 * GIB, 0))) == 4
        assert len(world.checkout(want=99, free=Free(99, 3 * GIB, 99 * GIB, 0))) == 3
        assert len(world.checkout(want=99, free=Free(99, 99 * GIB, 2 * GIB, 0))) == 2
        assert skipped(world, free=Free(1, 99 * GIB, 99 * GIB, 0)) == {"no_free_resources": 1}

    def test_gpus_are_counted(self, world: World) -> None:
        world.client(gpus=2)
        world.submit(a_job().task("t", parts=9, resources={"gpus": 1}))
        assert len(world.checkout(want=9, free=None)) == 2

    def test_what_does_not_fit_does_not_stop_what_does(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("big", parts=3, resources={"cores": 4}).task("small", parts=9))
        assert names(world, free=Free(6, 0, 0, 0)) == ["1big1", "1small1", "1small2"]

    def test_without_free_it_has_what_it_has_less_what_it_holds(self, world: World) -> None:
        world.client(cores=2)
        world.submit(a_job().task("t", parts=5))
        assert len(world.checkout(want=9, free=None)) == 2
        assert skipped(world, free=None) == {"no_free_resources": 1}

    def test_a_client_that_does_not_know_its_cores_has_one(self, world: World) -> None:
        world.stock_client(cores=0)
        world.submit(a_job().task("t", parts=2))
        assert len(world.checkout(want=2, free=None)) == 1

    def test_inputs_must_be_smaller_than_the_disk_available(self, world: World) -> None:
        world.stock_client()
        job = world.submit(a_job().task("a").reads("in").task("b").reads("in"))
        world.prepare(job.tasks[0], sizes={"in": 100})
        world.prepare(job.tasks[1], sizes={"in": 99})
        assert skipped(world, available=99) == {"disk_full": 2}
        assert names(world, available_bytes=100) == ["1b0"]
        assert names(world, available_bytes=-1) == ["1a0"]

    def test_inputs_must_fit_into_what_a_native_client_has_free(self, world: World) -> None:
        world.client()
        job = world.submit(a_job().task("a").reads("in").task("b").reads("in").task("c"))
        world.prepare(job.tasks[0], sizes={"in": 100})
        world.prepare(job.tasks[1], sizes={"in": 99})
        assert names(world, free=Free(8, 0, 99, 0)) == ["1b0", "1c0"]
        assert skipped(world, free=Free(8, 0, 99, 0)) == {"disk_full": 1}
        assert names(world, free=Free(8, 0, 100, 0)) == ["1a0"]

    def test_of_a_part_its_share_counts(self, world: World) -> None:
        world.stock_client()
        job = world.submit(a_job().task("t", parts=2).reads("in"))
        world.prepare(job.tasks[0], sizes={"in": 100}, index="line", units=10)
        assert names(world, want=1, available_bytes=51) == ["1t1"]


def fall_silent(world: World) -> None:
    world.now_s += 59
    world.exchange("c1")
    world.pass_s(1)


#: How c2 comes to take no more work.
LEAVING: dict[str, Callable[[World], object]] = {
    "suspended": lambda world: suspend_client(world.state, world.ctx, ClientId("c2")),
    "removed": lambda world: remove_client(world.state, world.ctx, ClientId("c2")),
    "draining": lambda world: world.exchange("c2", draining=True),
    "silent": fall_silent,
    "other group": lambda world: world.client("c2", apps=["another"]),
}


class TestSkipList:
    """A workunit that failed on a client goes to another, unless there is none."""

    def test_Q_01_it_waits_for_another_client(self, world: World) -> None:
        world.client()
        world.client("c2")
        world.submit(a_job().task("t"))
        unit = world.take()
        world.fail(unit)
        world.pass_s(1)
        assert skipped(world) == {"skip_list": 1}
        assert skipped(world) == {"skip_list": 1}
        assert world.take("c2") is unit

    def test_Q_01_a_lone_client_gets_it_again_after_the_delay(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t"))
        unit = world.take()
        world.fail(unit)
        assert skipped(world) == {}
        world.pass_s(0.9)
        assert skipped(world) == {}
        world.pass_s(0.1)
        assert world.take() is unit

    @pytest.mark.parametrize("why", ["group", "app", "small", "suspended", "offline", "draining", "skips"])
    def test_clients_that_could_not_run_it_do_not_count(self, world: World, why: str) -> None:
        world.client()
        world.submit(a_job(clientgroups="default").task("t", parts=2, resources={"cores": 2}, max_failures=9))
        profile = {"group": {"group": "x"}, "app": {"apps": ["z"]}, "small": {"cores": 1}}.get(why, {})
        world.client("c2", **profile)
        unit = world.take()
        if why == "skips":
            world.release(unit)
            world.fail(world.take("c2"))
            world.pass_s(60 - 1)
            world.exchange("c2")
            assert world.take("c1") is unit
        if why == "suspended":
            suspend_client(world.state, world.ctx, ClientId("c2"))
        if why == "draining":
            world.exchange("c2", draining=True)
        world.fail(unit)
        if why == "offline":
            world.pass_s(30)
            world.exchange("c1")
            world.pass_s(30)
            assert world.state.clients[ClientId("c2")].offline
        world.pass_s(2)
        assert world.take() is unit

    def test_the_client_that_was_found_is_remembered_and_forgotten_when_it_goes(self, world: World) -> None:
        world.client()
        other = world.client("c2")
        world.submit(a_job().task("t"))
        unit = world.take()
        world.fail(unit)
        world.pass_s(1)
        assert skipped(world) == {"skip_list": 1}
        assert unit.witness is other
        suspend_client(world.state, world.ctx, other.id)
        assert world.take() is unit
        assert unit.witness is None

    @pytest.mark.parametrize("how", LEAVING)
    def test_it_is_offered_again_when_the_other_client_takes_no_more_work(
        self, world: World, how: str
    ) -> None:
        world.client()
        world.client("c2")
        world.submit(a_job().task("t"))
        unit = world.take()
        world.fail(unit)
        world.pass_s(1)
        assert skipped(world) == {"skip_list": 1}
        world.state.take()
        LEAVING[how](world)
        offer_skipped(world.state)
        assert world.state.take().work == {unit.task.demand: 1}
        offer_skipped(world.state)
        assert not world.state.take().work
        assert world.take() is unit

    def test_fresh_ranks_are_given_although_another_one_is_skipped(self, world: World) -> None:
        world.client()
        world.client("c2")
        world.submit(a_job().task("t", parts=3))
        world.fail(world.take())
        world.pass_s(1)
        assert names(world, want=1) == ["1t2"]
        assert names(world, "c2", 9) == ["1t1", "1t3"]

    def test_more_to_retry_than_wanted_stay_in_order(self, world: World) -> None:
        world.client()
        world.client("c2")
        world.submit(a_job().task("t", parts=5))
        units = [g.unit for g in world.checkout(want=5)]
        world.fail(units[0])
        for unit in units[1:]:
            world.release(unit)
        world.pass_s(1)
        assert names(world, want=2) == ["1t2", "1t3"]
        assert names(world, "c2", want=2) == ["1t1", "1t4"]


class TestRefusals:
    """Nothing changes when a client may not take work."""

    def test_unknown_suspended_and_queue_suspended(self, world: World) -> None:
        client = world.client()
        world.submit(a_job().task("t"))
        suspend_client(world.state, world.ctx, client.id)
        before = snapshot(world.state)
        with pytest.raises(ClientNotFound):
            world.checkout("nobody")
        with pytest.raises(ClientSuspended):
            world.checkout()
        assert snapshot(world.state) == before
        resume_client(world.state, world.ctx, client.id)
        suspend_queue(world.state, world.ctx)
        with pytest.raises(QueueSuspended):
            world.checkout()
        resume_queue(world.state, world.ctx)
        assert names(world) == ["1t0"]

    def test_wanting_nothing_gives_nothing(self, world: World) -> None:
        world.client()
        world.submit(a_job().task("t"))
        world.state.take()
        assert world.checkout(want=0) == []
        assert world.state.changes.is_empty()


def test_a_checkout_keeps_a_stock_worker_alive(world: World) -> None:
    client = world.stock_client()
    world.pass_s(59)
    world.checkout()
    world.pass_s(59)
    assert not client.offline


def test_a_client_that_changed_is_compared_anew(world: World) -> None:
    world.client(group="a")
    world.submit(a_job(clientgroups="b").task("t"))
    assert skipped(world) == {"wrong_group": 1}
    register(world.state, world.ctx, a_profile(group="b"), ClientId("c1"), ClientId("c1"))
    assert names(world) == ["1t0"]


def test_demands_nobody_asks_for_are_cleared_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("awe_server.scheduler.demands.MAX_EMPTY_DEMANDS", 5)
    world.client()
    for i in range(7):
        job = world.submit(a_job().task("t", cmd=f"cmd{i}"))
        world.done(world.take())
        world.state.forget_job(job.id)
    world.submit(a_job().task("t", cmd="last"))
    assert len(world.state.demand_list) == 8
    tick(world.state, world.ctx)
    assert [d.app for d in world.state.demand_list] == ["last"]
    assert names(world) == ["8t0"]
    world.submit(a_job().task("t", cmd="new"))
    tick(world.state, world.ctx)
    assert len(world.state.demand_list) == 2


def test_a_delayed_retry_is_given_at_checkout_time_when_it_is_due(world: World) -> None:
    world.client()
    world.submit(a_job().task("t"))
    unit = world.take()
    world.fail(unit, FailureKind.INPUT)
    world.now_s += 1
    world.wall_s += 1
    assert world.take() is unit


def test_reprs_name_the_thing(world: World) -> None:
    client = world.client()
    job = world.submit(a_job().task("t"))
    (grant,) = world.checkout()
    assert repr(job) == f"<Job {job.id} in-progress>"
    assert repr(job.tasks[0]) == f"<Task {job.tasks[0].id} in-progress>"
    assert repr(grant.unit) == f"<Workunit {grant.unit.id} checkout attempt 1>"
    assert repr(grant) == f"<Grant {grant.unit.id} attempt 1>"
    assert repr(client) == "<Client c1 active-busy>"
