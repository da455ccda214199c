"""What happens to every request before it reaches a route.

HEAD is GET without the body; a slash at the end of a path means nothing (Shock's clients send `/node/`);
no browser guesses types; a page of another site cannot make a browser change or read anything here; whatever
nobody expected becomes a 500 with an incident id. A server that may not lead any more lets nobody in and no
answer out: what it knows may be of yesterday. Who is refused before all of a body came is given the time to
see that, and no more: then the connection is closed.
"""

from collections.abc import Callable

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from awe_server.api.envelope import refused
from awe_server.api.errors import incident
from awe_server.api.names import Names
from shared_models.errors import Forbidden, LeadInDoubt, NotConfirmed

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SHOWN_BYTES = 100
_EXCHANGE = "/exchange"  #: means the same when it is repeated
#: What is answered whoever leads.
_ALWAYS = frozenset({"/health"})
#: A body of which no more is announced is cheaper to take in than a new connection.
_SMALL_BYTES = 64 * 1024
#: So much of a body that nobody wants is taken in, for so long: closing at once could destroy the answer.
_DRAIN_BYTES = 4 * 1024 * 1024
_DRAIN_S = 2.0
_CLOSE = (b"connection", b"close")
_NOSNIFF = (b"x-content-type-options", b"nosniff")


def _never() -> bool:
    return False


class _Withheld(Exception):
    """The answer may not leave."""


class _Body:
    """The body of one request as it comes."""

    __slots__ = ("_receive", "is_over")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self.is_over = _is_small(scope)  #: no more of it has to be waited for

    async def __call__(self) -> Message:
        """The next message."""
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self.is_over = True
        return message

    async def drain(self) -> None:
        """Take in what is on its way, up to a bound."""
        seen = 0
        with anyio.move_on_after(_DRAIN_S):
            while not self.is_over and seen < _DRAIN_BYTES:
                seen += len((await self()).get("body", b""))


def _is_small(scope: Scope) -> bool:
    length = b"0"
    for name, value in scope["headers"]:
        if name == b"content-length":
            length = value
        elif name == b"transfer-encoding":
            return False
    return length.isdigit() and int(length) <= _SMALL_BYTES


class _Reply:
    """What is sent for one request, as long as it may be said."""

    __slots__ = ("_body", "_head", "_is_early", "_send", "in_doubt", "is_started", "is_withheld")

    def __init__(self, send: Send, body: _Body, head: bool, in_doubt: Callable[[], bool]) -> None:
        self._send = send
        self._body = body
        self._is_early = False  #: it began before the body was there
        self._head = head
        self.in_doubt = in_doubt
        self.is_started = False
        self.is_withheld = False

    async def __call__(self, message: Message) -> None:
        """Send a message. Raises _Withheld if another server may lead by now."""
        if self.in_doubt():
            self.is_withheld = True
            raise _Withheld
        await self.unchecked(message)

    async def unchecked(self, message: Message) -> None:
        """Send a message, whoever leads."""
        if message["type"] == "http.response.start":
            self.is_started = True
            self._is_early = not self._body.is_over
            more = (_NOSNIFF, _CLOSE) if self._is_early else (_NOSNIFF,)
            message["headers"] = [*message["headers"], *more]
        elif self._head:
            message["body"] = b""
        if self._is_early and message["type"] == "http.response.body" and not message.get("more_body"):
            await self._send({**message, "more_body": True})
            await self._body.drain()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)


class Front:
    """ASGI middleware around the whole API."""

    def __init__(self, app: ASGIApp, names: Names, in_doubt: Callable[[], bool]) -> None:
        self._app = app
        self._names = names
        self._in_doubt = in_doubt  #: whether another server may lead by now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        head = scope["method"] == "HEAD"
        # A copy: the server goes on reading its own to know what it promised.
        scope = {
            **scope,
            "method": "GET" if head else scope["method"],
            "path": scope["path"].rstrip("/") or "/",
            "state": {**scope.get("state", {}), "head": head},
        }
        receive = _Body(scope, receive)
        reply = _Reply(send, receive, head, _never if scope["path"] in _ALWAYS else self._in_doubt)
        problem = self._problem(scope)
        if problem or reply.in_doubt():
            error = Forbidden(problem) if problem else LeadInDoubt()
            await refused(error)(scope, receive, reply.unchecked)
            return
        try:
            await self._app(scope, receive, reply)
        except Exception as exc:
            if reply.is_withheld:
                await self._withheld(scope, receive, reply)
                return
            response = incident(scope, exc)
            if reply.is_started:
                raise  # the reply is under way: only cutting the connection says that it is not whole
            await response(scope, receive, reply.unchecked)

    async def _withheld(self, scope: Scope, receive: Receive, reply: _Reply) -> None:
        """Say why there is no answer, if nothing was said so far; else the connection is cut.

        A change may have been made while this server led: its sender must not be told to send it again.
        """
        if reply.is_started:
            return
        repeats = scope["method"] in _SAFE_METHODS or scope["path"].endswith(_EXCHANGE)
        error = LeadInDoubt() if repeats else NotConfirmed(reason="this server may not lead any more")
        await refused(error)(scope, receive, reply.unchecked)

    def _problem(self, scope: Scope) -> str:
        """Why the request is not let in; "" if it is."""
        headers = scope["headers"]
        host = next((value for name, value in headers if name == b"host"), b"")
        if not self._names.has(host):
            shown = host[:_SHOWN_BYTES].decode("ascii", "replace")
            return (
                f"This server listens on a loopback address and is not called '{shown}': ask for "
                "localhost or 127.0.0.1, or set public_url to the name by which it is reached"
            )
        origins = [value for name, value in headers if name == b"origin"]
        if origins and scope["method"] not in _SAFE_METHODS and self._names.is_foreign(origins, host):
            return "A page of another site may not change anything here"
        return ""
