"""`awe-server check --data` on a real data directory: lines, JSON, exit codes, and what --repair may do."""

import asyncio
import contextlib
import errno
import json
import os
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from awe_server.app import build_services
from awe_server.cli import cli
from awe_server.data.build import build_index
from awe_server.runtime.clock import Clock
from awe_server.settings import Settings
from awe_server.store.base import Operation
from awe_server.store.errors import LeaseGone
from awe_server.store.open import open_store
from awe_server.store.sqlite import SqliteStore
from tests.support.broken_store import DAMAGES, inflict
from tests.support.used_store import use


def wall() -> float:
    return 1_796_028_857.0


async def stream(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _fill(folder: Path) -> list[dict[str, Any]]:
    deaths: list[BaseException] = []
    settings = Settings(data_dir=folder, free_floor_bytes=0)
    services = build_services(settings, clock=Clock(wall, wall), fatal=deaths.append)
    await services.engine.start()
    made = [await services.nodes.create(stream(data), name="x") for data in (b"one\n", b"two\n")]
    await services.nodes.build_index(made[0]["id"], "line")
    await services.engine.stop()
    assert not deaths
    return made


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def made(data: Path) -> list[dict[str, Any]]:
    return asyncio.run(_fill(data))


def check(data: Path, *flags: str) -> Result:
    return CliRunner().invoke(cli, ["check", "--data", str(data), *flags])


def blob(data: Path, node: dict[str, Any]) -> Path:
    return data / "nodes" / "blobs" / str(node["_blob"])


def test_a_sound_directory(data: Path, made: list[dict[str, Any]]) -> None:
    ended = check(data)
    assert ended.exit_code == 0
    assert ended.stdout.splitlines()[-1].endswith("nodes: sound: 2 nodes, 2 files, 8 bytes")
    shown = json.loads(check(data, "--json").stdout)
    assert shown["sound"] is True
    assert shown["nodes"] == {
        "nodes": 2,
        "files": 2,
        "bytes": 8,
        "indexes": 1,
        "outdated": 0,
        "problems": [],
        "spoilt": {},
    }


def test_each_damage_is_a_line_and_the_exit_code_is_1(data: Path, made: list[dict[str, Any]]) -> None:
    blob(data, made[0]).write_bytes(b"onE\n")
    blob(data, made[1]).unlink()
    ended = check(data, "--repair")
    assert ended.exit_code == 1
    lines = sorted(line for line in ended.stdout.splitlines() if "sound" not in line)
    assert [line.split()[0] for line in lines] == ["damaged", "missing_blob", "node", "node"]
    assert {line.split(": send")[0] for line in lines[2:]} == {f"node {n['id']} is damaged" for n in made}
    lines = lines[:2]
    assert all(
        node["id"] in line and str(node["_blob"]) in line for node, line in zip(made, lines, strict=True)
    )
    shown = json.loads(check(data, "--json").stdout)
    assert shown["sound"] is False
    assert {problem["kind"] for problem in shown["nodes"]["problems"]} == {"damaged", "missing_blob"}
    assert blob(data, made[0]).read_bytes() == b"onE\n"


def test_repair_removes_orphans_and_then_all_is_sound(data: Path, made: list[dict[str, Any]]) -> None:
    orphan = blob(data, made[0]).with_name("gone.0123")
    orphan.write_bytes(b"never acknowledged")
    assert check(data).exit_code == 1
    assert orphan.exists(), "without --repair nothing changes"
    repaired = check(data, "--repair")
    assert repaired.exit_code == 0
    assert "; removed" in repaired.stdout
    assert not orphan.exists()
    assert check(data).exit_code == 0
    assert blob(data, made[0]).read_bytes() == b"one\n"


@pytest.mark.parametrize("flags", [(), ("--repair",), ("--json",)])
def test_nothing_is_said_or_removed_once_another_server_took_over(
    data: Path, made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    """Ctrl-Z, or a database that was away: what looks like an orphan may be a node of the new leader."""
    theirs = blob(data, made[0]).with_name("new.0123")
    theirs.write_bytes(b"named by a document that came after the look")

    async def gone(store: SqliteStore, batch: Sequence[Operation]) -> None:
        raise LeaseGone

    monkeypatch.setattr(SqliteStore, "commit", gone)
    ended = check(data, *flags)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.splitlines() == [f"awe-server: {LeaseGone().message}"]
    assert theirs.exists()


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_doubt_that_begins_while_orphans_go_ends_that_and_what_went_is_told(
    data: Path, made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    orphans = [blob(data, made[0]).with_name(f"gone.{n}") for n in range(3)]
    for orphan in orphans:
        orphan.write_bytes(b"never acknowledged")
    monkeypatch.setattr(SqliteStore, "in_doubt", property(lambda _: not all(o.exists() for o in orphans)))
    ended = check(data, "--repair", *flags)
    assert ended.exit_code == 1
    (left,) = [orphan for orphan in orphans if not orphan.exists()]
    [stopped] = ended.stderr.splitlines()
    assert stopped.startswith(
        "awe-server: --repair stopped after 1 of 3 removals: Another server may lead by"
    )
    if flags:
        shown = json.loads(ended.stdout)
        assert shown["sound"] is False
        assert shown["problems"] == [stopped.removeprefix("awe-server: ")]
        assert [(p["path"], p["removed"]) for p in shown["nodes"]["problems"]] == [
            (str(left.relative_to(data / "nodes")), True)
        ]
    else:
        [line] = ended.stdout.splitlines()
        assert line.startswith(f"orphan_blob {left.relative_to(data / 'nodes')}: ")
        assert line.endswith("; removed")


def test_a_doubt_in_the_middle_of_a_folder_tells_how_much_of_it_is_gone(
    data: Path, made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = data / "nodes" / "parts" / "nobody"
    folder.mkdir(parents=True)
    for n in range(3):
        (folder / f"{n}.half").write_bytes(b"1")
    monkeypatch.setattr(SqliteStore, "in_doubt", property(lambda _: len(list(folder.iterdir())) < 2))
    ended = check(data, "--repair")
    assert (ended.exit_code, len(list(folder.iterdir()))) == (1, 1)
    assert "--repair stopped after 0 of 1 removals: " in ended.stderr
    assert ended.stdout.splitlines() == [
        "orphan_parts parts/nobody (node nobody): 3 files, 3 bytes; 2 of its files were removed"
    ]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EIO])
def test_what_cannot_be_removed_is_named_and_keeps_nothing_else_from_it(
    data: Path, made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    orphans = [blob(data, made[0]).with_name(f"gone.{n}") for n in range(3)]
    for orphan in orphans:
        orphan.write_bytes(b"never acknowledged")
    unlink = Path.unlink

    def refuses(path: Path, missing_ok: bool = False) -> None:
        if path == orphans[1]:
            raise OSError(number, os.strerror(number), str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuses)
    ended = check(data, "--repair")
    assert (ended.exit_code, ended.stderr) == (1, "")
    assert [orphan for orphan in orphans if orphan.exists()] == [orphans[1]]
    [line] = [line for line in ended.stdout.splitlines() if orphans[1].name in line]
    assert line.endswith(f"; cannot be removed: {os.strerror(number)}")


@pytest.mark.parametrize("command", ["check", "export"])
def test_what_the_system_refuses_is_one_line(
    data: Path, made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def refuses(store: SqliteStore, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/somewhere/else")

    monkeypatch.setattr(SqliteStore, "scan", refuses)
    ended = CliRunner().invoke(cli, [command, "--data", str(data)])
    assert (ended.exit_code, ended.stderr) == (1, "awe-server: /somewhere/else: Permission denied\n")


def test_indexes_of_files_elsewhere_are_read_and_damaged_ones_may_go(
    data: Path, made: list[dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_bytes(b"one\ntwo\n")
    build_index(tmp_path / "in.txt", "line", "in.txt")
    folder = data / "indexes"
    folder.mkdir()
    sound, damaged, stray = (folder / f"{c * 64}.line.idx" for c in "abz")
    whole = (tmp_path / "in.txt.line.idx").read_bytes()
    sound.write_bytes(whole)
    shown = json.loads(check(data, "--json").stdout)
    assert (shown["sound"], shown["nodes"]["indexes"]) == (True, 2)
    for content in (b"", whole[:-1], whole[:32] + b"\x05" + whole[33:], b"x" + whole[1:]):
        damaged.write_bytes(content)
        assert "damaged_index ../indexes/bbb" in check(data).stdout, content
    damaged.write_bytes(b"AWEIDX01" + whole[8:])
    older = check(data, "--json")
    assert (older.exit_code, json.loads(older.stdout)["nodes"]["outdated"]) == (0, 1)
    damaged.write_bytes(b"")
    stray.write_bytes(b"")
    (folder / ".tmp-c.line.idx.7").write_bytes(b"")
    repaired = check(data, "--repair")
    assert repaired.exit_code == 0
    kinds = [line.split()[0] for line in repaired.stdout.splitlines() if "; removed" in line]
    assert sorted(kinds) == ["damaged_index", "orphan_index", "temporary"]
    assert list(folder.iterdir()) == [sound]


def test_files_of_another_store_are_no_orphans(data: Path, made: list[dict[str, Any]]) -> None:
    (data / "nodes" / "server").write_text("somebody-else\n")
    ended = check(data, "--repair")
    assert ended.exit_code == 1
    assert "holds the files of another store" in ended.stderr
    assert blob(data, made[0]).exists()


@pytest.mark.parametrize("flags", [(), ("--repair",), ("--json",)])
def test_files_that_are_not_mounted_are_one_line_and_nothing_to_make_again(
    data: Path, made: list[dict[str, Any]], flags: tuple[str, ...]
) -> None:
    shutil.rmtree(data / "nodes")
    ended = check(data, *flags)
    assert (ended.exit_code, ended.stdout) == (1, "")
    [line] = ended.stderr.splitlines()
    assert "does not hold the files of this store, which has 2 nodes: is its file system mounted" in line
    assert not (data / "nodes").exists()


def test_files_that_were_given_up_are_told_one_by_one(data: Path, made: list[dict[str, Any]]) -> None:
    known = (data / "nodes" / "server").read_text()
    shutil.rmtree(data / "nodes")
    (data / "nodes").mkdir()
    (data / "nodes" / "server").write_text(known)
    lines = check(data).stdout.splitlines()
    assert sum(line.startswith("missing_blob") for line in lines) == 2


@pytest.mark.parametrize("doc", ["{", "", "[1", b"\xff"], ids=["cut", "empty", "list", "no text"])
def test_a_job_that_cannot_be_read_is_one_more_problem(
    data: Path, made: list[dict[str, Any]], doc: str | bytes
) -> None:
    asyncio.run(use(data))
    job = _spoil(data, "jobs", doc)
    blob(data, made[0]).write_bytes(b"onE\n")
    orphan = blob(data, made[0]).with_name("gone.0123")
    orphan.write_bytes(b"never acknowledged")
    ended = check(data, "--repair")
    assert ended.exit_code == 1, ended.stderr
    lines = ended.stdout.splitlines()
    assert f"document {job} of jobs is not readable" in lines
    assert [line.split()[0] for line in lines if blob(data, made[0]).name in line] == ["damaged"]
    assert not orphan.exists(), "no document of a node is in doubt"
    [compared] = [line for line in lines if line.startswith("documents were not compared")]
    assert "restore a backup" in compared
    assert not [line for line in lines if line.startswith(("task", "workunit", "node ")) and " -> " in line]
    assert not [line for line in lines if line.endswith(": sound")]


def test_a_node_that_cannot_be_read_keeps_all_files(data: Path, made: list[dict[str, Any]]) -> None:
    _spoil(data, "nodes", "{")
    orphan = blob(data, made[0]).with_name("gone.0123")
    orphan.write_bytes(b"whose is it?")
    ended = check(data, "--repair", "--json")
    assert ended.exit_code == 1
    shown = json.loads(ended.stdout)
    assert (shown["sound"], shown["nodes"]) == (False, None)
    assert [problem.split(":")[0] for problem in shown["problems"][-2:]] == [
        "documents were not compared with each other",
        "files were not compared with documents",
    ]
    assert "sound" not in check(data).stdout
    assert all(path.exists() for path in (orphan, *(blob(data, node) for node in made)))


def _spoil(data: Path, collection: str, doc: str | bytes) -> str:
    with contextlib.closing(sqlite3.connect(data / "awe.sqlite")) as db, db:
        ((first,),) = db.execute(f"SELECT min(id) FROM {collection}")
        db.execute(f"UPDATE {collection} SET doc = CAST(? AS TEXT) WHERE id = ?", (doc, first))
    return str(first)


def test_a_running_server_keeps_the_check_out(data: Path, made: list[dict[str, Any]]) -> None:
    async def run() -> Result:
        services = build_services(
            Settings(data_dir=data, free_floor_bytes=0), clock=Clock(wall, wall), fatal=lambda _: None
        )
        await services.engine.start()
        try:
            return await asyncio.to_thread(check, data, "--repair")
        finally:
            await services.engine.stop()

    ended = asyncio.run(run())
    assert ended.exit_code == 1
    assert ended.stdout == ""
    assert "in use" in ended.stderr or "another" in ended.stderr


def test_documents_that_do_not_fit_together_are_lines_with_advice(data: Path) -> None:
    asyncio.run(use(data))
    assert check(data).exit_code == 0
    asyncio.run(_break(data))
    ended = check(data)
    assert ended.exit_code == 1
    (line,) = [line for line in ended.stdout.splitlines() if " -> " in line]
    assert re.fullmatch(
        r"job \S+ \(completed\): remaintasks is 1, 0 are not done -> only what is shown .*", line
    )
    shown = json.loads(check(data, "--json").stdout)
    assert (shown["sound"], shown["problems"]) == (False, [line])


async def _break(data: Path) -> None:
    store = open_store("sqlite", data)
    await store.open()
    await inflict(store, DAMAGES[0])
    await store.close()
