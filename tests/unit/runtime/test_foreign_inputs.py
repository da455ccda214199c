"""What is found out about a task's foreign inputs within a while, and what follows for those that are cut."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from awe_server.data.root_threads import RootThreads
from awe_server.data.source_indexes import SourceIndexes
from awe_server.data.sources.facts import SourceUnreachable
from awe_server.runtime import foreign, foreign_inputs
from awe_server.runtime.foreign import ForeignFiles
from awe_server.runtime.foreign_inputs import ForeignInputs
from tests.unit.runtime.workshop import Hands

pytestmark = pytest.mark.anyio


class Slow:
    """A host that takes its time for each answer."""

    def __init__(self, folder: Path, answer_s: float) -> None:
        self.asked: list[str] = []
        self._answer_s = answer_s
        clock = Hands().clock
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        files = ForeignFiles(http, clock.monotonic, RootThreads(()))
        self.inputs = ForeignInputs(files, SourceIndexes(folder, 0), clock, 60.0)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        await asyncio.sleep(self._answer_s)
        return httpx.Response(200, headers={"content-length": "7", "accept-ranges": "bytes"})


def files(number: int) -> list[dict[str, Any]]:
    return [
        {"filename": f"f{i}", "url": f"http://data.example/f{i}", "host": "", "node": "", "nofile": False}
        for i in range(number)
    ]


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slow:
    monkeypatch.setattr(foreign_inputs, "LOOK_S", 0.05)
    return Slow(tmp_path, 0.2)


async def test_what_is_to_be_cut_and_is_not_told_in_time_is_asked_again(slow: Slow) -> None:
    with pytest.raises(SourceUnreachable, match=r"input file f0: not told within 0\.05 s"):
        await slow.inputs.look(files(1), {"f0"}, "")


async def test_what_is_wanted_whole_and_is_not_told_in_time_stops_nobody(slow: Slow) -> None:
    looked = await slow.inputs.look(files(1), (), "")
    assert (looked.facts, looked.reasons) == ({}, {"f0": "not told within 0.05 s"})


async def test_what_is_to_be_cut_is_asked_for_before_the_rest(slow: Slow) -> None:
    last = f"f{2 * foreign.MAX_AT_ONCE}"
    with pytest.raises(SourceUnreachable, match=f"input file {last}: "):
        await slow.inputs.look(files(2 * foreign.MAX_AT_ONCE + 1), {last}, "")
    assert slow.asked[0] == f"/{last}"
