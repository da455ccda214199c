"""Where tests find, or put, what an attempt staged."""

from shared_models.ids import TaskId
from shared_models.staging import stage_folder, stage_name


def stage_path(target: str, task_id: TaskId, generation: int, rank: int, attempt: int) -> str:
    """Give the path at which an attempt stages an output that will be the file `target`."""
    return f"{stage_folder(target, task_id, generation)}/{stage_name(rank, attempt)}"
