"""What is said while a job is watched, and at its end."""

from typing import Any, cast

import pytest

from awe_client.api import AweClient
from awe_client.cli.watch import Bars, watch_job, ways_out
from shared_models.faces import JobProgress
from shared_models.views import JobView, QueueCounts


def progress(job: str = "in-progress", **task: Any) -> JobProgress:
    return JobProgress.model_validate({"jid": "1", "state": job, "tasks": [{"task_name": "run", **task}]})


def test_each_note_of_a_task_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    bars = Bars()
    bars.show(progress())
    for remain in (1, 1, 0):
        bars.show(progress(notes="not split: r.gz is packed", remainwork=remain))
    bars.show(progress(notes=["not split: r.gz is packed", "more"]))
    bars.show(progress("suspend", state="suspend", notes="workunit x: exit code 1"))
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("task ")]
    assert told == [
        "task run: not split: r.gz is packed",
        "task run: not split: r.gz is packed; more",
    ]


class Site:
    """A server whose job ends after some looks; how many clients it hears of at each."""

    def __init__(self, clients: list[int]) -> None:
        self.clients = clients
        self.waits: list[float] = []

    def wait_job(self, job_id: str, *, timeout_s: float, on_change: object) -> JobView:
        self.waits.append(timeout_s)
        state = "in-progress" if len(self.waits) <= len(self.clients) else "completed"
        return JobView.model_validate({"id": job_id, "state": state, "tasks": []})

    def queue_counts(self) -> QueueCounts:
        return QueueCounts(clients={"total": self.clients[len(self.waits) - 1], "offline": 2})


@pytest.mark.parametrize(
    ("clients", "told"),
    [([0, 0], 1), ([1, 0, 0], 1), ([0, 1, 0], 1), ([], 0), ([2, 3], 0)],
    ids=["at once", "later", "comes and goes", "it ends first", "never"],
)
def test_that_no_client_is_online_is_told_once(
    clients: list[int], told: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(clients)
    assert watch_job(cast(AweClient, site), "J", as_json=False) == 0
    lines = capfd.readouterr().err.splitlines()
    assert sum(line.startswith("no client is online") for line in lines) == told
    assert sum(line.startswith("nothing was finished for 30 s: awe why J") for line in lines) <= 1
    assert site.waits[0] < 10


def suspended(reason: str, **error: str) -> list[str]:
    job = {"id": "J", "state": "suspend", "notes": reason, "error": {"servernotes": reason, **error}}
    return ways_out(JobView.model_validate(job))


@pytest.mark.parametrize(
    "reason",
    [
        "failed enqueuing task J_t, err=input file a not available: node 1234 does not exist",
        "failed enqueuing task J_t, err=paired inputs differ: a has 3 records, b has 4 records",
        "failed enqueuing task J_t, err=a has 3 records, no multiple of 2 (partinfo.options)",
        "failed finishing task J_t, err=output out/: ranks 1 and 2 both made 'x'",
    ],
)
def test_resume_is_not_proposed_where_it_cannot_help(reason: str) -> None:
    assert suspended(reason) == ["resuming it would not help: awe rm J, and submit it mended"]


def test_an_output_that_was_not_made_may_be_made_when_its_task_runs_again() -> None:
    made = (
        "input file m not available: task 'maker' was completed without making it (optional or nofile there)"
    )
    assert suspended(made)[1] == "or, if task maker makes it when it runs again: awe recompute J maker"


def test_both_are_proposed_where_the_cause_may_lie_outside() -> None:
    for reason, error in (
        ("manually suspended", {}),
        ("workunit J_t_0 failed 3 time(s)", {"workfailed": "J_t_0", "worknotes": "x does not exist"}),
    ):
        first, second = suspended(reason, **error)
        assert first.endswith("awe resume J")
        assert second.startswith("if the job itself is wrong: awe rm J")
