"""A task's outputs were made whole, or could not be."""

from collections.abc import Sequence

from awe_server.scheduler.facts import OutputFact
from awe_server.scheduler.failure import halt_task
from awe_server.scheduler.places import left_behind
from awe_server.scheduler.progress import close_task, note, with_outputs
from awe_server.scheduler.state import Context, State, Task, Workunit
from shared_models.ids import TaskId, WorkunitId

__all__ = ["OutputFact", "task_finished", "task_unfinishable"]


def task_finished(
    state: State,
    ctx: Context,
    task_id: TaskId,
    generation: int,
    outputs: Sequence[OutputFact],
    remark: str = "",
) -> None:
    """All outputs are whole: the task is completed, with what a person should know in its notes.

    Void for an older generation or a suspended task.
    """
    task = _finishing(state, task_id, generation)
    if task is None:
        return
    things = left_behind(task)
    task.outputs = with_outputs(task.outputs, outputs)
    state.delete_nodes(ctx, things.nodes)
    state.delete_places(ctx, things.places, task.job.id)
    if remark:
        task.notes = note(task.notes, remark)
    close_task(state, ctx, task)


def task_unfinishable(
    state: State, ctx: Context, task_id: TaskId, generation: int, reason: str, lost: Sequence[int] = ()
) -> None:
    """The outputs cannot be made whole: suspend task and job with the reason; resume tries again.

    `lost` are the ranks whose results are not to be found any more: these and no others are done again then.
    """
    task = _finishing(state, task_id, generation)
    if task is None:
        return
    for rank in lost:
        unit = Workunit(WorkunitId(f"{task.wuid_prefix}{rank}"), task, rank)
        unit.attempt = task.max_attempt
        task.units[rank] = unit
        state.workunits[unit.id] = unit
    task.done -= len(lost)
    halt_task(state, ctx, task, "finishing", reason)


def _finishing(state: State, task_id: TaskId, generation: int) -> Task | None:
    task = state.tasks.get(task_id)
    if task is None or task.generation != generation or not task.finishing:
        return None
    return task
