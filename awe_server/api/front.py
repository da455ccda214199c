"""What happens to every request before it reaches a route.

HEAD is GET without the body; a slash at the end of a path means nothing (Shock's clients send `/node/`);
no browser guesses types; a page of another site cannot make a browser change or read anything here; whatever
nobody expected becomes a 500 with an incident id. A server that may not lead any more lets nobody in and no
answer out: what it knows may be of yesterday.
"""

from collections.abc import Callable

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
_NOSNIFF = (b"x-content-type-options", b"nosniff")


def _never() -> bool:
    return False


class _Withheld(Exception):
    """The answer may not leave."""


class _Reply:
    """What is sent for one request, as long as it may be said."""

    __slots__ = ("_head", "_send", "in_doubt", "is_started", "is_withheld")

    def __init__(self, send: Send, head: bool, in_doubt: Callable[[], bool]) -> None:
        self._send = send
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
            message["headers"] = [*message["headers"], _NOSNIFF]
        elif self._head:
            message["body"] = b""
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
        reply = _Reply(send, head, _never if scope["path"] in _ALWAYS else self._in_doubt)
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
