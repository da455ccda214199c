"""The server dies while it removes a job, or after the documents of one went and before its files did."""

import contextlib

import httpx
import pytest

from tests.crash.survivor import Survivor
from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync

CONTENT = b"to be removed\n"


@pytest.fixture
def done(env: AweEnv) -> str:
    """A completed job of three tasks, each with an output and a log."""
    tasks = [
        {"taskid": str(number), "cmd": {"name": "true"}, "outputs": [{"filename": f"{number}.txt"}]}
        for number in range(3)
    ]
    with Survivor(env) as survivor:
        job_id = survivor.submit({"info": {"name": "done"}, "tasks": tasks}, "done")
        survivor.work_off(job_id, lambda grant: CONTENT)
        logs = env.server.data / "logs" / job_id
        assert len(nodes_of(env, job_id)) == 3
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "0.1.stdout").write_text("hello")
    return job_id


def nodes_of(env: AweEnv, job_id: str) -> list[str]:
    return [node["id"] for node in env.data("GET", "/node?limit=1000") if node["job"] == job_id]


def assert_nothing_is_left(env: AweEnv, job_id: str) -> None:
    eventually_sync(lambda: not nodes_of(env, job_id), show=lambda: nodes_of(env, job_id))
    eventually_sync(lambda: not (env.server.data / "logs" / job_id).exists())
    assert env.http.get(f"/job/{job_id}").status_code == 404
    blobs = env.server.data / "nodes" / "blobs"
    eventually_sync(lambda: not [path for path in blobs.rglob("*") if path.is_file()])
    env.server.stop()
    checked = env.check_store()
    assert checked.returncode == 0, checked.stdout + checked.stderr


POINTS = ["before-commit", "inside-commit", "before-reply", *(f"{n} before-delete" for n in (1, 2, 3))]


@pytest.mark.parametrize("point", [*POINTS, "3 after-commit"])
def test_a_job_that_was_being_removed_goes_whole_after_the_crash(env: AweEnv, done: str, point: str) -> None:
    env.server.kill_at(point)
    with contextlib.suppress(httpx.TransportError):
        env.http.delete(f"/job/{done}?full")
    assert env.server.running.wait() == -9
    env.server.start()
    if env.http.get(f"/job/{done}").is_success:
        assert point in ("before-commit", "inside-commit")
        assert len(nodes_of(env, done)) == 3, "a job that is there has all its outputs"
        env.data("DELETE", f"/job/{done}?full")
    assert_nothing_is_left(env, done)


@pytest.mark.parametrize(
    "point", ["2 before-commit", "2 inside-commit", "2 after-commit", "before-delete", "3 before-delete"]
)
def test_an_expired_job_goes_whole_after_the_crash(env: AweEnv, done: str, point: str) -> None:
    """The first commit is that of the expiration."""
    env.server.stop()
    env.server.start(AWE_EXPIRE_WAIT_S="0.2")
    env.server.kill_at(point)
    with contextlib.suppress(httpx.TransportError):
        env.http.put(f"/job/{done}?expiration=0M")
    assert env.server.running.wait() == -9
    env.server.start(AWE_EXPIRE_WAIT_S="0.2")
    assert_nothing_is_left(env, done)
