"""Many clients, a dashboard and other programs on one SQLite file: nobody is refused, nothing is lost."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx
import pytest

from tests.contract.test_sqlite_contention import beside, wait_until_ready
from tests.crash.documents import plain
from tests.support.env import AweEnv
from tests.support.fake_client import FakeClient
from tests.support.invariants import Ledger
from tests.support.lines import line

RANKS, CLIENTS, AT_ONCE = 2_000, 32, 8
WORK_S = 200.0  #: at most, for all of it
#: 99 of 100 reports are answered within so long, on a machine that runs the rest of the suite beside it. Who
#: has to wait for the reader waits for all of WORK_S.
REPORT_P99_S = 15.0


@dataclass
class Seen:
    """What all of them were answered."""

    statuses: Counter[int] = field(default_factory=Counter)
    accepted: list[str] = field(default_factory=list)
    report_s: list[float] = field(default_factory=list)

    def http(self, url: str) -> httpx.Client:
        """Notes every status, also of what is repeated."""

        def note(reply: httpx.Response) -> None:
            self.statuses[reply.status_code] += 1

        hooks = Ledger.of(url).hooks()
        hooks["response"].append(note)
        return line(url, hooks, 70.0)


def work(url: str, number: int, seen: Seen) -> None:
    client = FakeClient(url, name=f"c{number}", _http=seen.http(url))
    client.register()
    while grants := (list(client.held.values()) or client.fetch(AT_ONCE, wait_s=1.0)):
        reports = [client.done(grant) for grant in grants]
        began_s = time.monotonic()
        reply = client.exchange(reports=reports)
        seen.report_s.append(time.monotonic() - began_s)
        seen.accepted += [row["work"] for row in reply["results"] if row["result"] == "accepted"]
    client.close()


def poll(url: str, seen: Seen, over: threading.Event) -> None:
    with seen.http(url) as http:
        while not over.wait(0.05):
            for path in ("/job?limit=25", "/work?limit=25", "/client", "/queue"):
                http.get(path)


@pytest.mark.slow
def test_D_08_many_clients_beside_a_reader_a_backup_and_a_dashboard_lose_no_report(env: AweEnv) -> None:
    job_id = env.submit(plain("wide", width=RANKS))
    seen, over = Seen(), threading.Event()
    path, url = env.server.data / "awe.sqlite", env.server.url
    reading = ("BEGIN", "SELECT count(*) FROM tasks")
    with beside(path, WORK_S + 60, *reading) as reader, beside(path, 0.0, "VACUUM", "VACUUM") as vacuum:
        wait_until_ready(reader)
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            dashboard = pool.submit(poll, url, seen, over)
            clients = [pool.submit(work, url, number, seen) for number in range(CLIENTS)]
            try:
                for client in clients:
                    client.result(WORK_S)
            finally:
                over.set()
            dashboard.result(60)
        assert reader.poll() is None, "the reader was there all the time"
        assert vacuum.wait(60) == 0
    assert not [status for status in seen.statuses if status >= 500], seen.statuses
    assert (len(seen.accepted), len(set(seen.accepted))) == (RANKS, RANKS)
    assert env.wait_for(job_id)["tasks"][0]["remainwork"] == 0
    env.server.restart()
    where = {"query": "", "jobid": job_id, "state": "completed", "limit": "1"}
    assert env.http.get("/work", params=where).json()["total_count"] == RANKS, "after kill -9, too"
    slowest_s = sorted(seen.report_s)
    assert slowest_s[len(slowest_s) * 99 // 100] < REPORT_P99_S
