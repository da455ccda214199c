"""What all jobs share of what goes on beside requests."""

from pathlib import Path

import pytest

from awe_server.runtime.duties import BackgroundDuties
from awe_server.runtime.random_ids import Uuids
from awe_server.scheduler.state import DeletePlaces
from tests.support.http_files import HttpFiles
from tests.unit.runtime.site import SharedSite, Site

pytestmark = pytest.mark.anyio


async def test_what_a_host_tells_one_job_is_not_sent_with_the_requests_of_another(tmp_path: Path) -> None:
    site = Site(tmp_path)
    duties = BackgroundDuties(
        site.engine, site.nodes, tmp_path / "nodes", tmp_path / "logs", Uuids(), site.fatal.append
    )
    (tmp_path / "web").mkdir()
    with HttpFiles(tmp_path / "web") as files:
        url = files.put("x", b"x")
        files.faults.fail(503, headers={"Set-Cookie": "session=of-one-job"})
        assert "set-cookie" in (await duties._http.get(url)).headers
        await duties._http.get(url)
        assert [seen.headers.get("cookie") for seen in files.seen("GET")] == [None, None]
    await duties.stop()


async def test_all_of_a_server_shares_the_few_threads_of_each_root(tmp_path: Path) -> None:
    site = SharedSite(tmp_path)
    duties = site.background
    users = (duties.cuts._foreign, duties.effects._carry_out[DeletePlaces]._sinks)  # type: ignore[attr-defined]
    assert all(user._root_threads is duties.root_threads for user in users)
    assert duties.root_threads.roots == (str(site.shared),)
    await duties.stop()
