"""The loop by which a client lives: report, renew, fetch, in one round trip after another.

* Request ids grow by one for each new exchange. A request whose reply was lost is sent again with its id and
  the same body, so the server gives the same grants.
* A request with nothing to report may wait at the server. When something comes up meanwhile, a new exchange
  is sent on another connection; the server answers the older one as superseded. Its work is not ours in any
  case: by the newer request, which does not list it as held, the server has taken it back.
* While no more work is to be had, or wanted, the next request waits some milliseconds for news: short
  commands end before that.
* While no server answers, the pauses grow, with jitter, up to 30 s or half a lease; if there is a standby,
  which is asked before each pause, up to 5 s or a sixth of a lease. Work goes on meanwhile.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol

from awe_client.daemon.attempt import AttemptKey
from awe_client.daemon.identity import WorkRoot
from awe_client.daemon.servers import Servers
from awe_client.daemon.spool import Spool
from awe_client.daemon.work_disk import WorkDisk
from awe_client.sdk.backoff import jittered_delay_s
from awe_client.sdk.threads import file_work
from shared_models.errors import AweError, BadRequest, ClientNotFound, StaleExchange, TooLarge
from shared_models.limits import MAX_HOLDS, MAX_REPORTS
from shared_models.messages import (
    FreeMessage,
    ProgressRow,
    ReplyMessage,
    ReportMessage,
    RequestMessage,
    WaitsRow,
)

log = logging.getLogger(__name__)

#: Reports of one request hold at most so many characters of logs and messages, at least one report.
MAX_REPORT_CHARS = 2_000_000
#: While there is work enough for the moment, reports of so long travel together.
GATHER_S = 0.05
#: Commands have so long to end before a request that could have no other news.
SHORT_S = 0.005
#: A reply may take so long beyond the wait that was asked for.
REPLY_MARGIN_S = 15.0
FIRST_LEASE_S = 60.0
#: Requests whose reply nobody waits for any more; the oldest makes room by being cut off.
MAX_ABANDONED = 4


class Port(Protocol):
    """What the loop asks of the daemon, and tells it."""

    @property
    def draining(self) -> bool:
        """Whether no new work is taken."""

    @property
    def max_wait_s(self) -> float:
        """How long a request may wait at the server."""

    def profile(self) -> dict[str, Any]:
        """Who we are, for registration."""

    def holds(self) -> list[AttemptKey]:
        """Attempts in any stage."""

    def want_and_free(self) -> tuple[int, FreeMessage, str]:
        """How many attempts to ask for, what there is left for them, and what is wrong, if something is."""

    def progress(self) -> list[ProgressRow]:
        """How far transfers are that take a while."""

    def waits(self) -> list[WaitsRow]:
        """Which of them do not move, and why."""

    def has_backlog(self) -> bool:
        """Whether a short delay would starve no slot."""

    def is_finished(self) -> bool:
        """Whether the loop should end."""

    def take(self, reply: ReplyMessage) -> None:
        """Act on a reply that was not superseded."""

    def refused(self, key: AttemptKey) -> None:
        """The server will never take this report: give it up."""


class ExchangeLoop:
    """Registers and exchanges until the daemon is finished."""

    def __init__(self, servers: Servers, root: WorkRoot, disk: WorkDisk, spool: Spool, port: Port) -> None:
        self._servers = servers
        self._root = root
        self._disk = disk
        self._spool = spool
        self._port = port
        self._news = asyncio.Event()
        self._request_id = 0
        self.begun_at = time.monotonic()  #: when the newest exchange was made up
        self._lease_s = FIRST_LEASE_S
        self._noting: asyncio.Task[None] | None = None  #: for the next start
        self._patience = servers.patience()
        self._abandoned: dict[asyncio.Task[ReplyMessage], None] = {}  #: oldest first
        self._max_reports = MAX_REPORTS  #: in one request
        self._registrations_lost = 0  #: in a row, without an exchange that worked
        self._disk_is_slow = False

    def notify(self) -> None:
        """Something is to be said: do not wait for the reply that is under way."""
        self._news.set()

    async def run(self) -> None:
        """Live. Raises AweError if the server refuses the registration of a client that holds nothing;
        WorkRootLost.
        """
        if known_s := self._root.recall_lease_s():
            self._set_lease(known_s)
        await self._register()
        pending: RequestMessage | None = None
        while not self._port.is_finished():
            if pending is None:
                pending = await self._compose()
            try:
                reply = await self._ask(pending)
            except (ClientNotFound, StaleExchange) as exc:
                pending = None
                await self._lost_registration(exc)
                continue
            except AweError as exc:
                pending = await self._failed(pending, exc)
                continue
            want, pending = pending["want"], None
            if reply is not None:
                self._reached()
                self._registrations_lost = 0
                self._max_reports = min(self._max_reports * 2, MAX_REPORTS)
                self._set_lease(float(reply["lease_s"]))
                self._port.take(reply)
                if 0 < len(reply["work"]) < want or self._port.has_backlog():
                    await self._let_short_ones_end()
        await self._leave()

    async def _let_short_ones_end(self) -> None:
        """There is work, and no more to be had or wanted: a request that is sent at once would be given up
        for the report of the first command that ends.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHORT_S):
                await self._news.wait()

    async def _leave(self) -> None:
        """Say goodbye, once: nobody has to wait for the end of our lease. A server that is away finds out."""
        request = await self._compose()
        try:
            await self._send({**request, "wait_s": 0.0, "leaving": True})
        except AweError as exc:
            log.debug("not_left", extra={"error": str(exc)})

    async def close(self) -> None:
        """End the requests that nobody waits for."""
        if self._noting is not None:
            self._noting.cancel()
            await asyncio.gather(self._noting, return_exceptions=True)
        for task in list(self._abandoned):
            task.cancel()
        await asyncio.gather(*self._abandoned, return_exceptions=True)

    # --- registration ----------------------------------------------------------------------------

    async def _register(self) -> None:
        while True:
            server = self._servers.current
            await self._disk.look(self._disk_s)
            try:
                await self._servers.awake(server, self._lease_s)
                client = await server.register_client(self._port.profile(), timeout_s=self._margin_s)
            except AweError as exc:
                if not exc.retryable and not self._port.holds():
                    raise
                self._servers.failed(server, exc)
                level = logging.WARNING if self._patience.failures else logging.INFO
                log.log(level, "not_registered", extra={"server": server.base_url, "error": str(exc)})
                await self._patience.wait(exc)
                continue
            self._reached()
            if client.id and client.id != self._root.client_id:
                await file_work(self._root.adopt, client.id)
            if client.lease_s:
                self._set_lease(client.lease_s)
            facts = {"client": self._root.client_id, "server": server.base_url}
            log.info("registered", extra={**facts, "spooled": len(self._spool.reports())})
            return

    def _reached(self) -> None:
        if self._patience.failures:
            self._servers.reached()
        self._patience.reset()

    def _set_lease(self, lease_s: float) -> None:
        """After a restart the server waits one lease for us: no pause may be as long as that."""
        lease_s = max(lease_s, 0.1)
        if lease_s != self._lease_s:
            self._lease_s = lease_s
            if self._noting is None or self._noting.done():
                self._noting = asyncio.ensure_future(self._note_lease())
        self._patience.cap_s = self._servers.pause_cap_s(self._lease_s)

    async def _note_lease(self) -> None:
        """For our next start. A disk that hangs may keep a thread, but not us."""
        noted_s = 0.0
        while noted_s != self._lease_s:
            noted_s = self._lease_s
            await file_work(self._root.remember_lease_s, noted_s)

    async def _lost_registration(self, exc: AweError) -> None:
        """The server does not know us, or knows another incarnation: register again, holding what we hold."""
        log.warning("registration_lost", extra={"error": str(exc)})
        # Else we would take it from the daemon that has taken our directory.
        await self._disk.require_ours(self._disk_s)
        if self._registrations_lost:
            await asyncio.sleep(jittered_delay_s(self._registrations_lost, base_s=1.0, cap_s=30.0))
        self._registrations_lost += 1
        await self._register()

    @property
    def _disk_s(self) -> float:
        """So long an exchange waits for the disk at most: else our leases would run out."""
        return self._lease_s / 6

    @property
    def _margin_s(self) -> float:
        """So long a reply may take beyond the wait that was asked for."""
        return min(REPLY_MARGIN_S, max(self._lease_s / 3, 1.0))

    # --- exchanges -------------------------------------------------------------------------------

    async def _compose(self) -> RequestMessage:
        if self._spool.has_fresh and self._port.has_backlog():
            await asyncio.sleep(GATHER_S)
        self._news.clear()
        self._write_reports()
        reports = self._some_reports()
        # Who takes our directory ends our commands: that is no failure of theirs.
        has_failed = any(report["outcome"] != "done" for report in reports)
        await self._disk.require_ours(self._disk_s, anew=has_failed)
        want, free, trouble = self._port.want_and_free()
        self._request_id += 1
        self.begun_at = time.monotonic()
        request: RequestMessage = {
            "incarnation": self._root.incarnation,
            "request_id": self._request_id,
            "holds": self._port.holds()[:MAX_HOLDS],
            "reports": reports,
            "want": want,
            # The lease must be renewed in time, also when a reply or two get lost.
            "wait_s": 0.0 if reports else min(self._lease_s / 3, self._port.max_wait_s),
            "free": free,
            "draining": self._port.draining,
        }
        if progress := self._port.progress():
            request["progress"] = progress[:MAX_HOLDS]
            if waits := self._port.waits():
                request["waits"] = waits[:MAX_HOLDS]
        if trouble:
            request["trouble"] = trouble
        return request

    def _write_reports(self) -> None:
        """Reports are written down while they are told: neither waits for the other, so a disk that is slow
        to take them costs neither our leases nor a result.
        """
        self._spool.write()
        busy_s = self._spool.busy_s
        is_slow = busy_s > self._disk_s
        if is_slow != self._disk_is_slow:
            self._disk_is_slow = is_slow
            log.warning("spool_slow" if is_slow else "spool_written", extra={"since_s": round(busy_s, 1)})

    def _some_reports(self) -> list[ReportMessage]:
        reports: list[ReportMessage] = []
        chars = 0
        for report in self._spool.reports():
            chars += len(report.get("stdout_tail", "")) + len(report.get("stderr_tail", ""))
            if reports and (len(reports) >= self._max_reports or chars > MAX_REPORT_CHARS):
                break
            reports.append(report)
        return reports

    async def _ask(self, request: RequestMessage) -> ReplyMessage | None:
        """Send a request; None if it was superseded by what came up while it waited."""
        if not request["wait_s"]:
            reply = await self._send(request)
            return None if reply["superseded"] else reply
        task = asyncio.ensure_future(self._send(request))
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait((task, news), return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
            if not task.done():
                self._abandon(task)
        if not task.done():
            return None
        reply = task.result()
        return None if reply["superseded"] else reply

    def _abandon(self, task: asyncio.Task[ReplyMessage]) -> None:
        def over(_: asyncio.Task[ReplyMessage]) -> None:
            self._abandoned.pop(task, None)
            if not task.cancelled():
                task.exception()  # looked at, so that asyncio does not complain

        if len(self._abandoned) >= MAX_ABANDONED:
            # Never stop listening for news instead: finished work would wait as long as the request does.
            next(iter(self._abandoned)).cancel()
        self._abandoned[task] = None
        task.add_done_callback(over)

    async def _send(self, request: RequestMessage) -> ReplyMessage:
        server = self._servers.current
        try:
            await self._servers.awake(server, self._lease_s)
            reply = await server.exchange(
                self._root.client_id, request, timeout_s=float(request["wait_s"]) + self._margin_s
            )
        except AweError as exc:
            exc.fields["server"] = server
            raise
        return _complete(reply)

    async def _failed(self, request: RequestMessage, exc: AweError) -> RequestMessage | None:
        """Pause after a failed exchange. Returns the request if it is to be sent again as it is."""
        server = exc.fields.get("server")
        if server is not None:
            self._servers.failed(server, exc)
        delay_s = self._patience.delay_s(exc)
        facts = {"error": str(exc), "code": exc.code, "failures": self._patience.failures}
        log.warning("exchange_failed", extra={**facts, "delay_s": round(delay_s, 1)})
        await asyncio.sleep(delay_s)
        if exc.retryable:
            return request
        self._isolate(request, exc)
        return None

    def _isolate(self, request: RequestMessage, exc: AweError) -> None:
        """The server refuses this body.

        If a report is to blame, find it, so that it does not hold up the others.
        """
        count = len(request["reports"])
        if count == 1:
            key = (request["reports"][0]["work"], request["reports"][0]["attempt"])
            log.error("report_refused", extra={"work": key[0], "attempt": key[1], "error": str(exc)})
            if isinstance(exc, BadRequest | TooLarge):
                self._port.refused(key)
            else:
                self._spool.postpone(key)
        self._max_reports = max(count // 2, 1)


def _complete(reply: Mapping[str, Any]) -> ReplyMessage:
    """Fill in what a reply may leave out."""
    full: ReplyMessage = {
        "lease_s": FIRST_LEASE_S,
        "results": [],
        "tasks": {},
        "work": [],
        "discard": [],
        "suspended": False,
        "stop": False,
        "superseded": False,
        **reply,  # type: ignore[typeddict-item]
    }
    return full
