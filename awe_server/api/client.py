"""`/client`: register, live, be looked at and steered. The exchange of native clients is in exchange.py.

What AWE's workers depend on: `Client not found` and other refusals of heartbeats are 400 with the bare text
(it makes them register again); a heartbeat's reply is a map of texts and always has `server-uuid`.
Working here although AWE broke it: `?suspend`, `DELETE` (AWE answered 400 to both), heartbeats with `{}`.
"""

from typing import Annotated, Any

import anyio
import anyio.lowlevel
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from awe_server.api import views
from awe_server.api.bodies import MAX_SMALL_BYTES, parse_json, whole
from awe_server.api.deps import Asking, Served
from awe_server.api.envelope import Bad, Envelope, Listing, Missing, ok, paged, refused
from awe_server.api.holding import only_for_stock_workers
from awe_server.api.multipart import is_multipart, parts
from awe_server.api.params import Flag, NoParameters, Parameters, one_of, page_rows
from awe_server.auth import policy
from awe_server.auth.policy import Right
from awe_server.runtime.services import Services
from awe_server.scheduler.clients import Instructions, heartbeat, register
from awe_server.scheduler.state import Client, Context, State
from awe_server.scheduler.suspension import (
    remove_client,
    resume_all,
    resume_client,
    suspend_all,
    suspend_client,
)
from awe_server.scheduler.views import client_document
from awe_server.store.base import Document, Page
from shared_models.errors import AweError, BadRequest, ClientNotFound, Conflict
from shared_models.ids import ClientId, WorkunitId
from shared_models.limits import DEFAULT_PAGE, MAX_HOLDS
from shared_models.profile import ClientProfile, parse_profile
from shared_models.views import ClientView, Registered

router = APIRouter(prefix="/client", tags=["client"])


@router.post("", summary="Register a client", response_model=Envelope[Registered], responses=Bad)
async def register_client(
    request: Request, services: Served, caller: Asking, _: Annotated[NoParameters, Query()]
) -> Response:
    """A form with a file `profile`, as AWE's workers send it, or the profile itself as JSON.

    A profile with an id registers that client anew; without one an id is given. `data` is the whole client.
    """
    policy.allow(caller, Right.WORK)
    try:
        profile = _located(parse_profile(await _profile(request)), request)
        new_id = ClientId(services.new_id())
        shown = await services.engine.do(_register, profile, new_id, services.wall())
    except AweError as exc:
        if exc.http_status >= 500:
            raise
        return refused(exc, prefix="Error in registering new client:")
    return ok({**shown, "server_uuid": services.engine.server_uuid, "lease_s": services.settings.lease_s})


def _located(profile: ClientProfile, request: Request) -> ClientProfile:
    """A client that names no address of its own is where its registration came from."""
    if request.client is not None and not profile.host_ip and profile.host == profile.hostname:
        profile.host = profile.host_ip = request.client.host
    return profile


async def _profile(request: Request) -> bytes:
    if not is_multipart(request):
        raw = await whole(request, MAX_SMALL_BYTES)
        if not raw.strip():
            raise BadRequest("Profile file not provided")
        return raw
    found: bytes | None = None
    async for part in parts(request, 2 * MAX_SMALL_BYTES):
        if part.name == "profile":
            found = await part.whole(MAX_SMALL_BYTES)
    if found is None:
        raise BadRequest("Profile file not provided")
    return found


def _register(
    state: State, ctx: Context, profile: ClientProfile, new_id: ClientId, wall_s: float
) -> Document:
    return _view(register(state, ctx, profile.as_dict(), profile.id, new_id), wall_s)


def _view(client: Client, wall_s: float) -> Document:
    document = {**client_document(client), "trouble": client.trouble}
    return views.client_view(document, client.holds, wall_s)


class ClientListParameters(Parameters):
    """Of GET /client. Conditions are joined with AND."""

    busy: Flag = Query(False, description="has work")
    group: str | None = None
    status: str | None = Query(None, examples=["active-busy", "busy"])
    app: str | None = Query(None, description="offers exactly this app")
    limit: int | None = Query(
        None, ge=0, le=2**31, description="rows of one page; without it, or offset: all"
    )
    offset: int | None = Query(None, ge=0, le=2**31, description="rows to skip")


#: So many clients are shown in one go; then others have their turn.
_AT_ONCE = 100


@router.get(
    "", summary="List clients", response_model=Envelope[list[ClientView]] | Listing[ClientView], responses=Bad
)
async def list_clients(
    services: Served, caller: Asking, query: Annotated[ClientListParameters, Query()]
) -> Response:
    """All that are known, in order of name and id. With `limit` or `offset` one page, and `total_count`."""
    policy.allow(caller, Right.READ)
    engine = services.engine
    found = [client for client in engine.state.clients.values() if _matches(client, query)]
    found.sort(key=lambda client: (client.name, client.id))
    if query.limit is None and query.offset is None:
        rows = await _views(found, services.wall())
        await engine.settled()
        return ok(rows)
    limit, offset = page_rows(DEFAULT_PAGE if query.limit is None else query.limit), query.offset or 0
    rows = await _views(found[offset : offset + limit], services.wall())
    await engine.settled()
    return paged(rows, Page(total=len(found)), limit=limit, offset=offset)


async def _views(clients: list[Client], wall_s: float) -> list[Document]:
    """Show clients; with thousands of them others get their turn in between."""
    rows: list[Document] = []
    for start in range(0, len(clients), _AT_ONCE):
        if start:
            await anyio.lowlevel.checkpoint()
        rows += [_view(client, wall_s) for client in clients[start : start + _AT_ONCE]]
    return rows


def _matches(client: Client, query: ClientListParameters) -> bool:
    status = str(client.status)
    return (
        (not query.busy or bool(client.holds))
        and query.group in (None, client.group)
        and query.status in (None, status, status.partition("-")[2] or None)
        and (query.app is None or query.app in client.apps)
    )


class ClientParameters(Parameters):
    """Of GET /client/{id}."""

    heartbeat: Flag = Query(False, description="the old form of AWE's workers: no body")


@router.get("/{client_id}", summary="One client", response_model=Envelope[ClientView], responses=Missing)
async def get_client(
    client_id: ClientId, services: Served, caller: Asking, query: Annotated[ClientParameters, Query()]
) -> Response:
    """The client with its present work."""
    if query.heartbeat:
        policy.allow(caller, Right.WORK)
        return await _heartbeat(services, client_id, None)
    policy.allow(caller, Right.READ)
    return ok(await services.engine.look(_one, client_id, services.wall()))


def _one(state: State, client_id: ClientId, wall_s: float) -> Document:
    return _view(_find(state, client_id), wall_s)


async def _heartbeat(services: Services, client_id: ClientId, holds: list[WorkunitId] | None) -> Response:
    """Renew the leases of what the client holds; tell it what to drop. All values are texts.

    Raises Forbidden for a client that speaks exchange.
    """
    try:
        told = await services.engine.do(_live_on, client_id, holds)
    except ClientNotFound as exc:
        return refused(exc, status=400)
    data = {"server-uuid": services.engine.server_uuid}
    if told.discard:
        data["discard"] = ",".join(told.discard)
    if told.stop:
        data["stop"] = client_id
    return ok(data)


def _live_on(state: State, ctx: Context, client_id: ClientId, holds: list[WorkunitId] | None) -> Instructions:
    only_for_stock_workers(state, client_id)
    return heartbeat(state, ctx, client_id, holds)


class ClientVerbs(Parameters):
    """Of PUT /client/{id}: exactly one."""

    heartbeat: Flag = Query(False, description='body: {"current_work": {"data": ["<workunit id>"]}}')
    suspend: Flag = False
    resume: Flag = False
    subclients: int | None = Query(
        None, ge=0, le=1_000_000, description="a proxy says how many it stands for"
    )


@router.put(
    "/{client_id}",
    summary="Steer a client, or its heartbeat",
    response_model=Envelope[Any],
    responses=Missing,
)
async def steer(
    client_id: ClientId,
    request: Request,
    services: Served,
    caller: Asking,
    query: Annotated[ClientVerbs, Query()],
) -> Response:
    """heartbeat (of AWE's workers), suspend, resume, subclients."""
    verb, value = one_of(dict(query), "requested client operation not supported")
    if verb == "heartbeat":
        policy.allow(caller, Right.WORK)
        raw = await whole(request, MAX_SMALL_BYTES)
        return await _heartbeat(services, client_id, _held(raw))
    policy.allow(caller, Right.WRITE)
    if verb == "subclients":
        await services.engine.do(_set_subclients, client_id, value)
        return ok("ok")
    try:
        await services.engine.do(suspend_client if verb == "suspend" else resume_client, client_id)
    except Conflict as exc:
        return refused(exc, status=400)
    return ok(f"client {'suspended' if verb == 'suspend' else 'resumed'}")


def _held(raw: bytes) -> list[WorkunitId] | None:
    """The work that a heartbeat lists; None if it lists nothing at all. Raises BadRequest.

    `{"data": [ids]}`, the older map `{id: true}`, and a plain list all count.
    """
    if not raw.strip():
        return None
    body = parse_json(raw, "the heartbeat")
    work = body.get("current_work") if isinstance(body, dict) else body
    if work is None:
        return None
    if isinstance(work, dict):
        work = work["data"] if "data" in work else [id for id, held in work.items() if held]
    work = [] if work is None else work
    if not isinstance(work, list) or not all(isinstance(id, str) for id in work):
        raise BadRequest('current_work: must list workunit ids as {"data": [...]}')
    if len(work) > MAX_HOLDS:
        raise BadRequest(f"current_work: has more than {MAX_HOLDS} entries")
    return [WorkunitId(id) for id in work]


def _find(state: State, client_id: ClientId) -> Client:
    client = state.clients.get(client_id)
    if client is None:
        raise ClientNotFound
    return client


def _set_subclients(state: State, ctx: Context, client_id: ClientId, count: int) -> None:
    client = _find(state, client_id)
    client.profile = {**client.profile, "subclients": count}
    state.touch_client(client)


class BulkVerbs(Parameters):
    """Of PUT /client."""

    suspendall: Flag = False
    resumeall: Flag = False


@router.put("", summary="Steer all clients", response_model=Envelope[str], responses=Bad)
async def steer_all(services: Served, caller: Asking, query: Annotated[BulkVerbs, Query()]) -> Response:
    """suspendall, resumeall."""
    policy.allow(caller, Right.WRITE)
    verb, _ = one_of(dict(query), "requested client operation not supported")
    if verb == "suspendall":
        return ok(f"{await services.engine.do(suspend_all)} clients suspended")
    return ok(f"{await services.engine.do(resume_all)} suspended clients resumed")


@router.delete("/{client_id}", summary="Remove a client", response_model=Envelope[str], responses=Missing)
async def delete(
    client_id: ClientId, services: Served, caller: Asking, _: Annotated[NoParameters, Query()]
) -> Response:
    """Its work is requeued, and it is told to stop when it next asks."""
    policy.allow(caller, Right.DELETE)
    await services.engine.do(remove_client, client_id)
    return ok("client deleted")
