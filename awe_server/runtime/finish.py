"""Make a task's outputs whole: the accepted attempts' files, in rank order, become one file per output."""

from awe_server.data.nodes import NodeStore
from awe_server.data.ports import CannotJoin, Unreadable
from awe_server.runtime.engine import Engine
from awe_server.scheduler.facts import OutputFact
from awe_server.scheduler.finish import task_finished, task_unfinishable
from awe_server.scheduler.state import FinishTask, Task
from awe_server.store.base import Document, Match
from shared_models.errors import InvalidData, MissingPart, NodeNotFound, NotCuttable
from shared_models.states import WorkunitState

#: (rank, attempt) of the files that make an output
_Parts = list[tuple[int, int]]


class Finisher:
    """Carries out FinishTask."""

    def __init__(self, engine: Engine, nodes: NodeStore) -> None:
        self._engine = engine
        self._nodes = nodes

    async def __call__(self, effect: FinishTask) -> None:
        """Assemble every output and tell the scheduler; what is missing is told by output and rank."""
        task = self._engine.state.tasks.get(effect.task_id)
        if task is None or task.generation != effect.generation or not task.finishing:
            return
        outputs = task.outputs
        parts, results = await self._accepted(task, outputs)
        if results != task.totalwork:
            await self._give_up(effect, f"the store has results of {results} workunits, of {task.totalwork}")
            return
        facts: list[OutputFact] = []
        notes: list[str] = []
        for io in outputs:
            try:
                facts.append(await self._make_whole(io, parts[io["filename"]], notes))
            except MissingPart as exc:
                await self._give_up(effect, f"output {io['filename']}: part {exc.fields['rank']} is missing")
                return
            except CannotJoin as exc:
                await self._give_up(effect, f"output {io['filename']}: {exc.message}")
                return
            except NodeNotFound:
                await self._give_up(effect, f"output {io['filename']}: its node {io['node']} was deleted")
                return
        await self._engine.do(task_finished, effect.task_id, effect.generation, facts, "\n".join(notes))

    async def _give_up(self, effect: FinishTask, reason: str) -> None:
        await self._engine.do(task_unfinishable, effect.task_id, effect.generation, reason)

    async def _accepted(self, task: Task, outputs: list[Document]) -> tuple[dict[str, _Parts], int]:
        """Which attempt of each rank made each output; and how many ranks have a result.

        A stock AWE worker does not say which outputs it made: then what was uploaded counts.
        """
        parts: dict[str, _Parts] = {io["filename"]: [] for io in outputs}
        staged: dict[str, set[tuple[int, int]]] = {}
        results = 0
        where = [Match("taskid", (task.id,)), Match("state", (WorkunitState.COMPLETED.value,))]
        async for unit in self._engine.scan("workunits", where):
            if unit["generation"] != task.generation:
                continue
            part = (unit["rank"], unit["attempt"])
            results += 1
            said = None if unit["outputs"] is None else {output["filename"] for output in unit["outputs"]}
            for io in outputs:
                name = io["filename"]
                if said is None and may_be_missing(io):
                    if name not in staged:
                        present = await self._nodes.staged_parts(io["node"])
                        staged[name] = {(p.rank, p.attempt) for p in present}
                    if part in staged[name]:
                        parts[name].append(part)
                elif said is None or name in said or not may_be_missing(io):
                    parts[name].append(part)
        return parts, results

    async def _make_whole(self, io: Document, parts: _Parts, notes: list[str]) -> OutputFact:
        if not parts:
            return OutputFact(io["filename"], io["node"])
        file = await self._nodes.assemble(io["node"], parts, io["header_lines"])
        if io["shockindex"]:
            try:
                await self._nodes.build_index(io["node"], io["shockindex"])
            except (NotCuttable, InvalidData, Unreadable) as exc:
                notes.append(f"no index '{io['shockindex']}' for output {io['filename']}: {exc.message}")
        return OutputFact(io["filename"], io["node"], file.size, file.md5)


def may_be_missing(io: Document) -> bool:
    """Whether a workunit is done without this output."""
    return bool(io["optional"] or io["nofile"])
