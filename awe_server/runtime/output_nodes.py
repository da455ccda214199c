"""Make the nodes of a task's outputs before it is cut, and find the nodes that its outputs are made from."""

from collections.abc import Callable
from dataclasses import dataclass

from awe_server.data.nodes import NodeStore
from awe_server.runtime.refused import Refused
from awe_server.scheduler.facts import OutputFact
from awe_server.scheduler.progress import located
from awe_server.scheduler.state import State, Task
from awe_server.store.base import Document
from shared_models.archives import ARCHIVE_TAG, is_archive, node_name
from shared_models.errors import NodeNotFound, UnreadableNode
from shared_models.file_urls import is_file_url


@dataclass(slots=True, frozen=True)
class Made:
    """What the outputs of a task have, and the documents of nodes that are to be stored."""

    facts: list[OutputFact]
    documents: list[Document]


class OutputNodes:
    """See the module."""

    def __init__(self, nodes: NodeStore, new_id: Callable[[], str]) -> None:
        self._nodes = nodes
        self._new_id = new_id

    async def check(self, state: State, task: Task) -> None:
        """Raises Refused if an output is to be made from a node that is not there."""
        for io in task.outputs:
            if io["type"] == "update":
                await self._exists(io, updated(state, task, io), "to be updated", needs_file=False)
            elif io["type"] in ("copy", "subset"):
                await self._exists(io, parent(task, io), "its parent", needs_file=True)

    async def _exists(self, io: Document, node_id: str, what: str, *, needs_file: bool) -> None:
        name = io["filename"]
        if not node_id:
            raise Refused(f"output {name}: the node {what} is not a node of this server")
        try:
            node = await self._nodes.get(node_id)
        except NodeNotFound as exc:
            raise Refused(f"output {name}: node {node_id}, {what}, does not exist") from exc
        except UnreadableNode as exc:
            raise Refused(f"output {name}: {what}: {exc.message}") from exc
        if needs_file and node["file"] is None:
            raise Refused(f"output {name}: node {node_id}, {what}, has no file")

    def make(self, state: State, task: Task, ranks: int) -> Made:
        """Nodes for all that clients upload here, of a task that will be cut into so many workunits."""
        made = Made([], [])
        for io in task.outputs:
            made.facts.append(self._one(state, task, io, ranks, made.documents))
        return made

    def _one(
        self, state: State, task: Task, io: Document, ranks: int, documents: list[Document]
    ) -> OutputFact:
        name, kind = io["filename"], io["type"]

        def new(parts: int) -> str:
            documents.append(self._document(task, io, parts))
            return str(documents[-1]["id"])

        if kind == "update":
            staging = new(0) if io["attrfile"] else ""
            return OutputFact(name, updated(state, task, io), staging=staging)
        if kind == "copy":
            return OutputFact(name, new(0))
        if kind == "subset":
            return OutputFact(name, new(0), staging=new(ranks))
        if is_file_url(io["url"]):
            return OutputFact(name, "")
        if io["host"] or io["url"]:
            return OutputFact(name, "", staging=new(ranks))
        return OutputFact(name, new(ranks))

    def _document(self, task: Task, io: Document, ranks: int) -> Document:
        return self._nodes.output_document(
            self._new_id(),
            job=task.job.id,
            task=task.id,
            name=io["shockfilename"] or node_name(io["filename"]),
            parts=ranks if ranks > 1 else 0,
            header_lines=io["header_lines"],
            attributes=io["nodeattr"] or None,
            owner=str(task.job.acl.get("owner") or ""),
            tags=(ARCHIVE_TAG,) if is_archive(io["filename"]) else (),
        )


def updated(state: State, task: Task, io: Document) -> str:
    """The node here that an output of type update is about; "" if it is none."""
    found = located(state, task, io)
    return "" if found["host"] or found["url"] else str(found["node"] or "")


def parent(task: Task, io: Document) -> str:
    """The node here that an output of type copy or subset is made from; "" if it is none."""
    options = io["formoptions"]
    if node := options.get("parent_node"):
        return str(node)
    source = next((one for one in task.inputs if one["filename"] == options.get("parent_name")), None)
    if source is None or source["host"] or source["url"] or source["node"] in (None, "-"):
        return ""
    return str(source["node"])
