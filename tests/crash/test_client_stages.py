"""kill -9 of a client at every stage of its work, alone or with its executors, and its next start.

Nothing that it has finished is lost or done twice, nothing that it had begun is left: neither processes, nor
directories, nor half an output.
"""

import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import tally
from tests.support.env import AweEnv, Process
from tests.support.eventually import eventually_sync
from tests.support.fault_proxy import FaultProxy
from tests.support.faults import ALWAYS
from tests.support.served import Seen
from tests.unit.client.processes import marked

RANKS = 3
#: Of each rank's output; all of one attempt, or the output is not whole.
LINES = 2_000
#: After the reply to a report has passed, the client is killed so much later: before, while and after it
#: writes down that the server has it.
MOMENTS_S = (0.0, 0.001, 0.003, 0.008, 0.02, 0.06)


@pytest.fixture(scope="module")
def site() -> Iterator[AweEnv]:
    """A server; each test has a client of its own, with its own group and way to the server."""
    with AweEnv.temporary() as env:
        env.server.start()
        yield env


class Scene:
    """A client that is killed and started again on one work directory."""

    def __init__(self, site: AweEnv, home: Path, proxy: FaultProxy) -> None:
        self.site, self.home, self.proxy = site, home, proxy
        self.group = "g" + secrets.token_hex(4)
        self.work = home / "work"
        self.slots = RANKS
        self.client: Process | None = None
        self.job = ""
        self.rounds = 0

    def start(self) -> None:
        """The client, if it does not run."""
        if self.client is not None and self.client.returncode is None:
            return
        flags = ("--work", str(self.work), "--grace", "0.2", "--free-floor", "0")
        self.client = self.site.start_client(
            *flags, slots=self.slots, group=self.group, server=self.proxy.url
        )

    def stop(self) -> None:
        """In good order: the client has nothing to wait for."""
        if self.client is not None:
            self.client.stop()

    def submit(self) -> None:
        """A job that reads an input, and whose ranks write half an output until they may go on."""
        self.rounds += 1
        (self.home / str(self.rounds)).mkdir()
        node = self.site.data("POST", "/node", files={"upload": ("data", secrets.token_bytes(1000))})["id"]
        script = [
            f'echo "$AWE_RANK $AWE_ATTEMPT" >> {self.log}',
            "test $(wc -c < data) = 1000 || exit 9",
            "test -e out && exit 8",
            "echo half > out",
            f"until [ -e {self.go} ]; do sleep 0.02; done",
            f'yes "rank $AWE_RANK attempt $AWE_ATTEMPT" | head -n {LINES} > out',
        ]
        task = {
            "taskid": "0",
            "cmd": {"cmd_script": script},
            "totalwork": RANKS,
            "partinfo": {"index": "none"},
            "inputs": [{"filename": "data", "node": node, "cache": True}],
            "outputs": [{"filename": "out"}],
        }
        self.log.touch()
        self.job = self.site.submit({"info": {"clientgroups": self.group}, "tasks": [task]})

    @property
    def log(self) -> Path:
        return self.home / str(self.rounds) / "starts.log"

    @property
    def go(self) -> Path:
        return self.home / str(self.rounds) / "go"

    @property
    def spooled(self) -> bytes:
        path = self.work / "spool" / "reports.log"
        return path.read_bytes() if path.exists() else b""

    def until(self, condition: Callable[[], bool]) -> None:
        eventually_sync(condition, show=self.running.output)

    @property
    def running(self) -> Process:
        assert self.client is not None, "not started"
        return self.client

    def begun(self, ranks: int) -> bool:
        return len(self.log.read_text().splitlines()) >= ranks

    def kill(self, stage: str, *, with_executors: bool) -> None:
        """Nobody of them does anything after the others are gone."""
        if with_executors:
            self.running.pause()
            for executor in marked(str(self.work / "fresh")):
                if executor != self.running.pid:
                    os.kill(executor, signal.SIGKILL)
                    tally.count(f"kill executor, {stage}")
        self.running.kill(f"kill client{' and executors' if with_executors else ''}, {stage}")

    def check(self) -> None:
        """The job ends well; every rank's output is that of its one accepted attempt; nothing is left."""
        self.until(lambda: "registered" in self.running.output())
        done = self.site.wait_for(self.job)
        units = self.site.data("GET", "/work", params={"query": "", "jobid": self.job})
        attempts = {unit["rank"]: unit["attempt"] for unit in units}
        assert sorted(attempts) == list(range(1, RANKS + 1))
        assert {unit["state"] for unit in units} == {"completed"}
        merged = self.site.http.get(f"/node/{done['tasks'][0]['outputs'][0]['node']}?download").text
        whole = (f"rank {rank} attempt {attempts[rank]}\n" * LINES for rank in sorted(attempts))
        assert merged == "".join(whole)
        events = self.site.data("GET", "/events", params={"job": self.job})
        accepted = [event["workid"] for event in events if event["code"] == "WD"]
        assert sorted(accepted) == sorted(unit["id"] for unit in units)
        ran = [tuple(map(int, line.split())) for line in self.log.read_text().splitlines()]
        assert len(set(ran)) == len(ran), "no attempt runs twice"
        assert max(attempts.values()) <= 2, "of one kill"
        self.until(lambda: not self.spooled)
        self.until(lambda: not list(self.work.glob("attempts/??/??/??/*")))
        self.until(lambda: not marked(self.job))


Stage = Callable[[Scene], None]


def registering(scene: Scene) -> None:
    scene.stop()
    scene.proxy.faults.stall(method="POST", where="/client")
    scene.start()
    scene.submit()
    scene.until(lambda: scene.proxy.faults.stalled > 0)


def fetching_inputs(scene: Scene) -> None:
    scene.proxy.faults.stall(method="GET", where="/node/")
    scene.start()
    scene.submit()
    scene.until(lambda: scene.proxy.faults.stalled > 0)


def staged_before_the_start(scene: Scene) -> None:
    scene.slots = 1
    scene.start()
    scene.submit()
    scene.until(lambda: scene.begun(1) and len(list(scene.work.glob("attempts/??/??/??/*/data"))) > 1)


def running(scene: Scene) -> None:
    scene.start()
    scene.submit()
    scene.until(lambda: scene.begun(RANKS))


def pushing(scene: Scene) -> None:
    scene.proxy.faults.stall(method="PUT", where="/node/")
    scene.start()
    scene.submit()
    scene.go.touch()
    scene.until(lambda: scene.proxy.faults.stalled > 0)


def half_pushed(scene: Scene) -> None:
    before = scene.proxy.counts["cut-request"]
    scene.proxy.faults.cut_request(10_000, ALWAYS, method="PUT", where="/node/")
    scene.start()
    scene.submit()
    scene.go.touch()
    scene.until(lambda: scene.proxy.counts["cut-request"] > before)


def spooled_not_reported(scene: Scene) -> None:
    scene.start()
    scene.submit()
    scene.until(lambda: scene.begun(RANKS))
    scene.proxy.faults.fail(503, ALWAYS, method="POST", where="/exchange")
    scene.go.touch()
    scene.until(lambda: scene.spooled.count(b'{"r":') == RANKS)


def reply_lost(scene: Scene) -> None:
    before = scene.proxy.dropped
    scene.proxy.drops = has_results
    scene.start()
    scene.submit()
    scene.go.touch()
    scene.until(lambda: scene.proxy.dropped > before)


def has_results(seen: Seen, reply: httpx.Response) -> bool:
    """Whether a reply tells what became of reports."""
    return (
        seen.path.endswith("/exchange")
        and reply.status_code == 200
        and bool(reply.json()["data"].get("results"))
    )


STAGES: dict[str, Stage] = {
    "registering": registering,
    "fetching inputs": fetching_inputs,
    "staged, before the start": staged_before_the_start,
    "running": running,
    "pushing": pushing,
    "half pushed": half_pushed,
    "spooled, not reported": spooled_not_reported,
    "reported, reply lost": reply_lost,
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_client_killed_at_any_stage_loses_nothing_and_leaves_nothing(
    site: AweEnv, tmp_path: Path, stage: str
) -> None:
    with FaultProxy(site.server.url) as proxy:
        scene = Scene(site, tmp_path, proxy)
        for with_executors in (False, True):
            STAGES[stage](scene)
            scene.kill(stage, with_executors=with_executors)
            proxy.drops = None
            proxy.clear()
            scene.go.touch()
            scene.start()
            scene.check()
        scene.stop()


@pytest.mark.parametrize("with_executors", [False, True], ids=["daemon", "daemon and executors"])
def test_a_client_killed_while_it_hears_that_its_result_was_accepted_forgets_it_once(
    site: AweEnv, tmp_path: Path, with_executors: bool
) -> None:
    with FaultProxy(site.server.url) as proxy:
        scene = Scene(site, tmp_path, proxy)
        scene.start()
        for moment_s in MOMENTS_S:
            answered = threading.Event()

            def passes(seen: Seen, reply: httpx.Response, answered: threading.Event = answered) -> bool:
                if has_results(seen, reply):
                    answered.set()
                return False

            proxy.drops = passes
            scene.submit()
            scene.go.touch()
            scene.until(answered.is_set)
            threading.Event().wait(moment_s)
            scene.kill("acknowledged, spool not cleared", with_executors=with_executors)
            proxy.drops = None
            scene.start()
            scene.check()
        scene.stop()


def test_results_of_a_killed_client_are_those_it_spooled(site: AweEnv, tmp_path: Path) -> None:
    """What is in the spool is told as it is, and no rank of it begins again."""
    with FaultProxy(site.server.url) as proxy:
        scene = Scene(site, tmp_path, proxy)
        spooled_not_reported(scene)
        scene.kill("spooled, not reported", with_executors=True)
        proxy.clear()
        scene.start()
        scene.check()
        units: list[dict[str, Any]] = site.data("GET", "/work", params={"query": "", "jobid": scene.job})
        assert {unit["attempt"] for unit in units} == {1}
        scene.stop()
