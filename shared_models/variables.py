"""The variables that a command finds in its environment besides those of its job.

Our client builds the environment of each attempt (awe_client/daemon/environment.py); a document that names
others would fail there, and only there.
"""

from collections.abc import Iterable

#: Of the client's own environment; each only where the client has it, PATH always.
INHERITED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ")
#: The same in a container, which knows nothing of the client's environment.
INHERITED_IN_CONTAINER = ("HOME",)
#: Where temporary files go; a job may say another place.
TEMPORARY = "TMPDIR"
#: Given by a job: the index of its first rank. Each rank then finds its own in AWE_ARRAY_INDEX.
ARRAY_FIRST = "AWE_ARRAY_FIRST"
ARRAY_INDEX = "AWE_ARRAY_INDEX"
#: What the client says of the attempt; no job may say otherwise.
ATTEMPT = (
    "AWE_SERVER",
    "AWE_JOB_ID",
    "AWE_TASK_ID",
    "AWE_WORK_ID",
    "AWE_RANK",
    "AWE_TOTALWORK",
    "AWE_ATTEMPT",
    "AWE_CORES",
)
RESERVED = frozenset({*ATTEMPT, ARRAY_INDEX})


def set_variables(environ: Iterable[str], *, in_container: bool) -> set[str]:
    """The names that may be set for a command whose job sets `environ`."""
    names = {*environ, *ATTEMPT, TEMPORARY, *(INHERITED_IN_CONTAINER if in_container else INHERITED)}
    return names | {ARRAY_INDEX} if ARRAY_FIRST in names else names
