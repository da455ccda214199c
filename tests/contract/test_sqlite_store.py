"""The SQLite store keeps the contract."""

from pathlib import Path

import pytest

from awe_server.store.sqlite import SqliteStore
from tests.contract.store_suite import Backend, StoreSuite


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Backend:
        return Backend(lambda: SqliteStore(tmp_path / "data"))
