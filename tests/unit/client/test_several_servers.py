"""A client that knows a standby's address asks there at once, and comes back soon after a take-over."""

import asyncio
import random
import time

import pytest

from awe_client.daemon.servers import BACKOFF_CAP_S, SEVERAL_CAP_S, Patience, Servers
from shared_models.errors import (
    AweError,
    LeadInDoubt,
    NoSpace,
    ServerUnreachable,
    ShuttingDown,
    StoreUnavailable,
    Unavailable,
)
from tests.support.fake_server import FakeServer, refusal
from tests.unit.client.conftest import MakeDaemon

pytestmark = pytest.mark.anyio

URLS = ["http://127.0.0.1:9", "http://127.0.0.1:10", "http://127.0.0.1:11"]
AWAY = ServerUnreachable("refused")


def servers_of(count: int) -> Servers:
    return Servers(URLS[:count], authorization="", transfer_timeout_s=5.0, transfers=1)


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_each_server_is_asked_before_a_pause(count: int) -> None:
    servers = servers_of(count)
    patience = servers.patience()
    for failure in range(1, 4 * count + 1):
        assert (patience.delay_s(AWAY) > 0) == (failure % count == 0)
    await servers.close()


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_pauses_grow_less_with_a_standby(count: int) -> None:
    """A take-over takes 15 s: long enough for a lonely server's clients to have become slow."""
    random.seed(1)
    servers = servers_of(count)
    patience = servers.patience()
    longest = max(patience.delay_s(AWAY) for _ in range(60))
    cap_s = BACKOFF_CAP_S if count == 1 else SEVERAL_CAP_S
    assert cap_s / 2 < longest <= cap_s
    await servers.close()


async def test_no_short_lease_is_lost_in_a_pause() -> None:
    servers = servers_of(2)
    patience = servers.patience(cap_s=1.0)
    assert max(patience.delay_s(AWAY) for _ in range(60)) <= 1.0
    await servers.close()


@pytest.mark.parametrize("lease_s", [0.6, 3.0, 6.0, 15.0, 60.0])
async def test_a_standby_is_asked_twice_in_a_lease_while_the_leader_hangs(
    lease_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its take-over on it waits one lease for each client."""
    servers, waited = servers_of(2), list[float]()

    def at_once(within_s: float) -> asyncio.Timeout:
        waited.append(within_s)
        return asyncio.Timeout(0.0)

    async def hangs() -> None:
        await asyncio.Event().wait()

    hung = servers.current
    monkeypatch.setattr(hung, "health", hangs)
    monkeypatch.setattr("awe_client.daemon.servers.asyncio.timeout", at_once)
    patience = servers.patience()
    patience.cap_s = servers.pause_cap_s(lease_s)
    stands_by = Unavailable("standing by")
    stands_by.fields["retry_after_s"] = 5.0
    servers.failed(hung, AWAY)
    for _ in range(40):
        pause_s = patience.delay_s(AWAY) + patience.delay_s(stands_by)
        with pytest.raises(ServerUnreachable):
            await servers.awake(hung, lease_s)
        assert pause_s + waited[-1] <= lease_s / 2
    await servers.close()


async def test_after_a_success_all_are_asked_again_before_a_pause() -> None:
    servers = servers_of(2)
    patience = servers.patience()
    assert patience.delay_s(AWAY) == 0
    patience.reset()
    assert patience.delay_s(AWAY) == 0
    await servers.close()


async def test_who_waits_for_a_server_goes_on_when_somebody_reached_it() -> None:
    servers = servers_of(1)
    patience = servers.patience(base_s=100.0, cap_s=100.0)
    waiting = asyncio.ensure_future(patience.wait(AWAY))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    servers.reached()
    await asyncio.wait_for(waiting, 5.0)
    assert patience.failures == 0
    again = asyncio.ensure_future(patience.wait(AWAY))
    await asyncio.sleep(0.05)
    assert not again.done(), "once: what fails all the same waits as before"
    again.cancel()
    await servers.close()


async def test_pauses_grow_although_a_server_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One exchange that works between those that fail says little of what somebody else waits for."""
    servers = servers_of(1)
    patience = servers.patience(base_s=0.001)
    for failures in range(1, 6):
        await patience.wait(AWAY)
        assert patience.failures == (failures if failures < 3 else failures - 2)
        if failures >= 2:
            servers.reached()
    monkeypatch.setattr("awe_client.daemon.servers.BACKOFF_CAP_S", 0.0)
    servers.reached()
    await patience.wait(AWAY)
    assert patience.failures <= 1, "it was long there since it was said to be back"
    await servers.close()


async def test_an_internal_error_is_not_told_again_for_ever_by_a_server_that_comes_and_goes(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awe_client.daemon.servers.jittered_delay_s", lambda *_, **__: 0.05)
    daemon = start()
    server.upload_answers = [refusal(500, "internal", "broken")] * 10_000
    [work] = await server.add_task(script=["echo x > out.txt"], outputs=[server.output("out.txt")])

    async def flap() -> None:
        while True:
            daemon._servers.reached()
            await asyncio.sleep(0.01)

    flapping = asyncio.ensure_future(flap())
    assert (await server.result(work, 20.0))["kind"] == "output"
    flapping.cancel()


async def test_a_try_that_was_under_way_when_the_server_came_back_counts_as_the_first() -> None:
    servers = servers_of(1)
    patience = servers.patience(base_s=0.01, cap_s=100.0)
    for _ in range(5):
        await patience.wait(AWAY)
    servers.reached()
    await asyncio.wait_for(patience.wait(AWAY), 5.0)
    assert patience.failures == 1
    await servers.close()


@pytest.mark.parametrize(
    ("error", "is_gone"),
    [
        (ServerUnreachable(), True), (ShuttingDown(), True), (LeadInDoubt(), True), (Unavailable(), True),
        (StoreUnavailable(), False), (NoSpace(), False), (AweError(), False),
    ],
)  # fmt: skip
async def test_another_server_is_asked_when_this_one_does_not_lead(error: AweError, is_gone: bool) -> None:
    """A trouble of the store, or of its disk, is the other server's, too."""
    servers = servers_of(2)
    first = servers.current
    servers.failed(first, error)
    assert (servers.current is not first) == is_gone
    await servers.close()


async def test_a_server_that_was_silent_is_asked_something_small_before_it_is_given_time_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be stopped: it takes requests, and never answers."""
    servers = servers_of(2)
    first, asked = servers.current, list[float]()

    async def hangs() -> None:
        asked.append(time.monotonic())
        await asyncio.Event().wait()

    async def answers() -> None:
        asked.append(time.monotonic())

    monkeypatch.setattr("awe_client.daemon.servers.HEALTH_S", 0.1)
    monkeypatch.setattr(first, "health", hangs)
    await servers.awake(first, 60.0)
    assert asked == [], "nothing speaks against it"
    servers.failed(first, AWAY)
    with pytest.raises(ServerUnreachable):
        await asyncio.wait_for(servers.awake(first, 60.0), 5.0)
    monkeypatch.setattr(first, "health", answers)
    for _ in range(2):
        await servers.awake(first, 60.0)
    assert len(asked) == 2, "once, then it is trusted"
    await servers.close()


async def test_a_lonely_server_is_asked_for_nothing_but_what_is_wanted() -> None:
    servers = servers_of(1)
    servers.failed(servers.current, AWAY)
    await asyncio.wait_for(servers.awake(servers.current, 60.0), 1.0)
    await servers.close()


async def test_a_trouble_that_another_server_has_too_is_waited_for() -> None:
    servers = servers_of(2)
    assert servers.patience().delay_s(StoreUnavailable()) > 0
    await servers.close()


def test_a_lonely_server_is_waited_for() -> None:
    assert Patience().delay_s(AWAY) > 0
