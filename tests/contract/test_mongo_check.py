"""`awe-server check` and `export` on MongoDB: the same as on SQLite."""

import asyncio
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from awe_server.cli import cli
from awe_server.runtime.survey_documents import survey_documents
from awe_server.store.open import open_store
from tests.support.broken_store import DAMAGES, said_of
from tests.support.invariants import read_mongo
from tests.support.used_store import use
from tests.unit.test_server_export import check_export, export

pytestmark = pytest.mark.slow


def test_each_broken_field_is_named(tmp_path: Path, mongo_url: str) -> None:
    async def look() -> list[str]:
        await use(tmp_path, mongo_url)
        store = open_store(mongo_url, tmp_path)
        await store.open()
        assert await survey_documents(store) == []
        unseen = []
        for damage in DAMAGES:
            lines = await said_of(store, damage)
            if len(lines) != damage.lines or not any(re.search(damage.said, line) for line in lines):
                unseen.append(f"{damage}: {lines}")
        assert await survey_documents(store) == []
        await store.close()
        return unseen

    assert asyncio.run(look()) == []
    ended = CliRunner().invoke(cli, ["check", "--data", str(tmp_path), "--store", mongo_url])
    assert ended.exit_code == 0, ended.stdout


def test_an_export_is_the_store_without_its_secrets(tmp_path: Path, mongo_url: str) -> None:
    asyncio.run(use(tmp_path, mongo_url))
    text, lines = export("--data", str(tmp_path), "--store", mongo_url)
    stored = read_mongo(mongo_url)
    stored["meta"] = [document for document in stored["meta"] if document["id"] != "lease"]
    check_export(stored, text, lines)
