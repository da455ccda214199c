"""A restart is not an event: leases, counts, work and answers go on."""

import threading
import time
from collections.abc import Iterator

import pytest

from shared_models.times import parse_rfc3339
from tests.crash.documents import plain
from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.fake_client import FakeClient


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_D_07_running_work_goes_on_and_its_report_is_accepted(
    env: AweEnv, client: FakeClient, how: str
) -> None:
    """No second attempt, no lost result."""
    job_id = env.submit(plain("long"))
    (grant,) = client.fetch()
    getattr(env.server, how)()
    env.server.start()
    client.exchange()
    assert list(client.held) == [grant.work], "the lease holds"
    assert client.fetch(wait_s=0) == []
    reply = client.exchange(reports=[client.done(grant)])
    assert reply["results"][0]["result"] == "accepted"
    assert env.wait_for(job_id)["state"] == "completed"


def test_the_server_keeps_its_identity_and_its_job_numbers(env: AweEnv) -> None:
    before = env.http.get("/health").json()["data"]["server_uuid"]
    first = env.data("GET", f"/job/{env.submit(plain('a'))}")["jid"]
    env.server.restart()
    second = env.data("GET", f"/job/{env.submit(plain('b'))}")["jid"]
    assert env.http.get("/health").json()["data"]["server_uuid"] == before
    assert int(second) == int(first) + 1


def test_a_stop_is_quick_although_clients_and_readers_wait(env: AweEnv, client: FakeClient) -> None:
    job_id = env.submit(plain("waits", width=1))
    client.fetch()
    client.patience_s = 0.0
    waits = [
        threading.Thread(target=_ignore, args=(lambda: client.exchange(want=1, wait_s=50),)),
        threading.Thread(target=_ignore, args=(lambda: env.http.get(f"/job/{job_id}?wait_s=50"),)),
        threading.Thread(target=_ignore, args=(lambda: list(follow(env)),)),
    ]
    for wait in waits:
        wait.start()
    time.sleep(0.3)  # both are waiting by now, or the stop comes first: quick in either case
    began = time.monotonic()
    env.server.stop()
    assert time.monotonic() - began < 20  # of the 50 that they would wait
    for wait in waits:
        wait.join(30)
        assert not wait.is_alive()


def follow(env: AweEnv) -> Iterator[str]:
    """The stream of events."""
    with env.http.stream("GET", "/events", headers={"Accept": "text/event-stream"}) as stream:
        yield from stream.iter_lines()


def _ignore(call: object) -> None:
    try:
        call()  # type: ignore[operator]
    except Exception:  # noqa: BLE001 - the test is about when it ends, not how
        return


def test_L_11_a_server_that_was_suspended_takes_no_lease_away(env: AweEnv, client: FakeClient) -> None:
    """The time in which the server heard nobody is not the clients' fault."""
    env.server.stop()
    lease_s = 6.0
    env.server.flags = ["--lease-s", str(lease_s)]
    env.server.start()
    env.submit(plain("long"))
    (grant,) = client.fetch()
    env.server.running.pause()
    time.sleep(1.5 * lease_s)
    env.server.running.resume()
    client.exchange()
    assert list(client.held) == [grant.work]


def test_D_07_a_lease_of_before_the_restart_runs_out_when_its_client_is_gone(
    env: AweEnv, client: FakeClient
) -> None:
    env.server.stop()
    env.server.flags = ["--lease-s", "4"]  # the second client keeps its own until it reports
    env.server.start()
    job_id = env.submit(plain("taken over"))
    (grant,) = client.fetch()
    env.server.restart()
    other = FakeClient(env.server.url, name="other")
    other.register()
    eventually_sync(lambda: bool(other.fetch(wait_s=1)))
    (taken,) = other.held.values()
    assert taken.work == grant.work
    assert taken.attempt > grant.attempt
    late = client.exchange(reports=[client.done(grant)]) if client.register() else {}
    assert late["results"][0]["result"] == "lease_lost"
    other.exchange(reports=[other.done(taken)])
    assert env.wait_for(job_id)["state"] == "completed"
    other.close()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_work_of_twenty_clients_goes_on_with_the_same_attempts(env: AweEnv, how: str) -> None:
    """D-07, wide: each of 20 clients has two ranks out and reports them to the next server, the only one."""
    job_id = env.submit(plain("wide", width=40))
    clients = [FakeClient(env.server.url, name=f"c{number}") for number in range(20)]
    for client in clients:
        client.register()
        assert len(client.fetch(want=2)) == 2
    held = {grant.work: (grant.attempt, grant.token) for client in clients for grant in client.held.values()}
    getattr(env.server, how)()
    env.server.start()
    for client in clients:
        assert client.exchange(want=2)["work"] == [], "nothing is left to be given"
    assert held == {g.work: (g.attempt, g.token) for client in clients for g in client.held.values()}
    for client in clients:
        reply = client.exchange(reports=[client.done(grant) for grant in client.held.values()])
        assert [result["result"] for result in reply["results"]] == ["accepted"] * 2
        client.close()
    env.wait_for(job_id)
    works = env.data("GET", f"/work?jobid={job_id}&limit=100")
    assert [work["attempt"] for work in works] == [1] * 40


def test_who_never_returns_loses_its_work_after_one_grace_and_not_before(
    env: AweEnv, client: FakeClient
) -> None:
    lease_s = 6.0
    env.server.stop()
    env.server.flags = ["--lease-s", str(lease_s)]
    env.server.start()
    env.submit(plain("left behind"))
    (grant,) = client.fetch()
    time.sleep(lease_s / 2)  # of the lease half is over: that does not count
    env.server.kill()
    began_s = time.time()
    env.server.start()
    ready_s = time.time()
    other = FakeClient(env.server.url, name="other")
    other.register()
    eventually_sync(lambda: bool(other.fetch(wait_s=1)))
    (taken,) = other.held.values()
    other.close()
    assert (taken.work, taken.attempt) == (grant.work, grant.attempt + 1)
    (missed,) = (event for event in env.events() if event["code"] == "CU" and client.id in event.values())
    lost_s = parse_rfc3339(missed["time"])
    assert began_s + lease_s <= lost_s < ready_s + 2 * lease_s
