"""The Python client of an AWE server: every route as a typed method, async and blocking.

    async with AsyncAweClient("http://127.0.0.1:8001") as awe:
        job = await awe.submit_job(document)
        job = await awe.wait_job(job.id)
        for file in job.tasks[-1].outputs:
            await awe.download_node(file.node, file.filename)

    with AweClient("http://127.0.0.1:8001") as awe:
        print(awe.get_job(job_id).state, awe.list_jobs(where={"state": "suspend"}).total)

Results are models (pydantic): attributes for what is known, and all that the server sent, keys of a newer one
too, in `job.model_dump(mode="json")`.

Every failure is an AweError: the class that the reply's `code` names, or ServerUnreachable.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import httpx

from awe_client.sdk.blocking import Blocking, BlockingIterator, begin
from awe_client.sdk.bodies import FileBody, Progress
from awe_client.sdk.clients import ClientCalls
from awe_client.sdk.download import Downloaded
from awe_client.sdk.download_errors import DownloadCorrupt, DownloadCut
from awe_client.sdk.jobs import ENDED_JOB_STATES, JobCalls
from awe_client.sdk.line import Line
from awe_client.sdk.nodes import NodeCalls
from awe_client.sdk.replies import Page
from awe_client.sdk.server import ServerCalls
from awe_client.sdk.transport import RetryPolicy, Transport
from awe_client.sdk.work import WorkCalls
from shared_models.faces import (
    JobPerf,
    JobProgress,
    JobReport,
    JobRow,
    TaskPerf,
    TaskProgress,
    TaskReport,
    WhyRow,
    WorkPerf,
    WorkunitReport,
)
from shared_models.views import (
    ClientView,
    CommandView,
    EventView,
    Health,
    IndexView,
    InfoView,
    IOView,
    JobError,
    JobView,
    NodeFile,
    NodeView,
    QueueCounts,
    Registered,
    ServerInfo,
    Stored,
    TaskView,
    TransferView,
    WorkList,
    WorkunitView,
)

__all__ = [
    "ENDED_JOB_STATES",
    "AsyncAweClient",
    "AweClient",
    "ClientView",
    "CommandView",
    "DownloadCorrupt",
    "DownloadCut",
    "Downloaded",
    "EventView",
    "FileBody",
    "Health",
    "IOView",
    "IndexView",
    "InfoView",
    "JobError",
    "JobPerf",
    "JobProgress",
    "JobReport",
    "JobRow",
    "JobView",
    "NodeFile",
    "NodeView",
    "Page",
    "Progress",
    "QueueCounts",
    "Registered",
    "RetryPolicy",
    "ServerInfo",
    "Stored",
    "TaskPerf",
    "TaskProgress",
    "TaskReport",
    "TaskView",
    "TransferView",
    "WhyRow",
    "WorkList",
    "WorkPerf",
    "WorkunitReport",
    "WorkunitView",
]


class AsyncAweClient(JobCalls, WorkCalls, ClientCalls, NodeCalls, ServerCalls):
    """A server's routes as coroutines. Use it with `async with`, or call `close`."""

    def __init__(
        self,
        base_url: str,
        *,
        authorization: str = "",
        timeout_s: float = 60.0,
        connect_timeout_s: float = 10.0,
        retry: RetryPolicy | None = None,
        headers: Mapping[str, str] | None = None,
        http: httpx.AsyncClient | None = None,
        line: Line | None = None,
    ) -> None:
        """Talk to the server at `base_url`.

        `authorization` is the whole header value, such as `bearer <token>` or `CG_TOKEN <token>`. `timeout_s`
        bounds each wait for bytes, not a whole transfer. `http` lets a test or an application bring its own
        connections; it is closed with this client. `line` is for who exchanges all the time.
        """
        sent = {**(headers or {}), **({"Authorization": authorization} if authorization else {})}
        self._transport = Transport(
            base_url,
            http=http,
            line=line,
            headers=sent,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            retry=retry,
        )

    @property
    def base_url(self) -> str:
        """The server's address, for people: without the name and password that it may hold."""
        return self._transport.shown_url

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AweClient:
    """The same methods, blocking; the requests run on an event loop in a thread of their own."""

    def __init__(
        self,
        base_url: str,
        *,
        authorization: str = "",
        timeout_s: float = 60.0,
        connect_timeout_s: float = 10.0,
        retry: RetryPolicy | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """See AsyncAweClient."""
        self._stack = ExitStack()
        self.portal = begin(self._stack)
        self.wrapped = AsyncAweClient(
            base_url,
            authorization=authorization,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            retry=retry,
            headers=headers,
        )
        self._stack.callback(self.portal.call, self.wrapped.close)

    @property
    def base_url(self) -> str:
        """The server's address, for people: without the name and password that it may hold."""
        return self.wrapped.base_url

    def close(self) -> None:
        """Close the connections and end the thread; safe to call twice."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    submit_job = Blocking(JobCalls.submit_job)
    get_job = Blocking(JobCalls.get_job)
    list_jobs = Blocking(JobCalls.list_jobs)
    list_job_rows = Blocking(JobCalls.list_job_rows)
    poll_job = Blocking(JobCalls.poll_job)
    wait_job = Blocking(JobCalls.wait_job)
    why_job = Blocking(JobCalls.why_job)
    job_report = Blocking(JobCalls.job_report)
    job_perf = Blocking(JobCalls.job_perf)
    job_position = Blocking(JobCalls.job_position)
    suspend_job = Blocking(JobCalls.suspend_job)
    resume_job = Blocking(JobCalls.resume_job)
    recompute_job = Blocking(JobCalls.recompute_job)
    resubmit_job = Blocking(JobCalls.resubmit_job)
    recover_job = Blocking(JobCalls.recover_job)
    set_job_priority = Blocking(JobCalls.set_job_priority)
    set_job_clientgroup = Blocking(JobCalls.set_job_clientgroup)
    set_job_pipeline = Blocking(JobCalls.set_job_pipeline)
    set_job_expiration = Blocking(JobCalls.set_job_expiration)
    set_job_token = Blocking(JobCalls.set_job_token)
    resume_all_jobs = Blocking(JobCalls.resume_all_jobs)
    delete_job = Blocking(JobCalls.delete_job)
    delete_suspended_jobs = Blocking(JobCalls.delete_suspended_jobs)
    list_work = Blocking(WorkCalls.list_work)
    get_work = Blocking(WorkCalls.get_work)
    why_work = Blocking(WorkCalls.why_work)
    read_log = Blocking(WorkCalls.read_log)
    follow_log = BlockingIterator(WorkCalls.follow_log)
    write_log = Blocking(WorkCalls.write_log)
    work_report = Blocking(WorkCalls.work_report)
    register_client = Blocking(ClientCalls.register_client)
    exchange = Blocking(ClientCalls.exchange)
    list_clients = Blocking(ClientCalls.list_clients)
    get_client = Blocking(ClientCalls.get_client)
    suspend_client = Blocking(ClientCalls.suspend_client)
    resume_client = Blocking(ClientCalls.resume_client)
    suspend_all_clients = Blocking(ClientCalls.suspend_all_clients)
    resume_all_clients = Blocking(ClientCalls.resume_all_clients)
    remove_client = Blocking(ClientCalls.remove_client)
    create_node = Blocking(NodeCalls.create_node)
    copy_node = Blocking(NodeCalls.copy_node)
    upload_node = Blocking(NodeCalls.upload_node)
    upload_output = Blocking(NodeCalls.upload_output)
    unfinished_output = Blocking(NodeCalls.unfinished_output)
    keep_failed = Blocking(NodeCalls.keep_failed)
    set_output_attributes = Blocking(NodeCalls.set_output_attributes)
    get_node = Blocking(NodeCalls.get_node)
    list_nodes = Blocking(NodeCalls.list_nodes)
    download_node = Blocking(NodeCalls.download_node)
    read_node = Blocking(NodeCalls.read_node)
    set_node_attributes = Blocking(NodeCalls.set_node_attributes)
    set_node_expiration = Blocking(NodeCalls.set_node_expiration)
    build_index = Blocking(NodeCalls.build_index)
    delete_node = Blocking(NodeCalls.delete_node)
    server_info = Blocking(ServerCalls.server_info)
    health = Blocking(ServerCalls.health)
    queue_counts = Blocking(ServerCalls.queue_counts)
    suspend_queue = Blocking(ServerCalls.suspend_queue)
    resume_queue = Blocking(ServerCalls.resume_queue)
    list_events = Blocking(ServerCalls.list_events)
    follow_events = BlockingIterator(ServerCalls.follow_events)
