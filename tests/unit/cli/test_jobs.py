"""`awe jobs`: one line for each job."""

import pytest

from awe_client.cli.jobs import _row
from shared_models.views import JobView

TWO = [{"totalwork": 3, "remainwork": 1}, {"totalwork": 1, "remainwork": 1}]


@pytest.mark.parametrize(
    ("found", "done"),
    [
        ({"tasks": TWO, "remaintasks": 2}, "2/4"),
        ({"tasks_omitted": 20_001, "remaintasks": 19_000}, "1001/20001 tasks"),
    ],
    ids=["workunits", "too many tasks for a list"],
)
def test_a_line_says_how_far_the_job_is(found: dict[str, object], done: str) -> None:
    assert _row(JobView.model_validate({"jid": "1", "state": "queued", **found}))[2] == done
