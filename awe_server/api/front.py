"""What happens to every request before it reaches a route.

HEAD is GET without the body; a slash at the end of a path means nothing (Shock's clients send `/node/`);
no browser guesses types; a page of another site cannot make a browser change or read anything here; whatever
nobody expected becomes a 500 with an incident id.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from awe_server.api.envelope import refused
from awe_server.api.errors import incident
from awe_server.api.names import Names
from shared_models.errors import Forbidden

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SHOWN_BYTES = 100
_NOSNIFF = (b"x-content-type-options", b"nosniff")


class Front:
    """ASGI middleware around the whole API."""

    def __init__(self, app: ASGIApp, names: Names) -> None:
        self._app = app
        self._names = names

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
        started = False

        async def reply(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], _NOSNIFF]
            elif head:
                message["body"] = b""
            await send(message)

        if problem := self._problem(scope):
            await refused(Forbidden(problem))(scope, receive, reply)
            return
        try:
            await self._app(scope, receive, reply)
        except Exception as exc:
            response = incident(scope, exc)
            if started:
                raise  # the reply is under way: only cutting the connection says that it is not whole
            await response(scope, receive, reply)

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
