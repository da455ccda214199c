"""Where a client puts the output of an attempt beside the file that the server will make of it.

A folder of the task in the target's own directory: on one file system, so that putting the file in its place
is a rename. Its files are `<rank>.<attempt>`, whole once they have that name. A task that is set back has
another folder: what is removed of the old one, however late, is not of the new.
"""

import hashlib
from posixpath import dirname

from shared_models.ids import TaskId

STAGE_PREFIX = ".awe-"  #: of the folder's name


def stage_folder(target: str, task_id: TaskId, generation: int) -> str:
    """Give the path of the folder in which the attempts of one generation of a task stage one output."""
    key = hashlib.sha256(f"{task_id}\n{generation}\n{target}".encode()).hexdigest()[:12]
    folder = dirname(target)
    return f"{folder if folder != '/' else ''}/{STAGE_PREFIX}{key}"


def stage_name(rank: int, attempt: int) -> str:
    """Give the name of an attempt's file in that folder."""
    return f"{rank}.{attempt}"
