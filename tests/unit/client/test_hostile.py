"""What commands, documents and people do to a client that must harm nobody else."""

import asyncio
import contextlib
import itertools
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon.daemon import Daemon
from awe_client.daemon.identity import WorkRoot
from awe_client.daemon.workdir import make_directory, remove_tree
from tests.support.eventually import eventually
from tests.support.fake_server import FakeServer, refusal
from tests.unit.client.conftest import MakeDaemon, settings_for
from tests.unit.client.test_files import small_disk

pytestmark = pytest.mark.anyio
__all__ = ["small_disk"]


def deep_tree(top: Path, depth: int) -> None:
    """Nested directories, with a file and a link at the bottom, deeper than a path can say."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("a-name-of-some-length", dir_fd=here)
        below = os.open("a-name-of-some-length", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.symlink("/etc", "link", dir_fd=here)
    os.close(here)


def test_a_tree_of_any_depth_is_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    deep_tree(tree, 1050)
    remove_tree(tree)
    assert not tree.exists()
    assert Path("/etc/passwd").exists()


async def test_a_deep_tree_of_a_killed_daemon_does_not_keep_the_next_one_from_starting(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    root = WorkRoot(tmp_path / "work")
    root.open()
    root.close()
    left = root.attempts / "ab" / "cd" / "ef" / "left.1"
    left.mkdir(parents=True)
    deep_tree(left, 1050)
    start()
    [work] = await server.add_task()
    assert (await server.result(work))["outcome"] == "done"
    assert not left.exists()


def test_a_work_directory_replaced_by_a_link_is_removed_as_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    for target in ("elsewhere", "nowhere"):
        link = tmp_path / "link"
        link.symlink_to(tmp_path / target)
        remove_tree(link)
        assert not link.is_symlink()
    assert (tmp_path / "elsewhere" / "file").exists()


async def test_no_output_is_taken_through_a_link_in_the_place_of_the_work_directory(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret.txt").write_text("secret")
    start()
    script = [f'here="$PWD"; cd /; rm -rf "$here"; ln -s {elsewhere} "$here"']
    [work] = await server.add_task(script=script, outputs=[server.output("secret.txt")])
    report = await server.result(work)
    assert report["kind"] == "output"
    assert "replaced by a link" in report["message"]
    assert server.uploads == {}
    assert (elsewhere / "secret.txt").exists()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        ("mkfifo attr.json", "not a plain file"),
        ("truncate -s 20G attr.json", "1048576 are allowed"),
        ("head -c 200000 /dev/zero | tr '\\0' '[' > attr.json", "recursion"),
    ],
)
async def test_an_attribute_file_must_be_a_plain_file_of_bounded_size(
    server: FakeServer, start: MakeDaemon, make: str, why: str
) -> None:
    start()
    out = server.output("out.txt", attrfile="attr.json")
    [work] = await server.add_task(script=[f"echo x > out.txt; {make}"], outputs=[out])
    report = await server.result(work)
    assert report["kind"] == "output"
    assert why in report["message"]


async def test_attempts_start_again_after_somebody_emptied_the_work_directory(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    start()
    for _ in range(3):
        for work in await server.add_task(ranks=8):
            assert (await server.result(work))["outcome"] == "done"
        assert any((tmp_path / "work" / "fresh").iterdir())
        for entry in (tmp_path / "work").iterdir():
            if entry.is_dir() and entry.name != "spool":
                shutil.rmtree(entry, ignore_errors=True)


async def test_a_directory_is_made_although_its_empty_parents_are_being_removed(tmp_path: Path) -> None:
    done = threading.Event()

    def sweep() -> None:
        while not done.is_set():
            for folder in ("ab/cd/ef", "ab/cd", "ab"):
                with contextlib.suppress(OSError):
                    (tmp_path / folder).rmdir()

    sweeper = asyncio.ensure_future(asyncio.to_thread(sweep))
    try:
        for number in range(300):
            directory = tmp_path / "ab" / "cd" / "ef" / str(number)
            make_directory(directory)
            directory.rmdir()
    finally:
        done.set()
        await sweeper


async def test_work_that_cannot_be_understood_ends_neither_the_daemon_nor_other_work(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    [odd] = await server.add_task(resources={"cores": "many"})
    [fine] = await server.add_task()
    report = await server.result(odd)
    assert (report["outcome"], report["kind"]) == ("failed", "node")
    assert "many" in report["message"]
    assert (await server.result(fine))["outcome"] == "done"


async def test_words_and_variables_are_utf8_in_any_locale(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ascii_only(text: str | os.PathLike[str]) -> bytes:
        return os.fspath(text).encode("ascii")

    start()
    monkeypatch.setattr("os.fsencode", ascii_only)
    [work] = await server.add_task(
        "sh", cmd={"args_array": ["-c", 'echo "é $WORD"']}, environ={"WORD": "報告"}
    )
    assert (await server.result(work))["stdout_tail"] == "é 報告\n"


async def test_a_name_and_password_in_the_servers_address_reach_no_command_and_no_log(
    server: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    url = server.url.replace("http://", "http://bob:hush@")
    daemon = Daemon(settings_for(url, tmp_path / "work"))
    task = asyncio.ensure_future(daemon.run())
    [work] = await server.add_task("env")
    text = (await server.result(work))["stdout_tail"]
    assert f"AWE_SERVER={server.url}\n" in text
    server.refuse = refusal(503, "unavailable", "away")
    daemon.release("test")
    await task
    ours = [record.__dict__ for record in caplog.records if record.name.startswith("awe_client")]
    assert ours
    assert "hush" not in text + str(ours)


async def test_a_name_as_long_as_the_file_system_takes_can_be_fetched(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    for name in ("é" * 127, "x" * 255):
        [work] = await server.add_task("cat", f"@{name}", inputs=[server.input(name, b"data\n")])
        assert (await server.result(work))["stdout_tail"] == "data\n"


@pytest.mark.parametrize("where", ["stdout", "input"])
async def test_nothing_takes_the_place_of_the_script(
    server: FakeServer, start: MakeDaemon, where: str
) -> None:
    start()
    name = "./awe_script.sh"
    cmd: dict[str, Any] = {"cmd_script": ["exit 7"], **({"stdout": name} if where == "stdout" else {})}
    inputs = [server.input(name, b"exit 0\n")] if where == "input" else []
    [work] = await server.add_task("", cmd=cmd, inputs=inputs)
    report = await server.result(work)
    assert report["kind"] == "input"
    assert "awe_script.sh" in report["message"]


async def test_a_log_under_the_name_of_a_directory_is_the_documents_fault(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    [work] = await server.add_task(cmd={"stdout": "d"}, inputs=[server.input("d/in.txt", b"x")])
    report = await server.result(work)
    assert report["kind"] == "command"
    assert "stdout" in report["message"]


async def test_kept_directories_make_room_when_the_disk_is_short(
    server: FakeServer, small_disk: Path
) -> None:
    daemon = Daemon(settings_for(server.url, small_disk / "w", slots=1, free_floor_bytes=10**6))
    task = asyncio.ensure_future(daemon.run())
    [big] = await server.add_task(script=["head -c 10000000 /dev/zero > out.bin; exit 1"])
    assert (await server.result(big))["kind"] == "node"
    [fine] = await server.add_task("echo", "room again")
    assert (await server.result(fine))["outcome"] == "done"
    daemon.drain("test")
    assert await task == 0


async def test_what_was_written_while_the_disk_was_full_is_no_success_although_there_is_room_at_the_end(
    server: FakeServer, small_disk: Path, tmp_path: Path
) -> None:
    daemon = Daemon(settings_for(server.url, small_disk / "w", keep_failed_s=0.0))
    task = asyncio.ensure_future(daemon.run())
    begun, full, written = (tmp_path / name for name in ("begun", "full", "written"))
    wait = "do sleep 0.02; done"
    fill = f"until [ -e {begun} ]; {wait}; head -c 10000000 /dev/zero > big; touch {full}; "
    fill += f"until [ -e {written} ]; {wait}; exit 1"
    cut = f"touch {begun}; until [ -e {full} ]; {wait}; echo data > out.txt; touch {written}; "
    cut += f"until echo x > y; {wait}; exit 0"
    [filler] = await server.add_task(script=[fill])
    [writer] = await server.add_task(script=[cut], outputs=[server.output("out.txt")])
    report = await server.result(filler)
    assert (report["kind"], report["out_of_reach"]) == ("node", True)
    report = await server.result(writer)
    assert report["outcome"] == "released"
    assert "filled the client's disk" in report["message"]
    assert server.uploads == {}
    daemon.drain("test")
    assert await task == 0


async def test_L_05_removing_holds_up_no_report(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = threading.Event()
    monkeypatch.setattr("awe_client.daemon.workdir.remove_tree", lambda *_: slow.wait(20))
    start()
    try:
        for _ in range(40):
            [work] = await server.add_task(script=["touch here"])
            await server.result(work, 5.0)
    finally:
        slow.set()


async def test_L_05_no_pause_is_as_long_as_a_lease(server: FakeServer, start: MakeDaemon) -> None:
    server.lease_s = 1.0
    start()
    await server.until(lambda: bool(server.exchanges))
    server.refuse = refusal(503, "unavailable", "away")
    await asyncio.sleep(3.5)
    server.refuse = None
    seen = len(server.exchanges)
    await server.until(lambda: len(server.exchanges) > seen)
    times = [at for at, _, path, _ in server.requests if path.endswith("/exchange")]
    assert max(after - before for before, after in itertools.pairwise(times)) < 1.6


async def test_L_05_no_pause_of_a_restarted_client_is_as_long_as_the_lease_it_knew(
    server: FakeServer, start: MakeDaemon
) -> None:
    """What it has in its spool waits for one lease once the server is back; it has not registered yet."""
    server.lease_s = 1.0
    first = start()
    await server.until(lambda: bool(server.exchanges))
    first.release("it is started again")
    assert await first.task == 0  # type: ignore[attr-defined]
    server.refuse = refusal(503, "unavailable", "away")
    start()

    def asked() -> list[float]:
        return [at for at, method, path, _ in server.requests if (method, path) == ("POST", "/client")][1:]

    await eventually(lambda: len(asked()) >= 7, within_s=20.0)
    server.refuse = None
    assert max(after - before for before, after in itertools.pairwise(asked())) < 1.6
