"""A start that waits says what for: soon, and again and again; one that does not wait says nothing."""

import asyncio

import pytest

from awe_server.store import waiting
from awe_server.store.waiting import Waiting
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio


async def test_a_wait_is_told_again_with_its_latest_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "FIRST_S", 0.01)
    monkeypatch.setattr(waiting, "AGAIN_S", 0.01)
    wait = Waiting("store", "first")
    async with wait.told():
        await eventually(lambda: caplog.messages.count("store_waits") >= 2)
        wait.reason = "second"
        await eventually(lambda: vars(caplog.records[-1])["reason"] == "second")
    told = len(caplog.records)
    await asyncio.sleep(0.03)
    assert len(caplog.records) == told
    assert vars(caplog.records[0])["reason"] == "first"


async def test_what_is_quick_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async with Waiting("store", "reason").told():
        await asyncio.sleep(0)
    assert not caplog.records
