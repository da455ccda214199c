"""Outputs that are made whole on a shared file system, where not everything is seen at once."""

import pytest

from awe_server.runtime import finish
from awe_server.scheduler.jobs import recompute_job, suspend_job
from awe_server.scheduler.state import FinishTask
from shared_models.ids import JobId, TaskId
from tests.support.eventually import eventually
from tests.unit.runtime.site import SharedSite
from tests.unit.runtime.workshop import done, task

pytestmark = pytest.mark.anyio


async def unseen(site: SharedSite) -> JobId:
    """A job whose output is said to be staged, and is not."""
    job_id = await site.submit(task(outputs=[{"filename": "out", "url": f"file://{site.shared}/out"}]))
    await site.until(job_id, "queued")
    (grant,) = await site.fetch()
    said = [{"filename": "out", "size": 1, "md5": ""}]
    await site.exchange(reports=[{**done(grant), "outputs": said}])
    await eventually(lambda: "on the shared file system" in str(site.engine.troubles))
    return job_id


async def test_a_task_that_is_set_back_is_waited_for_no_more(site: SharedSite) -> None:
    job_id = await unseen(site)
    waiting = site.background.effects._finish._unseen
    assert [effect.task_id for effect in waiting] == [f"{job_id}_0"]
    await site.engine.do(suspend_job, job_id, "for now")
    await site.engine.do(recompute_job, job_id, "0")
    await eventually(lambda: not waiting)


async def test_those_that_nobody_asks_about_any_more_are_forgotten(
    site: SharedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state was read anew while they waited."""
    monkeypatch.setattr(finish, "MANY_UNSEEN", 1)
    finisher = site.background.effects._finish
    finisher._unseen = {FinishTask(TaskId(f"gone_{i}"), 1): 0.0 for i in range(3)}
    job_id = await unseen(site)
    assert [effect.task_id for effect in finisher._unseen] == [f"{job_id}_0"]
