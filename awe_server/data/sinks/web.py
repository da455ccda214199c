"""Requests to foreign web servers, with what their failures mean for a delivery."""

from collections.abc import AsyncIterable
from dataclasses import dataclass

import httpx

from awe_server.data.passing import is_passing
from awe_server.data.sinks.base import RequireLead, SinkBusy, SinkRefused, reason_of, shown
from shared_models.locations import is_web_url

#: A server that stores a large file may answer long after its last byte.
TIMEOUT = httpx.Timeout(60.0, connect=15.0, read=300.0)
MAX_REPLY_BYTES = 1024 * 1024
MAX_RETRY_AFTER_S = 300.0
_REPEATING = frozenset({307, 308})
MAX_REDIRECTS = 5


@dataclass(slots=True, frozen=True)
class Answer:
    """A reply, read to its end or to as much as anybody needs of it."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether it was done."""
        return 200 <= self.status < 300


class Web:
    """Sends requests and bodies."""

    def __init__(self, http: httpx.AsyncClient, require_lead: RequireLead) -> None:
        self._http = http
        self.require_lead = require_lead

    async def send(
        self,
        method: str,
        url: str,
        headers: dict[str, str] | None = None,
        content: AsyncIterable[bytes] | None = None,
    ) -> Answer:
        """Send one request. Raises SinkBusy if nobody answers, SinkRefused for what is no address.

        And LeadInDoubt.
        """
        self.require_lead()
        try:
            request = self._http.build_request(method, url, headers=headers, content=content, timeout=TIMEOUT)
            reply = await self._http.send(request, stream=True, follow_redirects=False)
            try:
                return Answer(reply.status_code, reply.headers, await _beginning(reply))
            finally:
                await reply.aclose()
        except httpx.TimeoutException as exc:
            raise SinkBusy(f"{shown(url)} does not answer") from exc
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError) as exc:
            raise SinkRefused(f"{shown(url)} is no address: {reason_of(str(exc))}") from exc
        except (httpx.TransportError, httpx.DecodingError) as exc:
            raise SinkBusy(f"{shown(url)}: {reason_of(str(exc)) or 'the connection broke'}") from exc


async def _beginning(reply: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in reply.aiter_bytes():
        body += chunk
        if len(body) > MAX_REPLY_BYTES:
            break
    return bytes(body[:MAX_REPLY_BYTES])


def problem(answer: Answer, url: str, said: str = "", *, passes: bool = False) -> SinkBusy | SinkRefused:
    """The error of an answer that is no success; `passes`: what it says is known to pass."""
    text = f"{shown(url)} answers {answer.status}{f' ({said})' if said else ''}"
    status = answer.status
    if passes or is_passing(status):
        return SinkBusy(text, retry_after_s=_retry_after_s(answer))
    if status in (401, 403):
        text += ": it refuses this server"
    return SinkRefused(text)


def next_address(answer: Answer, url: str) -> str | None:
    """Where the same request should go instead, if the answer says so. Raises SinkRefused if nobody can."""
    if answer.status not in _REPEATING or not answer.headers.get("location"):
        return None
    try:
        target = httpx.URL(url).join(answer.headers["location"])
    except httpx.InvalidURL:
        return None
    if not is_web_url(str(target)):
        raise SinkRefused(f"{shown(url)} leads to a '{target.scheme[:50]}:' address, which takes no PUT")
    return str(target)


def _retry_after_s(answer: Answer) -> float:
    text = answer.headers.get("retry-after", "")
    return min(float(text), MAX_RETRY_AFTER_S) if text.isascii() and text.isdigit() else 0.0
