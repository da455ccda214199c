"""`GET /job`: which jobs, in what order, in what detail.

AWE reads filters only after `?query`; here they work with and without it, and `?active`, `?suspend`,
`?registered` are filters among others, so pages and totals always fit together. Values are typed: AWE's
`?query&info.priority=5` never found anything.
"""

from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from awe_server.api import views
from awe_server.api.deps import beside
from awe_server.api.job_min import short_rows
from awe_server.api.params import Flag, Many, Paging, split_list
from awe_server.runtime.engine import Engine
from awe_server.scheduler.state import State
from awe_server.scheduler.views import job_document
from awe_server.store.base import AnyOf, Document, Match, Page, Query
from shared_models.errors import BadRequest, JobNotFound
from shared_models.ids import JobId
from shared_models.states import JobState
from shared_models.times import parse_rfc3339, rfc3339

#: Tasks joined into one page; jobs whose tasks have no room in it are shown without.
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
        "full",
        description="full: with tasks, as far as there is room; job: without them; minimal: AWE's short rows",
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
    """What is shown of each job of a page, counts as they are now."""
    heads = await _present(engine, page.documents)
    if query.verbosity == "minimal":
        return await short_rows(engine, heads)
    live = {job["id"] for job in heads if job["id"] in engine.state.jobs}
    tasks = await _tasks(engine, heads) if query.verbosity == "full" else {}

    def row(job: Document) -> Document:
        if job["id"] in tasks:
            return views.job_row(job, tasks[job["id"]], base_url, live=job["id"] in live)
        head = views.job_head(job, live=job["id"] in live)
        return head if query.verbosity == "job" else {**head, "tasks_omitted": len(job["task_names"])}

    weight = sum(map(views.weight, tasks.values()))
    return await beside(weight, lambda: [row(job) for job in heads])


async def _present(engine: Engine, jobs: list[Document]) -> list[Document]:
    """Stored documents are facts, but counts in them (remaintasks) move on in memory."""

    def live(state: State) -> list[Document]:
        known = ((job, state.jobs.get(JobId(job["id"]))) for job in jobs)
        return [document if job is None else job_document(job) for document, job in known]

    return await engine.look(live)


async def _tasks(engine: Engine, jobs: list[Document]) -> dict[str, list[Document]]:
    """The tasks of those jobs of a page that find room, in order."""
    shown: dict[str, list[Document]] = {}
    room = MAX_LISTED_TASKS
    for job in jobs:
        if len(job["task_names"]) <= room:
            room -= len(job["task_names"])
            shown[job["id"]] = []
    for id in shown:
        if id in engine.state.jobs:
            with suppress(JobNotFound):
                _, shown[id] = await engine.job_documents(JobId(id))
    stored = await _stored_tasks(engine, [JobId(id) for id, tasks in shown.items() if not tasks])
    return shown | stored


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
