"""Is the input that a task was cut from still what it was? Asked whenever parts of it are handed out.

A part is a range of units, so it means the right bytes only in the file and the index that the task was cut
by: with other content, parts handed out before and after would not add up to any file. Nodes of ours are
compared before anything leaves. Files elsewhere are looked at beside, for no client shall wait for their
host: clients ask for their pieces of the one version, where its host tells versions.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from awe_server.data.indexes import Units, locate_in
from awe_server.data.nodes import NodeStore
from awe_server.data.source_indexes import SourceIndexes
from awe_server.data.sources.facts import Fact, SourceChanged, SourceMissing
from awe_server.runtime.engine import Engine
from awe_server.runtime.foreign import ForeignFiles, Unknown
from awe_server.scheduler.parts import cut_names, group_size
from awe_server.scheduler.ready import cut_is_void
from awe_server.scheduler.state import Document, Task
from shared_models.errors import AweError, NoIndex
from shared_models.ids import TaskId

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 10.0  #: a file elsewhere is looked at no more often than that
REBUILD_S = 5.0  #: how long who asks for work waits for an index that was lost

#: Offset and length of a part such as "3-4"; (-1, -1) = the client asks for it by index and part.
Locate = Callable[[str], tuple[int, int]]


class NotReady(Exception):
    """The task's parts cannot be handed out now."""


class Cuts:
    """Where the parts of tasks are in their inputs."""

    def __init__(
        self, engine: Engine, nodes: NodeStore, foreign: ForeignFiles, indexes: SourceIndexes
    ) -> None:
        self._engine = engine
        self._nodes = nodes
        self._foreign = foreign
        self._indexes = indexes
        self._looked: dict[tuple[TaskId, str], float] = {}  #: when, at files elsewhere
        self._rebuilding: dict[tuple[TaskId, str], asyncio.Task[None]] = {}
        self._looking: set[asyncio.Task[None]] = set()

    async def of(self, task: Task) -> list[Locate]:
        """How to find parts, for each input that is cut, as `cut_names` has them.

        When an input is not what it was, the job is suspended with the reason: no grant of the task is held
        any more. Raises NotReady.
        """
        part = task.partinfo or {}
        files = {io["filename"]: io for io in task.inputs}
        return [await self._of(task, files[name], part) for name in cut_names(part)]

    async def stop(self) -> None:
        """End what goes on beside."""
        going_on = [*self._looking, *self._rebuilding.values()]
        for work in going_on:
            work.cancel()
        await asyncio.gather(*going_on, return_exceptions=True)

    async def _of(self, task: Task, io: Document, part: Document) -> Locate:
        if io.get("url"):
            self._look_beside(task, io)
            return await self._elsewhere(task, io, part) if io.get("_index") else _by_part
        if not io.get("node") or io.get("host"):
            return _by_part
        units = await self._own(task, io, part)
        return _by_part if units is None else partial(_in_node, units)

    async def _own(self, task: Task, io: Document, part: Document) -> Units | None:
        """The units of the node's file, if it can be read and is what it was."""
        generation = task.generation
        try:
            node = await self._nodes.get(io["node"])
            problem = await self._difference(node, io, part)
            if not problem:
                return await self._ready(node, part["index"])
        except AweError:
            return None
        await self._engine.do(cut_is_void, task.id, generation, problem)
        return None

    async def _ready(self, node: Document, kind: str) -> Units:
        if kind != "size" and kind not in node["indexes"]:  # it was built only now
            node = await self._nodes.get(node["id"])
        return await self._nodes.ready(node, kind)

    async def _difference(self, node: Document, io: Document, part: Document) -> str:
        """How a node differs from what was cut; "" if it does not. An index that was lost is built again."""
        name, kind = io["filename"], part["index"]
        file = node["file"]
        if (
            file is None
            or file["size"] != io["size"]
            or io.get("_md5", "") not in ("", file["checksum"]["md5"])
        ):
            return f"input file {name} was replaced after it was cut: recompute the task to cut it again"
        index = node["indexes"].get(kind)
        units = (
            index["total_units"] if index else (await self._nodes.build_index(node["id"], kind)).total_units
        )
        cut_by = part["totalindex"] * group_size(part)
        if units != cut_by:
            return f"input file {name} has {units} units now, it was cut by {cut_by}: recompute the task"
        return ""

    # --- files elsewhere -------------------------------------------------------------------------

    async def _elsewhere(self, task: Task, io: Document, part: Document) -> Locate:
        key, kind, size = io["_index"], part["index"], io["size"]
        try:
            units = await self._indexes.ready(key, kind, size)
        except NoIndex:
            units = await self._wait_for_index(task, io, part)
        return partial(locate_in, units)

    async def _wait_for_index(self, task: Task, io: Document, part: Document) -> Units:
        """Build an index that was lost, and wait for it a while. Raises NotReady."""
        what = (task.id, io["filename"])
        if what not in self._rebuilding:
            self._rebuilding[what] = asyncio.create_task(self._rebuild(task, io, part))
            self._rebuilding[what].add_done_callback(lambda _: self._rebuilding.pop(what))
        done, _ = await asyncio.wait([self._rebuilding[what]], timeout=REBUILD_S)
        try:
            return await self._indexes.ready(io["_index"], part["index"], io["size"])
        except NoIndex as exc:
            raise NotReady(f"index of {io['filename']} is {'lost' if done else 'being built'}") from exc

    async def _rebuild(self, task: Task, io: Document, part: Document) -> None:
        name, generation = io["filename"], task.generation
        then = Fact(io["size"], version=io.get("_version", ""))
        place = self._foreign.place(io, then, task.job.datatoken)
        try:
            fact = await self._indexes.build(io["_index"], place, part["index"], name)
            cut_by = part["totalindex"] * group_size(part)
            if fact.total_units == cut_by:
                return
            problem = f"has {fact.total_units} units now, it was cut by {cut_by}: recompute the task"
        except (SourceChanged, SourceMissing) as exc:
            problem = f"cannot be used any more ({exc.message}): recompute the task"
        except AweError as exc:
            log.warning("index_not_rebuilt", extra={"file": name, "reason": exc.message})
            return
        await self._void(task.id, generation, f"input file {name} {problem}")

    def _look_beside(self, task: Task, io: Document) -> None:
        """Look whether the file is what it was, unless that was done just now."""
        what, now_s = (task.id, io["filename"]), self._engine.clock.monotonic()
        if now_s - self._looked.get(what, -LOOK_AGAIN_S) < LOOK_AGAIN_S:
            return
        self._looked = {key: at_s for key, at_s in self._looked.items() if now_s - at_s < LOOK_AGAIN_S}
        self._looked[what] = now_s
        looking = asyncio.create_task(self._look(task, io))
        self._looking.add(looking)
        looking.add_done_callback(self._looking.discard)

    async def _look(self, task: Task, io: Document) -> None:
        name, generation = io["filename"], task.generation
        try:
            if _is_same(await self._foreign.look(io, token=task.job.datatoken, to_cut=True), io):
                return
            problem = "was changed after it was cut: recompute the task to cut it again"
        except Unknown:
            return  # who fetches it will see
        except AweError as exc:
            problem = f"was cut, and cannot be used any more: {exc.message}"
        await self._void(task.id, generation, f"input file {name} {problem}")

    async def _void(self, task_id: TaskId, generation: int, problem: str) -> None:
        try:
            await self._engine.do(cut_is_void, task_id, generation, problem)
        except AweError as exc:  # its next part that is handed out asks again
            log.warning("cut_not_voided", extra={"task": task_id, "reason": exc.message})


def _in_node(units: Units, part: str) -> tuple[int, int]:
    try:
        return locate_in(units, part)
    except AweError:
        return _by_part(part)


def _by_part(_units: str) -> tuple[int, int]:
    return -1, -1


def _is_same(fact: Fact, io: Document) -> bool:
    known = ((fact.version, io.get("_version")), (fact.md5, io.get("_md5")))
    return fact.size_bytes == io["size"] and all(now == then for now, then in known if now and then)
