"""What may be asked of `GET /work` as a list."""

from typing import Annotated, Literal

from pydantic import Field

from awe_server.api.params import Flag, Many, Paging
from shared_models.errors import TooLarge
from shared_models.states import WorkunitState

LIVE_STATES = frozenset({WorkunitState.QUEUED, WorkunitState.CHECKOUT, WorkunitState.SUSPEND})
#: Orders by a value of the workunit itself have to look at each one.
MAX_SORTED = 100_000

Order = Literal[
    "info.submittime", "info.name", "info.priority", "cmd.name", "totalwork", "wuid",
    "rank", "state", "failed", "client", "checkout_time",
]  # fmt: skip

#: Orders by what all workunits of a task share; others have to look at each workunit.
BY_TASK = frozenset({"info.submittime", "info.name", "info.priority", "cmd.name", "totalwork", "wuid"})


class WorkListParameters(Paging):
    """Of GET /work without `client`."""

    order: Order = Field("info.submittime", description="ties are broken by job, task and rank")
    state: Annotated[Many, Field(description="queued, checkout, suspend; others with jobid only")]
    jobid: str = Field("", description="all workunits of one job, completed ones too")
    taskid: str = Field("", description="all workunits of one task, completed ones too")
    client: str = Field("", description="held, or held last, by this client")
    query: Flag = Field(False, description="accepted for AWE's clients")


def too_many_to_sort(count: int, query: WorkListParameters) -> TooLarge:
    """The refusal to sort so many."""
    return TooLarge(
        f"{count} workunits are too many to sort by {query.order}: "
        "filter by jobid or taskid, or order by wuid"
    )
