"""`GET /work` without a client: which workunits there are.

Ranks that were never handed out exist only as a range in their task, so a list of a million of them is a walk
over ranges: a page costs what it shows, and totals are sums. Completed workunits are in the store alone.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from awe_server.api.params import Flag, Many, Paging
from awe_server.runtime.engine import Engine
from awe_server.scheduler.state import State, Task
from awe_server.scheduler.views import pristine_document, unit_document, workunit_document
from awe_server.store.base import Document, Match, Page, Query
from shared_models.errors import BadRequest, TooLarge
from shared_models.ids import JobId, TaskId, WorkunitId, make_workunit_id
from shared_models.states import WorkunitState

LIVE_STATES = frozenset({WorkunitState.QUEUED, WorkunitState.CHECKOUT, WorkunitState.SUSPEND})
#: Orders by a value of the workunit itself have to look at each one.
MAX_SORTED = 100_000

Order = Literal[
    "info.submittime", "info.name", "info.priority", "cmd.name", "totalwork", "wuid",
    "rank", "state", "failed", "client", "checkout_time",
]  # fmt: skip

_BY_TASK: dict[str, Callable[[Task], Any]] = {
    "info.submittime": lambda task: task.job.jid,
    "info.name": lambda task: str(task.job.info.get("name") or ""),
    "info.priority": lambda task: task.job.priority,
    "cmd.name": lambda task: str(task.cmd.get("name") or ""),
    "totalwork": lambda task: task.totalwork,
    "wuid": lambda task: task.id,
}


class WorkListParameters(Paging):
    """Of GET /work without `client`."""

    order: Order = Field("info.submittime", description="ties are broken by job, task and rank")
    state: Annotated[Many, Field(description="queued, checkout, suspend; others with jobid only")]
    jobid: str = Field("", description="all workunits of one job, completed ones too")
    taskid: str = Field("", description="all workunits of one task, completed ones too")
    client: str = Field("", description="held by this client")
    query: Flag = Field(False, description="accepted for AWE's clients")


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
    if JobId(query.jobid) not in engine.state.jobs or (wanted and not wanted & LIVE_STATES):
        return await engine.find("workunits", _stored(query, wanted))
    if wanted and wanted <= LIVE_STATES:
        return await engine.look(live_page, query, wanted)
    if wanted:
        raise BadRequest(
            "state: name either states of work to do (queued, checkout, suspend) or of finished work"
        )
    return await _all_of_job(engine, query)


def _states(query: WorkListParameters) -> frozenset[WorkunitState]:
    for state in query.state:
        if state not in list(WorkunitState):
            raise BadRequest(f"state: '{state[:100]}' is not one of {', '.join(WorkunitState)}")
    return frozenset(WorkunitState(state) for state in query.state)


def _stored(query: WorkListParameters, wanted: frozenset[WorkunitState]) -> Query:
    where = [Match("jobid", (query.jobid,))]
    where += [Match("taskid", (query.taskid,))] if query.taskid else []
    where += [Match("state", tuple(sorted(wanted)))] if wanted else []
    if query.order in _BY_TASK:
        return Query(tuple(where), "rank", False, query.rows, query.offset)
    return Query(tuple(where), query.order, query.direction == "desc", query.rows, query.offset)


def _tasks(state: State, query: WorkListParameters) -> list[Task]:
    if query.jobid:
        job = state.jobs.get(JobId(query.jobid))
        tasks = list(job.tasks) if job else []
    else:
        tasks = [task for job in state.jobs.values() for task in job.tasks]
    found = [task for task in tasks if task.is_cut and query.taskid in ("", task.id)]
    found.sort(key=lambda task: (task.job.jid, task.index))
    if key := _BY_TASK.get(query.order):
        found.sort(key=key, reverse=query.direction == "desc")
    return found


def live_page(state: State, query: WorkListParameters, wanted: frozenset[WorkunitState]) -> Page:
    """Workunits that are not finished."""
    tasks = _tasks(state, query)
    if query.order in _BY_TASK:
        return _walk(tasks, query, wanted)
    count = sum(len(task.units) + task.end_rank - task.fresh_rank for task in tasks)
    if count > MAX_SORTED:
        raise TooLarge(
            f"{count} workunits are too many to sort by {query.order}: filter by jobid, or order by wuid"
        )
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


async def _all_of_job(engine: Engine, query: WorkListParameters) -> Page:
    """Every workunit of a job that is not over: live ones from memory, finished ones from the store."""
    ids, total, live = await engine.look(_ids_of_job, query)
    stored = await engine.get_many("workunits", [id for id in ids if id not in live])
    return Page([live.get(id) or stored[id] for id in ids if id in live or id in stored], total)


def _ids_of_job(
    state: State, query: WorkListParameters
) -> tuple[list[WorkunitId], int, dict[WorkunitId, Document]]:
    ids: list[WorkunitId] = []
    total = 0
    for task in _tasks(state, query):
        first_rank = task.end_rank - task.totalwork
        first = first_rank + max(0, query.offset - total)
        room = query.rows - len(ids)
        ids += [make_workunit_id(TaskId(task.id), r) for r in range(first, min(task.end_rank, first + room))]
        total += task.totalwork
    documents = ((id, workunit_document(state, id)) for id in ids)
    return ids, total, {id: document for id, document in documents if document is not None}
