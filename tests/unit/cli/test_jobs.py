"""`awe jobs`: one line for each job."""

import pytest

from awe_client.cli.jobs import _row
from shared_models.faces import JobRow


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (
            {"job_state": "in-progress", "totalwork": 40_000, "remainwork": 30_000},
            ("in-progress", "10000/40000"),
        ),
        ({"job_state": "completed", "totalwork": 0, "remainwork": 0}, ("completed", "0/0")),
        ({"state": ["queued", "in-progress", "queued"]}, ("queued, in-progress", "")),
    ],
    ids=["on its way", "without work", "of the original server"],
)
def test_a_line_says_how_far_the_job_is(found: dict[str, object], shown: tuple[str, str]) -> None:
    _, state, done, *_ = _row(JobRow.model_validate({"jid": "1", **found}))
    assert (str(state), done) == shown
