"""`/queue`: how much there is of everything, and the switch that stops handing out work."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from awe_server.api.deps import Asking, Served
from awe_server.api.envelope import Envelope, ok
from awe_server.api.params import Flag, Parameters, one_of
from awe_server.auth import policy
from awe_server.auth.policy import Right
from awe_server.scheduler.queue import queue_counts, resume_queue, suspend_queue
from shared_models.times import rfc3339
from shared_models.views import QueueCounts

router = APIRouter(prefix="/queue", tags=["queue"])

#: AWE's block, label by label: scripts grep it. Each line: label, section, key.
_LINES = (
    ("total jobs ............... ", "jobs", "total"),
    ("    active:           ", "jobs", "active"),
    ("    suspended:        ", "jobs", "suspended"),
    ("total tasks .............. ", "tasks", "total"),
    ("    queuing:          ", "tasks", "queuing"),
    ("    in-progress:      ", "tasks", "in-progress"),
    ("    pending:          ", "tasks", "pending"),
    ("    completed:        ", "tasks", "completed"),
    ("    suspended:        ", "tasks", "suspended"),
    ("    failed & skipped: ", "tasks", "failed"),
    ("total workunits .......... ", "workunits", "total"),
    ("    queuing:          ", "workunits", "queuing"),
    ("    checkout:         ", "workunits", "checkout"),
    ("    suspended:        ", "workunits", "suspended"),
    ("total clients ............ ", "clients", "total"),
    ("    busy:             ", "clients", "busy"),
    ("    idle:             ", "clients", "idle"),
    ("    suspend:          ", "clients", "suspended"),
)


class QueueParameters(Parameters):
    """Of GET /queue."""

    as_json: Flag = Query(False, alias="json", description="counts as JSON instead of the text block")


@router.get(
    "", summary="Counts of jobs, tasks, workunits and clients", response_model=Envelope[QueueCounts | str]
)
async def show(services: Served, query: Annotated[QueueParameters, Query()]) -> Response:
    """One text block as AWE prints it; with `?json` the numbers."""
    counts = await services.engine.look(queue_counts)
    return ok(counts if query.as_json else _text(counts, services.wall()))


def _text(counts: dict[str, Any], wall_s: float) -> str:
    lines = ["++++++++AWE server queue status++++++++"]
    for label, section, key in _LINES:
        count = counts[section].get(key, 0)
        lines.append(f"{label}{count}" if key == "total" else f"{label}({count})")
    return "\n".join([*lines, f"---last update: {rfc3339(wall_s)}", ""])


class QueueVerbs(Parameters):
    """Of PUT /queue."""

    suspend: Flag = False
    resume: Flag = False


@router.put("", summary="Stop or go on handing out work", response_model=Envelope[str])
async def steer(services: Served, caller: Asking, query: Annotated[QueueVerbs, Query()]) -> Response:
    """While it is suspended only checkouts are refused; reports and submissions go on. Survives a restart."""
    policy.allow(caller, Right.WRITE)
    verb, _ = one_of(dict(query), "requested queue operation not supported")
    if verb == "suspend":
        await services.engine.do(suspend_queue)
        return ok("work queue suspended")
    await services.engine.do(resume_queue)
    return ok("work queue resumed")
