"""The value of --store names a store; nothing is connected or created yet."""

import errno
from pathlib import Path

import pytest

from awe_server.store.memory import MemoryStore
from awe_server.store.mongo import MongoStore
from awe_server.store.open import open_store
from awe_server.store.sqlite import SqliteStore
from shared_models.errors import BadRequest


@pytest.mark.parametrize(
    ("url", "store_class", "name"),
    [
        ("", SqliteStore, "sqlite:{dir}/awe.sqlite"),
        ("sqlite", SqliteStore, "sqlite:{dir}/awe.sqlite"),
        ("memory:", MemoryStore, "memory"),
        ("mongodb://u:secret@h1:1,h2:2/site?replicaSet=rs", MongoStore, "mongodb://h1:1,h2:2/site"),
        ("mongodb+srv://u:secret@h/?password=x@y", MongoStore, "mongodb+srv://h/"),
    ],
)
def test_a_url_picks_the_store(url: str, store_class: type, name: str, tmp_path: Path) -> None:
    store = open_store(url, tmp_path / "data")
    assert type(store) is store_class
    assert store.name == name.format(dir=tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("url", ["postgres://u:secret@h/db", "memory", "/tmp/x.sqlite"])
def test_an_unknown_url_is_refused_without_its_secrets(url: str, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="expected sqlite, mongodb://") as refusal:
        open_store(url, tmp_path)
    assert "secret" not in refusal.value.message


@pytest.mark.anyio
async def test_a_store_that_must_exist_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(
        BadRequest, match=r"there is no database in .*; name the server's --data directory, or its --store"
    ):
        open_store("", tmp_path / "data", must_exist=True)
    assert not (tmp_path / "data").exists()
    made = open_store("", tmp_path / "data")
    await made.open()
    await made.close()
    assert open_store("", tmp_path / "data", must_exist=True).name == made.name


def test_a_directory_that_may_not_be_read_is_not_called_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: Path) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refuses)
    monkeypatch.setattr("os.listdir", refuses)
    with pytest.raises(PermissionError):
        open_store("sqlite", tmp_path, must_exist=True)


@pytest.mark.parametrize("name", ["file", "nothing"])
def test_what_is_no_directory_has_no_database(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadRequest, match="there is no database in"):
        open_store("sqlite", tmp_path / name, must_exist=True)
