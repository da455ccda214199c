"""How many workunits a task is cut into, and which units of the index each one gets. Pure arithmetic."""

from collections.abc import Callable

from awe_server.scheduler.facts import TaskFacts
from awe_server.scheduler.parts import cut_names, group_size, is_grouped
from awe_server.scheduler.state import Document, Task
from shared_models.archives import is_archive
from shared_models.limits import MIB

#: Units of these kinds are about 1 MiB, so `maxworksize` counts them; of others the bytes are counted.
_MIB_UNITS = frozenset({"chunkrecord", "size"})

#: Named by nobody: whole records of about 1 MiB; if those are too few, single records.
DEFAULT_KINDS = ("chunkrecord", "record")

MANY_INPUTS_NOTE = "not split: several inputs and no partinfo.input that says which one to cut"
ARCHIVES_NOTE = "not split: folders and patterns are not cut"


def is_array(task: Task) -> bool:
    """Whether the task is `totalwork` copies of one command, with nothing cut."""
    wanted = task.partinfo_wanted or {}
    return not task.inputs or wanted.get("index") == "none"


def part_inputs(task: Task) -> list[Document]:
    """The inputs that may be cut: those partinfo names, or the only one that is a single file."""
    named = cut_names(task.partinfo_wanted)
    if named:
        files = {io["filename"]: io for io in task.inputs}
        return [files[name] for name in named]
    single = [io for io in task.inputs if not is_archive(io["filename"])]
    return single if len(single) == 1 else []


def why_uncut(task: Task) -> str:
    """Why there are no `part_inputs`."""
    is_all_archives = all(is_archive(io["filename"]) for io in task.inputs)
    return ARCHIVES_NOTE if is_all_archives else MANY_INPUTS_NOTE


def index_candidates(task: Task) -> tuple[str, ...]:
    """Index kinds to try in this order, until one is `enough`; () = nothing is cut.

    Source: AWE lib/core/task.go InitPartIndex; differs: AWE knows only chunkrecord.
    """
    if (task.totalwork_wanted <= 1 and not task.maxworksize) or is_array(task):
        return ()
    if not part_inputs(task):
        return ()
    named = (task.partinfo_wanted or {}).get("index")
    if is_grouped(task.partinfo_wanted):
        return ("line",) if named == "line" else ("record",)
    return (named,) if named else DEFAULT_KINDS


def mismatch(task: Task, facts: TaskFacts) -> str:
    """Why files do not belong together, or do not fall into whole groups; "" if nothing is wrong."""
    part = task.partinfo_wanted
    if not facts.counts or not is_grouped(part):
        return ""
    what = "lines" if facts.index == "line" else "records"
    files = [(io["filename"], count) for io, count in zip(part_inputs(task), facts.counts, strict=True)]
    if len(set(facts.counts)) > 1:
        told = ", ".join(f"{name} has {count} {what}" for name, count in files)
        return f"paired inputs differ: {told}"
    together = group_size(part)
    if facts.counts[0] % together:
        name, count = files[0]
        return f"{name} has {count} {what}, no multiple of {together} (partinfo.options)"
    return ""


def groups_of(task: Task, units: int) -> int:
    """How many groups of units that belong together there are; nothing at all is one empty group."""
    return max(1, units // group_size(task.partinfo_wanted))


def ranks_of(task: Task, facts: TaskFacts) -> int:
    """How many workunits a task is cut into, as the facts about its inputs say."""
    if is_array(task):
        return task.totalwork_wanted
    cut = {io["filename"] for io in part_inputs(task)}
    if not cut or not facts.index or not facts.units:
        return 1
    if task.totalwork_wanted <= 1 and not task.maxworksize:
        return 1
    size_bytes = sum({f.filename: f.size_bytes for f in facts.inputs if f.filename in cut}.values())
    units = groups_of(task, facts.units)
    return plan(task.totalwork_wanted, task.maxworksize, facts.index, units, size_bytes)


def enough(task: Task, units: int) -> bool:
    """Whether an index has units for each workunit that was asked for."""
    return groups_of(task, units) >= task.totalwork_wanted


def plan(totalwork: int, maxworksize_mb: int, kind: str, units: int, size_bytes: int = 0) -> int:
    """How many workunits an input of `units` units is cut into; at least 1.

    Source: AWE lib/core/task.go InitPartIndex; differs: with an index whose units are not 1 MiB, maxworksize
    bounds the bytes of a part (AWE counts each record as 1 MB).
    """
    wanted = max(totalwork, 1)
    if maxworksize_mb > 0:
        if kind in _MIB_UNITS:
            by_size = -(-units // maxworksize_mb)
        else:
            by_size = -(-size_bytes // (maxworksize_mb * MIB))
        wanted = max(wanted, by_size)
    return max(1, min(wanted, units))


def part_range(rank: int, n: int, groups: int, together: int = 1) -> str:
    """The units of one rank out of 1..n, as AWE and Shock write them: `3-4`, or `5` for a single one.

    `together` units make a group, of which there are `groups`.
    """
    start, end = part_bounds(rank, n, groups)
    start, end = (start - 1) * together + 1, end * together
    return f"{start}-{end}" if end > start else str(start)


def part_bounds(rank: int, n: int, units: int) -> tuple[int, int]:
    """First and last unit of one rank, counted from 1: the first `units % n` ranks get one more."""
    size, more = divmod(units, n)
    start = (rank - 1) * size + min(rank - 1, more) + 1
    return start, start + size - (0 if rank <= more else 1)


def uncovered(n: int, units: int, bounds: Callable[[int, int, int], tuple[int, int]] = part_bounds) -> str:
    """What is wrong with a cut into n parts; "" if they are the units 1..units, each once, none empty.

    Costs the same for every n: the bounds are linear in the rank up to `units % n`, and from there on, so
    what holds at both ends of the two stretches holds between.
    """
    seam = units % n
    if (bounds(1, n, units)[0], bounds(n, n, units)[1]) != (1, units):
        return f"parts 1 to {n} are not units 1 to {units}"
    for rank in (1, seam, seam + 1, n):
        if 1 <= rank <= n and bounds(rank, n, units)[0] > bounds(rank, n, units)[1]:
            return f"part {rank} of {n} is empty"
    for rank in (1, seam - 1, seam, seam + 1, n - 1):
        if 1 <= rank < n and bounds(rank + 1, n, units)[0] != bounds(rank, n, units)[1] + 1:
            return f"part {rank + 1} of {n} does not begin where part {rank} ends"
    return ""


def processed(part: Document, done: int, n: int) -> Document:
    """`partinfo` with what the first `done` of n parts are of the input: in the end, all of it."""
    units = part_bounds(done, n, part["totalindex"])[1]
    is_all = units == part["totalindex"]
    return {**part, "doneindex": units, "donerecords": part.get("totalrecords") if is_all else None}
