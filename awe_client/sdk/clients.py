"""Calls about clients, and the one call that clients live by."""

from collections.abc import Mapping
from typing import Any

import orjson

from awe_client.sdk.replies import Page, view
from awe_client.sdk.transport import Params, Transport, path_segment
from shared_models.messages import ReplyMessage
from shared_models.views import ClientView, Registered

_JSON = {"Content-Type": "application/json"}


class ClientCalls:
    """Register, exchange, look at clients, suspend, resume and remove them."""

    _transport: Transport

    async def register_client(
        self, profile: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> Registered:
        """Register a client and return it as it is now known; the server may have given it an id.

        Repeatable: the same id and incarnation again is the same registration.
        """
        content = orjson.dumps(profile)
        client = await self._transport.call(
            "POST",
            "/client",
            content=content,
            headers=_JSON,
            repeatable=bool(profile.get("id")),
            timeout_s=timeout_s,
        )
        return view(Registered, client)

    async def exchange(
        self, client_id: str, request: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> ReplyMessage:
        """Report, renew and fetch in one round trip (the messages are in shared_models.messages, unchecked).

        Repeating a request with the same request_id gives the same grants. Raises ClientNotFound and
        StaleExchange, after both of which the client has to register again.
        """
        reply: ReplyMessage = await self._transport.call(
            "POST",
            f"/client/{path_segment(client_id)}/exchange",
            content=orjson.dumps(request),
            headers=_JSON,
            repeatable=True,
            timeout_s=timeout_s or float(request.get("wait_s", 0.0)) + 30.0,
        )
        return reply

    async def list_clients(
        self,
        *,
        group: str | None = None,
        status: str | None = None,
        app: str | None = None,
        busy: bool = False,
        limit: int | None = None,
        offset: int | None = None,
    ) -> Page[ClientView]:
        """List clients: all of them unless `limit` or `offset` asks for a page."""
        params: Params = {
            "group": group,
            "status": status,
            "app": app,
            "busy": busy,
            "limit": limit,
            "offset": offset,
        }
        return await self._transport.page(ClientView, "/client", params)

    async def get_client(self, client_id: str) -> ClientView:
        """Return one client. Raises ClientNotFound."""
        return view(ClientView, await self._transport.call("GET", f"/client/{path_segment(client_id)}"))

    async def suspend_client(self, client_id: str) -> str:
        """Give a client no more work until it is resumed."""
        text: str = await self._transport.call(
            "PUT", f"/client/{path_segment(client_id)}", params={"suspend": True}
        )
        return text

    async def resume_client(self, client_id: str) -> str:
        """Let a suspended client work again."""
        text: str = await self._transport.call(
            "PUT", f"/client/{path_segment(client_id)}", params={"resume": True}
        )
        return text

    async def suspend_all_clients(self) -> str:
        """Suspend every client."""
        text: str = await self._transport.call("PUT", "/client", params={"suspendall": True})
        return text

    async def resume_all_clients(self) -> str:
        """Resume every suspended client."""
        text: str = await self._transport.call("PUT", "/client", params={"resumeall": True})
        return text

    async def remove_client(self, client_id: str) -> str:
        """Tell a client to stop and forget it; its work is requeued."""
        text: str = await self._transport.call("DELETE", f"/client/{path_segment(client_id)}")
        return text
