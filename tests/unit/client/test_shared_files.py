"""Pieces of shared files: what passes is tried again, what is stopped is not there."""
# ruff: noqa: ASYNC240 — a look at a temporary folder blocks nobody here

import asyncio
import errno
import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from awe_client.daemon import answers, shared_files
from awe_client.daemon.copies import copy_some
from awe_client.daemon.servers import Servers
from awe_client.daemon.transfer import FOREIGN_ATTEMPTS, Sources, StepError
from awe_client.sdk.download import Wanted
from shared_models.states import FailureKind
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio

DATA = bytes(range(250)) * 40
PIECE = Wanted(offset=1000, length=5000)


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "x").write_bytes(DATA)
    return f"file://{tmp_path}/shared/x"


@pytest.fixture
async def sources(tmp_path: Path) -> AsyncIterator[Sources]:
    """Sources that are quick to try again, and copy little at a time."""
    servers = Servers(["http://127.0.0.1:9"], authorization="", transfer_timeout_s=5.0, transfers=8)
    made = Sources(servers, timeout_s=5.0, retry_base_s=0.001, file_roots=(str(tmp_path / "shared"),))
    yield made
    await made.close()
    await servers.close()


class Failing:
    """A function that fails the first few times."""

    def __init__(self, work: Any, error: int, times: int) -> None:
        self._work, self._error, self.left = work, error, times

    def __call__(self, *args: Any) -> Any:
        if self.left:
            self.left -= 1
            raise OSError(self._error, os.strerror(self._error))
        return self._work(*args)


@pytest.mark.parametrize("error", [errno.ESTALE, errno.ETIMEDOUT, errno.EIO])
@pytest.mark.parametrize("where", ["copy_some", "_version", "fstat"])
async def test_passing_trouble_of_the_file_system_is_tried_again(
    url: str, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, where: str
) -> None:
    failing: list[Failing] = []

    def fail(owner: Any, name: str, times: int) -> None:
        failing.append(Failing(getattr(owner, name), error, times))
        monkeypatch.setattr(owner, name, failing[-1])

    fail(os if where == "fstat" else shared_files, where, FOREIGN_ATTEMPTS - 1)
    if where == "copy_some" and error == errno.EIO:
        fail(os, "pread", FOREIGN_ATTEMPTS - 1)
    await sources.get(url, tmp_path / "in", PIECE)
    assert (tmp_path / "in").read_bytes() == DATA[1000:6000]
    assert [one.left for one in failing] == [0] * len(failing)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
async def test_a_copy_that_cannot_be_written_is_this_machines_trouble_and_not_tried_again(
    url: str, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    failing = Failing(copy_some, error, 1)
    monkeypatch.setattr(shared_files, "copy_some", failing)
    with pytest.raises(StepError, match="cannot write in on the client") as caught:
        await sources.get(url, tmp_path / "in", PIECE)
    assert caught.value.failure.kind == FailureKind.NODE
    assert caught.value.disk_full == (error in (errno.ENOSPC, errno.EDQUOT))
    assert [path.name for path in tmp_path.iterdir()] == ["shared"]


async def test_a_copy_that_is_stopped_is_not_there_and_nobody_waits_for_its_file_system(
    url: str, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, steps = threading.Event(), 0

    def slow(source: int, sink: int, offset: int, length: int) -> int:
        nonlocal steps
        steps += 1
        go_on.wait(20)
        return copy_some(source, sink, offset, length)

    monkeypatch.setattr(shared_files, "copy_some", slow)
    monkeypatch.setattr(shared_files, "_STEP_BYTES", 1000)
    task = asyncio.ensure_future(sources.get(url, tmp_path / "in", PIECE))
    await eventually(lambda: steps == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 1)
    assert len(list(tmp_path.glob("in.*.part"))) == 1
    go_on.set()
    await eventually(lambda: [path.name for path in tmp_path.iterdir()] == ["shared"])
    assert steps == 1


@pytest.mark.parametrize("length", [0, 5000])
async def test_a_copy_whose_last_look_hangs_is_not_there_afterwards_either(
    url: str, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    go_on, looks = threading.Event(), 0

    def look(file: BinaryIO, expected: str) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            go_on.wait(20)

    monkeypatch.setattr(shared_files, "_check_version", look)
    task = asyncio.ensure_future(sources.get(url, tmp_path / "in", Wanted(offset=1000, length=length)))
    await eventually(lambda: looks == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 1)
    go_on.set()
    await eventually(lambda: not list(tmp_path.glob("in.*.part")))
    assert [path.name for path in tmp_path.iterdir()] == ["shared"]


@pytest.mark.parametrize("what", ["link", "open", "copy_some", "read"])
async def test_a_file_system_that_does_not_answer_is_out_of_reach(
    url: str, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    go_on = threading.Event()

    def hangs(*_: Any) -> None:
        go_on.wait(30)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(answers, "ANSWER_S", 0.05)
    name = {"copy_some": "copy_some", "read": "_read"}.get(what, "open_allowed")
    monkeypatch.setattr(shared_files, name, hangs)
    bring: Any = sources.link if what == "link" else sources.get
    with pytest.raises(StepError, match="does not answer") as caught:
        await bring(
            url, tmp_path / "in", {"copy_some": PIECE, "read": Wanted(gunzip=True)}.get(what, Wanted())
        )
    failure = caught.value.failure
    assert (failure.kind, failure.out_of_reach) == (FailureKind.NODE, True)
    go_on.set()


async def test_a_copy_that_moves_may_take_long(
    url: str, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(source: int, sink: int, offset: int, length: int) -> int:
        time.sleep(0.05)
        return copy_some(source, sink, offset, length)

    monkeypatch.setattr(answers, "ANSWER_S", 0.3)
    monkeypatch.setattr(shared_files, "copy_some", slow)
    monkeypatch.setattr(shared_files, "_STEP_BYTES", 500)
    await sources.get(url, tmp_path / "in", PIECE)
    assert (tmp_path / "in").read_bytes() == DATA[1000:6000]
