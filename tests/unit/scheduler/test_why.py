"""Plain reasons for everything that waits."""

from typing import Any

import pytest

from awe_server.scheduler import jobs, suspension
from awe_server.scheduler.queue import suspend_queue
from awe_server.scheduler.ready import task_refused
from awe_server.scheduler.state import Job
from awe_server.scheduler.why import MAX_TASK_ROWS, MAX_WORKUNIT_ROWS, why_job, why_workunit
from shared_models.errors import JobNotFound, WorkunitNotFound
from shared_models.ids import JobId, WorkunitId
from shared_models.messages import Free
from shared_models.states import FailureKind
from tests.builders import GIB, World, a_job


def why(world: World, job: Job, name: str = "t1") -> str:
    """The reason of one task."""
    rows = why_job(world.state, world.ctx, job.id)
    return next(row["reason"] for row in rows if row["id"] == f"{job.id}_{name}")


def why_unit(world: World, id: str) -> str:
    (row,) = why_workunit(world.state, world.ctx, WorkunitId(id))
    return row["reason"]


def rows(world: World, job: Job) -> list[tuple[str, str, str]]:
    """All rows about a job, with short ids."""
    found = why_job(world.state, world.ctx, job.id)
    return [(row["entity"], row["id"].removeprefix(f"{job.id}_"), row["reason"]) for row in found]


@pytest.mark.parametrize(
    ("document", "clients", "reason"),
    [
        ({}, [], "no live client"),
        ({"clientgroups": "big"}, [{}], "no live client in group `big`"),
        ({"clientgroups": "big, huge"}, [{}], "no live client in group `big`, `huge`"),
        ({"cmd": "bowtie2"}, [{"apps": ["run"]}], "no live client offers app `bowtie2`"),
        (
            {"cmd": "bowtie2", "clientgroups": "big"},
            [{"group": "big", "apps": ["run"]}, {"apps": ["*"]}],
            "no live client in group `big` offers app `bowtie2`",
        ),
        (
            {"resources": {"cores": 16}},
            [{"cores": 4}, {"cores": 8}],
            "needs 16 cores, largest client has 8",
        ),
        ({"resources": {"cores": 2}}, [{"cores": 0}], "needs 2 cores, largest client has 1"),
        (
            {"resources": {"cores": 1, "memory_bytes": 64 * GIB}},
            [{}],
            "needs 64.0 GiB memory, largest client has 16.0 GiB",
        ),
        (
            {"resources": {"cores": 9, "disk_bytes": 200 * GIB, "gpus": 1}},
            [{}],
            "needs 9 cores, largest client has 8; needs 200.0 GiB disk, largest client has 100.0 GiB;"
            " needs 1 GPUs, largest client has 0",
        ),
        (
            {"resources": {"cores": 8, "gpus": 1}},
            [{"cores": 8}, {"cores": 1, "gpus": 1}],
            "no single client has all that it needs: cores, memory, disk and GPUs together",
        ),
        ({}, [{}], "1 client could run it now: its turn comes when one of them asks"),
        ({}, [{}, {}], "2 clients could run it now: its turn comes when one of them asks"),
    ],
)
def test_why_no_client_takes_a_ready_task(
    world: World, document: dict[str, Any], clients: list[dict[str, Any]], reason: str
) -> None:
    job = world.submit(a_job().task("t1", **document))
    for i, profile in enumerate(clients):
        world.client(f"c{i}", **profile)
    assert why(world, job) == reason
    assert why_unit(world, f"{job.id}_t1_0") == reason
    assert rows(world, job) == [("job", job.id, "1 task of 1 not done"), ("task", "t1", reason)]


def test_a_container_needs_an_engine(world: World) -> None:
    document = a_job().task("t1")
    document._tasks[0]["cmd"]["Dockerimage"] = "ubuntu"
    job = world.submit(document)
    world.client()
    assert why(world, job) == "no live client that offers app `run` has a container engine"
    world.client("c2", containers=["podman"])
    assert why(world, job) == "1 client could run it now: its turn comes when one of them asks"


@pytest.mark.parametrize(
    ("url", "clients", "reason"),
    [
        (
            "file:///data/x",
            [{}],
            "no live client that offers app `run` opens `/data` to jobs (--file-root)",
        ),
        (
            "file:///data/x",
            [{"file_roots": ["/more"]}, {"group": "other", "file_roots": ["/data"]}],
            "no live client in group `near` that offers app `run` opens `/data` to jobs (--file-root)",
        ),
        (
            "file:///closed/x",
            [{"file_roots": ["/"]}],
            "it has files outside of the directories that this server opens to jobs (--file-root)",
        ),
        (
            "file:///data/x",
            [{"file_roots": ["/data"]}],
            "1 client could run it now: its turn comes when one of them asks",
        ),
    ],
)
def test_shared_files_that_no_client_reaches(url: str, clients: list[dict[str, Any]], reason: str) -> None:
    world = World(file_roots=("/data", "/more"))
    groups = {"clientgroups": "near"} if len(clients) > 1 else {}
    job = world.submit(a_job(**groups).task("t1").reads("x", url=url))
    world.prepare(job.tasks[0])
    for i, profile in enumerate(clients):
        world.client(f"c{i}", **{"group": "near" if groups else "default", **profile})
    assert why(world, job) == reason
    assert why_unit(world, f"{job.id}_t1_0") == reason


def test_busy_clients_are_counted(world: World) -> None:
    job = world.submit(a_job().task("t1", parts=10, resources={"cores": 8}))
    for id in ("c1", "c2", "c3"):
        world.client(id)
        world.take(id)
    assert why(world, job) == "3 clients could run it, all are busy"
    suspension.suspend_client(world.state, world.ctx, world.client("c1").id)
    suspension.suspend_client(world.state, world.ctx, world.client("c2").id)
    assert why(world, job) == "1 client could run it, it is busy"
    world.exchange("c3", draining=True)
    assert why(world, job) == "no live client (1 draining, 2 suspend: awe clients says why)"
    world.pass_s(61)
    assert why(world, job) == "no live client (3 offline)"


def test_Q_04_work_of_a_higher_priority_goes_first_and_is_said_to(world: World) -> None:
    job = world.submit(a_job(priority=2).task("t1"))
    world.client(cores=1)
    other = world.submit(a_job(priority=3).task("t1", parts=3, cmd="other"))
    busy = "1 client could run it, it is busy"
    first = "; work of a higher priority goes first"
    assert why(world, job).endswith(f"its turn comes when one of them asks{first}")
    world.take()
    assert why(world, job) == f"{busy}{first}"
    assert why(world, other) == busy
    jobs.set_priority(world.state, world.ctx, other.id, 2)
    assert why(world, job) == busy
    jobs.set_priority(world.state, world.ctx, other.id, 3)
    jobs.set_clientgroups(world.state, world.ctx, other.id, "elsewhere")
    assert why(world, job) == busy, "that is better work for others"


def test_a_suspended_queue(world: World) -> None:
    job = world.submit(a_job().task("t1", parts=2, retry_delay_s=0.0))
    world.client()
    suspend_queue(world.state, world.ctx)
    assert rows(world, job) == [("job", job.id, "queue is suspended"), ("task", "t1", "queue is suspended")]
    world.state.queue_suspended = False
    unit = world.take()
    world.client("c2")
    world.fail(unit)
    world.state.queue_suspended = True
    assert why_unit(world, unit.id) == "queue is suspended"


def test_pending_tasks_name_what_they_wait_for(world: World) -> None:
    document = a_job()
    for i in range(6):
        document.task(f"t{i}")
    job = world.submit(document.task("end").depends(*(f"t{i}" for i in range(6))).task("x").depends("t0"))
    assert why(world, job, "x") == "pending: task t0"
    assert why(world, job, "end") == "pending: task t0, t1, t2 and 3 more"
    assert why_workunit(world.state, world.ctx, WorkunitId(f"{job.id}_x_0")) == [
        {"entity": "task", "id": f"{job.id}_x", "state": "pending", "reason": "pending: task t0"}
    ]


def test_data_on_its_way(world: World) -> None:
    job = world.submit(a_job().task("t1").reads("in").writes("out"))
    assert why(world, job) == "inputs are being looked at"
    world.prepare(job.tasks[0])
    world.client()
    unit = world.take()
    world.done(unit)
    assert why(world, job) == "task is done; outputs are being merged"
    assert why_workunit(world.state, world.ctx, unit.id) == []


def test_a_start_in_the_future(world: World) -> None:
    job = world.submit(a_job(start_at="2026-01-01T15:00:00Z").task("t1"))
    assert [reason for _, _, reason in rows(world, job)] == ["starts in 3 h (start_at)"] * 2
    world.pass_s(2 * 3600 + 1800)
    assert why(world, job) == "starts in 30 min (start_at)"
    world.pass_s(1790)
    assert why(world, job) == "starts in 10 s (start_at)"


def test_running_work(world: World) -> None:
    job = world.submit(a_job().task("t1", parts=2, retry_delay_s=12.0))
    world.client(name="node7")
    world.client("c2")
    one, two = (grant.unit for grant in world.checkout(want=2))
    world.pass_s(5)
    assert why(world, job) == "2 workunits are running"
    assert why_unit(world, one.id) == "running on node7 for 5 s, attempt 1"
    world.fail(one)
    assert rows(world, job) == [
        ("job", job.id, "1 workunit of it is running"),
        ("task", "t1", "1 workunit is running, 1 workunit is tried again in 12 s"),
        ("workunit", "t1_1", "failed 1 time(s) (command): retry in 12 s"),
    ]
    world.done(two)
    world.pass_s(2.5)
    assert why(world, job) == "1 workunit is tried again in 10 s"
    other = world.submit(a_job().task("t1", retry_delay_s=12.0))
    world.fail(world.checkout()[0].unit, message="no space left")
    told = "1 workunit is tried again in 12 s; 1 workunit failed before: no space left"
    assert why(world, other) == told


def test_failures_are_told_while_nobody_is_left_to_try_again(world: World) -> None:
    job = world.submit(a_job().task("t1", parts=2, retry_delay_s=0.0))
    world.client("c1")
    for grant in world.checkout(want=2):
        world.fail(grant.unit, message="command not found: grepp")
    suspension.suspend_client(world.state, world.ctx, world.client("c1").id)
    nobody = "no live client (1 suspend: awe clients says why)"
    assert why(world, job) == f"{nobody}; 2 workunits failed before: command not found: grepp"


def test_the_skip_list_of_the_only_client(world: World) -> None:
    job = world.submit(a_job().task("t1", retry_delay_s=4.0))
    world.client(name="node7")
    unit = world.take()
    world.fail(unit)
    text = "on the skip list of node7, the only client that could run it"
    assert why_unit(world, unit.id) == f"{text}: retry in 4 s"
    world.pass_s(4)
    assert why_unit(world, unit.id) == f"{text}: it is given to it again"
    assert rows(world, job)[-1] == ("workunit", "t1_0", f"{text}: it is given to it again")
    world.client("c2")
    assert why_unit(world, unit.id) == "2 clients could run it now: its turn comes when one of them asks"
    assert world.take("c2") is unit
    world.fail(unit, FailureKind.SIGNAL)
    both = "on the skip list of node7, node, the only clients that could run it"
    assert why_unit(world, unit.id) == f"{both}: retry in 8 s"


def test_why_something_is_suspended(world: World) -> None:
    job = world.submit(a_job().task("t1", parts=3, max_failures=1).task("t2").depends("t1"))
    world.client()
    one, two = (grant.unit for grant in world.checkout(want=2))
    world.fail(one, message="no such file")
    text = f"workunit {one.id} failed 1 time(s). msg from client: no such file"
    assert rows(world, job) == [
        ("job", job.id, f"suspended: {text}"),
        ("task", "t1", f"suspended: workunit {one.id}: workunit failed 1 time(s)"),
        ("workunit", "t1_1", f"suspended: {text}"),
        ("task", "t2", f"its job is in state suspend: {text}"),
    ]
    assert why_unit(world, two.id) == f"its job is in state suspend: {text}"
    assert why_unit(world, f"{job.id}_t1_3") == f"suspended: workunit {one.id}: workunit failed 1 time(s)"


def test_why_inputs_were_refused(world: World) -> None:
    job = world.submit(a_job().task("t1").reads("in"))
    task_refused(world.state, world.ctx, job.tasks[0].id, 1, "input file in not available: no such node")
    assert why(world, job) == "suspended: input file in not available: no such node"


def test_a_job_that_failed_for_good(world: World) -> None:
    job = world.submit(a_job().task("t1", parts=2).task("t2").depends("t1"))
    world.client()
    unit = world.take()
    world.fail(unit, exit_code=42)
    reason = f"workunit {unit.id}: exit code 42 encountered"
    assert rows(world, job) == [
        ("job", job.id, f"failed for good: {reason}"),
        ("task", "t1", f"its job is in state failed-permanent: {reason}"),
        ("task", "t2", f"its job is in state failed-permanent: {reason}"),
    ]
    assert why_unit(world, unit.id) == f"failed for good: {reason}"


def test_what_is_over_waits_for_nothing(world: World) -> None:
    job = world.submit(a_job().task("t1").task("t2"))
    world.client()
    one, two = (grant.unit for grant in world.checkout(want=2))
    world.done(one)
    assert one.task.id not in [row["id"] for row in why_job(world.state, world.ctx, job.id)]
    world.done(two)
    assert why_job(world.state, world.ctx, job.id) == []
    jobs.delete_job(world.state, world.ctx, job.id)
    assert why_job(world.state, world.ctx, job.id) == []


def test_what_does_not_exist_is_not_found(world: World) -> None:
    job = world.submit(a_job().task("t1", parts=2))
    with pytest.raises(JobNotFound):
        why_job(world.state, world.ctx, JobId("nobody"))
    for id in (f"{job.id}_t1_0", f"{job.id}_t1_3", f"{job.id}_t2_0"):
        with pytest.raises(WorkunitNotFound):
            why_workunit(world.state, world.ctx, WorkunitId(id))


def test_a_huge_job_gets_a_short_answer(world: World) -> None:
    document = a_job()
    for i in range(300):
        document.task(f"t{i}", parts=1_000_000 if i == 0 else 1)
    job = world.submit(document)
    world.client(cores=100)
    for grant in world.checkout(want=20):
        world.fail(grant.unit, FailureKind.INPUT)
    found = rows(world, job)
    assert len(found) == 1 + MAX_TASK_ROWS + MAX_WORKUNIT_ROWS + 1
    assert found[-1] == ("job", job.id, "250 more tasks are not done")


def test_asking_why_leaves_no_demand_behind() -> None:
    world = World()
    job = world.submit(a_job().task("t1", cmd="bowtie2").task("t2", cmd="bowtie2"))
    for task in job.tasks:
        task.demand = None
    world.state.demands.clear()
    world.state.demand_list.clear()
    world.state.take()
    world.client(apps=["run"])
    assert why(world, job, "t1") == why(world, job, "t2") == "no live client offers app `bowtie2`"
    assert (world.state.demands, world.state.demand_list) == ({}, [])
    assert [task.demand for task in job.tasks] == [None, None]


def test_inputs_that_fit_on_no_disk_and_clients_that_say_what_troubles_them() -> None:
    world = World()
    job = world.submit(a_job().task("t1").reads("in"))
    world.prepare(job.tasks[0], sizes={"in": 40_000_000})
    world.client(name="small")
    world.client("c2", name="other")
    world.exchange(free=Free(8, GIB, 30_000_000, 0))
    assert why(world, job) == "2 clients could run it now: its turn comes when one of them asks"
    world.exchange("c2", free=Free(8, GIB, 0, 0), trouble="disk nearly full")
    assert why(world, job) == (
        "its inputs take 40.0 MB of disk; of the clients that could run it, small has most: "
        "30.0 MB free for work; other: disk nearly full"
    )
    world.exchange(free=Free(8, GIB, 40_000_000, 0))
    world.exchange("c2", trouble="disk nearly full")
    asked = "2 clients could run it now: its turn comes when one of them asks"
    assert why(world, job) == f"{asked}; other: disk nearly full"
    world.exchange("c2")
    assert why(world, job) == asked
