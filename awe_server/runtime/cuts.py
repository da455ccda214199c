"""Is the input that a task was cut from still what it was? Asked whenever parts of it are handed out.

A part is a range of units, so it means the right bytes only in the file and the index that the task was cut
by: with other content, parts handed out before and after would not add up to any file.
"""

from awe_server.data.nodes import NodeStore
from awe_server.runtime.engine import Engine
from awe_server.scheduler.parts import cut_names, group_size
from awe_server.scheduler.ready import cut_is_void
from awe_server.scheduler.state import Document, Task
from shared_models.errors import AweError


async def cut_nodes(engine: Engine, nodes: NodeStore, task: Task) -> list[Document | None]:
    """The nodes that the task's workunits get parts of, as `cut_names` has them.

    None stands for a file that is not ours or cannot be read. When one is not what it was, the job is
    suspended with the reason: no grant of the task is held any more.
    """
    part = task.partinfo or {}
    files = {io["filename"]: io for io in task.inputs}
    return [await _cut_node(engine, nodes, task, files[name], part) for name in cut_names(part)]


async def _cut_node(
    engine: Engine, nodes: NodeStore, task: Task, io: Document, part: Document
) -> Document | None:
    if not io.get("node") or io.get("host"):
        return None
    generation = task.generation
    try:
        node = await nodes.get(io["node"])
        problem = await _difference(nodes, node, io, part)
        if not problem:
            await nodes.ready(node, part["index"])
    except AweError:
        return None
    if problem:
        await engine.do(cut_is_void, task.id, generation, problem)
        return None
    return node


async def _difference(nodes: NodeStore, node: Document, io: Document, part: Document) -> str:
    """How a node differs from what was cut; "" if it does not. An index that was lost is built again."""
    name, kind = io["filename"], part["index"]
    file = node["file"]
    if file is None or file["size"] != io["size"] or io.get("_md5", "") not in ("", file["checksum"]["md5"]):
        return f"input file {name} was replaced after it was cut: recompute the task to cut it again"
    index = node["indexes"].get(kind)
    units = index["total_units"] if index else (await nodes.build_index(node["id"], kind)).total_units
    cut_by = part["totalindex"] * group_size(part)
    if units != cut_by:
        return f"input file {name} has {units} units now, it was cut by {cut_by}: recompute the task"
    return ""
