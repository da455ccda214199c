"""What happens to every request before it reaches a route.

HEAD is GET without the body; a slash at the end of a path means nothing (Shock's clients send `/node/`);
no browser guesses types; a page of another site cannot make a browser change anything here; whatever nobody
expected becomes a 500 with an incident id.
"""

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from awe_server.api.envelope import refused
from awe_server.api.errors import incident
from shared_models.errors import Forbidden

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_NOSNIFF = (b"x-content-type-options", b"nosniff")


class Front:
    """ASGI middleware around the whole API."""

    def __init__(self, app: ASGIApp, public_url: str = "") -> None:
        self._app = app
        self._public_host = urlsplit(public_url).netloc.encode()

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
        if scope["method"] not in _SAFE_METHODS and self._is_foreign(scope):
            await refused(Forbidden("A page of another site may not change anything here"))(
                scope, receive, send
            )
            return
        started = False

        async def reply(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], _NOSNIFF]
            elif head:
                message["body"] = b""
            await send(message)

        try:
            await self._app(scope, receive, reply)
        except Exception as exc:
            response = incident(scope, exc)
            if started:
                raise  # the reply is under way: only cutting the connection says that it is not whole
            await response(scope, receive, reply)

    def _is_foreign(self, scope: Scope) -> bool:
        """Whether a browser sends this for a page of another origin. Other programs send no Origin."""
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        if origin is None:
            return False
        _, _, host = origin.partition(b"://")
        return host not in (headers.get(b"host"), self._public_host)
