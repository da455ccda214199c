"""Sources that hold a place for hours: they trickle, or break off after a few bytes each time."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from awe_client.daemon import pace
from awe_client.daemon.progress import Meter
from awe_client.daemon.servers import Servers
from awe_client.daemon.transfer import FOREIGN_ATTEMPTS, Sources, StepError
from awe_client.sdk import download
from awe_client.sdk.download import Wanted
from shared_models.states import FailureKind
from tests.support.fake_server import FakeServer
from tests.support.faults import Cut
from tests.support.http_files import HttpFiles
from tests.support.served import Served
from tests.unit.client.conftest import MakeDaemon

pytestmark = pytest.mark.anyio

DATA = b"0123456789" * 1000


class Trickle(Served):
    """Sends a byte now and then, in an answer of this status."""

    def __init__(self, status: int = 200) -> None:
        super().__init__()
        self._status = status

    def routes(self) -> list[BaseRoute]:
        return [Route("/{name:path}", self.guarded(self._get), methods=["GET"])]

    async def _get(self, request: Request) -> ASGIApp:
        first = int(request.headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        headers = {"ETag": '"1"', "Content-Length": str(len(DATA) - first)}
        headers |= {"Content-Range": f"bytes {first}-{len(DATA) - 1}/{len(DATA)}"} if first else {}
        return StreamingResponse(self._bytes(first), 206 if first else self._status, headers)

    async def _bytes(self, first: int) -> AsyncIterator[bytes]:
        for at in range(first, len(DATA)):
            yield DATA[at : at + 1]
            await asyncio.sleep(0.02)


class Breaking(Trickle):
    """Breaks off after a byte."""

    async def _bytes(self, first: int) -> AsyncIterator[bytes]:
        yield DATA[first : first + 1]
        raise Cut


@pytest.fixture
async def sources() -> AsyncIterator[Sources]:
    servers = Servers(["http://127.0.0.1:9"], authorization="", transfer_timeout_s=5.0, transfers=8)
    made = Sources(servers, timeout_s=0.4, retry_base_s=0.001)
    yield made
    await made.close()
    await servers.close()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "GRACE_S", 0.1)


@pytest.mark.parametrize(
    ("status", "says"), [(200, r"it is too slow: \d+ bytes came in 0.5 s"), (404, "not answer within 0.5 s")]
)
async def test_a_source_that_trickles_is_given_up_after_the_usual_tries(
    sources: Sources, tmp_path: Path, status: int, says: str
) -> None:
    with Trickle(status) as served:
        with pytest.raises(StepError, match=f"cannot fetch .*{says}") as caught:
            await sources.get(f"{served.url}/x", tmp_path / "x", Wanted())
        assert len(served.requests) == FOREIGN_ATTEMPTS
    assert caught.value.failure.kind is FailureKind.INPUT


async def test_so_is_one_that_breaks_off_after_a_few_bytes_each_time(
    sources: Sources, tmp_path: Path
) -> None:
    with Breaking() as served:
        with pytest.raises(StepError, match="cannot fetch"):
            await sources.get(f"{served.url}/x", tmp_path / "x", Wanted())
        assert len(served.requests) == FOREIGN_ATTEMPTS


async def test_a_source_that_keeps_the_pace_may_take_its_time(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "MIN_RATE_BYTES_S", 65536 / pace.GRACE_S)
    with HttpFiles(tmp_path / "www") as served:
        served.block_delay_s = 0.3
        began_s = time.monotonic()
        await sources.get(served.put("x", b"x" * 65536 * 4), tmp_path / "x", Wanted())
    assert time.monotonic() - began_s > 2 * 0.5


async def test_what_comes_slowly_is_told_nevertheless(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "PROGRESS_S", 0.05)
    meter, told = Meter("fetching"), list[int]()
    follow = meter.follow("x")

    class Noting:
        def __call__(self, done: int, total: int) -> None:
            follow(done, total)
            told.append(meter.bytes_done)

        def waits(self, reason: str) -> None:
            follow.waits(reason)

    with Trickle() as served, pytest.raises(StepError):
        await sources.get(f"{served.url}/x", tmp_path / "x", Wanted(), Noting())
    assert len(told) > FOREIGN_ATTEMPTS
    assert told == sorted(told)
    assert 0 < told[0] < 20


async def test_a_host_that_trickles_holds_up_nobody_else(server: FakeServer, start: MakeDaemon) -> None:
    start(slots=8, transfers=4, transfer_timeout_s=60.0)
    with Trickle() as served:
        for i in range(4):
            entry = {"filename": "x", "url": f"{served.url}/{i}"}
            await server.add_task("true", inputs=[entry])
        await server.until(lambda: len(served.requests) == 2)
        [work] = await server.add_task("cat", "@y", inputs=[server.input("y", b"good")])
        assert (await server.result(work))["stdout_tail"] == "good"
        assert len(served.requests) == 2
