"""The server is away for longer than the work takes: what ended meanwhile arrives in order, once, whole."""

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.env import AweEnv, Process
from tests.support.eventually import eventually_sync
from tests.support.fault_proxy import FaultProxy
from tests.support.faults import ALWAYS
from tests.support.served import Seen
from tests.unit.client.processes import marked

#: Of each of two tasks, one with outputs and one without.
RANKS = 10
AWAY_S = 14.0
#: Shorter than the server is away; longer than any pause of a client that has lost it.
LEASE_S = 10.0


class Work:
    """A job whose ranks end when they are told to, and what its client has on its disk."""

    def __init__(self, env: AweEnv, home: Path) -> None:
        self._env, self.home = env, home
        self.log, self.folder = home / "starts.log", home / "work"
        self.log.touch()

    def task(self, name: str, ranks: int, *, with_output: bool, waits: str = "true") -> dict[str, Any]:
        """Ranks that end once there is a file `NAME.RANK`, if they wait at all."""
        go = f"{self.home}/{name}.$AWE_RANK"
        script = [
            f'echo "{name} $AWE_RANK $AWE_ATTEMPT" >> {self.log}',
            f"if {waits}; then until [ -e {go} ]; do sleep 0.02; done; fi",
            'echo "rank $AWE_RANK attempt $AWE_ATTEMPT" > out',
        ]
        outputs = [{"filename": "out"}] if with_output else []
        parts = {"totalwork": ranks, "partinfo": {"index": "none"}}
        return {"taskid": name, "cmd": {"cmd_script": script}, "outputs": outputs, **parts}

    def start(self, *tasks: dict[str, Any], ranks: int, server: str = "") -> tuple[str, Process]:
        """Submit, start a client that runs all at once, and wait until it does."""
        job = self._env.submit({"info": {"name": "away"}, "tasks": list(tasks)})
        flags = ("--work", str(self.folder), "--grace", "0.2", "--free-floor", "0")
        client = self._env.start_client(*flags, slots=ranks, server=server)
        eventually_sync(lambda: len(self.begun) >= ranks, show=client.output)
        return job, client

    def let_go(self, name: str, rank: int) -> None:
        (self.home / f"{name}.{rank}").touch()

    @property
    def begun(self) -> list[str]:
        return self.log.read_text().splitlines()

    @property
    def spooled(self) -> int:
        """How many reports lie on the disk."""
        path = self.folder / "spool" / "reports.log"
        return path.read_bytes().count(b'{"r":') if path.exists() else 0

    def nothing_is_left(self, job: str, client: Process) -> None:
        eventually_sync(lambda: not self.spooled, show=client.output)
        eventually_sync(lambda: not list(self.folder.glob("attempts/??/??/??/*")), show=client.output)
        eventually_sync(lambda: not marked(job), show=client.output)


def accepted(env: AweEnv, job: str) -> list[str]:
    """The workunits whose results were taken, in order."""
    events = env.data("GET", "/events", params={"job": job})
    return [event["workid"] for event in events if event["code"] == "WD"]


def text_of(env: AweEnv, task: dict[str, Any]) -> str:
    return env.http.get(f"/node/{task['outputs'][0]['node']}?download").text


@pytest.mark.parametrize("lease_s", [60.0, LEASE_S], ids=["shorter than the lease", "longer than the lease"])
@pytest.mark.parametrize("end", ["kill -9", "stop"])
def test_what_ends_while_the_server_is_away_arrives_afterwards_in_order_and_once(
    tmp_path: Path, end: str, lease_s: float
) -> None:
    with AweEnv.temporary(flags=("--lease-s", str(lease_s))) as env:
        env.server.start()
        work = Work(env, tmp_path)
        files = work.task("files", RANKS, with_output=True)
        words = work.task("words", RANKS, with_output=False)
        job, client = work.start(files, words, ranks=2 * RANKS)
        if end == "stop":
            env.server.stop()
        else:
            env.server.kill()
        back_at = time.monotonic() + AWAY_S
        order = [*range(RANKS, 0, -2), *range(1, RANKS, 2)]
        for number, rank in enumerate(order, 1):
            work.let_go("files", rank)
            work.let_go("words", rank)
            # Those with outputs cannot be reported yet: their outputs have nowhere to go.
            eventually_sync(lambda n=number: work.spooled == n, show=client.output)  # type: ignore[misc]
        time.sleep(max(back_at - time.monotonic(), 0.0))
        env.server.start()

        done = env.wait_for(job)
        told = accepted(env, job)
        assert [unit for unit in told if "_words_" in unit] == [f"{job}_words_{rank}" for rank in order]
        assert len(told) == len(set(told)) == 2 * RANKS
        assert sorted(work.begun) == sorted(f"{t} {r} 1" for t in ("files", "words") for r in order)
        whole = "".join(f"rank {rank} attempt 1\n" for rank in sorted(order))
        assert text_of(env, done["tasks"][0]) == whole
        work.nothing_is_left(job, client)
        client.stop()


def test_what_another_client_has_taken_meanwhile_is_refused_and_all_of_it_goes(tmp_path: Path) -> None:
    """Cut off past its lease a client has a command that runs, an output on its way, a spooled result."""
    refused: list[str] = []

    def look(seen: Seen, reply: httpx.Response) -> bool:
        # Before it sends an output again, it asks how much of it has arrived.
        if seen.path.startswith("/node/") and not reply.is_success:
            refused.append(reply.json()["code"])
        return False

    with AweEnv.temporary(flags=("--lease-s", str(LEASE_S))) as env:
        env.server.start()
        with FaultProxy(env.server.url) as way:
            way.drops = look
            work = Work(env, tmp_path)
            first = "[ $AWE_ATTEMPT = 1 ]"
            runs = work.task("runs", 1, with_output=True, waits=first)
            pushes = work.task("pushes", 1, with_output=True, waits=first)
            ended = work.task("ended", 1, with_output=False, waits=first)
            job, client = work.start(runs, pushes, ended, ranks=3, server=way.url)
            way.faults.reset(ALWAYS)
            work.let_go("pushes", 0)
            work.let_go("ended", 0)
            eventually_sync(lambda: work.spooled == 1, show=client.output)
            another = env.start_client("--work", str(tmp_path / "another"), slots=3)
            env.wait_for(job)
            assert len(marked(job)) > 0, "it knows nothing yet"

            way.faults.clear()
            way.faults.reset(ALWAYS, where="/client")  # uploads pass, and tell it first
            eventually_sync(lambda: bool(refused), show=client.output)
            assert set(refused) == {"lease_lost"}
            way.faults.clear()
            work.nothing_is_left(job, client)
            assert "result_refused" in client.output()

        done = env.job(job)
        assert sorted(work.begun) == [f"{task} 0 {n}" for task in ("ended", "pushes", "runs") for n in (1, 2)]
        assert [text_of(env, task) for task in done["tasks"][:2]] == ["rank 0 attempt 2\n"] * 2
        assert len(accepted(env, job)) == 3
        for one in (client, another):
            one.stop()
