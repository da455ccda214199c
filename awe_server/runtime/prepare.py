"""Look at a task's data before it is cut: do the inputs exist, how big are they, where to cut."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import httpx

from awe_server.data.nodes import NodeStore
from awe_server.data.ports import IndexFact, Unreadable
from awe_server.runtime.engine import Engine
from awe_server.scheduler.facts import InputFact, OutputFact, TaskFacts
from awe_server.scheduler.ready import task_prepared, task_refused
from awe_server.scheduler.split import enough, index_candidates, part_input, ranks_of
from awe_server.scheduler.state import PrepareTask, Task
from awe_server.store.base import Document, Put
from shared_models.archives import ARCHIVE_TAG, is_archive, node_name
from shared_models.errors import InvalidData, NodeNotFound, NoFile, NotCuttable

log = logging.getLogger(__name__)

FOREIGN_TIMEOUT_S = 10.0


class Refused(Exception):
    """The task cannot run with this data; the text says why."""


@dataclass(slots=True)
class _Findings:
    inputs: list[InputFact] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    index: IndexFact | None = None  #: to cut by


class Preparer:
    """Carries out PrepareTask."""

    def __init__(
        self, engine: Engine, nodes: NodeStore, http: httpx.AsyncClient, new_id: Callable[[], str]
    ) -> None:
        self._engine = engine
        self._nodes = nodes
        self._http = http
        self._new_id = new_id

    async def __call__(self, effect: PrepareTask) -> None:
        """Find the facts and hand them to the scheduler, with the output nodes in the same batch."""
        task = self._task(effect)
        if task is None:
            return
        try:
            found = await self._look(task)
        except Refused as exc:
            await self._engine.do(task_refused, effect.task_id, effect.generation, str(exc))
            return
        if self._task(effect) is not task:
            return  # reset meanwhile: nothing may be left of this look
        facts = TaskFacts(found.inputs, note="; ".join(found.notes))
        if found.index is not None:
            index, units, records = found.index.kind, found.index.total_units, found.index.records
            facts = replace(facts, index=index, units=units, records=records)
        documents = self._output_nodes(task, ranks_of(task, facts))
        outputs = [
            OutputFact(io["filename"], document["id"])
            for io, document in zip(task.outputs, documents, strict=True)
        ]
        facts = replace(facts, outputs=outputs)
        puts = [Put("nodes", document) for document in documents]
        await self._engine.do_with(puts, task_prepared, effect.task_id, effect.generation, facts)

    def _task(self, effect: PrepareTask) -> Task | None:
        task = self._engine.state.tasks.get(effect.task_id)
        if task is None or task.generation != effect.generation or not task.preparing:
            return None
        return task

    async def _look(self, task: Task) -> _Findings:
        found = _Findings()
        for io in (*task.inputs, *task.predata):
            fact = await (self._foreign(io, found) if io["url"] else self._own(io))
            found.inputs.append(fact)
            if io["shockindex"] and io["url"]:
                why = "it is not in this server's node store"
                found.notes.append(f"no index '{io['shockindex']}' for {io['filename']}: {why}")
            elif io["shockindex"] and fact.size_bytes:
                await self._index(io, io["shockindex"], found)
        kinds = index_candidates(task)
        source = part_input(task) if kinds else None
        if source is not None:
            await self._choose_index(task, source, kinds, found)
        return found

    async def _own(self, io: Document) -> InputFact:
        name, node_id = io["filename"], io["node"]
        if not node_id or node_id == "-":
            raise Refused(f"input file {name} not available: nothing produced it")
        try:
            node = await self._nodes.get(node_id)
        except NodeNotFound as exc:
            raise Refused(f"input file {name} not available: node {node_id} does not exist") from exc
        if io["nofile"]:
            return InputFact(name, node_id, 0)
        if node["file"] is None:
            raise Refused(f"input file {name} not available: node {node_id} has no file yet")
        try:
            file = (await self._nodes.readable(node_id, is_gzip=io["uncompress"] == "gzip"))["file"]
        except (Unreadable, NodeNotFound, NoFile) as exc:
            raise Refused(f"input file {name} not available: {exc.message}") from exc
        return InputFact(name, node_id, file["size"], file["checksum"]["md5"])

    async def _foreign(self, io: Document, found: _Findings) -> InputFact:
        """Ask for the size as far as the other side tells it; an unknown size stops nobody."""
        size_bytes = 0
        try:
            if io["node"]:
                reply = await self._http.get(f"{io['host']}/node/{io['node']}")
                size_bytes = int(reply.raise_for_status().json()["data"]["file"]["size"])
            else:
                reply = await self._http.head(io["url"])
                size_bytes = int(reply.raise_for_status().headers["content-length"])
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as exc:
            reason = str(exc) or type(exc).__name__
            log.info("input_size_unknown", extra={"file": io["filename"], "reason": reason})
            found.notes.append(f"size of {io['filename']} is not known")
        return InputFact(io["filename"], io["node"], max(size_bytes, 0), url=io["url"])

    async def _choose_index(
        self, task: Task, source: Document, kinds: tuple[str, ...], found: _Findings
    ) -> None:
        """Take the first kind with enough units, else the one that was tried last."""
        if source["url"]:
            found.notes.append(f"not split: {source['filename']} is not in this server's node store")
            return
        if source["uncompress"]:
            found.notes.append(f"not split: {source['filename']} is unpacked only by the client")
            return
        for kind in kinds:
            index = await self._index(source, kind, found)
            if index is None:
                return
            found.index = index
            if enough(task, index.total_units):
                return

    async def _index(self, io: Document, kind: str, found: _Findings) -> IndexFact | None:
        try:
            return await self._nodes.build_index(io["node"], kind)
        except NotCuttable as exc:
            found.notes.append(f"not split: {exc.message}")
            return None
        except (InvalidData, Unreadable, NoFile, NodeNotFound) as exc:
            raise Refused(f"input file {io['filename']} not available: {exc.message}") from exc

    def _output_nodes(self, task: Task, ranks: int) -> list[Document]:
        return [
            self._nodes.output_document(
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
            for io in task.outputs
        ]
