"""What commands do, and what the report says of it."""

import pytest

from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import MakeDaemon

pytestmark = pytest.mark.anyio


async def test_a_command_that_does_well_is_reported_done(server: FakeServer, start: MakeDaemon) -> None:
    start()
    [work] = await server.add_task("echo", "hello 'wide world'")
    report = await server.result(work)
    assert report["outcome"] == "done"
    assert report["exit_code"] == 0
    assert report["stdout_tail"] == "hello wide world\n"
    assert report["perf"]["peak_memory_bytes"] > 0
