"""The server dies at the worst moments of a commit: what was answered stays, nothing counts twice."""

import contextlib

import httpx
import pytest

from tests.crash.documents import plain
from tests.crash.stores import on_both_stores
from tests.support.env import AweEnv
from tests.support.fake_client import FakeClient

pytestmark = on_both_stores

POINTS = ["before-commit", "inside-commit", "after-commit", "before-reply"]
LOST = ("before-commit", "inside-commit")  #: where nothing of a batch is durable


@pytest.mark.parametrize("point", POINTS)
def test_a_submit_that_got_no_answer_is_there_whole_or_not_at_all(env: AweEnv, point: str) -> None:
    kept = env.submit(plain("kept", tasks=3))
    env.server.kill_at(point)
    with pytest.raises(httpx.TransportError):
        env.http.post("/job", json=plain("unanswered", tasks=3))
    assert env.server.running.wait() == -9
    env.server.start()
    jobs = {job["id"]: job for job in env.data("GET", "/job")}
    assert kept in jobs
    assert len(jobs) == (1 if point in LOST else 2)
    assert all(len(job["tasks"]) == 3 for job in jobs.values()), "no job without its tasks"


@pytest.mark.parametrize("point", POINTS)
def test_X_05_a_submit_repeated_with_its_key_makes_one_job(env: AweEnv, point: str) -> None:
    env.server.kill_at(point)
    with pytest.raises(httpx.TransportError):
        env.http.post("/job", json=plain("once"), headers={"Idempotency-Key": "k1"})
    env.server.running.wait()
    env.server.start()
    again = env.data("POST", "/job", json=plain("once"), headers={"Idempotency-Key": "k1"})
    assert [job["id"] for job in env.data("GET", "/job")] == [again["id"]]


@pytest.mark.parametrize("point", POINTS)
def test_L_07_a_grant_repeated_after_the_crash_is_leased_once(
    env: AweEnv, client: FakeClient, point: str
) -> None:
    """Which request brought it is forgotten: the lease that nobody saw ends, the same rank is leased anew."""
    job_id = env.submit(plain("two", width=2))
    env.server.kill_at(point)
    patience_s, client.patience_s = client.patience_s, 0.0
    with pytest.raises((httpx.TransportError, AssertionError)):
        client.exchange(want=1)
    client.patience_s = patience_s
    assert env.server.running.wait() == -9
    env.server.start()
    client.request_id -= 1  # the same exchange again
    [given] = client.exchange(want=1)["work"]
    attempt = 1 if point in LOST else 2
    assert (given["rank"], given["attempt"]) == (1, attempt)
    assert attempts(env, job_id) == {f"{job_id}_0_1": attempt}, "and no other rank was begun"
    assert env.data("GET", f"/work/{job_id}_0_1")["state"] == "checkout"
    client.request_id -= 1  # once more, as if that reply had not come either
    client.held.clear()
    assert client.exchange(want=1)["work"] == [given]
    assert client.work_off() == 2
    env.wait_for(job_id)
    assert attempts(env, job_id) == {f"{job_id}_0_1": attempt, f"{job_id}_0_2": 1}


def attempts(env: AweEnv, job_id: str) -> dict[str, int]:
    """Of each workunit that was ever handed out."""
    units = env.data("GET", "/work", params={"query": "", "jobid": job_id})
    return {unit["id"]: unit["attempt"] for unit in units if unit["attempt"]}


@pytest.mark.parametrize("point", POINTS)
def test_a_report_repeated_after_the_crash_is_accepted_once(
    env: AweEnv, client: FakeClient, point: str
) -> None:
    job_id = env.submit(plain("one"))
    (grant,) = client.fetch()
    env.server.kill_at(point)
    patience_s, client.patience_s = client.patience_s, 0.0
    with pytest.raises((httpx.TransportError, AssertionError)):
        client.exchange(reports=[client.done(grant)])
    client.patience_s = patience_s
    env.server.running.wait()
    env.server.start()
    client.request_id -= 1  # the same exchange again
    reply = client.exchange(reports=[client.done(grant)])
    assert reply["results"][0]["result"] == ("accepted" if point in LOST else "duplicate")
    job = env.wait_for(job_id)
    assert job["tasks"][0]["remainwork"] == 0
    assert env.data("GET", f"/client/{client.id}")["total_completed"] == 1


#: Where it dies once the last report was sent: after its commit, or at the commit after that one, when the
#: output of the task is being put together.
BETWEEN = ["after-commit", "before-reply", "2 before-commit", "2 after-commit", "2 before-reply"]


@pytest.mark.parametrize("point", BETWEEN)
def test_D_05_who_dies_between_the_last_result_and_the_end_of_the_job_ends_it_at_the_next_start(
    env: AweEnv, client: FakeClient, point: str
) -> None:
    document = plain("two", tasks=2, width=3)
    document["tasks"][1]["outputs"] = [{"filename": "out.txt"}]
    job_id = env.submit(document)
    client.exchange(reports=[client.done(grant) for grant in client.fetch(3)])
    grants = client.fetch(3)
    reports = [client.done(grant, b"%d\n" % grant.rank) for grant in grants]
    client.exchange(reports=reports[:2])
    env.server.kill_at(point)
    patience_s, client.patience_s = client.patience_s, 0.0
    with contextlib.suppress(httpx.TransportError, AssertionError):
        client.exchange(reports=reports[2:])
    client.patience_s = patience_s
    assert env.server.running.wait() == -9, "it died where it was told to"
    env.server.start()
    # Nobody says anything to it: it ends the job by itself.
    job = env.wait_for(job_id)
    assert [task["state"] for task in job["tasks"]] == ["completed", "completed"]
    assert not job["info"]["completedtime"].startswith("0001-")
    assert (job["remaintasks"], job["tasks"][1]["remainwork"]) == (0, 0)
    node = job["tasks"][1]["outputs"][0]["node"]
    assert env.http.get(f"/node/{node}?download").content == b"1\n2\n3\n"
    assert env.data("GET", f"/work/{grants[2].work}")["state"] == "completed"
    assert env.data("GET", f"/client/{client.id}")["total_completed"] == 6
