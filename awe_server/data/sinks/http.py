"""Outputs at http and https addresses: one PUT of the whole file.

Length and MD5 go with it, so a server that checks either takes no other bytes. A PUT means the same when it
is repeated.
"""

import base64

from awe_server.data.sinks.base import Content, SinkRefused, shown, verified
from awe_server.data.sinks.web import MAX_REDIRECTS, Web, next_address, problem


class HttpSink:
    """Stores files by PUT."""

    def __init__(self, web: Web) -> None:
        self._web = web

    async def deliver(self, url: str, content: Content) -> None:
        """Store the content at the address. Raises SinkBusy, SinkRefused."""
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(content.size),
            "Content-MD5": base64.b64encode(bytes.fromhex(content.md5)).decode(),
        }
        target = url
        for _ in range(1 + MAX_REDIRECTS):
            chunks = await content.chunks()
            try:
                answer = await self._web.send(
                    "PUT", target, headers, verified(chunks, content, self._web.require_lead)
                )
            finally:
                await chunks.aclose()
            if answer.is_success:
                return
            elsewhere = next_address(answer, target)
            if elsewhere is None:
                raise problem(answer, target)
            target = elsewhere
        raise SinkRefused(f"{shown(url)} leads on and on")
