"""The servers a daemon may talk to, one at a time, and how it waits while none answers."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence

import httpx

from awe_client.api import AsyncAweClient
from awe_client.sdk.backoff import jittered_delay_s
from awe_client.sdk.line import line_to
from awe_client.sdk.transport import RetryPolicy
from shared_models.errors import AweError, ServerUnreachable, StoreUnavailable, Unavailable

log = logging.getLogger(__name__)

BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 30.0
SEVERAL_CAP_S = 5.0  #: with a standby, which takes over within seconds
HEALTH_S = 3.0  #: how long one that gave no answer may take to say that it is there again
#: Connections for what is not a transfer.
OTHER_CONNECTIONS = 24


class Servers:
    """A standby pair, or just one. Requests go to `current`; a failure moves on to the next."""

    def __init__(
        self, urls: Sequence[str], *, authorization: str, transfer_timeout_s: float, transfers: int
    ) -> None:
        connections = 2 * transfers + OTHER_CONNECTIONS
        #: Enough for all that goes on at once, also for files from elsewhere.
        self.limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._http = httpx.AsyncClient(
            # Nothing to verify without TLS, and reading the certificates takes time.
            verify=any(url.startswith("https:") for url in urls),
            limits=self.limits,
        )
        # Repeating is the daemon's own business: it knows for how long, and what it may do meanwhile.
        self._clients = [
            AsyncAweClient(
                url,
                authorization=authorization,
                timeout_s=transfer_timeout_s,
                retry=RetryPolicy(attempts=1),
                http=self._http,
                line=line_to(url),
            )
            for url in urls
        ]
        self._at = 0
        self.back = asyncio.Event()  #: set, and replaced, when one is reached again
        self._back_at = -math.inf  #: when that was said, on the monotonic clock
        self._silent: set[AsyncAweClient] = set()  #: gave no answer last time

    @property
    def current(self) -> AsyncAweClient:
        """The server to talk to now."""
        return self._clients[self._at]

    @property
    def cap_s(self) -> float:
        """The longest pause while none answers."""
        return BACKOFF_CAP_S if len(self._clients) == 1 else SEVERAL_CAP_S

    def pause_cap_s(self, lease_s: float) -> float:
        """The longest pause of who must be heard of once in a lease.

        Of several servers one may hang, which takes its time as well before the next is asked; and that one,
        should it lead since the pause began, waits a lease for us.
        """
        if len(self._clients) == 1:
            return min(BACKOFF_CAP_S, max(lease_s / 2, 1.0))
        return min(SEVERAL_CAP_S, lease_s / 6)

    def patience(self, *, base_s: float = BACKOFF_BASE_S, cap_s: float = BACKOFF_CAP_S) -> "Patience":
        """For a call that is repeated until one of them answers it."""
        cap_s = min(cap_s, self.cap_s)
        return Patience(base_s=base_s, cap_s=cap_s, servers=len(self._clients), back=lambda: self.back)

    def reached(self) -> None:
        """One answered after some did not: whoever waits for a server need not wait any longer.

        Of one that comes and goes that is said only so often: else nobody's pauses would ever grow.
        """
        now = time.monotonic()
        if now - self._back_at < self.cap_s:
            return
        self._back_at = now
        self.back.set()
        self.back = asyncio.Event()

    def failed(self, client: AsyncAweClient, error: AweError) -> None:
        """This one did not answer, or does not lead: go on to the next, unless somebody has done so."""
        if len(self._clients) > 1 and isinstance(error, ServerUnreachable):
            self._silent.add(client)
        if client is self.current and len(self._clients) > 1 and _leads_not(error):
            self._at = (self._at + 1) % len(self._clients)
            log.warning("server_changed", extra={"server": self.current.base_url})

    async def awake(self, server: AsyncAweClient, lease_s: float) -> None:
        """Ask a server that gave no answer last time whether it is there, before it is given time again.

        A server that is stopped takes requests and never answers: there is another one to go to. Raises
        ServerUnreachable, or what it says if it does not lead.
        """
        if server not in self._silent:
            return
        within_s = min(HEALTH_S, lease_s / 6)
        try:
            async with asyncio.timeout(within_s):
                await server.health()
        except TimeoutError as exc:
            raise ServerUnreachable(f"{server.base_url} gives no answer in {within_s:g} s") from exc
        self._silent.discard(server)

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(client.close() for client in self._clients))


def _leads_not(error: AweError) -> bool:
    """Whether another server may answer what this one did not. Store and disk are the same there."""
    no_server = isinstance(error, ServerUnreachable)
    return no_server or (isinstance(error, Unavailable) and not isinstance(error, StoreUnavailable))


class Patience:
    """Counts failures in a row and sleeps longer after each round of the servers, with jitter and a cap."""

    def __init__(
        self,
        *,
        base_s: float = BACKOFF_BASE_S,
        cap_s: float = BACKOFF_CAP_S,
        servers: int = 1,
        back: Callable[[], asyncio.Event] = asyncio.Event,
    ) -> None:
        """`back` gives the event at which a wait ends early, and the count begins anew."""
        self._base_s = base_s
        self._servers = servers
        self._next_back = back
        self._back = back()
        self.cap_s = cap_s
        self.failures = 0

    def delay_s(self, error: AweError) -> float:
        """Count a failure; how long to wait because of it."""
        self.failures += 1
        rounds, asked = divmod(self.failures, self._servers)
        if asked and _leads_not(error):
            return 0.0  # another one has not been asked yet
        asked_s = float(error.fields.get("retry_after_s", 0.0))
        if self._servers > 1:
            asked_s = min(asked_s, self.cap_s)  # one that stands by does not know when the other one ends
        return jittered_delay_s(max(rounds, 1), base_s=self._base_s, cap_s=self.cap_s, asked_s=asked_s)

    async def wait(self, error: AweError) -> None:
        """Count a failure and sleep."""
        self._look_back()
        delay_s = self.delay_s(error)
        try:
            async with asyncio.timeout(delay_s):
                await self._back.wait()
        except TimeoutError:
            return
        self._look_back()

    def _look_back(self) -> None:
        if self._back.is_set():
            self._back = self._next_back()
            self.reset()

    def reset(self) -> None:
        """Something worked."""
        self.failures = 0
