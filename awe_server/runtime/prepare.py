"""Look at a task's data before it is cut: do the inputs exist, how big are they, where to cut."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from awe_server.data.hosts import host_of
from awe_server.data.nodes import NodeStore
from awe_server.data.ports import IndexFact, Unreadable
from awe_server.data.sources.facts import SourceUnreachable
from awe_server.faults import reach
from awe_server.runtime.engine import Engine
from awe_server.runtime.foreign_inputs import ForeignInputs, Looked, Uncut
from awe_server.runtime.output_nodes import OutputNodes
from awe_server.runtime.refused import Refused
from awe_server.scheduler.facts import InputFact, TaskFacts
from awe_server.scheduler.ready import task_prepared, task_refused
from awe_server.scheduler.split import enough, index_candidates, mismatch, part_inputs, ranks_of
from awe_server.scheduler.state import PrepareTask, Task
from awe_server.store.base import Document, Put
from shared_models.errors import InvalidData, NodeNotFound, NoFile, NotCuttable, Starting, UnreadableNode


@dataclass(slots=True)
class _Findings:
    inputs: list[InputFact] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    indexes: list[IndexFact] = field(default_factory=list)  #: to cut by, of each input that is cut
    elsewhere: Looked = field(default_factory=Looked)


class Preparer:
    """Carries out PrepareTask."""

    def __init__(
        self, engine: Engine, nodes: NodeStore, foreign: ForeignInputs, new_id: Callable[[], str]
    ) -> None:
        self._engine = engine
        self._nodes = nodes
        self._foreign = foreign
        self._outputs = OutputNodes(nodes, new_id)

    def host(self, effect: PrepareTask) -> str:
        """The foreign host that this look has to wait for, "" if it needs none or nobody can say now."""
        try:
            task = self._task(effect)
        except Starting:
            return ""
        files = (*task.inputs, *task.predata) if task else ()
        return next((host for io in files if (host := host_of(io["url"]))), "")

    async def __call__(self, effect: PrepareTask) -> None:
        """Find the facts and hand them to the scheduler, with the output nodes in the same batch."""
        task = self._task(effect)
        if task is None:
            return
        try:
            await self._outputs.check(self._engine.state, task)
            found = await self._look_patiently(task)
        except Refused as exc:
            await self._engine.do(task_refused, effect.task_id, effect.generation, str(exc))
            return
        if self._task(effect) is not task:
            return  # reset meanwhile: nothing may be left of this look
        facts = _facts(task, found)
        if problem := mismatch(task, facts):
            await self._engine.do(task_refused, effect.task_id, effect.generation, problem)
            return
        made = self._outputs.make(self._engine.state, task, ranks_of(task, facts))
        facts = replace(facts, outputs=made.facts)
        puts = [Put("nodes", document) for document in made.documents]
        reach("before-cut")
        await self._engine.do_with(puts, task_prepared, effect.task_id, effect.generation, facts)

    def _task(self, effect: PrepareTask) -> Task | None:
        task = self._engine.state.tasks.get(effect.task_id)
        if task is None or task.generation != effect.generation or not task.preparing:
            return None
        return task

    async def _look_patiently(self, task: Task) -> _Findings:
        """Raises Refused; SourceUnreachable if it is worth another look a little later."""
        try:
            found = await self._look(task)
        except SourceUnreachable as exc:
            self._foreign.lose_patience(task, exc)
        except Refused:
            self._foreign.settled(task)
            raise
        self._foreign.settled(task)
        return found

    async def _look(self, task: Task) -> _Findings:
        found = _Findings()
        files = (*task.inputs, *task.predata)
        kinds = index_candidates(task)
        cut = part_inputs(task) if kinds else []
        facts = {io["filename"]: await self._own(io, found) for io in files if not io["url"]}
        elsewhere = [io for io in files if io["url"]]
        token = task.job.datatoken
        found.elsewhere = await self._foreign.look(elsewhere, {io["filename"] for io in cut}, token)
        found.notes += found.elsewhere.unknown_sizes(elsewhere)
        if kinds:
            await self._choose_index(task, cut, kinds, found)
        found.notes += await self._foreign.indexes_there(elsewhere, found.elsewhere)
        kind = found.indexes[0].kind if found.indexes else ""
        facts |= {io["filename"]: found.elsewhere.input(io, kind) for io in elsewhere}
        found.inputs = [facts[io["filename"]] for io in files]
        return found

    async def _own(self, io: Document, found: _Findings) -> InputFact:
        fact = await self._own_file(io)
        if io["shockindex"] and fact.size_bytes:
            why = f"no index '{io['shockindex']}' for {io['filename']}"
            await self._index(io, io["shockindex"], found, why)
        return fact

    async def _own_file(self, io: Document) -> InputFact:
        name, node_id = io["filename"], io["node"]
        if not node_id or node_id == "-":
            raise Refused(f"input file {name} not available: {_unmade(io) or 'nothing produced it'}")
        try:
            node = await self._nodes.get(node_id)
        except NodeNotFound as exc:
            raise Refused(f"input file {name} not available: node {node_id} does not exist") from exc
        except UnreadableNode as exc:
            raise Refused(f"input file {name} not available: {exc.message}") from exc
        if io["nofile"]:
            return InputFact(name, node_id, 0)
        if node["file"] is None:
            why = _unmade(io) or f"node {node_id} has no file yet"
            raise Refused(f"input file {name} not available: {why}")
        try:
            file = (await self._nodes.readable(node_id, is_gzip=io["uncompress"] == "gzip"))["file"]
        except (Unreadable, UnreadableNode, NodeNotFound, NoFile) as exc:
            raise Refused(f"input file {name} not available: {exc.message}") from exc
        return InputFact(name, node_id, file["size"], file["checksum"]["md5"])

    async def _choose_index(
        self, task: Task, sources: list[Document], kinds: tuple[str, ...], found: _Findings
    ) -> None:
        """Take the first kind with enough units, else the one that was tried last."""
        for source in sources:
            if source["uncompress"]:
                found.notes.append(f"not split: {source['filename']} is unpacked only by the client")
                return
        for kind in kinds:
            indexes: list[IndexFact] = []
            for source in sources:
                index = await self._index(source, kind, found, "not split")
                if index is None:
                    return
                indexes.append(index)
            found.indexes = indexes
            if enough(task, indexes[0].total_units):
                return

    async def _index(self, io: Document, kind: str, found: _Findings, otherwise: str) -> IndexFact | None:
        """Build an index of an input; if that cannot be, note what follows from it."""
        try:
            if io["url"]:
                return await self._foreign.index(io, kind, found.elsewhere)
            return await self._nodes.build_index(io["node"], kind)
        except Uncut as exc:
            found.notes.append(f"{otherwise}: {exc}")
            return None
        except NotCuttable as exc:
            found.notes.append(f"{otherwise}: {exc.message}")
            return None
        except (InvalidData, Unreadable, UnreadableNode, NoFile, NodeNotFound) as exc:
            raise Refused(f"input file {io['filename']} not available: {exc.message}") from exc


def _unmade(io: Document) -> str:
    """Why an input that another task should have made has no file; "" if no task should have."""
    if not io["origin"]:
        return ""
    return f"task '{io['origin']}' was completed without making it (optional or nofile there)"


def _facts(task: Task, found: _Findings) -> TaskFacts:
    facts = TaskFacts(found.inputs, note="; ".join(found.notes))
    if not found.indexes:
        return facts
    sizes = {fact.filename: fact.size_bytes for fact in found.inputs}
    counts = tuple(
        _count(index, sizes[source["filename"]])
        for index, source in zip(found.indexes, part_inputs(task), strict=True)
    )
    first = found.indexes[0]
    return replace(facts, index=first.kind, units=first.total_units, records=first.records, counts=counts)


def _count(index: IndexFact, size_bytes: int) -> int:
    """How many records, or lines, a file has: an empty one has a unit all the same."""
    if index.records is not None:
        return index.records
    return index.total_units if size_bytes or index.total_units > 1 else 0  # a size of 0 may be unknown
