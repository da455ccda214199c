"""Identifiers: every kind of id is its own type, so mypy catches a swapped argument.

Forms (AWE §4.11): job, client, node = uuid4 text; task = `<job>_<name>`; workunit = `<job>_<name>_<rank>`.
A task name may contain `_`: the job id is the text before the first `_`, the rank the text after the last.
"""

import base64
import binascii
import uuid
from typing import NewType

from shared_models.errors import BadRequest

JobId = NewType("JobId", str)
TaskId = NewType("TaskId", str)
WorkunitId = NewType("WorkunitId", str)
ClientId = NewType("ClientId", str)
NodeId = NewType("NodeId", str)

_KEPT = uuid.UUID("6f1c2f4e-5a0b-4f0e-9d53-6b1f3a1d8c27")


def make_task_id(job_id: JobId, name: str) -> TaskId:
    """Join a job id and a task name."""
    return TaskId(f"{job_id}_{name}")


def make_workunit_id(task_id: TaskId, rank: int) -> WorkunitId:
    """Join a task id and a rank (0 = the only workunit, 1..N = one of a split)."""
    return WorkunitId(f"{task_id}_{rank}")


def split_task_id(task_id: str) -> tuple[JobId, str]:
    """Take a task id apart into job id and task name.

    Raises BadRequest if the text is not of the form `<job>_<name>`.
    """
    job_id, separator, name = task_id.partition("_")
    if not (job_id and separator and name):
        raise BadRequest(f"'{task_id[:200]}' is not a task id: expected <job>_<task>")
    return JobId(job_id), name


def split_workunit_id(workunit_id: str) -> tuple[TaskId, int]:
    """Take a workunit id apart into task id and rank.

    Raises BadRequest if the text is not of the form `<job>_<task>_<rank>`.
    """
    task_id, _, rank = workunit_id.rpartition("_")
    if not (rank.isascii() and rank.isdigit() and len(rank) <= 10 and "_" in task_id):
        raise BadRequest(f"'{workunit_id[:200]}' is not a workunit id: expected <job>_<task>_<rank>")
    split_task_id(task_id)
    return TaskId(task_id), int(rank)


def task_of(workunit_id: WorkunitId) -> TaskId:
    """The task of a workunit whose id is known to be one."""
    return TaskId(workunit_id.rpartition("_")[0])


def kept_node_id(workunit_id: WorkunitId, attempt: int) -> str:
    """The node of what a failed attempt left: always the same, so that its upload may be repeated."""
    return str(uuid.uuid5(_KEPT, f"{workunit_id}/{attempt}"))


def decode_workunit_id(text: str) -> WorkunitId:
    """Read a workunit id from a URL, plain or as `base64:<standard base64>` (AWE §3.3).

    Raises BadRequest if it is neither.
    """
    if text.startswith("base64:"):
        try:
            text = base64.b64decode(text[7:], validate=True).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError) as exc:
            raise BadRequest(f"error decoding base64 workunit identifier: {text[:200]}") from exc
    split_workunit_id(text)
    return WorkunitId(text)
