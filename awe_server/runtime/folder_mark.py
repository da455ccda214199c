"""Whose files the folder of the nodes holds: its mark names the store, which remembers that it marked one.

A folder without a mark is new only to a store that never had one. To any other it is not the folder that
holds its files: that one's file system is not mounted, or `--data` names another. Nothing is written then.
"""

import asyncio
import os
import shlex
from pathlib import Path
from typing import Protocol

from awe_server.data.files import fsync_folder, make_folder
from awe_server.runtime.recovery import known_server
from awe_server.store.base import Collection, Document, Page, Query, Store
from shared_models.errors import AweError

MARK = "server"
HAS_FOLDER = "has_folder"  #: in the document `server` of `meta`


class WrongFolder(AweError):
    """{folder} holds the files of another store (server {found}); give this store a --data of its own."""

    code = "wrong_folder"


class FilesMissing(AweError):
    """The folder does not hold the files that the store has nodes for."""

    code = "files_missing"


class Documents(Protocol):
    """Where the nodes' documents are: a store, or the engine."""

    async def find(self, collection: Collection, query: Query) -> Page: ...


async def has_mark(folder: Path, server: Document, documents: Documents) -> bool:
    """Whether the folder is that of this store; False: neither has had the other one yet.

    `server` is the document of that name. Raises WrongFolder, FilesMissing.
    """
    uuid = str(server.get("uuid", ""))
    found = await asyncio.to_thread(_read, folder / MARK)
    if found is None:
        nodes = (await documents.find("nodes", Query(limit=1))).total
        if nodes or server.get(HAS_FOLDER):
            raise FilesMissing(_advice(folder, uuid, nodes))
        return False
    if found != uuid:
        raise WrongFolder(folder=folder, found=found)
    return True


async def check_folder(folder: Path, store: Store) -> None:
    """As `has_mark`, and raise WrongFolder for a folder that is nobody's: files in it are not ours.

    Raises StoreCorrupt if the store cannot say which is its own.
    """
    server = await known_server(store) or {}
    if not await has_mark(folder, server, store) and await asyncio.to_thread(folder.exists):
        raise WrongFolder(folder=folder, found="nobody")


def make_mark(folder: Path, uuid: str) -> None:
    """Make and mark the folder, durably: the store will rely on it."""
    make_folder(folder)
    whole = (folder / MARK).with_suffix(".new")
    with whole.open("w", encoding="ascii") as file:
        file.write(uuid + "\n")
        file.flush()
        os.fsync(file.fileno())
    whole.rename(folder / MARK)
    fsync_folder(folder)


def _read(mark: Path) -> str | None:
    try:
        return mark.read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _advice(folder: Path, uuid: str, nodes: int) -> str:
    count = f"{nodes} node{'' if nodes == 1 else 's'}"
    place, mark = shlex.quote(str(folder)), shlex.quote(str(folder / MARK))
    return (
        f"{folder} does not hold the files of this store, which has {count}: is its file system "
        "mounted, and is --data right? Only if they are lost for good: "
        f"mkdir -p {place} && echo {uuid} > {mark}; then awe-server check says what to make again"
    )
