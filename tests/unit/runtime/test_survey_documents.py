"""The check of all documents: a used store is sound; each broken field is named, and the advice helps."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from awe_server.api import build_api
from awe_server.app import build_services
from awe_server.runtime.clock import Clock
from awe_server.runtime.engine import Engine
from awe_server.runtime.survey_documents import MAX_LINES, survey_documents
from awe_server.settings import Settings
from awe_server.store.base import Match, Put, Store
from awe_server.store.open import open_store
from tests.support.broken_store import DAMAGES, Damage, inflict, said_of
from tests.support.eventually import eventually
from tests.support.used_store import use

pytestmark = pytest.mark.anyio

#: Advice after which the store is sound: the server does it, or these commands.
BY_ITSELF = ("the server puts it right", "left of what was removed")
REQUESTS = {
    "recompute": ("PUT", "/job/{}?recompute={}"),
    "suspend": ("PUT", "/job/{}?suspend"),
    "resume": ("PUT", "/job/{}?resume"),
    "rm --full": ("DELETE", "/job/{}?full"),
    "clients --resume": ("PUT", "/client/{}?resume"),
}
COMMAND = re.compile(rf"awe ({'|'.join(REQUESTS)}) ([^ ,]+)(?: (\w+))?")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("used")
    asyncio.run(use(folder))
    return folder


@pytest.fixture
async def store(data: Path, tmp_path: Path, anyio_backend: str) -> AsyncIterator[Store]:
    shutil.copytree(data, tmp_path / "data")
    store = open_store("sqlite", tmp_path / "data")
    await store.open()
    yield store
    await store.close()


async def test_a_store_that_was_used_is_sound(store: Store) -> None:
    assert await survey_documents(store) == []


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
async def test_a_broken_field_is_named_with_what_to_do(store: Store, damage: Damage) -> None:
    lines = await said_of(store, damage)
    assert [line for line in lines if re.search(damage.said, line)], lines
    assert len(lines) == damage.lines, lines
    assert all(" -> " in line for line in lines)
    assert await survey_documents(store) == []


HELPED = [d for d in DAMAGES if any(text in d.said for text in ("-> the", "-> awe", "-> left"))]


@pytest.mark.parametrize("damage", HELPED, ids=str)
async def test_the_advice_helps(store: Store, damage: Damage, tmp_path: Path) -> None:
    await inflict(store, damage)
    lines = await survey_documents(store)
    await store.close()
    await _follow([line.partition(" -> ")[2] for line in lines], tmp_path / "data")
    await store.open()
    assert await survey_documents(store) == []


async def _follow(advice: list[str], data: Path) -> None:
    """Start a server, give it the commands, stop it."""
    deaths: list[BaseException] = []
    services = build_services(Settings(data_dir=data, free_floor_bytes=0), clock=Clock(), fatal=deaths.append)
    await services.engine.start()
    transport = httpx.ASGITransport(build_api(services))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8001") as http:
        for verb, *arguments in dict.fromkeys(found for text in advice for found in COMMAND.findall(text)):
            method, path = REQUESTS[verb]
            reply = await http.request(method, path.format(*arguments))
            print(verb, arguments, reply.status_code, reply.text[:200])
        await eventually(lambda: _is_sound(services.engine), show=lambda: advice)
    await services.engine.stop()
    assert not deaths


async def _is_sound(engine: Engine) -> bool:
    """Also what was left of removed jobs is swept."""
    return await survey_documents(engine) == []  # type: ignore[arg-type] # it reads as a store does


async def test_a_job_without_a_number_keeps_no_other_from_being_compared(store: Store) -> None:
    (first, *_) = [d async for d in store.scan("jobs")]
    await store.commit(
        [
            Put("jobs", {key: value for key, value in first.items() if key != "_jid"}),
            Put("meta", {"id": "counters", "jid": 1}),
        ]
    )
    lines = await survey_documents(store)
    assert len(lines) == 2
    assert lines[0].startswith(f"job {first['id']}")
    assert "makes no sense (_jid)" in lines[0]
    assert "the last job number is 1, " in lines[1]


@pytest.mark.parametrize("key", ["task_name", "index", "state", "dependsOn", "generation", "_is_cut"])
async def test_a_task_that_lacks_something_is_one_line_and_blames_nobody_else(store: Store, key: str) -> None:
    for task in [d async for d in store.scan("tasks") if d["id"].endswith(("_cut", "_made"))]:
        await store.commit([Put("tasks", {name: task[name] for name in task if name != key})])
        [line] = await survey_documents(store)
        assert line.startswith(f"task {task['id']}")
        assert (
            f": makes no sense ({key}) -> restore a backup of it, or awe rm --full {task['jobid']} " in line
        )
        await store.commit([Put("tasks", task)])


async def test_half_a_store_is_told_in_a_page(store: Store) -> None:
    (unit, *_) = [d async for d in store.scan("workunits", [Match("state", ("completed",))])]

    await store.commit(
        [Put("workunits", {**unit, "id": f"x_y_{n}", "jobid": "x"}) for n in range(3 * MAX_LINES)]
    )
    lines = await survey_documents(store)
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == f"workunit: {2 * MAX_LINES} more of which the same is to be said as of the last"
