"""`/job`: submit, look, steer, delete.

Statuses: an unknown job is 404 (AWE: 400), a refused verb 400 with AWE's text and a code, an action that does
not exist 400 (AWE: 200 `requested job operation not supported`).
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from awe_server.api import job_list, job_look, job_submit, views
from awe_server.api.deps import Asking, BaseUrl, Served, base_url, beside, services_when_ready
from awe_server.api.envelope import Bad, Envelope, Listing, Missing, ok, paged, refusals, refused
from awe_server.api.job_list import JobListParameters
from awe_server.api.params import Flag, NoParameters, Parameters, one_of
from awe_server.api.root import INFO_INDEXES
from awe_server.api.transfers import Transfers
from awe_server.auth import policy
from awe_server.auth.caller import who
from awe_server.auth.policy import Right
from awe_server.data.logs import Logs
from awe_server.runtime.engine import Engine
from awe_server.runtime.services import Services
from awe_server.scheduler import jobs as verbs
from awe_server.scheduler.state import Context, State
from awe_server.store.base import Document, Match
from awe_server.store.base import Query as Find
from shared_models.errors import AweError, BadRequest, NotFound, UnreadableJob
from shared_models.ids import JobId
from shared_models.limits import MAX_TEXT_CHARS, MAX_TOKEN_CHARS
from shared_models.states import JobState
from shared_models.times import rfc3339
from shared_models.views import JobView

router = APIRouter(prefix="/job", tags=["job"])

_UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["upload"],
                    "properties": {"upload": {"type": "string", "format": "binary"}},
                }
            },
            "application/json": {
                "schema": {"type": "object"},
                "example": {
                    "info": {"name": "demo", "user": "anna", "project": "p1"},
                    "tasks": [{"taskid": "0", "cmd": {"name": "echo", "args": "hello"}}],
                },
            },
        },
    }
}


@router.post(
    "",
    summary="Submit a job",
    response_model=Envelope[JobView],
    responses=refusals(400, 409, 413),
    openapi_extra=_UPLOAD,
)
async def submit(
    request: Request,
    services: Served,
    caller: Asking,
    base_url: BaseUrl,
    _: Annotated[NoParameters, Query()],
    idempotency_key: Annotated[str, Header(description="repeating it gives the same job")] = "",
    datatoken: Annotated[str, Header(description="given to whoever runs the job's work")] = "",
) -> Response:
    """Validate everything, store it, schedule it. `curl -F upload=@job.json URL/job`."""
    policy.allow(caller, Right.WRITE)
    token = _token(datatoken)
    raw = await job_submit.read_document(request)
    key = job_submit.stored_key(caller.user, idempotency_key, raw) if idempotency_key else ""
    engine = services.engine
    own_hosts = {base_url, services.settings.public_url.rstrip("/")} - {""}
    new_id = JobId(services.new_id())
    roots = services.root_threads
    job = await job_submit.build(raw, own_hosts, roots, engine.context(), new_id, caller.user, key, token)
    if not key:
        return await _job(services, await job_submit.admit(engine, job), base_url)
    once: job_submit.OnceOnly = request.app.state.once_only
    async with once.lock(key):
        found = await once.earlier(caller.user, key) or await job_submit.admit(engine, job)
    return await _job(services, found, base_url)


_NONE = NoParameters()


async def serve_submit(request: Request) -> Response:
    """The same, without FastAPI."""
    services, caller = await services_when_ready(request), await who(request)
    headers = request.headers
    return await submit(
        request, services, caller, await base_url(request), _NONE,
        headers.get("idempotency-key", ""), headers.get("datatoken", ""),
    )  # fmt: skip


def _token(text: str) -> str:
    """A data token that can be kept and handed on in a header. Raises BadRequest, without showing it."""
    if len(text) > MAX_TOKEN_CHARS or not (text.isascii() and text.isprintable()):
        raise BadRequest(f"Datatoken: at most {MAX_TOKEN_CHARS} printable ASCII characters")
    return text


async def _job(services: Services, found: job_submit.JobAndTasks, base_url: str) -> Response:
    job, tasks = found
    live = job["id"] in services.engine.state.jobs
    return await beside(views.weight(tasks), lambda: ok(views.job_view(job, tasks, base_url, live=live)))


@router.get("", summary="List jobs", response_model=Listing[JobView], responses=Bad)
async def list_jobs(
    services: Served, caller: Asking, base_url: BaseUrl, query: Annotated[JobListParameters, Query()]
) -> Response:
    """Filtered, sorted, in pages; total_count counts all that match. `info.userattr.KEY=VALUE` filters."""
    policy.allow(caller, Right.READ)
    if query.distinct:
        return ok(await job_list.distinct(services.engine, query, INFO_INDEXES))
    page = await job_list.find(services.engine, query)
    shown = await job_list.rows(services.engine, query, page, base_url)
    return paged(shown, page, limit=query.rows, offset=query.offset)


class JobParameters(Parameters):
    """Of GET /job/{id}: at most one of the flags; wait_s and revision go with none of them."""

    wait_s: float | None = Query(None, ge=0, description="wait so long for the job to end, or to change")
    revision: int | None = Query(None, description="return as soon as the job's revision is another one")
    why: Flag = Query(False, description="what the job and its parts wait for")
    position: Flag = Query(False, description="how many jobs are before it, itself included")
    report: Flag = Query(False, description="logs of all its workunits")
    perf: Flag = Query(False, description="when everything was queued, started and done")


@router.get("/{job_id}", summary="One job", response_model=Envelope[JobView], responses=Missing)
async def get_job(
    request: Request,
    job_id: JobId,
    services: Served,
    caller: Asking,
    base_url: BaseUrl,
    query: Annotated[JobParameters, Query()],
) -> Response:
    """The job with its tasks, or one of its other faces.

    With `wait_s` the reply comes when the job has ended (completed, suspend, failed-permanent, deleted) or
    the time is over; with `revision` as well, as soon as the job differs from that revision.
    """
    engine = services.engine
    transfers: Transfers = request.app.state.transfers
    job = await engine.job_head(job_id)
    policy.allow(caller, Right.READ, job)
    flags = {name: getattr(query, name) for name in ("why", "position", "report", "perf")}
    if any(flags.values()):
        face, _ = one_of(flags, "")
        faces: dict[str, Callable[[Services, Document], Awaitable[Any]]] = {
            "why": partial(job_look.why, transfers=transfers),
            "position": job_look.position,
            "report": job_look.report,
            "perf": job_look.perf,
        }
        return ok(await faces[face](services, job))
    return await _look(services, job_id, query.wait_s, query.revision, base_url)


async def _look(
    services: Services, job_id: JobId, wait_s: float | None, revision: int | None, base_url: str
) -> Response:
    engine = services.engine
    left = await job_look.wait(engine, job_id, wait_s, revision) if wait_s else None
    return await _job(services, await engine.job_documents(job_id, left), base_url)


async def serve_job(request: Request) -> Response:
    """The same, without FastAPI, and without flags."""
    services, caller = await services_when_ready(request), await who(request)
    given = request.path_params
    job_id = JobId(given["job_id"])
    policy.allow(caller, Right.READ, await services.engine.job_head(job_id))
    return await _look(services, job_id, given["wait_s"], given["revision"], await base_url(request))


class JobVerbs(Parameters):
    """Of PUT /job/{id}: exactly one."""

    resume: Flag = False
    suspend: Flag = False
    recover: Flag = False
    register_: Flag = Query(False, alias="register")
    recompute: str | None = Query(None, description="name of the task from which on all is done again")
    resubmit: Flag = False
    clientgroup: str | None = Query(None, max_length=MAX_TEXT_CHARS)
    priority: str | None = None
    pipeline: str | None = Query(None, max_length=MAX_TEXT_CHARS)
    expiration: str | None = Query(None, examples=["7D"], description="minutes, hours or days from now")
    settoken: Flag = False


async def _do(engine: Engine, prefix: str, transition: Callable[..., Any], job_id: JobId, *args: Any) -> Any:
    """Run a verb; what it refuses gets AWE's words in front. An unknown job stays 404."""
    await engine.ensure_job(job_id)
    try:
        return await engine.do(transition, job_id, *args)
    except AweError as exc:
        if exc.http_status >= 500 or isinstance(exc, NotFound):
            raise
        raise _Refused(exc, f"{prefix}: {job_id} ") from exc


class _Refused(Exception):
    """A verb was refused; `cause` says why."""

    def __init__(self, cause: AweError, prefix: str) -> None:
        super().__init__(cause.message)
        self.cause = cause
        self.prefix = prefix


@router.put("/{job_id}", summary="Steer a job", response_model=Envelope[str], responses=Missing)
async def steer(
    job_id: JobId,
    services: Served,
    caller: Asking,
    query: Annotated[JobVerbs, Query()],
    datatoken: Annotated[str, Header(description="for settoken")] = "",
) -> Response:
    """One verb at a time; those with a value are recompute, clientgroup, priority, pipeline, expiration."""
    engine = services.engine
    job = await engine.job_head(job_id)
    policy.allow(caller, Right.WRITE, job)
    verb, value = one_of(dict(query), "requested job operation not supported")
    try:
        return ok(await _steer(engine, job_id, verb, value, datatoken))
    except _Refused as exc:
        return refused(exc.cause, status=400, prefix=exc.prefix)


async def _steer(engine: Engine, job_id: JobId, verb: str, value: Any, datatoken: str) -> str:
    match verb:
        case "resume":
            await _do(engine, "fail to resume job", verbs.resume_job, job_id)
            return f"job resumed: {job_id}"
        case "suspend":
            await _do(engine, "fail to suspend job", verbs.suspend_job, job_id, "manually suspended")
            return f"job suspended: {job_id}"
        case "recover" | "register_":
            await _do(engine, "fail to recover job", verbs.recover_job, job_id)
            return f"job recovered: {job_id}"
        case "resubmit":
            await _do(engine, "fail to resubmit job", verbs.resubmit_job, job_id)
            return f"job resubmitted: {job_id}"
        case "settoken":
            if not datatoken:
                text = "fail to retrieve token for job, pls set token in header"
                raise BadRequest(f"{text}: {job_id} no token received")
            token = _token(datatoken)
            await _do(engine, "failed to set the token for job", verbs.set_datatoken, job_id, token)
            return f"data token set for job: {job_id}"
        case _:
            return await _set(engine, job_id, verb, value)


async def _set(engine: Engine, job_id: JobId, verb: str, value: str) -> str:
    """The verbs that carry a value."""
    if not value:
        raise BadRequest(_LACKING[verb])
    match verb:
        case "recompute":
            name = value.removeprefix(f"{job_id}_")
            await _do(engine, "fail to recompute job", verbs.recompute_job, job_id, name)
            return f"job recompute started at task {name}: {job_id}"
        case "clientgroup":
            await _do(engine, "failed to update group for job", verbs.set_clientgroups, job_id, value)
            return f"job group updated: {job_id} to {value}"
        case "priority":
            await _do(engine, "failed to set the priority for job", verbs.set_priority, job_id, _whole(value))
            return f"job priority updated: {job_id} to {value}"
        case "pipeline":
            await _do(engine, "failed to set the pipeline for job", verbs.set_pipeline, job_id, value)
            return f"job pipeline updated: {job_id} to {value}"
        case _:
            job = await _do(
                engine, "failed to set the expiration for job", verbs.set_expiration, job_id, value
            )
            return f"expiration '{rfc3339(job.expiration)}' set for job: {job_id}"


_LACKING = {
    "recompute": "lacking stage id from which the recompute starts",
    "clientgroup": "lacking clientgroup name",
    "priority": "lacking priority value",
    "pipeline": "lacking pipeline value",
    "expiration": "lacking expiration value",
}


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadRequest(f"priority value must be an integer, not '{text[:100]}'") from None


class BulkVerbs(Parameters):
    """Of PUT /job."""

    resumeall: Flag = False
    recoverall: Flag = False


@router.put("", summary="Steer all jobs", response_model=Envelope[str], responses=Bad)
async def steer_all(services: Served, caller: Asking, query: Annotated[BulkVerbs, Query()]) -> Response:
    """resumeall: every suspended job goes on. recoverall: nothing to do, no job is ever unregistered here."""
    policy.allow(caller, Right.WRITE)
    verb, _ = one_of(dict(query), "requested job operation not supported")
    if verb == "recoverall":
        return ok("0 missing jobs recovered")
    resumed = await services.engine.do(_each_suspended, verbs.resume_job)
    return ok(f"{resumed} suspended jobs resumed")


def _each_suspended(state: State, ctx: Context, verb: Callable[..., Any], *args: Any) -> int:
    """Do something to every suspended job that allows it; count them."""
    count = 0
    for job_id in [job.id for job in state.jobs.values() if job.state is JobState.SUSPEND]:
        try:
            verb(state, ctx, job_id, *args)
        except AweError:
            continue
        count += 1
    return count


class DeleteParameters(Parameters):
    """Of DELETE /job/{id}."""

    full: Flag = Query(False, description="remove the document and the logs too")


@router.delete("/{job_id}", summary="Delete a job", response_model=Envelope[str], responses=Missing)
async def delete(
    job_id: JobId, services: Served, caller: Asking, query: Annotated[DeleteParameters, Query()]
) -> Response:
    """Running work is told to stop. Without `full` the document stays, in state deleted."""
    job = await services.engine.job_head(job_id)
    policy.allow(caller, Right.DELETE, job)
    try:
        await _do(services.engine, "fail to delete job", verbs.delete_job, job_id, query.full)
    except UnreadableJob:
        if not query.full:
            raise
        await _remove_unreadable(services.engine, job_id)
    except _Refused as exc:
        return refused(exc.cause, status=400, prefix=exc.prefix)
    if query.full:
        await Logs(services.logs_dir).remove(job_id)
    return ok(f"job deleted: {job_id}")


async def _remove_unreadable(engine: Engine, job_id: JobId) -> None:
    """Also a job whose documents make no sense can be got rid of."""
    nodes = await engine.find("nodes", Find((Match("job", (job_id,)),)))
    await engine.do(verbs.remove_unreadable, job_id, [node["id"] for node in nodes.documents])


class BulkDeleteParameters(DeleteParameters):
    """Of DELETE /job."""

    suspend: Flag = False
    zombie: Flag = False


@router.delete("", summary="Delete suspended jobs", response_model=Envelope[str], responses=Bad)
async def delete_all(
    services: Served, caller: Asking, query: Annotated[BulkDeleteParameters, Query()]
) -> Response:
    """Every job in state suspend. No zombies here: AWE's word for jobs in the store alone."""
    policy.allow(caller, Right.DELETE)
    which, _ = one_of({"suspend": query.suspend, "zombie": query.zombie}, "name what to delete: suspend")
    if which == "zombie":
        return ok("deleted 0 zombie jobs")
    count = await services.engine.do(_each_suspended, verbs.delete_job, query.full)
    return ok(f"deleted {count} suspended jobs")
