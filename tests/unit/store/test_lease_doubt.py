"""A lease that was not renewed for its length may be another's: its holder knows that by its own clock."""

import contextlib
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from awe_server.store.errors import LeaseGone
from awe_server.store.lease import Busy, Lease, boot_clock
from awe_server.store.owner import this_process
from awe_server.store.waiting import Waiting

pytestmark = pytest.mark.anyio

LENGTH_S = 10.0


class Meta:
    """The collection that holds the lease, and the server that it is on."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}
        self.breaks = False  #: transactions fail at their end

    async def find_one(self, which: Any) -> dict[str, Any] | None:
        return dict(self.document) or None

    async def update_one(
        self, which: dict[str, Any], change: dict[str, Any], session: Any = None, upsert: bool = False
    ) -> Any:
        if upsert:
            self.document = {"_id": "lease", **change["$setOnInsert"]}
        if any(self.document.get(key) != value for key, value in which.items()):
            return SimpleNamespace(matched_count=0)
        self.document.update(change.get("$set", {}))
        for key, step in change.get("$inc", {}).items():
            self.document[key] += step
        return SimpleNamespace(matched_count=1)

    async def clock(self) -> float | None:
        return None

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        yield None
        if self.breaks:
            raise Busy("no majority")

    async def end_session(self, lsid: str) -> None:
        return


class Hands:
    now_s = 500.0


@pytest.fixture
def meta() -> Meta:
    return Meta()


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
async def lease(meta: Meta, hands: Hands) -> Lease:
    lease = Lease(
        meta, meta, Waiting("test", ""), owner={**this_process(), "lsid": ""}, domain="test",
        length_s=LENGTH_S, clock=lambda: hands.now_s,
    )  # fmt: skip
    await lease.take()
    return lease


async def test_a_lease_is_in_doubt_once_its_length_has_passed_without_a_renewal(
    lease: Lease, hands: Hands
) -> None:
    assert not lease.in_doubt
    hands.now_s += 0.5 * LENGTH_S
    assert not lease.in_doubt
    hands.now_s += 0.5 * LENGTH_S
    assert lease.in_doubt


async def test_it_is_in_doubt_before_a_successor_can_have_it(lease: Lease, hands: Hands) -> None:
    """Clocks of two machines are compared over a network, which takes a moment."""
    hands.now_s += 0.95 * LENGTH_S
    assert lease.in_doubt


async def test_a_renewal_ends_the_doubt_if_nobody_has_it(lease: Lease, hands: Hands) -> None:
    hands.now_s += 100 * LENGTH_S
    await lease.renew_if_due()
    assert not lease.in_doubt


async def test_the_doubt_is_certainty_if_somebody_else_has_it(lease: Lease, meta: Meta, hands: Hands) -> None:
    hands.now_s += 100 * LENGTH_S
    meta.document["epoch"] += 1
    with pytest.raises(LeaseGone):
        await lease.renew_if_due()
    assert lease.in_doubt


async def test_a_renewal_that_did_not_become_durable_is_none(lease: Lease, meta: Meta, hands: Hands) -> None:
    meta.breaks = True
    hands.now_s += 0.8 * LENGTH_S
    with pytest.raises(Busy):
        await lease.renew_if_due()
    hands.now_s += 0.3 * LENGTH_S
    assert lease.in_doubt


async def test_who_came_too_late_to_claim_it_has_nothing(lease: Lease, meta: Meta, hands: Hands) -> None:
    other = Lease(
        meta, meta, Waiting("test", ""), owner={**this_process(), "lsid": ""}, domain="test",
        length_s=LENGTH_S, clock=lambda: hands.now_s,
    )  # fmt: skip
    before = await other._find()
    await lease.renew()
    assert not await other._claim(before)
    assert other.in_doubt
    assert other.shown["epoch"] == 0


def test_the_clock_runs_on_while_the_machine_sleeps() -> None:
    assert abs(boot_clock() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1.0
