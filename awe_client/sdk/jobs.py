"""Calls about jobs."""

import json
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx
from pydantic import BaseModel

from awe_client.sdk.backoff import Patience
from awe_client.sdk.bodies import MultipartBody
from awe_client.sdk.replies import Page, view, view_of_bytes, views
from awe_client.sdk.transport import Params, Transport, decode, path_segment
from shared_models.errors import AweError
from shared_models.faces import JobPerf, JobProgress, JobReport, JobRow, WhyRow
from shared_models.limits import MAX_WAIT_S
from shared_models.states import JobState
from shared_models.views import JobView

#: A job in one of these states moves on only when a person says so.
ENDED_JOB_STATES = frozenset(
    {JobState.COMPLETED, JobState.SUSPEND, JobState.FAILED_PERMANENT, JobState.DELETED}
)


class JobCalls:
    """Submit, look at, wait for, steer and delete jobs."""

    _transport: Transport

    async def submit_job(
        self,
        document: bytes | str | Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        datatoken: str | None = None,
    ) -> JobView:
        """Submit a job document and return the job.

        Sent again after a lost reply: the Idempotency-Key (drawn here unless given) makes that one job.
        Raises InvalidDocument, whose `problems` name each field.
        """
        if isinstance(document, str):
            document = document.encode()
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        body = MultipartBody({}, file=data, file_name="job.json")
        headers = {**body.headers, "Idempotency-Key": idempotency_key or secrets.token_hex(16)}
        if datatoken:
            headers["Datatoken"] = datatoken
        job = await self._transport.call("POST", "/job", content=body, headers=headers, repeatable=True)
        return view(JobView, job)

    async def get_job(self, job_id: str) -> JobView:
        """Return one job with its tasks. Raises JobNotFound."""
        return view(JobView, await self._transport.call("GET", f"/job/{path_segment(job_id)}"))

    async def list_jobs(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        order: str | None = None,
        direction: str | None = None,
        active: bool = False,
        suspended: bool = False,
        where: Mapping[str, str | list[str]] | None = None,
    ) -> Page[JobView]:
        """List jobs.

        `where` filters by document fields, such as `{"state": "completed", "info.user": "anna"}`.
        """
        params: dict[str, Any] = {
            "limit": limit,
            "offset": offset,
            "order": order,
            "direction": direction,
            "active": active,
            "suspend": suspended,
        }
        return await self._transport.page(JobView, "/job", {**params, **_query(where)})

    async def list_job_rows(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        order: str | None = None,
        direction: str | None = None,
        where: Mapping[str, str | list[str]] | None = None,
    ) -> Page[JobRow]:
        """List jobs as short rows, without their tasks; `where` as in `list_jobs`."""
        params: dict[str, Any] = {
            "limit": limit,
            "offset": offset,
            "order": order,
            "direction": direction,
            "verbosity": "minimal",
        }
        return await self._transport.page(JobRow, "/job", {**params, **_query(where)})

    async def poll_job(self, job_id: str, *, wait_s: float, revision: int | None = None) -> JobView:
        """Return the job as soon as something happened, or after `wait_s`.

        Without `revision`: as soon as it has ended. With it: as soon as the job's revision is another.
        """
        reply = await self._poll(job_id, wait_s, revision)
        return view(JobView, decode(reply)["data"])

    async def _poll(self, job_id: str, wait_s: float, revision: int | None) -> httpx.Response:
        params: Params = {"wait_s": round(wait_s, 3), "revision": revision}
        return await self._transport.send(
            "GET", f"/job/{path_segment(job_id)}", params=params, timeout_s=wait_s + 30.0
        )

    async def wait_job(
        self,
        job_id: str,
        *,
        timeout_s: float | None = None,
        on_change: Callable[[JobProgress], None] | None = None,
        patience_s: float = 300.0,
    ) -> JobView:
        """Wait until a job has ended (ENDED_JOB_STATES) and return it; after `timeout_s`, return it as it is.

        `on_change` is called each time the job changed, with how far it is. A server that is away is
        waited for up to `patience_s`; then the error is raised.
        """
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
        revision: int | None = None
        patience = Patience(patience_s)
        while True:
            left_s = MAX_WAIT_S if give_up_at is None else max(give_up_at - time.monotonic(), 0.0)
            # Whoever wants each change wants the present state at once.
            wait_s = 0.0 if on_change is not None and revision is None else min(left_s, 30.0)
            try:
                reply = await self._poll(job_id, wait_s, revision)
            except AweError as exc:
                await patience.wait(exc)
                continue
            patience.restore()
            progress = view_of_bytes(_Progress, reply.content).data
            if on_change is not None:
                if progress.revision != revision:
                    on_change(progress)
                revision = progress.revision
            if progress.state in ENDED_JOB_STATES or (give_up_at and time.monotonic() >= give_up_at):
                return view(JobView, decode(reply)["data"])

    async def why_job(self, job_id: str) -> list[WhyRow]:
        """Say what a job and its unfinished parts wait for: rows of entity, id, state, reason."""
        return views(WhyRow, await self._face(job_id, "why"))

    async def job_report(self, job_id: str) -> JobReport:
        """Return the job's log: notes, and stdout, stderr and worknotes of each workunit."""
        return view(JobReport, await self._face(job_id, "report"))

    async def job_perf(self, job_id: str) -> JobPerf:
        """Return when the job, its tasks and its workunits ran."""
        return view(JobPerf, await self._face(job_id, "perf"))

    async def job_position(self, job_id: str) -> int:
        """Return how many jobs, this one included, are before it in the queue."""
        return int((await self._face(job_id, "position"))["position"])

    async def suspend_job(self, job_id: str) -> str:
        """Pause a job: its running commands are killed, finished workunits are kept."""
        return await self._verb(job_id, {"suspend": True})

    async def resume_job(self, job_id: str) -> str:
        """Let a suspended job go on; finished workunits are kept."""
        return await self._verb(job_id, {"resume": True})

    async def recompute_job(self, job_id: str, task: str) -> str:
        """Run a task and everything that depends on it again."""
        return await self._verb(job_id, {"recompute": task})

    async def resubmit_job(self, job_id: str) -> str:
        """Run the whole job again under the same id."""
        return await self._verb(job_id, {"resubmit": True})

    async def recover_job(self, job_id: str) -> str:
        """Make sure that the server knows an unfinished job."""
        return await self._verb(job_id, {"recover": True}, repeatable=True)

    async def set_job_priority(self, job_id: str, priority: int) -> str:
        """Set a job's priority; higher goes first."""
        return await self._verb(job_id, {"priority": priority}, repeatable=True)

    async def set_job_clientgroup(self, job_id: str, groups: str) -> str:
        """Set the client groups (comma list) that may run a job."""
        return await self._verb(job_id, {"clientgroup": groups}, repeatable=True)

    async def set_job_pipeline(self, job_id: str, pipeline: str) -> str:
        """Set a job's pipeline name."""
        return await self._verb(job_id, {"pipeline": pipeline}, repeatable=True)

    async def set_job_expiration(self, job_id: str, text: str) -> str:
        """Let a finished job be removed after a time such as `30M`, `12H`, `7D`."""
        return await self._verb(job_id, {"expiration": text}, repeatable=True)

    async def set_job_token(self, job_id: str, datatoken: str) -> str:
        """Replace the data token that is stored with a job."""
        return await self._verb(job_id, {"settoken": True}, headers={"Datatoken": datatoken}, repeatable=True)

    async def resume_all_jobs(self) -> str:
        """Resume every suspended job that the caller may write."""
        text: str = await self._transport.call("PUT", "/job", params={"resumeall": True})
        return text

    async def delete_job(self, job_id: str, *, full: bool = False) -> str:
        """Delete a job; with `full` its document and data go too. Raises JobNotFound."""
        text: str = await self._transport.call(
            "DELETE", f"/job/{path_segment(job_id)}", params={"full": full}
        )
        return text

    async def delete_suspended_jobs(self, *, full: bool = False) -> str:
        """Delete every suspended job that the caller may delete."""
        params: Params = {"suspend": True, "full": full}
        text: str = await self._transport.call("DELETE", "/job", params=params)
        return text

    async def _face(self, job_id: str, name: str) -> Any:
        return await self._transport.call("GET", f"/job/{path_segment(job_id)}", params={name: True})

    async def _verb(
        self,
        job_id: str,
        params: Params,
        *,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> str:
        text: str = await self._transport.call(
            "PUT", f"/job/{path_segment(job_id)}", params=params, headers=headers, repeatable=repeatable
        )
        return text


class _Progress(BaseModel):
    """An envelope around what changes while a job runs."""

    data: JobProgress


def _query(where: Mapping[str, str | list[str]] | None) -> dict[str, Any]:
    return {"query": True, **where} if where else {}
