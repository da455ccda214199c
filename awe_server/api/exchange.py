"""`POST /client/{id}/exchange`: the one request that native clients live by, and the hot route.

It reports, renews and fetches in one round trip. With nothing to say it waits, and asks again whenever work
may have appeared. A newer request of the same client ends an older one that waits: it is told `superseded`,
gets nothing, and its grants, if any, are those of the newer one.

Work whose log somebody reads at the moment is named in `logs`: its client then sends the log while it grows.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import anyio
import orjson
from starlette.requests import Request
from starlette.responses import Response

from awe_server.api.bodies import whole
from awe_server.api.deps import services_when_ready
from awe_server.api.envelope import ok
from awe_server.api.logs import Texts, keep_printed
from awe_server.api.transfers import Transfers
from awe_server.auth import policy
from awe_server.auth.caller import who
from awe_server.auth.policy import Right
from awe_server.runtime.cuts import Locate, NotReady
from awe_server.runtime.delivered import as_delivered
from awe_server.runtime.services import Services
from awe_server.scheduler.checkout import Grant
from awe_server.scheduler.clients import hear
from awe_server.scheduler.exchange import ExchangeReply, exchange, is_current
from awe_server.scheduler.parts import cut_names
from awe_server.scheduler.state import Document, Task
from shared_models.errors import BadRequest, TooLarge
from shared_models.ids import ClientId, WorkunitId
from shared_models.limits import MAX_VALUES, MIB
from shared_models.messages import ExchangeRequest, Report, check_exchange

log = logging.getLogger(__name__)

#: A thousand reports with their tails, and as many held attempts as a client may have.
MAX_BODY_BYTES = 256 * 1024 * 1024
#: Somebody who read a log so recently still follows it.
FOLLOWED_S = 30.0


class Followed:
    """Whose logs are being read at the moment."""

    def __init__(self) -> None:
        self._until: dict[WorkunitId, float] = {}
        self._told: dict[ClientId, list[tuple[WorkunitId, int]]] = {}

    def read(self, services: Services, work: WorkunitId) -> None:
        """Somebody reads the log of running work: its client should hear it, now if that is news."""
        now_s = anyio.current_time()
        news = self._until.get(work, 0.0) < now_s
        self._until[work] = now_s + FOLLOWED_S
        unit = services.engine.state.workunits.get(work)
        if news and unit is not None:
            services.engine.waiters.tell([unit.client])

    def among(self, holds: Iterable[tuple[WorkunitId, int]]) -> list[tuple[WorkunitId, int]]:
        """Those attempts whose log is followed."""
        if not self._until:
            return []
        now_s = anyio.current_time()
        for work in [work for work, until_s in self._until.items() if until_s < now_s]:
            del self._until[work]
        return [(work, attempt) for work, attempt in holds if work in self._until]

    def is_news(self, client_id: ClientId, logs: list[tuple[WorkunitId, int]]) -> bool:
        """Whether this client was told something else last time."""
        return self._told.get(client_id, []) != logs

    def told(self, client_id: ClientId, logs: list[tuple[WorkunitId, int]]) -> None:
        """Remember what it was told."""
        if logs:
            self._told[client_id] = logs
        else:
            self._told.pop(client_id, None)


async def serve(request: Request) -> Response:
    """Answer one exchange."""
    services = await services_when_ready(request)
    policy.allow(await who(request), Right.WORK)
    raw = await whole(request, MAX_BODY_BYTES)
    if len(raw) > MIB and raw.count(b",") + raw.count(b"[") + raw.count(b"{") > MAX_VALUES:
        raise TooLarge(f"the exchange has more than {MAX_VALUES} values")
    try:
        message = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise BadRequest(f"the exchange is not JSON: {exc}") from exc
    x = check_exchange(message)
    client_id = ClientId(request.path_params["client_id"])
    followed: Followed = request.app.state.followed
    reply = await _settle(services, client_id, x)
    transfers: Transfers = request.app.state.transfers
    transfers.told(services.engine.state, client_id, x.progress, x.waits, services.wall())
    logs = followed.among(x.holds)
    if reply.is_empty and not followed.is_news(client_id, logs) and x.wait_s > 0 and not x.leaving:
        reply, logs = await _wait(services, followed, client_id, x, reply)
    followed.told(client_id, logs)
    data = await _data(services, client_id, x, reply)
    if logs:
        data["logs"] = logs
    return ok(data)


async def _settle(services: Services, client_id: ClientId, x: ExchangeRequest) -> ExchangeReply:
    """Run the transition. Raises ClientNotFound, StaleExchange."""
    engine = services.engine
    if x.reports:
        # What follows may wait for a disk or a store that does not answer: no lease ends by that.
        engine.run(hear, client_id, x.incarnation)
        reports = x.reports
        if any(r.stdout_tail or r.stderr_tail for r in reports):
            reports = await keep_printed(services, client_id, [(r, _tails(r)) for r in reports])
        x.reports = await as_delivered(engine.state, services.nodes, client_id, reports)
    finished = await engine.finished([r.work for r in x.reports]) if x.reports else {}
    reply = engine.run(exchange, client_id, x, finished)
    engine.waiters.supersede(client_id)
    await engine.confirmed()
    return reply


def _tails(r: Report) -> Texts:
    return ("stdout", r.stdout_tail.encode("utf-8", "replace")), (
        "stderr",
        r.stderr_tail.encode("utf-8", "replace"),
    )


async def _wait(
    services: Services, followed: Followed, client_id: ClientId, x: ExchangeRequest, reply: ExchangeReply
) -> tuple[ExchangeReply, list[tuple[WorkunitId, int]]]:
    """Ask again whenever there may be something to say, until the time is over or a newer request comes."""
    engine = services.engine
    until_s = anyio.current_time() + x.wait_s
    for_work = x.want > 0 and not x.draining and not reply.suspended
    come, logs = True, followed.among(x.holds)
    # A newer request may have come while this one was made durable, or while it waited: it ends here then.
    while come and is_current(engine.state, client_id, x.incarnation, x.request_id):
        left_s = until_s - anyio.current_time()
        come = await engine.waiters.work(client_id, left_s, for_work=for_work)
        logs = followed.among(x.holds)
        if not come or not is_current(engine.state, client_id, x.incarnation, x.request_id):
            break
        again = replace(x, reports=[], wait_s=max(0.0, until_s - anyio.current_time()))
        reply = await engine.do(exchange, client_id, again, {})
        if not reply.is_empty or reply.suspended or followed.is_news(client_id, logs):
            break
    return reply, logs


async def _data(
    services: Services, client_id: ClientId, x: ExchangeRequest, reply: ExchangeReply
) -> dict[str, Any]:
    state = services.engine.state
    superseded = not reply.stop and not is_current(state, client_id, x.incarnation, x.request_id)
    tasks: dict[str, Document] = {}
    work: list[dict[str, Any]] = []
    if not superseded:
        cut = {grant.task.id: grant.task for grant in reply.grants if grant.part}
        places = {id: await _places(services, task) for id, task in cut.items()}
        for grant in reply.grants:
            task = grant.task
            located = places.get(task.id, [])
            if not grant.is_held or located is None:
                continue  # what the client does not hold next time is queued again, and nobody blamed
            if task.id not in tasks:
                tasks[task.id] = task_for_client(task)
            work.append(_grant(grant, located))
    data: dict[str, Any] = {
        "lease_s": reply.lease_s,
        "results": reply.results,
        "tasks": tasks,
        "work": work,
        "discard": reply.discard,
        "suspended": reply.suspended,
        "stop": reply.stop,
        "superseded": superseded,
    }
    if reply.suspend_reason:
        data["suspend_reason"] = reply.suspend_reason
    return data


async def _places(services: Services, task: Task) -> list[Locate] | None:
    """How to find the parts of a task; None if they cannot be handed out now."""
    try:
        return await services.cuts.of(task)
    except NotReady as exc:
        log.warning("parts_not_ready", extra={"task": task.id, "reason": str(exc)})
        return None


def task_for_client(task: Task) -> Document:
    """What all workunits of a task share; files of our own node store have an address without a host."""
    part = task.partinfo if task.is_split else None
    cut = cut_names(part)
    shown = {
        "id": task.id,
        "jobid": task.job.id,
        "task_name": task.name,
        "generation": task.generation,
        "totalwork": task.totalwork,
        "info": task.job.info,
        "cmd": task.cmd,
        "private_env": task.private_env,
        "inputs": [_cut_io(io) if io["filename"] in cut else _io(io) for io in task.inputs],
        "outputs": [_output(io) for io in task.outputs],
        "predata": [_io(io) for io in task.predata],
        "part_inputs": cut,
        "index": part["index"] if part else None,
        "userattr": {**(task.job.info.get("userattr") or {}), **task.userattr},
        "resources": task.resources,
        "time_limit_s": task.time_limit_s,
        "keep_failed": task.keep_failed,
    }
    if task.job.datatoken and any(_is_in_shock(io) for io in (*task.inputs, *task.predata)):
        shown["datatoken"] = task.job.datatoken
    return shown


def _is_in_shock(io: Document) -> bool:
    """Whether a client reads the file, or its attributes, in another Shock."""
    return bool(io.get("host") and io.get("node"))


def _output(io: Document) -> Document:
    """As the client sees it: whatever is uploaded here is a node of ours, wherever it goes afterwards."""
    staging = io.get("_staging")
    if not staging:
        return _io(io)
    plain = {key: value for key, value in io.items() if key != "_staging"}
    return _io({**plain, "host": "", "node": staging, "url": ""})


def _cut_io(io: Document) -> Document:
    """A file elsewhere whose pieces are all to be of one version: that which was cut."""
    version = io.get("_version")
    return {**_io(io), "etag": version} if version else _io(io)


def _io(io: Document) -> Document:
    """A file with its address and what is known of its content: a client sees by it what it has already."""
    shown = {**io, **{key: io[f"_{key}"] for key in ("md5", "version") if io.get(f"_{key}")}}
    node, host = io.get("node"), io.get("host")
    if node and node != "-" and not (host and io.get("url")):
        shown["url"] = f"{(host or '').rstrip('/')}/node/{node}?download"
    return shown


def _grant(grant: Grant, located: list[Locate]) -> dict[str, Any]:
    """One workunit handed out, with its piece of each input that is cut."""
    shown: dict[str, Any] = {
        "task": grant.task.id,
        "rank": grant.rank,
        "attempt": grant.attempt,
        "token": grant.token,
    }
    if grant.part:
        shown["part"] = grant.part
        shown["pieces"] = [locate(grant.part) for locate in located]
    return shown
