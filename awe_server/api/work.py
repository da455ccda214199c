"""`/work`: checkout and report of stock AWE workers; workunits and their logs for everybody.

What stock workers depend on, and where it differs from our own rules:

* A checkout that gives nothing is 400 with one of AWE's bare texts: they compare it exactly.
* A report that comes too late, or for work that is not known, is told so in `data` and `code` with status 200
  and no `error`: on an error they send it again every minute and take no other work, for ever.
  Who names attempt and lease token (our client) gets 409 `lease_lost`.
* They name neither attempt nor token, so they are known by their client id and by holding the work.
"""

import json
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from awe_server.api import views, work_list, work_report
from awe_server.api.bodies import stream as stream_body
from awe_server.api.deps import Asking, BaseUrl, Served
from awe_server.api.downloads import log_response
from awe_server.api.envelope import Bad, Envelope, Listing, Missing, ok, paged, refusal, refusals, refused
from awe_server.api.exchange import Followed
from awe_server.api.holding import holder, only_for_stock_workers
from awe_server.api.logs import keep_printed, stream_name
from awe_server.api.params import Flag, Parameters, plain_count
from awe_server.api.transfers import Transfers, in_words
from awe_server.api.work_parameters import WorkListParameters
from awe_server.auth import policy
from awe_server.auth.policy import Right
from awe_server.data.logs import Log, Logs
from awe_server.runtime.delivered import as_delivered
from awe_server.runtime.engine import Engine
from awe_server.runtime.services import Services
from awe_server.scheduler.checkout import Checkout, checkout
from awe_server.scheduler.report import report
from awe_server.scheduler.state import Context, State
from awe_server.scheduler.views import (
    job_document,
    stored_pristine_document,
    task_document,
    unit_document,
    workunit_document,
)
from awe_server.scheduler.why import Reason, why_workunit
from awe_server.store.base import Document
from shared_models.errors import (
    BadRequest,
    ClientNotFound,
    ClientSuspended,
    Forbidden,
    JobNotFound,
    LeaseLost,
    QueueSuspended,
    WorkunitNotFound,
)
from shared_models.ids import (
    ClientId,
    JobId,
    TaskId,
    WorkunitId,
    decode_workunit_id,
    split_task_id,
    split_workunit_id,
)
from shared_models.limits import MAX_LOG_BYTES
from shared_models.states import WorkunitState
from shared_models.views import WorkunitView

router = APIRouter(prefix="/work", tags=["work"])


class WorkParameters(WorkListParameters):
    """Of GET /work."""

    available: str = Query(
        "", description="checkout: free bytes of the worker's disk; anything else: not checked"
    )
    server_uuid: str = Query("", description="checkout: sent by AWE's workers, not looked at")


@router.get(
    "",
    summary="List workunits, or check one out",
    response_model=Listing[WorkunitView],
    responses=Bad,
)
async def list_or_checkout(
    request: Request,
    services: Served,
    caller: Asking,
    base_url: BaseUrl,
    query: Annotated[WorkParameters, Query()],
) -> Response:
    """With `client=ID`, as AWE's workers ask: checks out one workunit for that client; `data` is that object.

    Without: the list. To list what a client holds, give `client` together with `query`.
    """
    if query.client and not query.query:
        policy.allow(caller, Right.WORK)
        _only_on_purpose(request)
        return await _checkout(services, ClientId(query.client), query.available, base_url)
    policy.allow(caller, Right.READ)
    page = await work_list.find(services.engine, query)
    transfers: Transfers = request.app.state.transfers
    shown = await _joined(services.engine, transfers, page.documents, base_url)
    return paged(shown, page, limit=query.rows, offset=query.offset)


Joined = tuple[Document, Document, Document]


def _only_on_purpose(request: Request) -> None:
    """A checkout is a GET that changes something: not for HEAD, and not for a link on somebody's page.

    Raises BadRequest, Forbidden.
    """
    if request.state.head:
        raise BadRequest("a checkout is GET, not HEAD")
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Forbidden("A page of another site may not change anything here")


async def _checkout(services: Services, client_id: ClientId, available: str, base_url: str) -> Response:
    counted = plain_count(available)
    free = -1 if counted is None else counted
    try:
        found, given = await services.engine.do(_checkout_one, client_id, free)
    except (ClientNotFound, ClientSuspended, QueueSuspended) as exc:
        return refused(exc, status=400)
    for grant in found.grants:
        if grant.part:
            await services.cuts.of(grant.task)
    if given is None or not found.grants[0].is_held:
        text = "No eligible workunit found" if found.skipped else "Server queue is empty"
        return refusal(400, [text], "no_work", skipped=found.skipped)
    return ok(views.checkout_view(*given, base_url))


def _checkout_one(
    state: State, ctx: Context, client_id: ClientId, free_bytes: int
) -> tuple[Checkout, Joined | None]:
    """Check one workunit out and give the documents of it, its task and its job as they are then.

    Raises Forbidden in the name of a client that speaks exchange: ids are no secret.
    """
    only_for_stock_workers(state, client_id)
    found = checkout(state, ctx, client_id, 1, None, free_bytes)
    for grant in found.grants:
        unit = state.clients[client_id].holds[grant.workunit_id]
        return found, (unit_document(unit), task_document(unit.task), job_document(unit.task.job))
    return found, None


async def _joined(
    engine: Engine, transfers: Transfers, units: list[Document], base_url: str
) -> list[Document]:
    """Workunits with what they inherit; each job and task is looked up once.

    A workunit whose job or task was removed meanwhile, or in a crash, is left out.
    """
    wanted: dict[JobId, dict[TaskId, None]] = {}
    for unit in units:
        wanted.setdefault(JobId(unit["jobid"]), {})[TaskId(unit["taskid"])] = None
    jobs: dict[str, Document] = {}
    tasks: dict[str, Document] = {}
    for job_id, task_ids in wanted.items():
        with suppress(JobNotFound):
            jobs[job_id], of_job = await engine.job_part(job_id, task_ids)
            tasks |= of_job
    return [
        views.work_view(unit, tasks[unit["taskid"]], jobs[unit["jobid"]], base_url) | transfers.of(unit)
        for unit in units
        if unit["jobid"] in jobs and unit["taskid"] in tasks
    ]


class OneWorkParameters(Parameters):
    """Of GET /work/{id}: at most one of the flags."""

    datatoken: Flag = Query(False, description="the job's data token, in the reply's header; holder only")
    privateenv: Flag = Query(False, description="private environment, in the reply's header; holder only")
    client: str = Query("", description="who asks for a secret")
    report: str | None = Query(
        None, examples=["stdout"], description="a log as text: stdout, stderr, worknotes"
    )
    why: Flag = Query(False, description="what it waits for")


class LogParameters(Parameters):
    """Of GET /work/{id}/log/{stream}."""

    attempt: int | None = Query(None, ge=1, description="of this attempt; the last one unless given")


@router.get(
    "/{work_id:path}/log/{stream}", summary="A log as it is", responses=Missing, response_class=Response
)
async def read_log(
    work_id: str,
    stream: str,
    request: Request,
    services: Served,
    caller: Asking,
    query: Annotated[LogParameters, Query()],
) -> Response:
    """Plain text; Range is honoured, so a log can be followed. One that nobody sent yet is empty."""
    kind = stream_name(stream)
    unit, _, job = await _unit(services.engine, decode_workunit_id(work_id))
    policy.allow(caller, Right.READ, job)
    log = Log(WorkunitId(unit["id"]), query.attempt or unit["attempt"], kind)
    if unit["state"] == WorkunitState.CHECKOUT:
        followed: Followed = request.app.state.followed
        followed.read(services, log.work)
    return await log_response(request, Logs(services.logs_dir), log)


class LogWriteParameters(Parameters):
    """Of PUT /work/{id}/log/{stream}."""

    attempt: int = Query(ge=1)
    offset: int = Query(0, ge=0, le=MAX_LOG_BYTES, description="where these bytes belong")


@router.put(
    "/{work_id:path}/log/{stream}",
    summary="Send a piece of a log",
    response_model=Envelope[dict[str, int]],
    responses=refusals(400, 404, 409, 507),
)
async def write_log(
    work_id: str,
    stream: str,
    request: Request,
    services: Served,
    caller: Asking,
    query: Annotated[LogWriteParameters, Query()],
    awe_lease: Annotated[str, Header(description="the attempt's token")],
) -> Response:
    """Raw bytes, put at `offset`; what was behind them is cut. Only for the holder of the attempt.

    Refused, it leaves the log as it was.
    """
    policy.allow(caller, Right.WORK)
    work = decode_workunit_id(work_id)
    log = Log(work, query.attempt, stream_name(stream))
    await holder(services.engine, work, attempt=query.attempt, token=awe_lease)
    size = await Logs(services.logs_dir).write(log, query.offset, stream_body(request, MAX_LOG_BYTES))
    return ok({"size": size})


async def _unit(engine: Engine, work: WorkunitId) -> Joined:
    """A workunit, its task and its job, live or stored, or never handed out. Raises WorkunitNotFound."""
    task_id, rank = split_workunit_id(work)
    job_id, _ = split_task_id(task_id)
    live = await engine.look(_live_unit, work)
    unit = live or (await engine.finished([work])).get(work)
    try:
        job, tasks = await engine.job_part(job_id, [task_id])
    except JobNotFound:
        raise WorkunitNotFound(workunit_id=work) from None
    task = tasks.get(task_id)
    if unit is None and task is not None and job_id not in engine.state.jobs:
        unit = stored_pristine_document(job, task, rank)
    if unit is None or task is None:
        raise WorkunitNotFound(workunit_id=work)
    return unit, task, job


def _live_unit(state: State, work: WorkunitId) -> Document | None:
    return workunit_document(state, work)


@router.get(
    "/{work_id:path}", summary="One workunit", response_model=Envelope[WorkunitView], responses=Missing
)
async def get_work(
    work_id: str,
    request: Request,
    services: Served,
    caller: Asking,
    base_url: BaseUrl,
    query: Annotated[OneWorkParameters, Query()],
    awe_lease: Annotated[str | None, Header(description="the attempt's token, for secrets")] = None,
) -> Response:
    """The workunit, one of its logs, or for its holder a secret. Ids may come as `base64:…` as AWE sends."""
    work = decode_workunit_id(work_id)
    if query.datatoken or query.privateenv:
        policy.allow(caller, Right.WORK)
        return await _secret(services.engine, work, query, awe_lease)
    unit, task, job = await _unit(services.engine, work)
    policy.allow(caller, Right.READ, job)
    if query.report is not None:
        log = Log(work, unit["attempt"], stream_name(query.report))
        return ok(await Logs(services.logs_dir).tail(log))
    transfers: Transfers = request.app.state.transfers
    moving = transfers.of(unit)
    if query.why:
        rows = await services.engine.look(_why, services.engine.context(), work)
        if moving and rows:
            rows[0]["reason"] += f", {in_words(moving['progress'])}"
        return ok(rows)
    return ok(views.work_view(unit, task, job, base_url) | moving)


def _why(state: State, ctx: Context, work: WorkunitId) -> list[Reason]:
    """What it waits for; nothing once its job is over."""
    return why_workunit(state, ctx, work) if split_workunit_id(work)[0] in state.tasks else []


async def _secret(engine: Engine, work: WorkunitId, query: OneWorkParameters, lease: str | None) -> Response:
    """The data token or private environment in a header, as AWE's workers read it; for the holder only.

    Raises LeaseLost, WorkunitNotFound, BadRequest.
    """
    if not (query.client or lease):
        raise BadRequest("This request type requires the client=clientid parameter.")
    unit = await holder(engine, work, client_id=query.client or None, token=lease)
    if query.privateenv:
        return ok(None, headers={"Privateenv": json.dumps(unit.task.private_env)})
    token = unit.task.job.datatoken
    if not token:
        raise BadRequest(f"error in getting token for job {unit.task.job.id}")
    return ok(None, headers={"Datatoken": token})


class ReportParameters(Parameters):
    """Of PUT /work/{id}."""

    client: str = Query("", description="who reports")
    status: str = Query("", examples=["done"], description=", ".join(work_report.STATUSES))
    computetime: float = Query(0.0, ge=0, le=1e12, description="seconds")
    report: Flag = Query(
        False, description="sent by AWE's workers when there are parts; parts are always read"
    )
    attempt: int | None = Query(None, ge=0, description="not known to AWE's workers")
    server_uuid: str = Query("", description="sent by AWE's workers, not looked at")


@router.put(
    "/{work_id:path}",
    summary="Report how an attempt ended",
    response_model=Envelope[str],
    responses=refusals(400, 404, 409),
)
async def put_report(
    work_id: str,
    request: Request,
    services: Served,
    caller: Asking,
    query: Annotated[ReportParameters, Query()],
    awe_lease: Annotated[
        str | None, Header(description="the attempt's token; not known to AWE's workers")
    ] = None,
) -> Response:
    """Evaluated before it is answered. Form parts perf, stdout, stderr, worknotes, notes; or no body.

    `data` is `ok`, also for the repeat of a report. See the module for late reports of AWE's workers.
    """
    policy.allow(caller, Right.WORK)
    if not query.client:
        raise BadRequest("This request type requires the client=clientid parameter.")
    work = decode_workunit_id(work_id)
    extras = await work_report.read_extras(request)
    found = work_report.build(
        work,
        query.status,
        extras,
        attempt=query.attempt,
        token=awe_lease,
        computetime_s=query.computetime,
    )
    engine, client_id = services.engine, ClientId(query.client)
    kept = await keep_printed(services, client_id, [(found, extras.texts.items())])
    [found] = await as_delivered(engine.state, services.nodes, client_id, kept)
    finished = await engine.finished([work])
    try:
        await engine.do(report, client_id, found, finished)
    except ClientNotFound as exc:
        return refused(exc, status=400)
    except (LeaseLost, WorkunitNotFound) as exc:
        if query.attempt is not None or awe_lease is not None:
            raise
        return ok(f"not accepted, the result is dropped: {exc.message}", code=exc.code)
    return ok("ok")
