"""The workunits of one job, finished ones too: from memory, from the store, or from nowhere.

Ranks that were never handed out are no documents anywhere; they are made up from their task, also when the
job has ended and left memory. Filters and orders hold for all three kinds alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from awe_server.api.work_parameters import (
    BY_TASK,
    LIVE_STATES,
    MAX_SORTED,
    WorkListParameters,
    too_many_to_sort,
)
from awe_server.runtime.engine import Engine
from awe_server.scheduler.state import Job, State, Task, Workunit
from awe_server.scheduler.views import (
    pristine_document,
    pristine_state,
    stored_fresh_ranks,
    stored_pristine_document,
    stored_ranks,
    unit_document,
)
from awe_server.store.base import Document, Match, Page, Query
from shared_models.ids import JobId, TaskId, make_workunit_id
from shared_models.states import WorkunitState

States = frozenset[WorkunitState]


@dataclass(slots=True)
class _Cut:
    """A task that was cut, live or stored."""

    id: TaskId
    keys: dict[str, Any]  #: what it is sorted by, by order
    ranks: range
    fresh: range  #: ranks that were never handed out
    fresh_state: WorkunitState
    pristine: Callable[[int], Document | None]  #: what such a rank looks like
    units: Mapping[int, Workunit] = field(default_factory=dict)  #: its workunits in memory


async def find_of_job(engine: Engine, query: WorkListParameters, wanted: States) -> Page:
    """A page of a job's workunits; `wanted`: in these states, empty = in any.

    Raises TooLarge if too many had to be sorted.
    """
    whole = query.order in BY_TASK and not wanted and not query.client
    if JobId(query.jobid) in engine.state.jobs:
        if whole:
            return await _filled(engine, *await engine.look(_live_walk, query))
        if not wanted or wanted & LIVE_STATES:
            return await _gather(engine, query, wanted, *await engine.look(_live_matches, query, wanted))
        cuts = await engine.look(_live_cuts, query)
    else:
        cuts = await _stored_cuts(engine, query)
        if whole:
            return await _filled(engine, *_walk(cuts, query, sure=False))
    made_up = _made_up(cuts, query, wanted)
    where = _conditions(query, wanted)
    if query.order in BY_TASK:
        return await _stored_walk(engine, cuts, made_up, query, where)
    if made_up:
        found = [unit for cut in made_up.values() for unit in _fresh(cut, query)]
        return await _gather(engine, query, wanted, cuts, found, set())
    descending = query.direction == "desc"
    return await engine.find("workunits", Query(where, query.order, descending, query.rows, query.offset))


# -- tasks -------------------------------------------------------------------------------------------------


def _sorted(cuts: list[_Cut], query: WorkListParameters) -> list[_Cut]:
    found = [cut for cut in cuts if cut.ranks and query.taskid in ("", cut.id)]
    found.sort(key=lambda cut: cut.keys.get(query.order, 0), reverse=query.direction == "desc")
    return found


def _live_cuts(state: State, query: WorkListParameters) -> list[_Cut]:
    job = state.jobs[JobId(query.jobid)]
    return _sorted([_live_cut(job, task) for task in job.tasks if task.is_cut], query)


def _live_cut(job: Job, task: Task) -> _Cut:
    fresh = range(task.fresh_rank, task.end_rank)
    return _Cut(
        task.id,
        {"cmd.name": str(task.cmd.get("name") or ""), "totalwork": task.totalwork, "wuid": task.id},
        range(task.end_rank - task.totalwork, task.end_rank),
        fresh,
        pristine_state(task.state, job.state),
        lambda rank: pristine_document(task, rank) if rank in fresh else None,
        task.units,
    )


async def _stored_cuts(engine: Engine, query: WorkListParameters) -> list[_Cut]:
    """None if there is no such job."""
    job = await engine.get("jobs", query.jobid)
    if job is None:
        return []
    page = await engine.find("tasks", Query((Match("jobid", (query.jobid,)),), order="index"))
    return _sorted([_stored_cut(job, task) for task in page.documents], query)


def _stored_cut(job: Document, task: Document) -> _Cut:
    name = str(task["cmd"].get("name") or "")
    return _Cut(
        TaskId(task["id"]),
        {"cmd.name": name, "totalwork": task["totalwork"], "wuid": task["id"]},
        stored_ranks(task),
        stored_fresh_ranks(task),
        pristine_state(task["state"], job["state"]),
        lambda rank: stored_pristine_document(job, task, rank),
    )


def _made_up(cuts: Sequence[_Cut], query: WorkListParameters, wanted: States) -> dict[TaskId, _Cut]:
    """The tasks whose fresh ranks match: nobody ever held those."""
    if query.client:
        return {}
    return {cut.id: cut for cut in cuts if cut.fresh and (not wanted or cut.fresh_state in wanted)}


def _fresh(cut: _Cut, query: WorkListParameters, ranks: range | None = None) -> list[Document]:
    if ranks is None and len(cut.fresh) > MAX_SORTED:
        raise too_many_to_sort(len(cut.fresh), query)
    chosen = cut.fresh if ranks is None else ranks
    return [unit for rank in chosen if (unit := cut.pristine(rank)) is not None]


# -- all of them, task by task: a page costs what it shows -------------------------------------------------


def _live_walk(
    state: State, query: WorkListParameters
) -> tuple[list[str], dict[str, Document], list[str], int]:
    return _walk(_live_cuts(state, query), query, sure=True)


def _walk(
    cuts: Sequence[_Cut], query: WorkListParameters, *, sure: bool
) -> tuple[list[str], dict[str, Document], list[str], int]:
    """The ids of a page, what is known of them, those to be looked up, and how many there are in all.

    Unless `sure`, a stored document counts more than one that is made up.
    """
    ids: list[str] = []
    known: dict[str, Document] = {}
    look_up: list[str] = []
    total = 0
    for cut in cuts:
        first = max(0, query.offset - total)
        for rank in cut.ranks[first : first + query.rows - len(ids)]:
            id = make_workunit_id(cut.id, rank)
            ids.append(id)
            unit = cut.units.get(rank)
            document = unit_document(unit) if unit is not None else cut.pristine(rank)
            if document is not None:
                known[id] = document
            if document is None or not sure:
                look_up.append(id)
        total += len(cut.ranks)
    return ids, known, look_up, total


async def _filled(
    engine: Engine, ids: list[str], known: dict[str, Document], look_up: list[str], total: int
) -> Page:
    known |= await engine.get_many("workunits", look_up)
    return Page([known[id] for id in ids if id in known], total)


async def _stored_walk(
    engine: Engine,
    cuts: Sequence[_Cut],
    made_up: Mapping[TaskId, _Cut],
    query: WorkListParameters,
    where: tuple[Match, ...],
) -> Page:
    """Those that match, of each task the stored ones and then its fresh ranks."""
    counts = await engine.count_by("workunits", "taskid", where)
    page = Page()
    for cut in cuts:
        stored, fresh = counts.get(cut.id, 0), made_up[cut.id].fresh if cut.id in made_up else range(0)
        first = max(0, query.offset - page.total)
        room = query.rows - len(page.documents)
        if first < stored and room > 0:
            of_task = (*where, Match("taskid", (cut.id,)))
            units = await engine.find("workunits", Query(of_task, "rank", False, room, first))
            page.documents += units.documents
            room -= len(units.documents)
        start = max(0, first - stored)
        page.documents += _fresh(cut, query, fresh[start : start + max(0, room)])
        page.total += stored + len(fresh)
    return page


# -- those that match, from everywhere, sorted here --------------------------------------------------------


def _live_matches(
    state: State, query: WorkListParameters, wanted: States
) -> tuple[list[_Cut], list[Document], set[str]]:
    """The tasks, what matches in memory, and the ids of all that is there: stored documents of it are old."""
    cuts = _live_cuts(state, query)
    found = [unit for cut in _made_up(cuts, query, wanted).values() for unit in _fresh(cut, query)]
    live = [unit for cut in cuts for unit in cut.units.values()]
    found += [
        unit_document(unit)
        for unit in live
        if query.client in ("", unit.client) and (not wanted or unit.state in wanted)
    ]
    return cuts, found, {unit.id for unit in live}


async def _gather(
    engine: Engine,
    query: WorkListParameters,
    wanted: States,
    cuts: Sequence[_Cut],
    found: list[Document],
    live: set[str],
) -> Page:
    """`found` are those that match and are not stored."""
    stored = await engine.find("workunits", Query(_conditions(query, wanted), limit=MAX_SORTED))
    if (count := stored.total + len(found)) > MAX_SORTED:
        raise too_many_to_sort(count, query)
    found += [unit for unit in stored.documents if unit["id"] not in live]
    position = {cut.id: i for i, cut in enumerate(cuts)}
    found = [unit for unit in found if unit["taskid"] in position]
    found.sort(key=lambda unit: (position[unit["taskid"]], unit["rank"]))
    if query.order not in BY_TASK:
        found.sort(key=lambda unit: unit[query.order], reverse=query.direction == "desc")
    return Page(found[query.offset : query.offset + query.rows], len(found))


def _conditions(query: WorkListParameters, wanted: States) -> tuple[Match, ...]:
    where = [Match("jobid", (query.jobid,))]
    where += [Match("taskid", (query.taskid,))] if query.taskid else []
    where += [Match("state", tuple(sorted(wanted)))] if wanted else []
    where += [Match("client", (query.client,))] if query.client else []
    return tuple(where)
