"""Pick the store that a URL names."""

import os
from pathlib import Path

from awe_server.store.base import Store
from awe_server.store.memory import MemoryStore
from awe_server.store.sqlite import SqliteStore
from shared_models.errors import BadRequest


def open_store(url: str, data_dir: Path, *, must_exist: bool = False) -> Store:
    """Build the store of a `--store` value; the caller opens it.

    `must_exist`: it is only looked at, so documents that cannot be read keep it from nothing. Raises
    BadRequest if the value names no store, or (`must_exist`) a directory that has no database yet, OSError
    if that cannot be seen.
    """
    if url in ("", "sqlite"):
        if must_exist and not _has_database(data_dir):
            raise BadRequest(
                f"there is no database in {data_dir}; name the server's --data directory, or its --store"
            )
        return SqliteStore(data_dir, read_all=not must_exist)
    if url.startswith(("mongodb://", "mongodb+srv://")):
        from awe_server.store.mongo import MongoStore  # pymongo takes a tenth of a server's start-up

        return MongoStore(url)
    if url == "memory:":
        return MemoryStore()
    scheme = url.partition(":")[0]
    raise BadRequest(f"no store for '{scheme}': expected sqlite, mongodb://…, mongodb+srv://… or memory:")


def _has_database(folder: Path) -> bool:
    try:
        return any(name.startswith("awe.sqlite") for name in os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return False
