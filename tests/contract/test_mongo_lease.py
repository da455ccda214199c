"""One writer: the lease is taken, kept, given back, taken over; who lost it never writes again."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from awe_server.store.base import Put
from awe_server.store.errors import LeaseGone, StoreLocked
from awe_server.store.lease import POLL_S
from awe_server.store.mongo import MongoStore
from shared_models.errors import StoreUnavailable
from shared_models.times import rfc3339
from tests.support.eventually import eventually
from tests.support.mongo import mock_client

pytestmark = pytest.mark.anyio

ELSEWHERE = {"host": "other", "pid": 1, "place": "another machine", "started": "1", "nonce": "n"}


@pytest.fixture
def meta(mongo_url: str) -> Iterator[Any]:
    """The collection of the lease, past the store."""
    with MongoClient[dict[str, Any]](mongo_url) as client:
        yield client.get_default_database()["meta"]


def foreign_lease(until_s: float) -> dict[str, Any]:
    return {"_id": "lease", "owner": ELSEWHERE, "epoch": 7, "renewals": 70, "until": rfc3339(until_s)}


async def test_the_lease_says_who_and_until_when(mongo_url: str, meta: Any) -> None:
    store = MongoStore(mongo_url, lease_s=60.0)
    await store.open()
    lease = meta.find_one({"_id": "lease"})
    assert lease["epoch"] == 1
    assert lease["owner"]["host"]
    assert lease["until"] > rfc3339(time.time() + 50.0)
    assert lease["domain"] == mongo_url.rpartition("/")[2]
    with pytest.raises(StoreLocked, match=rf"pid \d+\), until {lease['until'][:17]}"):
        await MongoStore(mongo_url).open()
    await store.close()
    lease = meta.find_one({"_id": "lease"})
    assert lease["owner"] == {}


async def test_an_idle_writer_renews(mongo_url: str, meta: Any) -> None:
    store = MongoStore(mongo_url, lease_s=0.6)
    await store.open()
    first = meta.find_one({"_id": "lease"})
    await eventually(lambda: meta.find_one({"_id": "lease"})["renewals"] >= first["renewals"] + 2)
    assert meta.find_one({"_id": "lease"})["until"] > first["until"]
    await store.close()


async def test_every_batch_renews(mongo_url: str, meta: Any) -> None:
    store = MongoStore(mongo_url)
    await store.open()
    first = meta.find_one({"_id": "lease"})
    await store.commit([Put("jobs", {"id": "j"})])
    assert meta.find_one({"_id": "lease"})["renewals"] == first["renewals"] + 1
    await store.close()


async def test_what_is_held_is_shown_until_it_is_given_back(mongo_url: str, meta: Any) -> None:
    store = MongoStore(mongo_url)
    assert store.lease is None
    await store.open()
    for _ in range(2):
        stored = meta.find_one({"_id": "lease"})
        assert store.lease == {"epoch": stored["epoch"], "until": stored["until"]}
        await store.commit([Put("jobs", {"id": "j"})])
    await store.close()
    assert store.lease is None


@contextlib.contextmanager
def writer_process(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.contract.mongo_writer", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        yield writer
        writer.kill()


@pytest.fixture
def other_writer(mongo_url: str) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the lease."""
    with writer_process(mongo_url) as writer:
        yield writer


async def test_a_writer_killed_on_this_machine_is_replaced_at_once(
    mongo_url: str, other_writer: "subprocess.Popen[str]"
) -> None:
    with pytest.raises(StoreLocked, match=f"pid {other_writer.pid}"):
        await MongoStore(mongo_url).open()
    other_writer.kill()
    other_writer.wait()
    store = MongoStore(mongo_url, lease_s=600.0)
    await asyncio.wait_for(store.open(), 10.0)
    assert await store.get("jobs", "j") == {"id": "j"}
    await store.close()


async def test_a_writer_killed_in_a_transaction_is_replaced_at_once(mongo_url: str) -> None:
    with writer_process(mongo_url, "in-transaction") as writer:
        writer.kill()
        writer.wait()
    store = MongoStore(mongo_url, lease_s=600.0)
    await asyncio.wait_for(store.open(), 5.0)
    await asyncio.wait_for(store.commit([Put("jobs", {"id": "k"})]), 5.0)
    await store.close()


class _RefusingAdmin:
    """A database whose user may not end sessions."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin

    async def command(self, name: str, *arguments: Any) -> Any:
        if name == "killSessions":
            raise OperationFailure("not authorized on admin to execute command", 13)
        return await self._admin.command(name, *arguments)


class _RefusingStore(MongoStore):
    async def end_session(self, lsid: str) -> None:
        client, self._client = self._client, SimpleNamespace(admin=_RefusingAdmin(self._client.admin))
        try:
            await super().end_session(lsid)
        finally:
            self._client = client


async def test_a_server_that_ends_no_sessions_is_waited_for_and_that_is_said(
    mongo_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with writer_process(mongo_url, "in-transaction") as writer:
        writer.kill()
        writer.wait()
    store = _RefusingStore(mongo_url, lease_s=600.0)
    opening = asyncio.create_task(store.open())
    await eventually(lambda: "store_waits" in caplog.messages, show=lambda: caplog.messages)
    [waits] = [record for record in caplog.records if record.message == "store_waits"]
    assert "transaction" in vars(waits)["reason"]
    assert not opening.done()
    with MongoClient[dict[str, Any]](mongo_url) as client:
        client.admin.command("killAllSessions", [])
    await asyncio.wait_for(opening, 10.0)
    assert caplog.messages.count("session_not_ended") == 1
    await store.close()


async def test_a_start_says_that_the_database_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = MongoStore(f"mongodb://127.0.0.1:{silent.getsockname()[1]}/x")
        opening = asyncio.create_task(store.open())
        await eventually(lambda: "store_waits" in caplog.messages)
        opening.cancel()
        await asyncio.wait([opening])


async def test_a_store_knows_its_own_lease(mongo_url: str, meta: Any) -> None:
    store = MongoStore(mongo_url)
    await store.open()
    lease = meta.find_one({"_id": "lease"})
    await store.close()
    meta.replace_one({"_id": "lease"}, lease)  # as if the database had been away at the close
    with pytest.raises(StoreLocked):
        await MongoStore(mongo_url).open()
    await asyncio.wait_for(store.open(), 10.0)
    await store.commit([Put("jobs", {"id": "j"})])
    await store.close()


async def test_a_lease_that_ran_out_is_free(mongo_url: str, meta: Any) -> None:
    meta.insert_one(foreign_lease(time.time() - 1.0))
    store = MongoStore(mongo_url, lease_s=600.0)
    await asyncio.wait_for(store.open(), 10.0)
    assert meta.find_one({"_id": "lease"})["epoch"] == 8
    await store.close()


async def test_a_lease_that_nobody_renews_is_free_after_its_length(mongo_url: str, meta: Any) -> None:
    meta.insert_one(foreign_lease(time.time() + 3600.0))
    started = time.monotonic()
    store = MongoStore(mongo_url, lease_s=0.8)
    await store.open()
    assert time.monotonic() - started >= 0.8
    await store.close()


async def test_without_a_server_clock_the_lease_is_watched() -> None:
    with mock_client() as client:
        first = MongoStore("mongodb://mock/test", connect=client)
        await first.open()
        await first._database["meta"].update_one(
            {"_id": "lease"}, {"$set": {"owner": ELSEWHERE, "until": rfc3339(1.0)}}
        )
        started = time.monotonic()
        second = MongoStore("mongodb://mock/test", connect=client, lease_s=0.8)
        await second.open()
        assert time.monotonic() - started >= 0.8
        with pytest.raises(LeaseGone):
            await first.commit([Put("jobs", {"id": "late"})])
        assert await second.get("jobs", "late") is None
        await first.close()
        await second.commit([Put("jobs", {"id": "j"})])
        await second.close()


async def test_an_owner_elsewhere_is_known_to_live_when_it_renews(mongo_url: str, meta: Any) -> None:
    first = MongoStore(mongo_url, lease_s=1.0)
    await first.open()
    meta.update_one({"_id": "lease"}, {"$set": {"owner": ELSEWHERE}})
    with pytest.raises(StoreLocked, match=r"other \(pid 1\)"):
        await MongoStore(mongo_url, lease_s=600.0).open()
    await first.commit([Put("jobs", {"id": "j"})])
    await first.close()


async def test_who_waits_takes_over_when_the_writer_stops(mongo_url: str) -> None:
    first, second = MongoStore(mongo_url), MongoStore(mongo_url)
    await first.open()
    standby = asyncio.create_task(second.open(wait=True))
    await first.commit([Put("jobs", {"id": "j"})])
    await asyncio.sleep(2 * POLL_S)  # long enough for the other to have seen the last renewal
    assert not standby.done()
    await first.close()
    await asyncio.wait_for(standby, 10.0)
    assert await second.get("jobs", "j") == {"id": "j"}
    await second.close()


async def test_who_lost_the_lease_never_writes_again(mongo_url: str, meta: Any) -> None:
    store = MongoStore(mongo_url)
    await store.open()
    meta.update_one({"_id": "lease"}, {"$inc": {"epoch": 1}, "$set": {"owner": ELSEWHERE}})
    for _ in range(2):
        with pytest.raises(LeaseGone):
            await store.commit([Put("jobs", {"id": "late"})])
    meta.update_one({"_id": "lease"}, {"$inc": {"epoch": -1}})
    with pytest.raises(LeaseGone):
        await store.commit([])
    assert await store.get("jobs", "late") is None
    await store.close()
    assert meta.find_one({"_id": "lease"})["owner"] == ELSEWHERE


async def test_an_idle_writer_notices_that_it_lost_the_lease(mongo_url: str, meta: Any) -> None:
    store = MongoStore(mongo_url, lease_s=0.3)
    await store.open()
    meta.update_one({"_id": "lease"}, {"$inc": {"epoch": 1}, "$set": {"owner": ELSEWHERE}})

    async def is_gone() -> bool:
        try:
            await store.commit([])
        except LeaseGone:
            return True
        return False

    await eventually(is_gone)
    await store.close()


async def test_a_writer_that_is_in_doubt_asks_when_it_has_nothing_to_write(mongo_url: str, meta: Any) -> None:
    store = MongoStore(mongo_url)
    await store.open()
    lease = store._opened_lease()
    lease._renewed_at -= 2 * lease.length_s
    assert store.in_doubt
    await store.commit([])
    assert not store.in_doubt
    meta.update_one({"_id": "lease"}, {"$inc": {"epoch": 1}, "$set": {"owner": ELSEWHERE}})
    await store.commit([])
    lease._renewed_at -= 2 * lease.length_s
    with pytest.raises(LeaseGone):
        await store.commit([])
    assert store.in_doubt
    await store.close()


class _ClockedStore(MongoStore):
    """Its database's clock goes wrong, or right, at will."""

    ahead_s = 0.0

    async def clock(self) -> float | None:
        return time.time() + self.ahead_s


async def test_a_busy_writer_follows_the_clock_of_its_database() -> None:
    with mock_client() as client:
        store = _ClockedStore("mongodb://mock/test", connect=client, lease_s=3.0)
        await store.open()
        store.ahead_s = 3600.0

        async def follows() -> bool:
            await store.commit([Put("jobs", {"id": "j"})])  # so no renewal is ever due
            return bool(store.lease) and store.lease["until"] > rfc3339(time.time() + 1800.0)

        await eventually(follows)
        await store.close()


async def test_a_store_that_was_closed_is_in_doubt_until_it_leads_again() -> None:
    with mock_client() as client:
        store = MongoStore("mongodb://mock/test", connect=client)
        assert not store.in_doubt, "nothing was said in its name yet"
        for _ in range(2):
            await store.open()
            assert not store.in_doubt
            await store.close()
            assert store.in_doubt


async def test_without_transactions_a_writer_that_is_stopped_in_a_batch_writes_no_more_of_it() -> None:
    with mock_client() as client:
        store = MongoStore("mongodb://mock/test", connect=client)
        await store.open()
        lease = store._opened_lease()
        renewed = lease.renewed

        def and_then_stop(renewal: Any) -> None:
            renewed(renewal)
            lease._renewed_at -= 2 * lease.length_s

        lease.renewed = and_then_stop  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable, match="ran out"):
            await store.commit([Put("jobs", {"id": "late"})])
        assert await store.get("jobs", "late") is None
        await store.close()
