"""Whose work needs a node now: until that is over, its content stays what it is, and it stays there.

Attempts that read before and after a change would add up to no file at all, and nothing could tell. Whoever
wants other content makes another node (Shock's nodes with a file never change), or suspends the job first:
whatever goes on then is compared with what was cut. An output that is gone cannot be made again by any
`resume`, so it stays until its job has ended.
"""

from collections.abc import Iterator

from awe_server.scheduler.named_nodes import parent_node
from awe_server.scheduler.state import ENDED_JOBS, RUNNING_TASKS, State, Task
from shared_models.errors import Conflict
from shared_models.ids import JobId
from shared_models.states import JobState


def check_unread(state: State, node_id: str) -> None:
    """Raises Conflict if a task that is looked at, waits or runs reads the node, or makes outputs from it."""
    for task in state.named_nodes.of(node_id):
        if _goes_on(task) and node_id in read_by(task):
            raise Conflict(
                f"node {node_id} is an input of task {task.id}, which is {task.state.value}: "
                "make a new node, or suspend the job first"
            )


def check_unneeded(state: State, node_id: str) -> None:
    """Raises Conflict if a job that has not ended needs the node: as an output, or, unless the job is
    suspended, to read it.
    """
    for task in state.named_nodes.of(node_id):
        job = task.job
        if job.state in ENDED_JOBS:
            continue
        whose = f"task {task.id} of job {job.id}, which is {job.state.value}"
        if node_id in made_by(task):
            raise Conflict(
                f"node {node_id} is an output of {whose}: it can be deleted when the job has ended"
            )
        is_still = job.state is JobState.SUSPEND and not _goes_on(task)
        if not is_still and node_id in read_by(task):
            raise Conflict(
                f"node {node_id} is an input of {whose}: it can be deleted when the job has ended, or is "
                "suspended"
            )


def users_of(state: State, node_id: str) -> Iterator[JobId]:
    """The jobs that have not ended and have the node among their files, suspended ones included."""
    for task in state.named_nodes.of(node_id):
        if task.job.state not in ENDED_JOBS and (node_id in made_by(task) or node_id in read_by(task)):
            yield task.job.id


def made_by(task: Task) -> Iterator[str]:
    """The nodes here of a task's outputs: where they are, and where they wait to be delivered."""
    for io in task.outputs:
        if not io["host"]:
            yield io["node"]
        if staging := io.get("_staging"):
            yield staging


def read_by(task: Task) -> Iterator[str]:
    """The nodes here that a task is given, and those that its outputs are made from."""
    for ios in (task.inputs, task.predata):
        for io in ios:
            if not io["host"]:
                yield io["node"]
    for io in task.outputs:
        if parent := parent_node(io):
            yield parent


def _goes_on(task: Task) -> bool:
    return task.preparing or task.state in RUNNING_TASKS
