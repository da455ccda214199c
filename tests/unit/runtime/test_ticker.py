"""Time passes in the scheduler; time in which the server was away does not count against clients."""

import pytest

from awe_server.runtime import recovery
from awe_server.runtime.ticker import Ticker
from awe_server.scheduler.clients import heartbeat
from awe_server.scheduler.state import Context, State
from awe_server.store.base import Document, Store
from tests.support.eventually import eventually
from tests.unit.runtime.workshop import CLIENT, Workshop, task

pytestmark = pytest.mark.anyio


async def held(shop: Workshop) -> int:
    return len(shop.engine.state.clients[CLIENT].holds)


async def busy_shop() -> tuple[Workshop, Ticker]:
    shop = await Workshop(lease_s=10.0).start()
    await shop.register()
    await shop.submit(task())
    await shop.fetch()
    ticker = Ticker(shop.engine, tick_s=0.5)
    ticker.once()
    return shop, ticker


def let_pass(shop: Workshop, ticker: Ticker, seconds: float) -> None:
    """Ticks come as they should."""
    for _ in range(int(seconds / 0.5)):
        shop.hands.monotonic_s += 0.5
        ticker.once()


async def test_a_silent_client_loses_its_work_after_its_lease() -> None:
    shop, ticker = await busy_shop()
    let_pass(shop, ticker, 9.5)
    assert await held(shop) == 1
    let_pass(shop, ticker, 1.0)
    assert await held(shop) == 0


async def test_a_stall_of_the_server_is_given_as_grace() -> None:
    shop, ticker = await busy_shop()
    let_pass(shop, ticker, 5.0)
    shop.hands.monotonic_s += 100.0
    ticker.once()
    assert await held(shop) == 1
    let_pass(shop, ticker, 4.0)
    assert await held(shop) == 1
    let_pass(shop, ticker, 2.0)
    assert await held(shop) == 0


async def test_the_grace_of_a_restart_begins_when_the_server_can_hear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop, _ = await busy_shop()
    await shop.engine.stop()
    again = Workshop(shop.store, shop.hands, **shop.options)

    async def start_slowly() -> None:
        """As with many files on a cold disk."""
        again.hands.monotonic_s += 90.0

    monkeypatch.setattr(again.duties, "start", start_slowly)
    await again.start()
    ticker = Ticker(again.engine, tick_s=0.5)
    ticker.once()
    let_pass(again, ticker, 9.5)
    assert await held(again) == 1
    let_pass(again, ticker, 1.0)
    assert await held(again) == 0


async def test_the_grace_after_a_bug_begins_when_the_server_can_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    shop, _ = await busy_shop()
    plain = recovery.server_document

    async def answered_late(store: Store) -> Document:
        """By a store that was away when the leases had been read."""
        shop.hands.monotonic_s += 90.0
        return await plain(store)

    def broken(state: State, ctx: Context) -> None:
        raise KeyError("bug")

    monkeypatch.setattr(recovery, "server_document", answered_late)
    with pytest.raises(KeyError):
        await shop.engine.do(broken)
    await eventually(lambda: shop.engine.ready)
    ticker = Ticker(shop.engine, tick_s=0.5)
    ticker.once()
    let_pass(shop, ticker, 9.5)
    assert await held(shop) == 1
    let_pass(shop, ticker, 1.0)
    assert await held(shop) == 0


async def test_L_11_steps_of_the_wall_clock_expire_nothing_and_freeze_nothing() -> None:
    shop, ticker = await busy_shop()
    for step_s in (-3600.0, 3600.0, 86400.0):
        shop.hands.wall_s += step_s
        ticker.once()
        assert await held(shop) == 1
    shop.hands.wall_s -= 1_000_000.0
    let_pass(shop, ticker, 11.0)
    assert await held(shop) == 0


async def test_a_tick_that_changes_nothing_writes_nothing() -> None:
    shop, ticker = await busy_shop()
    count = shop.store.attempts
    let_pass(shop, ticker, 5.0)
    await shop.engine.do(heartbeat, CLIENT, None)
    assert shop.store.attempts == count


async def test_a_broken_tick_begins_anew_once_and_then_stops_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop, ticker = await busy_shop()

    def broken(state: State, ctx: Context) -> None:
        raise KeyError("bug")

    monkeypatch.setattr("awe_server.runtime.ticker.tick", broken)
    ticker.once()
    assert not shop.engine.ready
    await eventually(lambda: shop.engine.ready)
    assert await held(shop) == 1
    with pytest.raises(KeyError):
        ticker.once()
