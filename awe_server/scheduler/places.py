"""Where outputs are: while a task runs, when it is done, and what of them is to be removed.

An output that goes elsewhere through this server has a node here, `_staging`, until it is delivered; one on a
shared file system is staged there, in a folder beside its target. A place is an address: of a Shock's node,
an object or a file, or of such a folder (it ends in "/"). An output that was not made is marked `_missing`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from awe_server.scheduler.entities import Document, Task
from shared_models.file_urls import is_file_url, path_of, url_of
from shared_models.ids import TaskId
from shared_models.object_urls import is_object_url
from shared_models.staging import stage_folder

#: Outputs of these types have no file that a client uploads.
WITHOUT_UPLOAD = ("copy", "update")


@dataclass(slots=True, frozen=True)
class Things:
    """Nodes here, and places elsewhere, each once."""

    nodes: tuple[str, ...]
    places: tuple[str, ...]


def staging_node(io: Document) -> str:
    """The node here that takes what clients upload for an output; "" if they upload nothing here."""
    return str(io.get("_staging") or io["node"] or "")


def was_not_made(io: Document) -> bool:
    """Whether its task was completed without this output; what is at its address then is not of it."""
    return bool(io.get("_missing"))


def made_for(tasks: Iterable[Task]) -> Things:
    """What was made for the outputs of tasks that are to be set back or removed, as far as it is ours: no
    node that was only updated, and no file, object or page whose address the document gave.
    """
    nodes: list[str] = []
    places: list[str] = []
    for task in tasks:
        if not task.is_cut:
            continue
        for io in task.outputs:
            nodes.append(io.get("_staging") or "")
            if io["host"] and io["node"]:
                places.append(shock_place(io))
            elif not io["host"] and not io["url"] and io["type"] != "update":
                nodes.append(io["node"])
        places += stage_places(task)
    return Things(_each_once(nodes), tuple(dict.fromkeys(places)))


def left_behind(task: Task) -> Things:
    """What only served to make a task's outputs."""
    return Things(_each_once(io.get("_staging") or "" for io in task.outputs), stage_places(task))


def to_delete(tasks: Iterable[Task]) -> Things:
    """The files that go with the end of their job, as the document says (`delete`)."""
    nodes: list[str] = []
    places: list[str] = []
    for task in tasks:
        for io in (*task.inputs, *task.outputs):
            if not io.get("delete") or (was_not_made(io) and io["url"]):
                continue
            if not io["host"] and not io["url"]:
                nodes.append(io["node"])
            elif io["host"] and io["node"]:
                places.append(shock_place(io))
            elif is_file_url(io["url"]) or is_object_url(io["url"]):
                places.append(io["url"])
    return Things(_each_once(nodes), tuple(dict.fromkeys(places)))


def stage_places(task: Task) -> tuple[str, ...]:
    """The folders in which attempts of a task stage outputs beside their targets."""
    return stage_places_of(task.id, task.outputs)


def stage_places_of(task_id: TaskId, outputs: Iterable[Document]) -> tuple[str, ...]:
    """As `stage_places`, for a task that is not in memory."""
    paths = (path_of(io["url"]) for io in outputs if is_file_url(io["url"]))
    return tuple(url_of(f"{stage_folder(path, task_id)}/") for path in paths)


def shock_place(io: Document) -> str:
    """The address of a node in another Shock."""
    return f"{io['host']}/node/{io['node']}"


def _each_once(nodes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node for node in nodes if node and node != "-"))
