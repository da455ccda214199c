"""Looking for damage takes no longer than it may."""

import contextlib
import os
import sqlite3
import time
from pathlib import Path

import pytest

from awe_server.store.base import COLLECTIONS
from awe_server.store.sqlite_file import drop_lock, find_damage, take_lock, translated
from awe_server.store.sqlite_query import schema
from shared_models.errors import BadRequest
from tests.support.descriptors import open_below


def test_a_large_file_is_looked_at_for_a_bounded_time(tmp_path: Path) -> None:
    path = tmp_path / "large.sqlite"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as db:
        for collection in COLLECTIONS:
            for statement in schema(collection):
                db.execute(statement)
        db.execute(
            "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT 200000) "
            "INSERT INTO nodes (id, doc) SELECT i, '{\"text\":\"' || hex(zeroblob(200)) || '\"}' FROM n"
        )
        started = time.process_time()
        assert find_damage(db, "integrity_check", 0.01) == []
        bounded_s = time.process_time() - started
        started = time.process_time()
        assert find_damage(db, "integrity_check", 600.0) == []
        assert bounded_s < time.process_time() - started
        with pytest.raises(sqlite3.OperationalError, match="syntax"):
            find_damage(db, "nonsense(", 1.0)


def test_a_lock_file_that_cannot_be_locked_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", _not_supported)
        with pytest.raises(OSError, match="No locks"):
            take_lock(tmp_path / "awe.lock")
    assert open_below(tmp_path) == []
    fd = take_lock(tmp_path / "awe.lock")
    assert (tmp_path / "awe.lock").read_text() == f"{os.getpid()}\n"
    drop_lock(fd)


def _not_supported(*_: object) -> None:
    raise OSError(37, "No locks available")


def test_text_that_is_not_unicode_is_the_callers_mistake() -> None:
    with pytest.raises(BadRequest), translated(Path("x"), "read"):
        "\ud800".encode()
