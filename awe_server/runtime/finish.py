"""Make a task's outputs whole: the accepted attempts' files, in rank order, become one file per output."""

from collections.abc import AsyncIterator, Sequence

from awe_server.data.nodes import NodeStore
from awe_server.data.ports import CannotJoin, Unreadable
from awe_server.runtime.delivered import may_be_missing
from awe_server.runtime.engine import Engine
from awe_server.scheduler.facts import OutputFact
from awe_server.scheduler.finish import task_finished, task_unfinishable
from awe_server.scheduler.state import FinishTask, Task
from awe_server.store.base import Document, Match
from shared_models.errors import InvalidData, MissingPart, NodeNotFound, NotCuttable
from shared_models.states import WorkunitState

MAX_NAMED = 10  #: ranks that a reason names
MAX_DONE_AGAIN = 100_000  #: ranks that are done again after one resume; the next one sees to the rest

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
            lost = await self._without_result(task)
            reason = f"the store has results of {results} workunits, of {task.totalwork}"
            await self._give_up(effect, f"{reason}: {_listed('that of rank', 'those of ranks', lost)}", lost)
            return
        try:
            if missing := await self._missing(outputs, parts):
                await self._give_up(effect, *missing)
                return
        except NodeNotFound as exc:
            await self._give_up(effect, f"an output's node was deleted: {exc.message}")
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

    async def _give_up(self, effect: FinishTask, reason: str, lost: Sequence[int] = ()) -> None:
        await self._engine.do(
            task_unfinishable, effect.task_id, effect.generation, reason, lost[:MAX_DONE_AGAIN]
        )

    async def _missing(
        self, outputs: list[Document], parts: dict[str, _Parts]
    ) -> tuple[str, list[int]] | None:
        """What is missing, by output, and all ranks concerned. Asked before anything is put together: the
        parts of an output that is whole are gone, so that it could not take in what is made again."""
        texts, lost = [], set[int]()
        for io in outputs:
            missing = await self._nodes.missing_parts(io["node"], parts[io["filename"]], io["header_lines"])
            if missing:
                ranks = [rank for rank, _ in missing]
                texts.append(f"output {io['filename']}: {_listed('part', 'parts', ranks)}")
                lost.update(ranks)
        return ("; ".join(texts), sorted(lost)) if lost else None

    async def _without_result(self, task: Task) -> list[int]:
        """Ranks that are done and have no result in the store."""
        ranks = set(range(task.end_rank - task.totalwork, task.end_rank))
        async for unit in self._results(task):
            ranks.discard(unit["rank"])
        return sorted(ranks)

    async def _results(self, task: Task) -> AsyncIterator[Document]:
        where = [Match("taskid", (task.id,)), Match("state", (WorkunitState.COMPLETED.value,))]
        async for unit in self._engine.scan("workunits", where):
            if unit["generation"] == task.generation:
                yield unit

    async def _accepted(self, task: Task, outputs: list[Document]) -> tuple[dict[str, _Parts], int]:
        """Which attempt of each rank made each output; and how many ranks have a result.

        A stock AWE worker does not say which outputs it made: then what was uploaded counts.
        """
        parts: dict[str, _Parts] = {io["filename"]: [] for io in outputs}
        staged: dict[str, set[tuple[int, int]]] = {}
        results = 0
        async for unit in self._results(task):
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


def _listed(one: str, several: str, ranks: Sequence[int]) -> str:
    """`part 3 is missing`, `parts 1, 2 and 30 more are missing`."""
    if len(ranks) == 1:
        return f"{one} {ranks[0]} is missing"
    named = ", ".join(map(str, ranks[:MAX_NAMED]))
    more = f" and {len(ranks) - MAX_NAMED} more" if len(ranks) > MAX_NAMED else ""
    return f"{several} {named}{more} are missing"
