"""What a server that waits for another one says, and that it leads nowhere but on that one's files."""

import asyncio
from pathlib import Path

import pytest

from awe_server.runtime.engine import Engine
from awe_server.runtime.folder_mark import FilesMissing
from awe_server.settings import Settings
from awe_server.store.errors import StoreLocked
from awe_server.store.sqlite import SqliteStore
from tests.support.eventually import eventually
from tests.support.faulty import FaultyStore
from tests.unit.runtime.site import Site
from tests.unit.runtime.workshop import Hands

pytestmark = pytest.mark.anyio


async def test_it_says_who_leads_and_gives_no_advice_against_waiting(tmp_path: Path) -> None:
    leads = SqliteStore(tmp_path)
    await leads.open()
    fatal: list[BaseException] = []
    waits = Engine(SqliteStore(tmp_path), Settings(standby=True), Hands().clock, fatal.append)
    starting = asyncio.create_task(waits.start())
    await eventually(lambda: waits.stands_by)
    owner = (tmp_path / "awe.lock").read_text().strip()
    assert waits.stands_by == f"Another server owns this store: pid {owner}."
    await leads.close()
    await starting
    assert waits.stands_by == ""
    await waits.stop()
    assert fatal == []


class _Led(FaultyStore):
    """A store that another server owns for now."""

    is_led = False

    async def open(self) -> None:
        if self.is_led:
            raise StoreLocked(owner="host (pid 7)")
        await super().open()


async def test_it_does_not_lead_on_a_folder_without_the_files(tmp_path: Path) -> None:
    store = _Led()
    leader = Site(tmp_path / "shared", store=store)
    await leader.start()
    await leader.node(b"x")
    await leader.engine.stop()
    store.is_led = True
    standby = Site(tmp_path / "not mounted", store=store, standby=True)
    starting = asyncio.create_task(standby.start())
    await eventually(lambda: standby.engine.stands_by)
    assert not starting.done()
    store.is_led = False
    with pytest.raises(FilesMissing, match="which has 1 node: is its file system mounted"):
        await starting
    await standby.engine.stop()
    assert not (tmp_path / "not mounted").exists()
