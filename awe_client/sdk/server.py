"""Calls about the server itself: what it is, its queue, its events."""

from collections.abc import AsyncIterator

from awe_client.sdk.backoff import Patience
from awe_client.sdk.replies import view, views
from awe_client.sdk.transport import Params, Transport, decode
from shared_models.errors import AweError
from shared_models.views import EventView, Health, QueueCounts, ServerInfo


class ServerCalls:
    """Health, queue counts, queue suspend and resume, events."""

    _transport: Transport

    async def server_info(self) -> ServerInfo:
        """Return what `GET /` says: resources, version, uuid, queue status."""
        return view(ServerInfo, decode(await self._transport.send("GET", "/"), bare=True))

    async def health(self) -> Health:
        """Return the server's health: live, ready, store, version."""
        return view(Health, await self._transport.call("GET", "/health"))

    async def queue_counts(self) -> QueueCounts:
        """Return how many jobs, tasks, workunits and clients there are, by state."""
        return view(QueueCounts, await self._transport.call("GET", "/queue", params={"json": True}))

    async def suspend_queue(self) -> str:
        """Hand out no more work; reports are still taken."""
        text: str = await self._transport.call("PUT", "/queue", params={"suspend": True}, repeatable=True)
        return text

    async def resume_queue(self) -> str:
        """Hand out work again."""
        text: str = await self._transport.call("PUT", "/queue", params={"resume": True}, repeatable=True)
        return text

    async def list_events(
        self, *, since: int = 0, job_id: str | None = None, wait_s: float = 0.0
    ) -> list[EventView]:
        """Return events with a sequence number above `since`; with none yet, wait up to `wait_s` for one."""
        params: Params = {"since": since, "job": job_id, "wait_s": wait_s or None}
        events = await self._transport.call("GET", "/events", params=params, timeout_s=wait_s + 30.0)
        return views(EventView, events)

    async def follow_events(self, *, since: int = 0, job_id: str | None = None) -> AsyncIterator[EventView]:
        """Yield events for ever, in order; a server that is away is waited for.

        Numbers may begin lower after a restart: if the server's clock was set back.
        """
        patience = Patience()
        while True:
            try:
                events = await self.list_events(since=since, job_id=job_id, wait_s=30.0)
            except AweError as exc:
                await patience.wait(exc)
                continue
            patience.restore()
            for event in events:
                since = event.seq
                yield event
