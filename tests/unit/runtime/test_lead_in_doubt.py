"""What goes on beside requests begins nothing while another server may lead, and loses nothing by that."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from awe_server.data.indexes import sidecar
from awe_server.runtime.effects import Effects
from awe_server.scheduler.state import DeletePlaces, Effect, State
from awe_server.store.memory import MemoryStore
from shared_models.errors import LeadInDoubt
from shared_models.file_urls import url_of
from shared_models.ids import JobId
from tests.support.eventually import eventually
from tests.unit.runtime.site import SharedSite
from tests.unit.runtime.workshop import task

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def doubt(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Switches the doubt on and off."""

    def switch(on: bool) -> None:
        monkeypatch.setattr(MemoryStore, "in_doubt", on)

    return switch


def doubted(site: SharedSite, doubt: Any, monkeypatch: pytest.MonkeyPatch) -> Effects:
    """Let the doubt begin with the next effect."""
    begin = site.background.begin

    def and_then_doubt(asked: Iterable[Effect]) -> None:
        doubt(True)
        begin(asked)

    monkeypatch.setattr(site.background, "begin", and_then_doubt)
    return site.background.effects


async def test_a_file_elsewhere_is_deleted_once_this_server_leads_for_sure(
    site: SharedSite, doubt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Path(site.shared, "out")
    put_old(target)
    effects = doubted(site, doubt, monkeypatch)
    await site.engine.do(State.delete_places, [url_of(str(target))], JobId("j"))
    await eventually(lambda: any(isinstance(effect, DeletePlaces) for effect in effects._pauses))
    assert is_there(target)
    doubt(False)
    await eventually(lambda: not target.exists())


async def test_inputs_are_looked_at_once_this_server_leads_for_sure(
    site: SharedSite, doubt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause between two tries ends in the doubt, too: the effect stays."""
    node = await site.node(b"x")
    effects = doubted(site, doubt, monkeypatch)
    job_id = await site.submit(task(inputs=[{"filename": "in.txt", "node": node}]))
    for tries in (1, 2):
        await eventually(lambda n=tries: any(count >= n for count in effects._known.values()))  # type: ignore[misc]
    monkeypatch.undo()
    await site.until(job_id, "queued")


async def test_no_index_is_removed_that_another_server_may_need(
    site: SharedSite, doubt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = sidecar(site.root / "indexes" / "key", "line")
    put_old(index)
    with monkeypatch.context() as patch:
        patch.setattr("awe_server.runtime.index_sweep.needed", lambda state: doubt(True) or set())
        with pytest.raises(LeadInDoubt):
            await site.background.index_sweep.once()
    assert is_there(index)
    doubt(False)
    assert await site.background.index_sweep.once() == 1
    assert not is_there(index)


def put_old(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.utime(path, (0, 0))


def is_there(path: Path) -> bool:
    return path.exists()
