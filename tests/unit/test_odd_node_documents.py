"""Stored documents that are JSON and make no sense: nobody loses a file over them, nothing breaks off."""

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from awe_server.app import build_services
from awe_server.cli import cli
from awe_server.data.nodes import NodeStore
from awe_server.runtime.clock import Clock
from awe_server.settings import Settings
from awe_server.store.base import Query
from shared_models.errors import UnreadableNode
from tests.support.used_store import use
from tests.unit.data.port import stream
from tests.unit.test_server_check import wall

ODD = ("{}", '{"id": "@"}', "5", "null", '["@"]', '{"id": "@", "file": 7, "_blob": 3}', '{"id": "other"}')


async def _with_nodes(folder: Path, use: Any) -> None:
    deaths: list[BaseException] = []
    settings = Settings(data_dir=folder, free_floor_bytes=0)
    services = build_services(settings, clock=Clock(wall, wall), fatal=deaths.append)
    await services.engine.start()
    try:
        await use(services.nodes)
    finally:
        await services.engine.stop()
    assert not deaths


@pytest.fixture
def blobs(tmp_path: Path) -> list[Path]:
    """The files of as many nodes as there are odd documents, and of one that is sound."""
    found: list[Path] = []

    async def fill(nodes: NodeStore) -> None:
        for number in range(len(ODD) + 1):
            node = await nodes.create(stream(b"%d\n" % number), name="x")
            found.append(tmp_path / "nodes" / "blobs" / node["_blob"])

    asyncio.run(_with_nodes(tmp_path, fill))
    with sqlite3.connect(tmp_path / "awe.sqlite") as db:
        for blob, odd in zip(found, ODD, strict=False):
            node_id = blob.name.split(".")[0]
            db.execute("UPDATE nodes SET doc = ? WHERE id = ?", (odd.replace("@", node_id), node_id))
    return found


def run(data: Path, *words: str) -> Result:
    ended = CliRunner().invoke(cli, [*words, "--data", str(data)])
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended


def test_check_names_them_and_repair_keeps_their_files(tmp_path: Path, blobs: list[Path]) -> None:
    index = blobs[0].with_name(blobs[0].name + ".line.idx")
    index.write_bytes(b"")
    stray = blobs[-1].with_name("gone.0123")
    stray.write_bytes(b"of nobody")
    ended = run(tmp_path, "check", "--repair")
    assert ended.exit_code == 1
    assert all(blob.exists() for blob in (*blobs, index))
    assert not stray.exists()
    for blob in blobs[:-1]:
        node_id = blob.name.split(".")[0]
        lines = [line for line in ended.stdout.splitlines() if node_id in line]
        assert {"odd_document", "kept"} <= {line.split()[0] for line in lines}


def test_export_writes_the_others_and_says_what_it_could_not(tmp_path: Path, blobs: list[Path]) -> None:
    ended = run(tmp_path, "export")
    assert ended.exit_code == 1
    documents = [json.loads(line)["document"] for line in ended.stdout.splitlines()]
    assert blobs[-1].name.split(".")[0] in {document["id"] for document in documents}
    told = [line for line in ended.stderr.splitlines() if "not exported" in line]
    assert len(told) == len(ODD) - 2  # the other two say nothing but that they are of their id


def test_a_server_starts_and_collects_nothing_of_theirs(tmp_path: Path, blobs: list[Path]) -> None:
    async def look(nodes: NodeStore) -> None:
        assert await nodes.collect_orphans(-3600.0) == 0
        assert len((await nodes.list(Query())).documents) == len(blobs)
        odd = blobs[0].name.split(".")[0]
        with pytest.raises(UnreadableNode):
            await nodes.get(odd)
        assert await nodes.expire([blob.name.split(".")[0] for blob in blobs], lambda ids: set()) == ()
        await nodes.delete(odd)

    asyncio.run(_with_nodes(tmp_path, look))
    assert all(blob.exists() for blob in blobs)
    assert run(tmp_path, "check", "--repair").exit_code == 1
    assert not blobs[0].exists(), "its document is gone, so nobody needs it"


@pytest.mark.parametrize("collection", ["jobs", "tasks", "workunits", "clients"])
def test_a_document_that_is_no_object_breaks_nothing_off(tmp_path: Path, collection: str) -> None:
    asyncio.run(use(tmp_path))
    with sqlite3.connect(tmp_path / "awe.sqlite") as db:
        db.execute(f"UPDATE {collection} SET doc = '5'")
    assert run(tmp_path, "check").exit_code == 1
    assert run(tmp_path, "export").exit_code == 1

    async def look(nodes: NodeStore) -> None:
        assert (await nodes.list(Query())).documents

    asyncio.run(_with_nodes(tmp_path, look))
