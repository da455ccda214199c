"""Clients that are thought dead, are dead, come back, or are only busy: each workunit is done once."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.crash.documents import plain
from tests.support.env import AweEnv, Process
from tests.support.eventually import eventually_sync

#: Short enough to wait for; longer than a client stands still on a machine that is busy with other things.
LEASE_S = 8


class Marks:
    """Where commands say that they have begun, and wait until they may end."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._log = folder, folder / "starts"
        self._log.touch()

    def task(self, wait: bool = True, **keys: Any) -> dict[str, Any]:
        """A task whose attempts say `rank attempt pid`, write their number to `out`, wait for `let_go`."""
        script = [f'echo "$AWE_RANK $AWE_ATTEMPT $$" >> {self._log}', 'echo "$AWE_ATTEMPT" > out']
        if wait:
            go = f"{self._folder}/go.$AWE_ATTEMPT"
            script.append(f"until [ -e {go} ]; do sleep 0.05; done")
        return {"taskid": "0", "cmd": {"cmd_script": script}, "outputs": [{"filename": "out"}], **keys}

    def let_go(self, attempt: int) -> None:
        (self._folder / f"go.{attempt}").touch()

    @property
    def starts(self) -> list[str]:
        """`rank attempt` of each start, in order."""
        return [line.rpartition(" ")[0] for line in self._log.read_text().splitlines()]

    def pid(self, start: int) -> int:
        return int(self._log.read_text().splitlines()[start].split()[2])

    def wait_for(self, count: int, *clients: Process) -> None:
        eventually_sync(
            lambda: len(self.starts) >= count, show=lambda: [client.output() for client in clients]
        )


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    return Marks(tmp_path)


def client_named(env: AweEnv, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [c for c in env.data("GET", "/client") if c["name"] == name]
    return found[0] if found else {}


def output(env: AweEnv, job: dict[str, Any]) -> str:
    return env.http.get(f"/node/{job['tasks'][0]['outputs'][0]['node']}?download").text


def told_to_end(client: Process) -> bool:
    """Send SIGTERM once more, as an impatient site does; whether it has ended."""
    if client.returncode is None:
        os.kill(client.pid, signal.SIGTERM)
    return client.returncode is not None


def nobody_was_missed(env: AweEnv) -> None:
    """No client went offline, no workunit was queued again."""
    assert not [event for event in env.events() if event["code"] in ("CU", "WR")]


@pytest.mark.parametrize("when", ["it runs", "before", "after"])
def test_L_01_a_client_that_was_thought_dead_stops_what_another_does_now(marks: Marks, when: str) -> None:
    """Its command runs on, or has ended before or after that of the other; then it wakes up."""
    with AweEnv.temporary(flags=["--lease-s", str(LEASE_S)]) as env:
        env.server.start()
        zombie = env.start_client("--name", "zombie", "--grace", "1", slots=1)
        job_id = env.submit({"tasks": [marks.task()]})
        marks.wait_for(1, zombie)
        zombie.pause()
        other = env.start_client("--name", "other", slots=1)
        marks.wait_for(2, other)
        if when != "it runs":
            marks.let_go(1)
        if when == "after":
            marks.let_go(2)
            env.wait_for(job_id)
        zombie.resume()
        left = env.home / "client-1" / "attempts"

        def has_cleaned_up() -> bool:
            is_gone = not Path(f"/proc/{marks.pid(0)}").exists()
            return is_gone and not list(left.glob("??/??/??/*"))

        eventually_sync(has_cleaned_up, show=zombie.output)
        eventually_sync(lambda: client_named(env, "zombie")["Status"] == "active-idle", show=zombie.output)
        marks.let_go(2)
        job = env.wait_for(job_id)
        assert (output(env, job), marks.starts) == ("2\n", ["0 1", "0 2"])
        work = env.data("GET", f"/work/{job_id}_0_0")
        assert (work["attempt"], work["client"]) == (2, client_named(env, "other")["id"])
        assert client_named(env, "zombie")["total_completed"] == 0
        # It asks for new work.
        other.stop()
        again = env.wait_for(env.submit({"tasks": [marks.task(wait=False)]}))
        assert output(env, again) == "1\n"
        assert client_named(env, "zombie")["total_completed"] == 1


@pytest.mark.parametrize(("work", "lease_s"), [("the same", 600), ("a new", LEASE_S)])
def test_L_02_a_client_that_was_killed_comes_back_under_its_name(
    marks: Marks, work: str, lease_s: int
) -> None:
    """By its work directory it is the same one, and everything of the old one is queued at once. With a new
    one it is another: what it does keeps no lease of the old one alive.
    """
    with AweEnv.temporary(flags=["--lease-s", str(lease_s)]) as env:
        env.server.start()
        folders = [env.home / "w1", env.home / ("w1" if work == "the same" else "w2")]
        killed = env.start_client("--name", "node1", "--work", str(folders[0]), slots=2)
        job_id = env.submit({"tasks": [marks.task(totalwork=2)]})
        marks.wait_for(2, killed)
        other_job = env.submit(plain("other work"))
        killed.kill()
        env.start_client("--name", "node1", "--work", str(folders[1]), slots=2)
        marks.let_go(2)
        env.wait_for(other_job)
        job = env.wait_for(job_id)
        assert sorted(marks.starts) == ["1 1", "1 2", "2 1", "2 2"]
        assert output(env, job) == "2\n2\n"
        named = [client for client in env.data("GET", "/client") if client["name"] == "node1"]
        assert len(named) == (1 if work == "the same" else 2)
        units = [env.data("GET", f"/work/{job_id}_0_{rank}") for rank in (1, 2)]
        assert [(unit["failed"], unit["lost"]) for unit in units] == [(0, 1)] * 2


def test_L_04_work_longer_than_the_lease_starts_once(marks: Marks) -> None:
    with AweEnv.temporary(flags=["--lease-s", str(LEASE_S)]) as env:
        env.server.start()
        clients = [env.start_client("--name", f"c{i}", slots=1) for i in range(5)]
        eventually_sync(lambda: len(env.data("GET", "/client")) == 5)
        job_id = env.submit({"tasks": [marks.task()]})
        marks.wait_for(1, *clients)
        time.sleep(2 * LEASE_S + 1)
        marks.let_go(1)
        job = env.wait_for(job_id)
        assert (marks.starts, output(env, job)) == (["0 1"], "1\n")
        nobody_was_missed(env)


def test_L_04_what_waits_in_a_client_for_longer_than_the_lease_starts_once(marks: Marks) -> None:
    """Fetched ahead while the only slot is taken; then others come who have nothing to do."""
    with AweEnv.temporary(flags=["--lease-s", str(LEASE_S)]) as env:
        env.server.start()
        holder = env.start_client("--name", "holder", slots=1)
        job_id = env.submit({"tasks": [marks.task(totalwork=2)]})
        eventually_sync(
            lambda: len(client_named(env, "holder").get("current_work", {}).get("data", ())) == 2,
            show=holder.output,
        )
        for _ in range(4):
            env.start_client(slots=1)
        eventually_sync(lambda: len(env.data("GET", "/client")) == 5)
        time.sleep(LEASE_S + 2)
        assert len(marks.starts) == 1, "the other one waits for the slot"
        marks.let_go(1)
        env.wait_for(job_id)
        assert sorted(marks.starts) == ["1 1", "2 1"]
        nobody_was_missed(env)


def test_L_08_a_client_lost_on_the_last_allowed_attempt_suspends_the_job(marks: Marks) -> None:
    reads = [{"filename": "out", "origin": "0"}]
    child = {"taskid": "1", "cmd": {"cmd_script": ["cat out"]}, "inputs": reads}
    with AweEnv.temporary(flags=["--lease-s", str(LEASE_S)], server_env={"AWE_MAX_LOST": "2"}) as env:
        env.server.start()
        job_id = env.submit({"tasks": [marks.task(), child]})
        for attempt in (1, 2):
            client = env.start_client("--name", f"lost{attempt}", slots=1)
            marks.wait_for(attempt, client)
            client.kill()
        job = env.wait_for(job_id, "suspend")
        work = env.data("GET", f"/work/{job_id}_0_0")
        lost_id = client_named(env, "lost2")["id"]
        assert (work["state"], work["lost"], work["failed"]) == ("suspend", 2, 0)
        assert (work["exit"]["kind"], work["exit"]["message"]) == ("lost", f"client {lost_id} was lost")
        assert "was lost with its client 2 time(s)" in job["notes"]
        assert job["lastfailed"] == f"{job_id}_0_0"
        assert [task["state"] for task in job["tasks"]] == ["suspend", "pending"]
        env.start_client("--name", "third", slots=1)
        eventually_sync(lambda: bool(client_named(env, "third")))
        time.sleep(1)
        assert marks.starts == ["0 1", "0 2"], "nothing of a suspended job starts"
        assert [client["busy"] for client in env.data("GET", "/client")] == [False] * 3
        marks.let_go(3)
        env.data("PUT", f"/job/{job_id}?resume")
        job = env.wait_for(job_id)
        assert (marks.starts, output(env, job)) == (["0 1", "0 2", "0 3"], "3\n")


def test_L_08_a_client_that_is_told_to_end_and_does_not_come_back_leaves_nothing_in_progress(
    marks: Marks,
) -> None:
    """Also on what would be the last attempt: nobody was lost."""
    with AweEnv.temporary(server_env={"AWE_MAX_LOST": "1"}) as env:
        env.server.start()
        client = env.start_client("--name", "ended", slots=1)
        job_id = env.submit({"tasks": [marks.task()]})
        marks.wait_for(1, client)
        eventually_sync(lambda: told_to_end(client), every_s=0.2, show=client.output)
        client.wait()  # whichever of these signals it was that ended it
        work = env.data("GET", f"/work/{job_id}_0_0")
        assert (work["state"], work["lost"], work["failed"]) == ("queued", 0, 0)
        assert client_named(env, "ended")["Status"] == "offline"
        assert "no live client (1 offline)" in [
            row["reason"] for row in env.data("GET", f"/job/{job_id}?why")
        ]
        marks.let_go(2)
        env.start_client(slots=1)
        assert output(env, env.wait_for(job_id)) == "2\n"
