"""Jobs and their tasks as documents, wherever they are: in memory or in the store."""

import asyncio
from collections.abc import Collection

from awe_server.runtime.ended import Ended
from awe_server.scheduler import views
from awe_server.scheduler.state import Job
from awe_server.store.base import Document, Match, Query
from shared_models.errors import JobNotFound
from shared_models.ids import JobId, TaskId

SLICE_TASKS = 1_000  #: tasks of a job whose documents are built without a pause


class JobDocuments(Ended):
    """The part of the engine that shows jobs; all of it waits until what it shows is durable."""

    async def job_documents(self, job_id: JobId, left: Job | None = None) -> tuple[Document, list[Document]]:
        """A job and its tasks. Raises JobNotFound.

        `left`: the job as somebody saw it in memory a moment ago, which spares a look at the store: it leaves
        memory only when it is durable, and is not changed after that, until it is parted from its tasks.

        A job of very many tasks is looked at in slices, the job itself first: it is never ahead of its
        tasks, and others are served in between.
        """
        live = self.state.jobs.get(job_id, left)
        if live is None or not live.tasks:
            job = await self._stored_job(job_id)
            page = await self._store.find("tasks", Query((Match("jobid", (job_id,)),), order="index"))
            return job, page.documents
        job, tasks = views.job_document(live), live.tasks
        documents: list[Document] = []
        for start in range(0, len(tasks), SLICE_TASKS):
            if start:
                await asyncio.sleep(0)
            documents += map(views.task_document, tasks[start : start + SLICE_TASKS])
        await self._readable()
        return job, documents

    async def job_head(self, job_id: JobId) -> Document:
        """A job without its tasks. Raises JobNotFound."""
        return (await self.job_part(job_id, ()))[0]

    async def job_part(
        self, job_id: JobId, task_ids: Collection[TaskId]
    ) -> tuple[Document, dict[str, Document]]:
        """A job and some of its tasks, by id; those that are not its own are left out. Raises JobNotFound."""
        live = self.state.jobs.get(job_id)
        if live is None:
            job = await self._stored_job(job_id)
            stored = await self._store.get_many("tasks", list(task_ids)) if task_ids else {}
            return job, {id: task for id, task in stored.items() if task["jobid"] == job_id}
        job = views.job_document(live)
        tasks = [task for id in task_ids if (task := self.state.tasks.get(id)) and task.job is live]
        found: dict[str, Document] = {task.id: views.task_document(task) for task in tasks}
        await self._readable()
        return job, found

    async def _stored_job(self, job_id: JobId) -> Document:
        job = await self.get("jobs", job_id)
        if job is None:
            raise JobNotFound(job_id=job_id[:100])
        return job
