"""`awe jobs`: one line for each job; `awe show`: what is known of one."""

import pytest

from awe_client.cli.jobs import _facts, _row
from shared_models.faces import JobRow
from shared_models.views import JobView


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


def test_a_job_that_is_to_go_says_when() -> None:
    job = {"id": "j", "jid": "1", "state": "suspend"}
    at = "2026-12-31T10:11:12.345Z"
    shown = dict(_facts(JobView.model_validate({**job, "expiration": at})))
    assert shown["expires"] == "2026-12-31T10:11:12Z"
    assert "expires" not in dict(_facts(JobView.model_validate(job)))
