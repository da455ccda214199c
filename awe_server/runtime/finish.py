"""Make a task's outputs whole: the accepted attempts' files, in rank order, become one file per output, which
is then brought to where the document says. All are whole before one is delivered.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from awe_server.data.nodes import NodeStore
from awe_server.data.ports import CannotJoin, FileFact, Unreadable
from awe_server.data.sinks.base import SinkBusy, SinkRefused
from awe_server.faults import reach
from awe_server.runtime.delivered import is_uploaded, may_be_missing
from awe_server.runtime.delivery import Delivery, sink_host, wanted_file
from awe_server.runtime.engine import Engine
from awe_server.runtime.output_types import OutputTypes
from awe_server.scheduler.facts import OutputFact
from awe_server.scheduler.finish import task_finished, task_unfinishable
from awe_server.scheduler.places import staging_node
from awe_server.scheduler.state import FinishTask, Task
from awe_server.store.base import Document, Match
from shared_models.errors import (
    InvalidData,
    MissingPart,
    NodeNotFound,
    NoFile,
    NotCuttable,
    Starting,
    UnreadableNode,
)
from shared_models.file_urls import is_file_url
from shared_models.states import WorkunitState

MAX_NAMED = 10  #: ranks that a reason names
SEEN_WITHIN_S = 30.0  #: what is not seen of a shared file system by then is missing
MANY_UNSEEN = 1_000  #: if more wait for that, those of them that nobody asks about any more are forgotten
MAX_DONE_AGAIN = 100_000  #: ranks that are done again after one resume; the next one sees to the rest

#: (rank, attempt) of the files that make an output
_Parts = list[tuple[int, int]]

#: What the same parts will never make, however often it is tried.
_FOR_GOOD = (CannotJoin, SinkRefused, NotCuttable, InvalidData, Unreadable, UnreadableNode, NoFile)


@dataclass(slots=True)
class _Made:
    """What the ranks of a task made."""

    parts: dict[str, _Parts]  #: of each output
    sizes: dict[tuple[str, int], int] = field(default_factory=dict)  #: of outputs on shared file systems
    first: tuple[int, int] = (0, 0)  #: the attempt that describes the whole
    results: int = 0  #: ranks that have one


class Unfinishable(Exception):
    """The outputs cannot be made; the text says why."""

    def __init__(self, reason: str, lost: Sequence[int] = ()) -> None:
        super().__init__(reason)
        self.lost = lost  #: ranks to be done again


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn errors that no repetition mends into the reason why a task cannot be finished."""
    try:
        yield
    except MissingPart as exc:
        raise Unfinishable(f"{what}: part {exc.fields['rank']} is missing") from exc
    except NodeNotFound as exc:
        raise Unfinishable(f"{what}: a node of it was deleted: {exc.message}") from exc
    except _FOR_GOOD as exc:
        raise Unfinishable(f"{what}: {exc.message}") from exc


class Finisher:
    """Carries out FinishTask."""

    def __init__(self, engine: Engine, nodes: NodeStore, delivery: Delivery) -> None:
        self._engine = engine
        self._nodes = nodes
        self._delivery = delivery
        self._types = OutputTypes(nodes)
        self._unseen: dict[FinishTask, float] = {}  #: staged files not seen yet: since when

    def host(self, effect: FinishTask) -> str:
        """Whom outputs are delivered to, "" if nobody needs to be waited for, or nobody can say now."""
        try:
            task = self._engine.state.tasks.get(effect.task_id)
        except Starting:
            return ""
        return next((host for io in task.outputs if (host := sink_host(io))), "") if task else ""

    async def __call__(self, effect: FinishTask) -> None:
        """Make every output and tell the scheduler; what is missing is told by output and rank."""
        task = self._task(effect)
        if task is None:
            self._unseen.pop(effect, None)
            return
        notes: list[str] = []
        try:
            facts = await self._outputs(effect, task, notes)
        except Unfinishable as exc:
            lost = exc.lost[:MAX_DONE_AGAIN]
            await self._engine.do(task_unfinishable, effect.task_id, effect.generation, str(exc), lost)
            return
        reach("before-finished")
        await self._engine.do(task_finished, effect.task_id, effect.generation, facts, "\n".join(notes))

    def _task(self, effect: FinishTask) -> Task | None:
        task = self._engine.state.tasks.get(effect.task_id)
        if task is None or task.generation != effect.generation or not task.finishing:
            return None
        return task

    async def _outputs(self, effect: FinishTask, task: Task, notes: list[str]) -> list[OutputFact]:
        """All outputs, made and delivered. Raises Unfinishable."""
        made = await self._accepted(task, task.outputs)
        if made.results != task.totalwork:
            lost = await self._without_result(task)
            reason = f"the store has results of {made.results} workunits, of {task.totalwork}"
            raise Unfinishable(f"{reason}: {_listed('that of rank', 'those of ranks', lost)}", lost)
        with _told("an output"):
            missing = await self._missing(task, made)
        if missing:
            self._wait_until_seen(effect, task, missing[1])
            raise Unfinishable(*missing)
        self._unseen.pop(effect, None)
        for io in task.outputs:
            if is_uploaded(io) and made.parts[io["filename"]]:
                with _told(f"output {io['filename']}"):
                    await self._whole(io, made)
        facts = []
        for io in task.outputs:
            with _told(f"output {io['filename']}"):
                facts.append(await self._make(task, io, made, notes))
        return facts

    def _wait_until_seen(self, effect: FinishTask, task: Task, lost: list[int]) -> None:
        """What clients have staged on a network file system may be seen here a little later.

        Raises SinkBusy for a while.
        """
        if not any(is_file_url(io["url"]) for io in task.outputs):
            return
        now_s = self._engine.clock.monotonic()
        since_s = self._unseen.setdefault(effect, now_s)
        if len(self._unseen) > MANY_UNSEEN:
            self._unseen = {one: at_s for one, at_s in self._unseen.items() if self._task(one)}
        if now_s - since_s < SEEN_WITHIN_S:
            raise SinkBusy(f"{_listed('part', 'parts', lost)} on the shared file system")
        self._unseen.pop(effect, None)

    async def _missing(self, task: Task, made: _Made) -> tuple[str, list[int]] | None:
        """What is missing, by output, and all ranks concerned. Asked before anything is put together: the
        parts of an output that is whole are gone, so that it could not take in what is made again."""
        texts, lost = [], set[int]()
        for io in task.outputs:
            parts = made.parts[io["filename"]]
            missing: list[tuple[int, int]] = []
            if is_file_url(io["url"]) and parts:
                missing = await self._delivery.missing_parts(wanted_file(task, io, parts, made.sizes))
            elif is_uploaded(io):
                missing = await self._nodes.missing_parts(staging_node(io), parts, io["header_lines"])
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

    async def _accepted(self, task: Task, outputs: list[Document]) -> _Made:
        """Which attempt of each rank made each output.

        A stock AWE worker does not say which outputs it made: then what was uploaded counts.
        """
        made = _Made({io["filename"]: [] for io in outputs})
        parts = made.parts
        shared = {io["filename"] for io in outputs if is_file_url(io["url"])}
        staged: dict[str, set[tuple[int, int]]] = {}
        async for unit in self._results(task):
            part = (unit["rank"], unit["attempt"])
            made.results += 1
            if made.results == 1 or part < made.first:
                made.first = part
            for output in (unit["outputs"] or ()) if shared else ():
                if output["filename"] in shared:
                    made.sizes[output["filename"], unit["rank"]] = output["size"]
            said = None if unit["outputs"] is None else {output["filename"] for output in unit["outputs"]}
            for io in outputs:
                name = io["filename"]
                if said is None and may_be_missing(io) and not is_uploaded(io):
                    continue  # nobody but our own client makes it, and it says so
                if said is None and may_be_missing(io):
                    if name not in staged:
                        present = await self._nodes.staged_parts(staging_node(io))
                        staged[name] = {(p.rank, p.attempt) for p in present}
                    if part in staged[name]:
                        parts[name].append(part)
                elif said is None or name in said or not may_be_missing(io):
                    parts[name].append(part)
        return made

    async def _whole(self, io: Document, made: _Made) -> FileFact:
        """Put the uploaded parts of an output together; repeating it changes nothing."""
        file = await self._nodes.assemble(staging_node(io), made.parts[io["filename"]], io["header_lines"])
        reach("after-merge")
        return file

    async def _make(self, task: Task, io: Document, made: _Made, notes: list[str]) -> OutputFact:
        parts, kind = made.parts[io["filename"]], io["type"]
        if kind == "update":
            return await self._types.update(io, made.first)
        if kind == "copy":
            fact = await self._types.copy(task, io, made.first)
            await self._index(io, notes)
            return fact
        if not parts:
            return OutputFact(io["filename"], io["node"], is_missing=True)
        if is_file_url(io["url"]):
            return await self._delivery.place(io, wanted_file(task, io, parts, made.sizes))
        file = await self._whole(io, made)
        if sink_host(io):
            return await self._delivery.deliver(task, io, file, notes)
        if kind == "subset":
            fact = await self._types.subset(task, io, file)
        else:
            fact = OutputFact(io["filename"], io["node"], file.size, file.md5)
        await self._index(io, notes)
        return fact

    async def _index(self, io: Document, notes: list[str]) -> None:
        if io["shockindex"]:
            try:
                await self._nodes.build_index(io["node"], io["shockindex"])
            except (NotCuttable, InvalidData, Unreadable) as exc:
                notes.append(f"no index '{io['shockindex']}' for output {io['filename']}: {exc.message}")


def _listed(one: str, several: str, ranks: Sequence[int]) -> str:
    """`part 3 is missing`, `parts 1, 2 and 30 more are missing`."""
    if len(ranks) == 1:
        return f"{one} {ranks[0]} is missing"
    named = ", ".join(map(str, ranks[:MAX_NAMED]))
    more = f" and {len(ranks) - MAX_NAMED} more" if len(ranks) > MAX_NAMED else ""
    return f"{several} {named}{more} are missing"
