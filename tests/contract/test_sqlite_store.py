"""The SQLite store keeps the contract."""

from pathlib import Path

import pytest

from awe_server.store.base import Match, Put, Query
from awe_server.store.sqlite import SqliteStore
from tests.contract.store_suite import Backend, StoreSuite


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Backend:
        return Backend(lambda: SqliteStore(tmp_path / "data"))


@pytest.mark.anyio
async def test_a_document_that_is_replaced_is_found_by_what_stays_and_by_what_changed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.open()
    job = {"id": "j", "state": "queued", "info": {"user": "anna", "submittime": "t"}, "jid": "7"}
    await store.commit([Put("jobs", job)])
    await store.commit([Put("jobs", {**job, "state": "completed", "expiration": "e"})])
    for field, value, is_found in (
        ("info.user", "anna", True), ("info.submittime", "t", True), ("jid", "7", True),
        ("state", "completed", True), ("state", "queued", False), ("expiration", "e", True),
    ):  # fmt: skip
        page = await store.find("jobs", Query((Match(field, (value,)),)))
        assert page.total == is_found, field
    assert await store.check() == []
    await store.close()
