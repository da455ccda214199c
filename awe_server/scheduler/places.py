"""Where outputs are: while a task runs, when it is done, and what of them is to be removed.

An output that goes elsewhere through this server has a node here, `_staging`, until it is delivered; one on a
shared file system is staged there, in a folder beside its target. A place is an address: of a Shock's node,
an object or a file, or of such a folder (it ends in "/"). An output that was not made is marked `_missing`.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from awe_server.scheduler.entities import Document, Task
from shared_models.file_urls import is_file_url, path_of, url_of
from shared_models.ids import TaskId
from shared_models.locations import is_web_url
from shared_models.object_urls import is_object_url
from shared_models.staging import stage_folder

#: Outputs of these types have no file that a client uploads.
WITHOUT_UPLOAD = ("copy", "update")

_DELIVERY = "/node/?delivery="


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
            if io["host"] and io["node"]:
                places.append(shock_place(io))
            elif io["host"] and io.get("_staging"):
                places.append(delivery_place(io))
            else:
                nodes.append(io.get("_staging") or "")
                if not io["url"] and io["type"] != "update":
                    nodes.append(io["node"])
        places += stage_places(task)
    return Things(_each_once(nodes), tuple(dict.fromkeys(places)))


def kept_here(tasks: Collection[Task]) -> tuple[str, ...]:
    """The nodes here of tasks that are to be removed; what was delivered stays where it is."""
    staging = (io.get("_staging") or "" for task in tasks for io in task.outputs)
    return _each_once([*made_for(tasks).nodes, *staging])


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
    return stage_places_of(task.id, task.generation, task.outputs)


def stage_places_of(task_id: TaskId, generation: int, outputs: Iterable[Document]) -> tuple[str, ...]:
    """As `stage_places`, for a task that is not in memory.

    With those of the generation before: its attempts may have made them again after they were removed.
    """
    paths = [path_of(io["url"]) for io in outputs if is_file_url(io["url"])]
    generations = range(max(generation - 1, 1), generation + 1)
    return tuple(url_of(f"{stage_folder(path, task_id, g)}/") for path in paths for g in generations)


def shock_place(io: Document) -> str:
    """The address of a node in another Shock."""
    return f"{io['host']}/node/{io['node']}"


def delivery_place(io: Document) -> str:
    """Stands for the node that a delivery to another Shock may have made: only the staging node knows."""
    return f"{io['host']}{_DELIVERY}{io['_staging']}"


def delivery_of(place: str) -> tuple[str, str] | None:
    """Host and staging node, if a place is a `delivery_place`."""
    host, _, staging = place.partition(_DELIVERY)
    return (host, staging) if staging and is_web_url(host) else None


def is_given(place: str) -> bool:
    """Whether a place has the address that a document gave it, so that each run of the job writes there."""
    return is_object_url(place) or (is_file_url(place) and not place.endswith("/"))


def _each_once(nodes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node for node in nodes if node and node != "-"))
