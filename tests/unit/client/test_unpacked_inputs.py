"""Inputs that are archives: whose files they are, where they lie, how far they are (F-08, F-10)."""

import io
import os
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon import whole_files
from awe_client.daemon.disk import BeforeRemoval
from awe_client.daemon.progress import Followers
from tests.support.fake_server import FakeServer
from tests.unit.client.conftest import MakeDaemon
from tests.unit.client.test_archive import made, tree

pytestmark = pytest.mark.anyio

FILE, LINK, HARD = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
INDEX = [f"genome.{i}.bt2" for i in ("1", "2", "3", "4", "rev.1", "rev.2")]


def names_of(data: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return archive.getnames()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, server: FakeServer) -> None:
    """Transfers are slow, and told as soon as they begin."""
    monkeypatch.setattr("awe_client.daemon.workshop.PROGRESS_AFTER_S", 0.1)
    monkeypatch.setattr("awe_client.daemon.daemon.PROGRESS_S", 0.1)
    server.download_delay_s = 0.05


def rows_of(server: FakeServer, work: str) -> list[Any]:
    return [row for x in server.exchanges for row in x.get("progress", ()) if row[0] == work]


# --- whose files they are ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "script", "kept"),
    [
        ("*", "cat genome.*.bt2 > hits.txt", ["hits.txt"]),
        ("*.bt2", "cp genome.1.bt2 mine.bt2; cp genome.1.bt2 genome.5.bt2", ["genome.5.bt2", "mine.bt2"]),
        ("*", "mkdir out; cp genome.* out", ["out", *(f"out/{name}" for name in INDEX)]),
    ],
)
async def test_what_came_out_of_an_archive_is_in_no_pattern(
    server: FakeServer, start: MakeDaemon, output: str, script: str, kept: list[str]
) -> None:
    start()
    archive = server.input("genome.*.bt2", made(*((name, FILE, name) for name in INDEX)))
    out = server.output(output)
    [work] = await server.add_task(script=[script], inputs=[archive], outputs=[out])
    assert (await server.result(work))["outcome"] == "done"
    assert names_of(server.uploads[out["node"], work, 1]) == kept


async def test_of_a_folder_that_is_an_input_what_the_command_adds_is_in_the_pattern(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    inputs = [
        server.input("db/", made(("db/a", FILE, "a"), ("db/sub/b", FILE, "b"))),
        server.input("./in/deep/x.txt", b"x"),
        server.input("never.txt", b"", nofile=True),
    ]
    outputs = [server.output("*"), server.output("*/new")]
    script = ["echo new > db/sub/new; touch never.txt"]
    [work] = await server.add_task(script=script, inputs=inputs, outputs=outputs[:1])
    assert (await server.result(work))["outcome"] == "done"
    assert names_of(server.uploads[outputs[0]["node"], work, 1]) == ["db/sub/new", "never.txt"]
    [work] = await server.add_task(script=["echo new > db/new"], inputs=inputs, outputs=outputs[1:])
    assert (await server.result(work))["outcome"] == "done"
    assert names_of(server.uploads[outputs[1]["node"], work, 1]) == ["db/new"]


async def test_a_pattern_that_only_inputs_match_is_missing(server: FakeServer, start: MakeDaemon) -> None:
    start()
    archive = server.input("db/", made(("db/a", FILE, "a")))
    [work] = await server.add_task("true", inputs=[archive], outputs=[server.output("*")])
    report = await server.result(work)
    assert report["kind"] == "output"
    assert "declared output * missing" in report["message"]


# --- where they lie ------------------------------------------------------------------------------


async def test_no_name_is_taken_by_the_archive_itself(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    start()
    archive = server.input("db/", made(("db/a", FILE, "a\n")))
    inputs = [server.input(".awe-archive", b"mine\n"), archive]
    [work] = await server.add_task(script=["cat .awe-archive db/a; ls -A .."], inputs=inputs)
    report = await server.result(work)
    assert report["stdout_tail"].split() == ["mine", "a", f"{work}.1"]


@pytest.mark.parametrize(("data", "kind"), [(made(("db/a", FILE, "a\n")), None), (b"no tar", "input")])
async def test_an_archive_is_removed_and_not_by_the_event_loop(
    server: FakeServer,
    start: MakeDaemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    data: bytes,
    kind: str | None,
) -> None:
    removed: list[tuple[Path, bool, bool]] = []
    remove = whole_files.remove_file

    def noted(path: Path, before_removal: BeforeRemoval) -> None:
        remove(path, before_removal)
        removed.append((path, path.exists(), threading.current_thread() is threading.main_thread()))

    monkeypatch.setattr(whole_files, "remove_file", noted)
    start()
    [work] = await server.add_task("true", inputs=[server.input("db/", data)])
    assert (await server.result(work)).get("kind") == kind
    assert [(there, in_loop) for _, there, in_loop in removed] == [(False, False)]


async def test_F_08_no_archive_makes_a_way_out_for_a_later_input(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    start(keep_failed_s=1000.0)
    canary = {"canary": tmp_path / "work/canary", "attempts": tmp_path / "work/attempts/canary"}
    [ready] = await server.add_task("true")
    await server.result(ready)
    for path in canary.values():
        path.write_text("whole")
    data = made(("out/a/b/l", LINK, "../../.."), ("out/m", HARD, "out/a/b/l"))
    inputs = [server.input("out/", data), server.input("out/m/made/x", b"x")]
    [work] = await server.add_task("true", inputs=inputs)
    report = await server.result(work)
    assert (report["outcome"], report["kind"]) == ("failed", "input")
    assert "member 'out/m' is a hard link to what is no file" in report["message"]
    [directory] = (tmp_path / "work/attempts").rglob(f"{work}.1")
    outside = [name for name in tree(directory.parent) if not name.startswith(directory.name)]
    assert outside == []
    assert [path.read_text() for path in canary.values()] == ["whole", "whole"]
    assert not list((tmp_path / "work").rglob("made"))


# --- how far they are ----------------------------------------------------------------------------


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("ranks", [1, 2])
async def test_an_archive_is_followed_as_any_other_input(
    server: FakeServer, start: MakeDaemon, ranks: int
) -> None:
    start(slots=4)
    data = made(("out/a", FILE, "x" * 2_500_000))
    inputs = [server.input("out/", data), server.input("later", os.urandom(1_000_000))]
    works = await server.add_task("true", inputs=inputs, ranks=ranks)
    for work in works:
        assert (await server.result(work))["outcome"] == "done"
        rows = rows_of(server, work)
        assert {row[3] for row in rows} == {len(data) + 1_000_000}
        assert any(0 < row[2] < len(data) for row in rows)
        assert rows[-1][2] >= len(data)


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("given_as", ["predata", "inputs"])
async def test_all_who_wait_for_a_shared_download_are_told_how_far_it_is(
    server: FakeServer, start: MakeDaemon, given_as: str
) -> None:
    start(slots=4)
    files: dict[str, Any] = {given_as: [server.input("db", os.urandom(2_500_000))]}
    works = await server.add_task("true", ranks=3, **files)
    for work in works:
        assert (await server.result(work))["outcome"] == "done"
        done = [row[2] for row in rows_of(server, work)]
        assert done == sorted(done)
        assert 0 < done[-1] <= 2_500_000
    assert server.gets(files[given_as][0]) == 1


def test_who_comes_later_hears_at_once_how_far_it_is() -> None:
    followers = Followers()
    told: list[tuple[str, int, int]] = []
    first, second = (lambda *moved, name=name: told.append((name, *moved)) for name in ("first", "second"))
    followers.join(first)
    followers(1, 9)
    followers.join(second)
    followers(2, 9)
    assert followers.leave(first)
    followers(3, 9)
    assert not followers.leave(second)
    assert told == [("first", 1, 9), ("second", 1, 9), ("first", 2, 9), ("second", 2, 9), ("second", 3, 9)]
