"""Ids are taken apart only where they are what they claim to be."""

import base64

import pytest

from shared_models.errors import BadRequest
from shared_models.ids import (
    JobId,
    TaskId,
    decode_workunit_id,
    make_task_id,
    make_workunit_id,
    split_task_id,
    split_workunit_id,
)

JOB = JobId("0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10")


@pytest.mark.parametrize("name", ["0", "my_task", "a.b", "x_1_", "_"])
@pytest.mark.parametrize("rank", [0, 1, 9_999_999])
def test_ids_come_apart_as_they_were_put_together(name: str, rank: int) -> None:
    task_id = make_task_id(JOB, name)
    assert split_task_id(task_id) == (JOB, name)
    assert split_workunit_id(make_workunit_id(task_id, rank)) == (task_id, rank)


@pytest.mark.parametrize("text", ["", "_", "a", "a_", "_a"])
def test_what_is_no_task_id(text: str) -> None:
    with pytest.raises(BadRequest, match="is not a task id: expected <job>_<task>"):
        split_task_id(text)


@pytest.mark.parametrize(
    "text", ["", "a", "a_1", "_1_1", "a_b_", "a_b_x", "a_b_-1", "a_b_١", "a_b_12345678901"]
)
def test_what_is_no_workunit_id(text: str) -> None:
    with pytest.raises(BadRequest, match=r"is not a (workunit|task) id: expected <job>_<task>"):
        split_workunit_id(text)


def test_a_workunit_id_may_come_as_base64() -> None:
    plain = make_workunit_id(TaskId(f"{JOB}_a/b"), 3)
    assert decode_workunit_id(plain) == plain
    assert decode_workunit_id("base64:" + base64.b64encode(plain.encode()).decode()) == plain


@pytest.mark.parametrize("text", ["base64:!!", "base64:/w==", "base64:YQ==", "base64:"])
def test_bad_base64_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        decode_workunit_id(text)
