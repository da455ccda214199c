"""`GET /job`: which jobs, in what order, in what detail.

AWE reads filters only after `?query`; here they work with and without it, and `?active`, `?suspend`,
`?registered` are filters among others, so pages and totals always fit together. Values are typed: AWE's
`?query&info.priority=5` never found anything.
"""

from collections import defaultdict
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from awe_server.api import views
from awe_server.api.deps import beside
from awe_server.api.params import Flag, Many, Paging, split_list
from awe_server.runtime.engine import Engine
from awe_server.scheduler.state import State
from awe_server.scheduler.views import job_document, task_document
from awe_server.store.base import AnyOf, Document, Match, Page, Query
from shared_models.errors import BadRequest, TooLarge
from shared_models.ids import JobId
from shared_models.states import JobState
from shared_models.times import parse_rfc3339, rfc3339

#: Tasks joined into one page; a page of giant jobs has to be asked for in smaller pieces or less detail.
MAX_LISTED_TASKS = 20_000

ACTIVE = ("init", "queued", "in-progress")
LIVE = (*ACTIVE, "suspend")

Order = Literal[
    "info.submittime", "info.startedtime", "info.completedtime", "info.name", "info.user", "info.project",
    "info.pipeline", "info.priority", "info.service", "state", "updatetime", "jid", "id",
]  # fmt: skip

#: Where an order is kept under another name: as texts, 100000 would come before 99999.
_STORED_ORDER = {"jid": "_jid"}

_DAY = "%Y-%m-%d"


class JobListParameters(Paging):
    """Of GET /job."""

    open_prefixes: ClassVar[tuple[str, ...]] = ("info.userattr.",)

    order: Order = Field("info.submittime", description="ties are broken by id")
    id: Many
    state: Annotated[Many, Field(examples=["queued,in-progress"])]
    jid: Many
    name: Many
    user: Many
    project: Many
    pipeline: Many
    service: Many
    clientgroups: Annotated[str | None, Field(description="the job's whole comma list")] = None
    priority: int | None = None
    info_name: Annotated[Many, Field(alias="info.name")]
    info_user: Annotated[Many, Field(alias="info.user")]
    info_project: Annotated[Many, Field(alias="info.project")]
    info_pipeline: Annotated[Many, Field(alias="info.pipeline")]
    info_service: Annotated[Many, Field(alias="info.service")]
    info_clientgroups: str | None = Field(None, alias="info.clientgroups")
    info_priority: int | None = Field(None, alias="info.priority")
    date_start: str = Field("", description="submitted or completed at or after; RFC 3339 or YYYY-MM-DD")
    date_end: str = Field("", description="submitted or completed before")
    query: Flag = Field(False, description="accepted for AWE's clients; filters work without it")
    active: Flag = Field(False, description="init, queued or in-progress")
    suspend: Flag = Field(False, description="suspended")
    registered: Flag = Field(False, description="active or suspended")
    recent: Flag = Field(False, description="accepted for AWE's clients; does nothing, as there")
    verbosity: Literal["full", "job", "minimal"] = Field(
        "full", description="full: with tasks; job: without them; minimal: AWE's short rows"
    )
    distinct: str = Field("", description="instead of jobs, the different values of this field of info")


_FIELDS = {
    "id": ("id",),
    "state": ("state",),
    "jid": ("jid",),
    "info.name": ("name", "info_name"),
    "info.user": ("user", "info_user"),
    "info.project": ("project", "info_project"),
    "info.pipeline": ("pipeline", "info_pipeline"),
    "info.service": ("service", "info_service"),
}


def conditions(query: JobListParameters) -> list[Match | AnyOf]:
    """The store's conditions for what was asked. Raises BadRequest for a state or date that is none."""
    found: list[Match | AnyOf] = []
    for state in query.state:
        if state not in list(JobState):
            raise BadRequest(f"state: '{state[:100]}' is not one of {', '.join(JobState)}")
    for field, names in _FIELDS.items():
        found += [Match(field, tuple(values)) for name in names if (values := getattr(query, name))]
    for value in (query.clientgroups, query.info_clientgroups):
        found += [] if value is None else [Match("info.clientgroups", (value,))]
    for number in (query.priority, query.info_priority):
        found += [] if number is None else [Match("info.priority", (number,))]
    for name, raw in (query.model_extra or {}).items():
        found.append(Match(name, any_type(split_list(raw))))
    for asked, states in ((query.active, ACTIVE), (query.suspend, ("suspend",)), (query.registered, LIVE)):
        found += [Match("state", states)] if asked else []
    return found + _dates(query.date_start, query.date_end)


def any_type(texts: list[str]) -> tuple[str | int | float | bool, ...]:
    """The values a text in a URL may stand for: attributes of users have any type."""
    values: list[str | int | float | bool] = []
    for text in texts:
        values.append(text)
        if text in ("true", "false"):
            values.append(text == "true")
        try:
            values.append(float(text) if "." in text or "e" in text.lower() else int(text))
        except ValueError:
            continue
    return tuple(values)


def _dates(start: str, end: str) -> list[Match | AnyOf]:
    """AWE: submitted or completed in [start, end)."""
    if not (start or end):
        return []
    lowest = _moment(start) if start else rfc3339(1.0)
    highest = _moment(end) if end else "9999"
    both = [
        [Match(field, (lowest,), "ge"), Match(field, (highest,), "lt")]
        for field in ("info.submittime", "info.completedtime")
    ]
    # (a and b) or (c and d), in the only form that a store's query has: an and of ors.
    return [AnyOf((one, other)) for one in both[0] for other in both[1]]


def _moment(text: str) -> str:
    try:
        if len(text) == len("2006-01-02"):
            return rfc3339(datetime.strptime(text, _DAY).replace(tzinfo=UTC).timestamp())
        return rfc3339(parse_rfc3339(text))
    except (ValueError, OverflowError, OSError) as exc:
        raise BadRequest(f"Invalid datetime format: {text[:100]}") from exc


async def find(engine: Engine, query: JobListParameters) -> Page:
    """The page of job documents that was asked for."""
    return await engine.find(
        "jobs",
        Query(
            where=tuple(conditions(query)),
            order=_STORED_ORDER.get(query.order, query.order),
            descending=query.direction == "desc",
            limit=query.rows,
            offset=query.offset,
        ),
    )


async def rows(engine: Engine, query: JobListParameters, page: Page, base_url: str) -> list[Document]:
    """What is shown of each job of a page, counts as they are now.

    Raises TooLarge if their tasks are too many for one reply.
    """
    ids = [JobId(job["id"]) for job in page.documents]
    with_tasks = query.verbosity != "job"
    if with_tasks:
        _bounded(sum(len(job["task_names"]) for job in page.documents))
    live = await engine.look(_live, ids, with_tasks)
    tasks = await _stored_tasks(engine, [id for id in ids if with_tasks and id not in live])

    def show() -> list[Document]:
        return [
            _row(query.verbosity, *live.get(job["id"], (job, tasks[job["id"]])), base_url, job["id"] in live)
            for job in page.documents
        ]

    return await beside(sum(len(job["task_names"]) for job in page.documents), show)


def _row(verbosity: str, job: Document, tasks: list[Document], base_url: str, live: bool) -> Document:
    match verbosity:
        case "job":
            return views.job_head(job, live=live)
        case "minimal":
            return views.job_min(job, tasks)
        case _:
            return views.job_row(job, tasks, base_url, live=live)


def _live(state: State, ids: list[JobId], with_tasks: bool) -> dict[str, tuple[Document, list[Document]]]:
    """Stored documents are facts, but counts in them (remaintasks, remainwork) move on in memory."""
    jobs = [state.jobs[id] for id in ids if id in state.jobs]
    return {
        job.id: (job_document(job), [task_document(task) for task in job.tasks] if with_tasks else [])
        for job in jobs
    }


def _bounded(count: int) -> None:
    if count > MAX_LISTED_TASKS:
        raise TooLarge(
            f"the jobs of this page have {count} tasks, more than {MAX_LISTED_TASKS}: "
            "ask for a smaller limit, or verbosity=job"
        )


async def _stored_tasks(engine: Engine, ids: list[JobId]) -> dict[str, list[Document]]:
    found: dict[str, list[Document]] = defaultdict(list)
    if ids:
        page = await engine.find("tasks", Query(where=(Match("jobid", tuple(ids)),), order="index"))
        for task in page.documents:
            found[task["jobid"]].append(task)
    return found


async def distinct(engine: Engine, query: JobListParameters, known: list[str]) -> list[Any]:
    """The different values of a field of info. Raises BadRequest for a field that is not one of `known`."""
    if query.distinct not in known:
        raise BadRequest(f"unable to run distinct query on non-indexed info field: {query.distinct[:100]}")
    where = conditions(query)
    if all(isinstance(condition, Match) for condition in where):
        plain = [condition for condition in where if isinstance(condition, Match)]
        return await engine.distinct("jobs", f"info.{query.distinct}", plain)
    raise BadRequest("distinct does not go together with dates")
