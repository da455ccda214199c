"""`GET /work` without a client: which workunits there are.

Ranks that were never handed out exist only as a range in their task, so a list of a million of them is a walk
over ranges: a page costs what it shows, and totals are sums. Completed workunits are in the store alone:
work_of_job.py lists those, too.
"""

from collections.abc import Callable, Iterator
from typing import Any

from awe_server.api.work_of_job import find_of_job
from awe_server.api.work_parameters import (
    BY_TASK,
    LIVE_STATES,
    MAX_SORTED,
    WorkListParameters,
    too_many_to_sort,
)
from awe_server.runtime.engine import Engine
from awe_server.scheduler.state import State, Task
from awe_server.scheduler.views import pristine_document, unit_document
from awe_server.store.base import Document, Page
from shared_models.errors import BadRequest
from shared_models.ids import JobId
from shared_models.states import WorkunitState


async def find(engine: Engine, query: WorkListParameters) -> Page:
    """The page of workunit documents that was asked for.

    Raises BadRequest for a state that is none, or that needs a jobid; TooLarge if too many had to be sorted.
    """
    wanted = _states(query)
    if query.taskid and not query.jobid:
        query = query.model_copy(update={"jobid": query.taskid.partition("_")[0]})
    if not query.jobid:
        if not wanted <= LIVE_STATES:
            raise BadRequest(
                "state: completed and failed-permanent workunits are listed per job: add jobid=ID"
            )
        return await engine.look(live_page, query, wanted or LIVE_STATES)
    if wanted and wanted <= LIVE_STATES and JobId(query.jobid) in engine.state.jobs:
        return await engine.look(live_page, query, wanted)
    return await find_of_job(engine, query, wanted)


def _states(query: WorkListParameters) -> frozenset[WorkunitState]:
    for state in query.state:
        if state not in list(WorkunitState):
            raise BadRequest(f"state: '{state[:100]}' is not one of {', '.join(WorkunitState)}")
    return frozenset(WorkunitState(state) for state in query.state)


_KEYS: dict[str, Callable[[Task], Any]] = {
    "info.submittime": lambda task: task.job.jid,
    "info.name": lambda task: str(task.job.info.get("name") or ""),
    "info.priority": lambda task: task.job.priority,
    "cmd.name": lambda task: str(task.cmd.get("name") or ""),
    "totalwork": lambda task: task.totalwork,
    "wuid": lambda task: task.id,
}


def _tasks(state: State, query: WorkListParameters) -> list[Task]:
    job = state.jobs.get(JobId(query.jobid))
    jobs = state.jobs.values() if not query.jobid else [job] if job is not None else []
    tasks = (task for job in jobs for task in job.tasks)
    found = [task for task in tasks if task.is_cut and query.taskid in ("", task.id)]
    found.sort(key=lambda task: (task.job.jid, task.index))
    if query.order in BY_TASK:
        found.sort(key=_KEYS[query.order], reverse=query.direction == "desc")
    return found


def live_page(state: State, query: WorkListParameters, wanted: frozenset[WorkunitState]) -> Page:
    """Workunits that are not finished."""
    tasks = _tasks(state, query)
    if query.order in BY_TASK:
        return _walk(tasks, query, wanted)
    count = sum(_size(task, query, wanted) for task in tasks)
    if count > MAX_SORTED:
        raise too_many_to_sort(count, query)
    found = [unit for task in tasks for unit in _segment(task, query, wanted, 0, MAX_SORTED)]
    found.sort(key=lambda unit: unit[query.order], reverse=query.direction == "desc")
    return Page(found[query.offset : query.offset + query.rows], len(found))


def _walk(tasks: list[Task], query: WorkListParameters, wanted: frozenset[WorkunitState]) -> Page:
    """A page in the order of tasks, ranks within: skips what is before it by counting."""
    page = Page()
    for task in tasks:
        size = _size(task, query, wanted)
        first = max(0, query.offset - page.total)
        room = query.rows - len(page.documents)
        if first < size and room > 0:
            page.documents += _segment(task, query, wanted, first, room)
        page.total += size
    return page


def _fresh_state(task: Task) -> WorkunitState:
    return WorkunitState(pristine_document(task, task.fresh_rank)["state"])


def _units(task: Task, query: WorkListParameters, wanted: frozenset[WorkunitState]) -> list[int]:
    return sorted(
        rank
        for rank, unit in task.units.items()
        if unit.state in wanted and query.client in ("", unit.client)
    )


def _size(task: Task, query: WorkListParameters, wanted: frozenset[WorkunitState]) -> int:
    fresh = task.end_rank - task.fresh_rank
    counts = fresh > 0 and not query.client and _fresh_state(task) in wanted
    return len(_units(task, query, wanted)) + (fresh if counts else 0)


def _segment(
    task: Task, query: WorkListParameters, wanted: frozenset[WorkunitState], first: int, room: int
) -> Iterator[Document]:
    """Workunits of one task: those that were handed out before, then ranks that never were."""
    ranks = _units(task, query, wanted)
    for rank in ranks[first : first + room]:
        yield unit_document(task.units[rank])
    if _size(task, query, wanted) > len(ranks):
        start = task.fresh_rank + max(0, first - len(ranks))
        end = min(task.end_rank, task.fresh_rank + first + room - len(ranks))
        for rank in range(start, end):
            yield pristine_document(task, rank)
