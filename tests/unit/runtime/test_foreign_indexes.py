"""Indexes that a document asks for of inputs in another Shock: built there before the task starts."""

from typing import Any

import pytest

from awe_server.runtime import foreign_inputs
from tests.support.shock import ShockServer
from tests.unit.runtime.site import SharedSite
from tests.unit.runtime.workshop import task

pytestmark = pytest.mark.anyio


async def queued(site: SharedSite, shock: ShockServer, data: bytes) -> tuple[str, dict[str, Any]]:
    """A task whose input in a Shock is to be indexed: its node there, and the task once it is ready."""
    node = shock.add(data)
    inputs = [{"filename": "in.txt", "host": shock.url, "node": node, "shockindex": "line"}]
    job_id = await site.submit(task(inputs=inputs))
    return node, await site.until(job_id, "queued")


@pytest.mark.parametrize("is_slow", [True, False])
async def test_another_shock_is_asked_for_the_index_of_an_input(
    site: SharedSite, shock: ShockServer, is_slow: bool
) -> None:
    shock.index_s = 0.3 if is_slow else 0.0
    node, shown = await queued(site, shock, b"a\nb\n")
    assert shown["notes"] == ""
    index = shock.nodes[node].indexes["line"]
    assert (len(index.spans), index.is_locked) == (2, False)


async def test_an_index_that_is_there_is_not_asked_for_again(site: SharedSite, shock: ShockServer) -> None:
    node, _ = await queued(site, shock, b"a\nb\n")
    inputs = [{"filename": "in.txt", "host": shock.url, "node": node, "shockindex": "line"}]
    await site.until(await site.submit(task(inputs=inputs)), "queued")
    assert len(shock.seen("PUT")) == 1


async def test_what_is_empty_is_not_indexed(site: SharedSite, shock: ShockServer) -> None:
    _, shown = await queued(site, shock, b"")
    assert shown["notes"] == ""
    assert not shock.seen("PUT")


async def test_an_index_that_is_refused_is_a_note_and_stops_nobody(
    site: SharedSite, shock: ShockServer
) -> None:
    shock.no_index = {"line"}
    _, shown = await queued(site, shock, b"a\nb\n")
    assert shown["notes"].startswith("no index 'line' for in.txt: ")


async def test_a_shock_that_goes_away_meanwhile_is_a_note_and_stops_nobody(
    site: SharedSite, shock: ShockServer
) -> None:
    shock.faults.fail(503, method="PUT")
    _, shown = await queued(site, shock, b"a\nb\n")
    assert shown["notes"].startswith("no index 'line' for in.txt: ")


async def test_a_shock_that_is_away_is_a_note_and_stops_nobody(site: SharedSite, shock: ShockServer) -> None:
    node = shock.add(b"a\nb\n")
    inputs = [{"filename": "in.txt", "host": shock.url, "node": node, "shockindex": "line"}]
    shock.stop()
    shown = await site.until(await site.submit(task(inputs=inputs)), "queued")
    assert "no index 'line' for in.txt: 127.0.0.1:" in shown["notes"]


@pytest.mark.parametrize("answers_late", [True, False])
async def test_indexes_that_take_long_are_asked_for_together_and_stop_nobody(
    site: SharedSite, shock: ShockServer, monkeypatch: pytest.MonkeyPatch, answers_late: bool
) -> None:
    monkeypatch.setattr(foreign_inputs, "INDEX_S", 0.5)
    shock.answers_late, shock.index_s = answers_late, 3600.0 if not answers_late else 2.0
    nodes = [shock.add(b"a\nb\n") for _ in range(3)]
    inputs = [
        {"filename": f"in{i}.txt", "host": shock.url, "node": node, "shockindex": "line"}
        for i, node in enumerate(nodes)
    ]
    shown = await site.until(await site.submit(task(inputs=inputs)), "queued")
    assert shown["notes"].split("; ") == [
        f"no index 'line' for in{i}.txt: its Shock has not built it within 0.5 s" for i in range(3)
    ]
    assert sorted(seen.path.split("/")[2] for seen in shock.seen("PUT")) == sorted(nodes)
