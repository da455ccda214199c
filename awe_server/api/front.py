"""What happens to every request before it reaches a route.

HEAD is GET without the body; a slash at the end of a path means nothing (Shock's clients send `/node/`);
no browser guesses types; whatever nobody expected becomes a 500 with an incident id.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from awe_server.api.errors import incident

_NOSNIFF = (b"x-content-type-options", b"nosniff")


class Front:
    """ASGI middleware around the whole API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if len(path) > 1 and path.endswith("/"):
            scope["path"] = path.rstrip("/") or "/"
        head = scope["method"] == "HEAD"
        if head:
            scope["method"] = "GET"
        scope.setdefault("state", {})["head"] = head
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
