"""Calls about workunits and their logs."""

from collections.abc import AsyncIterator
from typing import Any, Literal

import anyio

from awe_client.sdk.bodies import FileBody
from awe_client.sdk.replies import Page, view, views
from awe_client.sdk.transport import Body, Params, Transport, path_segment
from shared_models.errors import BadRange
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

    async def read_log(self, workunit_id: str, name: LogName, *, offset: int = 0) -> bytes:
        """Return a log's bytes from `offset` on; empty if there is nothing (yet) behind it."""
        headers = {"Range": f"bytes={offset}-"} if offset else None
        try:
            reply = await self._transport.send(
                "GET", f"/work/{path_segment(workunit_id)}/log/{name}", headers=headers
            )
        except BadRange:
            return b""
        return reply.content if reply.status_code == 206 or not offset else reply.content[offset:]

    async def follow_log(
        self, workunit_id: str, name: LogName, *, pause_s: float = 1.0
    ) -> AsyncIterator[bytes]:
        """Yield a log's bytes as they appear, until the workunit is not running any more."""
        offset = 0
        while True:
            state = (await self.get_work(workunit_id)).state
            if data := await self.read_log(workunit_id, name, offset=offset):
                offset += len(data)
                yield data
            elif state not in (WorkunitState.QUEUED, WorkunitState.CHECKOUT):
                return
            await anyio.sleep(0.0 if data else pause_s)

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
