"""What all jobs share of what goes on beside requests."""

from pathlib import Path

import pytest

from awe_server.app import new_id
from awe_server.runtime.duties import BackgroundDuties
from tests.support.http_files import HttpFiles
from tests.unit.runtime.site import Site

pytestmark = pytest.mark.anyio


async def test_what_a_host_tells_one_job_is_not_sent_with_the_requests_of_another(tmp_path: Path) -> None:
    site = Site(tmp_path)
    duties = BackgroundDuties(
        site.engine, site.nodes, tmp_path / "nodes", tmp_path / "logs", new_id, site.fatal.append
    )
    (tmp_path / "web").mkdir()
    with HttpFiles(tmp_path / "web") as files:
        url = files.put("x", b"x")
        files.faults.fail(503, headers={"Set-Cookie": "session=of-one-job"})
        assert "set-cookie" in (await duties._http.get(url)).headers
        await duties._http.get(url)
        assert [seen.headers.get("cookie") for seen in files.seen("GET")] == [None, None]
    await duties.stop()
