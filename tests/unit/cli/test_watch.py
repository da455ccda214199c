"""What is said while a job is watched, and at its end."""

from typing import Any

import pytest

from awe_client.cli.watch import Bars
from shared_models.faces import JobProgress


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
