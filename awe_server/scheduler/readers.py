"""Whose work reads a node's content now: until that is over, the content stays what it is.

Attempts that read before and after a change would add up to no file at all, and nothing could tell. Whoever
wants other content makes another node (Shock's nodes with a file never change), or suspends the job first:
whatever goes on then is compared with what was cut.
"""

from awe_server.scheduler.state import RUNNING_TASKS, State, Task
from shared_models.errors import Conflict


def check_unread(state: State, node_id: str) -> None:
    """Raises Conflict if a task that is looked at, waits or runs has the node among its inputs or predata.

    Costs a look at every task in memory: content is replaced rarely.
    """
    for task in state.tasks.values():
        if (task.preparing or task.state in RUNNING_TASKS) and _reads(task, node_id):
            raise Conflict(
                f"node {node_id} is an input of task {task.id}, which is {task.state.value}: "
                "make a new node, or suspend the job first"
            )


def _reads(task: Task, node_id: str) -> bool:
    return any(
        io.get("node") == node_id and not io.get("host") for ios in (task.inputs, task.predata) for io in ios
    )
