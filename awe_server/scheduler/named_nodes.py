"""Which tasks name a node among their files: so that who asks about one node looks at no other's tasks.

Derived: State files a task when it comes, whenever it is touched, and takes it out when it goes.
"""

from collections.abc import Iterator

from awe_server.scheduler.entities import Document, Task
from shared_models.ids import TaskId


class NamedNodes:
    """Tasks by the nodes that they name, here or elsewhere."""

    def __init__(self) -> None:
        self._tasks: dict[str, dict[TaskId, Task]] = {}

    def of(self, node_id: str) -> tuple[Task, ...]:
        """The tasks that name a node."""
        return tuple(self._tasks.get(node_id, {}).values())

    def file(self, task: Task) -> None:
        """Take in what a task names now; does nothing while its files are those that were filed."""
        files = (task.inputs, task.predata, task.outputs)
        then = task.filed
        if then and then[0] is files[0] and then[1] is files[1] and then[2] is files[2]:
            return
        named = set(named_by(files))
        before = set(named_by(then)) if then else set()
        for node_id in before - named:
            self._drop(node_id, task)
        for node_id in named - before:
            self._tasks.setdefault(node_id, {})[task.id] = task
        task.filed = files

    def remove(self, task: Task) -> None:
        """Take a task out."""
        for node_id in set(named_by(task.filed or ())):
            self._drop(node_id, task)
        task.filed = None

    def as_dict(self) -> dict[str, set[TaskId]]:
        """All of it, for whoever compares."""
        return {node_id: set(tasks) for node_id, tasks in self._tasks.items()}

    def _drop(self, node_id: str, task: Task) -> None:
        tasks = self._tasks[node_id]
        del tasks[task.id]
        if not tasks:
            del self._tasks[node_id]


def named_by(files: tuple[list[Document], ...]) -> Iterator[str]:
    """The nodes that some files name: where they are, wait to be delivered, or are made from."""
    for ios in files:
        for io in ios:
            for node_id in (io["node"], io.get("_staging"), parent_node(io)):
                if node_id and node_id != "-":
                    yield node_id


def parent_node(io: Document) -> str:
    """The node that an output says it is made from; "" for an input."""
    options = io.get("formoptions")
    return str(options.get("parent_node") or "") if options else ""
