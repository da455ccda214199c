"""What is told to end before it has begun ends, too."""

from collections.abc import Callable
from typing import Any

import pytest

from awe_client.daemon import machine as m
from awe_client.daemon.workshop import Workshop
from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import MakeDaemon

pytestmark = pytest.mark.anyio


def then_released(monkeypatch: pytest.MonkeyPatch, name: str, key: Callable[..., Any]) -> None:
    """Give back an attempt in the same turn of the loop in which the workshop did something for it, once."""
    real = getattr(Workshop, name)

    def done(self: Workshop, *args: Any) -> None:
        real(self, *args)
        monkeypatch.setattr(Workshop, name, real)
        self.deliver(key(*args), m.Release())

    monkeypatch.setattr(Workshop, name, done)


async def done_is_the_next(server: FakeServer) -> bool:
    [next_one] = await server.add_task()
    return bool((await server.result(next_one, 5.0))["outcome"] == "done")


async def test_a_transfer_that_is_stopped_before_its_first_turn_is_over(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    then_released(monkeypatch, "admit", lambda attempt: attempt.key)
    start(slots=1, transfers=1)
    [work] = await server.add_task(inputs=[server.input("in.txt", b"x")])
    assert (await server.result(work, 5.0))["outcome"] == "released"
    assert await done_is_the_next(server)


async def test_a_look_at_links_that_is_stopped_before_its_first_turn_gives_its_slot_back(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    then_released(monkeypatch, "_told", lambda holding, _: holding.attempt.key)
    start(slots=1)
    [work] = await server.add_task(predata=[server.input("db.txt", b"x")])
    assert (await server.result(work, 5.0))["outcome"] == "released"
    assert await done_is_the_next(server)
