"""Calls about workunits and their logs."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import anyio

from awe_client.sdk.backoff import Patience
from awe_client.sdk.bodies import FileBody
from awe_client.sdk.replies import Page, view, views
from awe_client.sdk.transport import Body, Params, Transport, path_segment
from shared_models.errors import AweError, BadRange
from shared_models.faces import WhyRow
from shared_models.states import WorkunitState
from shared_models.views import WorkunitView

LogName = Literal["stdout", "stderr"]


class WorkCalls:
    """Look at workunits; read and write their logs."""

    _transport: Transport

    async def list_work(
        self,
        *,
        state: str | None = None,
        job_id: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
        order: str | None = None,
        direction: str | None = None,
    ) -> Page[WorkunitView]:
        """List workunits."""
        params: Params = {
            "query": True,
            "state": state,
            "jobid": job_id,
            "limit": limit,
            "offset": offset,
            "order": order,
            "direction": direction,
        }
        return await self._transport.page(WorkunitView, "/work", params)

    async def get_work(self, workunit_id: str) -> WorkunitView:
        """Return one workunit. Raises WorkunitNotFound."""
        return view(WorkunitView, await self._transport.call("GET", f"/work/{path_segment(workunit_id)}"))

    async def why_work(self, workunit_id: str) -> list[WhyRow]:
        """Say what a workunit waits for."""
        rows = await self._transport.call("GET", f"/work/{path_segment(workunit_id)}", params={"why": True})
        return views(WhyRow, rows)

    async def read_log(
        self, workunit_id: str, name: LogName, *, offset: int = 0, attempt: int | None = None
    ) -> bytes:
        """Return a log's bytes from `offset` on; empty if there is nothing (yet) behind it.

        Of the last attempt unless `attempt` names one.
        """
        headers = {"Range": f"bytes={offset}-"} if offset else None
        try:
            reply = await self._transport.send(
                "GET",
                f"/work/{path_segment(workunit_id)}/log/{name}",
                params={"attempt": attempt},
                headers=headers,
            )
        except BadRange:
            return b""
        return reply.content if reply.status_code == 206 or not offset else reply.content[offset:]

    async def follow_log(
        self,
        workunit_id: str,
        name: LogName,
        *,
        on_attempt: Callable[[int], None] | None = None,
        pause_s: float = 1.0,
        patience_s: float = 300.0,
    ) -> AsyncIterator[bytes]:
        """Yield a log's bytes as they appear, until the workunit is not running any more.

        Each attempt has a log of its own, and all are followed from the first on that is seen; `on_attempt`
        is called with the number of each further one, before its first byte. A server that is away is waited
        for up to `patience_s`; then the error is raised.
        """
        attempt, offset = 0, 0
        patience = Patience(patience_s)
        while True:
            try:
                work = await self.get_work(workunit_id)
                attempt = attempt or work.attempt
                data = await self.read_log(workunit_id, name, offset=offset, attempt=attempt or None)
            except AweError as exc:
                await patience.wait(exc)
                continue
            patience.restore()
            if data:
                offset += len(data)
                yield data
            elif work.attempt != attempt:  # and all that was written by the one before has been read
                attempt, offset = work.attempt, 0
                if on_attempt is not None:
                    on_attempt(attempt)
            elif work.state not in (WorkunitState.QUEUED, WorkunitState.CHECKOUT):
                return
            else:
                await anyio.sleep(pause_s)

    async def write_log(
        self,
        workunit_id: str,
        name: LogName,
        content: bytes | FileBody,
        *,
        attempt: int,
        token: str,
        offset: int,
    ) -> None:
        """Store a piece of an attempt's log. Raises LeaseLost unless the caller holds the attempt."""
        body: Body = content
        headers = {"Awe-Lease": token, "Content-Type": "application/octet-stream"}
        if isinstance(content, FileBody):
            headers |= content.headers
        params: Params = {"attempt": attempt, "offset": offset}
        await self._transport.call(
            "PUT",
            f"/work/{path_segment(workunit_id)}/log/{name}",
            params=params,
            content=body,
            headers=headers,
            repeatable=True,
        )

    async def work_report(self, workunit_id: str, name: str = "stdout") -> str:
        """Return a stored log (stdout, stderr, worknotes) as text."""
        text: Any = await self._transport.call(
            "GET", f"/work/{path_segment(workunit_id)}", params={"report": name}
        )
        return str(text)
