"""A task's inputs were looked at: cut it, or say why it cannot run, or not on."""

from awe_server.scheduler.facts import InputFact, OutputFact, TaskFacts
from awe_server.scheduler.failure import halt_task
from awe_server.scheduler.parts import cut_names
from awe_server.scheduler.progress import cut, note, with_outputs
from awe_server.scheduler.split import (
    groups_of,
    is_array,
    mismatch,
    part_inputs,
    ranks_of,
    uncovered,
    why_uncut,
)
from awe_server.scheduler.state import RUNNING_TASKS, Context, Document, State, Task
from shared_models.ids import TaskId

__all__ = ["InputFact", "OutputFact", "TaskFacts", "task_prepared", "task_refused"]


def task_prepared(state: State, ctx: Context, task_id: TaskId, generation: int, facts: TaskFacts) -> None:
    """Cut the task into workunits, once it is sure that they get every unit of the input exactly once.

    Facts of an older generation, or of a task that nobody looks at any more, are void.
    """
    task = _looked_at(state, task_id, generation)
    if task is None:
        return
    ranks, part, why_not = _partition(task, facts)
    problem = _other_content(task, facts) or mismatch(task, facts)
    if part and not problem and (why := uncovered(ranks, part["totalindex"])):
        problem = f"{' and '.join(cut_names(part))} cannot be cut: {why}"
    if problem:
        halt_task(state, ctx, task, "enqueuing", problem)
        return
    task.inputs = _with_inputs(task.inputs, facts)
    task.predata = _with_inputs(task.predata, facts)
    task.outputs = with_outputs(task.outputs, facts.outputs)
    task.demand = None  # the places of its files are known only now
    task.partinfo = part or task.partinfo_wanted
    if why_not:
        task.notes = note(task.notes, why_not)
    cut(state, ctx, task, ranks)
    task.set_input_bytes()


def task_refused(state: State, ctx: Context, task_id: TaskId, generation: int, reason: str) -> None:
    """The task cannot run as it is (say, an input is missing): suspend it and its job with the reason."""
    task = _looked_at(state, task_id, generation)
    if task is None:
        return
    halt_task(state, ctx, task, "enqueuing", reason)


def cut_is_void(state: State, ctx: Context, task_id: TaskId, generation: int, reason: str) -> None:
    """The input is not what the task was cut from: suspend it and its job before more parts are handed out.

    Void for an older generation, or a task whose workunits are all done.
    """
    task = state.tasks.get(task_id)
    if task is None or task.generation != generation or task.state not in RUNNING_TASKS or task.finishing:
        return
    halt_task(state, ctx, task, "handing out", reason)


def _looked_at(state: State, task_id: TaskId, generation: int) -> Task | None:
    task = state.tasks.get(task_id)
    if task is None or task.generation != generation or not task.preparing:
        return None
    return task


def _other_content(task: Task, facts: TaskFacts) -> str:
    """Which file has not the content that the document states, as far as that is known here; "" if none."""
    known = {fact.filename: fact.md5 for fact in facts.inputs}
    for io in (*task.inputs, *task.predata):
        stated, found = io.get("md5"), known.get(io["filename"])
        if stated and found and stated != found:
            return f"input file {io['filename']} has md5 {found}, not {stated} as the document says"
    return ""


def _with_inputs(files: list[Document], facts: TaskFacts) -> list[Document]:
    known = {fact.filename: fact for fact in facts.inputs}
    return [_with_input(io, known.get(io["filename"])) for io in files]


def _with_input(io: Document, fact: InputFact | None) -> Document:
    if fact is None:
        return io
    told = {"_md5": fact.md5, "_version": fact.version, "_index": fact.index}
    changed = {**{key: value for key, value in io.items() if key not in told}, "size": fact.size_bytes}
    told |= {"node": fact.node, "url": fact.url}
    return changed | {key: value for key, value in told.items() if value}


def _partition(task: Task, facts: TaskFacts) -> tuple[int, Document | None, str]:
    """Number of workunits, how they are cut, and why not although that was asked for."""
    ranks = ranks_of(task, facts)
    if is_array(task) or (task.totalwork_wanted <= 1 and not task.maxworksize):
        return ranks, None, facts.note
    sources = part_inputs(task)
    if not sources:
        return ranks, None, facts.note or why_uncut(task)
    if not facts.index or not facts.units:
        return ranks, None, facts.note or "not split: the input has no units to cut between"
    if ranks == 1:
        return ranks, None, facts.note
    part = {
        **(task.partinfo_wanted or {"options": ""}),
        "input": sources[0]["filename"],
        "index": facts.index,
        "totalindex": groups_of(task, facts.units),
        "totalrecords": facts.records,
        "maxpartsize_mb": task.maxworksize,
    }
    return ranks, part, facts.note
