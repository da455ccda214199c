"""Documents: what is stored and what a person sees of ranks nobody ran yet."""

from awe_server.scheduler import views
from awe_server.scheduler.jobs import suspend_job
from awe_server.scheduler.queue import suspend_queue
from shared_models.ids import WorkunitId
from tests.builders import World, a_job


def test_the_job_document(world: World) -> None:
    job = world.submit(a_job(name="n").task("a").task("b").depends("a"), key="k")
    document = views.job_document(job)
    assert document.pop("info")["name"] == "n"
    assert document == {
        "id": job.id,
        "jid": "10001",
        "state": "queued",
        "registered": True,
        "remaintasks": 2,
        "expiration": "0001-01-01T00:00:00Z",
        "updatetime": "2026-01-01T12:00:00.000000Z",
        "notes": "",
        "lastfailed": "",
        "error": None,
        "resumed": 0,
        "shockhost": "",
        "acl": {"owner": "anna", "read": ["anna"], "write": ["anna"], "delete": ["anna"]},
        "task_names": ["a", "b"],
        "revision": job.revision,
        "_own_revision": job.own_revision,
        "_jid": 10_001,
        "_idempotency": "k",
        "_datatoken": "",
    }


def test_the_task_document(world: World) -> None:
    job = world.submit(a_job().task("a").task("b", parts=3, max_failures=2, time_limit_s=60.0).depends("a"))
    document = views.task_document(job.tasks[1])
    assert document.pop("cmd")["name"] == "run"
    zero = "0001-01-01T00:00:00Z"
    assert document == {
        "id": f"{job.id}_b",
        "jobid": job.id,
        "task_name": "b",
        "taskid": f"{job.id}_b",
        "index": 1,
        "state": "pending",
        "_private_env": {},
        "dependsOn": [f"{job.id}_a"],
        "inputs": [],
        "outputs": [],
        "predata": [],
        "partinfo": None,
        "_partinfo_wanted": None,
        "maxworksize": 0,
        "totalwork": 3,
        "_totalwork_wanted": 3,
        "remainwork": 3,
        "computetime": 0.0,
        "createddate": zero,
        "starteddate": zero,
        "completeddate": zero,
        "userattr": {},
        "clientgroups": "",
        "resources": {"cores": 1, "memory_bytes": 0, "disk_bytes": 0, "gpus": 0},
        "time_limit_s": 60.0,
        "max_failures": 2,
        "retry_delay_s": None,
        "notes": "",
        "skip": 0,
        "keep_failed": False,
        "generation": 1,
        "fresh_rank": 0,
        "first_attempt": 1,
        "max_attempt": 0,
        "_is_cut": False,
        "_blamed": None,
        "_revision": 1,
    }


def test_a_rank_nobody_ran_looks_like_a_workunit(world: World) -> None:
    world.client()
    job = world.submit(a_job().task("t", parts=3).task("u").depends("t"))
    unit = world.take()
    fresh = WorkunitId(f"{job.id}_t_2")
    document = views.workunit_document(world.state, fresh)
    assert document is not None
    assert (document["state"], document["attempt"], document["rank"]) == ("queued", 0, 2)
    assert document.keys() == views.unit_document(unit).keys()
    suspend_job(world.state, world.ctx, job.id)
    suspended = views.workunit_document(world.state, fresh)
    assert suspended is not None
    assert suspended["state"] == "suspend"


def test_what_is_not_live_has_no_view(world: World) -> None:
    world.client()
    job = world.submit(a_job().task("t", parts=3).task("u").depends("t"))
    unit = world.take()
    assert views.workunit_document(world.state, unit.id) == views.unit_document(unit)
    world.done(unit)
    for gone in (unit.id, f"{job.id}_t_0", f"{job.id}_t_4", f"{job.id}_u_0", f"{job.id}_zz_0"):
        assert views.workunit_document(world.state, WorkunitId(gone)) is None


def test_a_rank_nobody_ran_of_a_failed_task_failed(world: World) -> None:
    world.client()
    job = world.submit(a_job().task("t", parts=3))
    world.fail(world.take(), exit_code=42)
    document = views.workunit_document(world.state, WorkunitId(f"{job.id}_t_3"))
    assert document is not None
    assert document["state"] == "failed-permanent"


def test_a_batch_is_in_the_order_that_a_torn_write_survives(world: World) -> None:
    world.client()
    world.submit(a_job().task("t"))
    world.take()
    suspend_queue(world.state, world.ctx)
    collections = [name for name, _ in views.documents(world.state, world.state.take())]
    assert collections == ["workunits", "tasks", "clients", "meta", "meta", "jobs"]


def test_many_changes_of_one_entity_are_one_document(world: World) -> None:
    world.client()
    world.submit(a_job().task("t", parts=64))
    world.state.take()
    for grant in world.checkout(want=64):
        world.done(grant.unit)
    changes = world.state.take()
    assert (len(changes.workunits), len(changes.tasks), len(changes.clients), len(changes.jobs)) == (
        64,
        1,
        1,
        1,
    )
