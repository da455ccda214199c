"""The spool: written while it is told, found again, whatever a crash leaves."""

import asyncio
import os
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon import spool as spool_module
from awe_client.daemon import unread_lines
from awe_client.daemon.identity import WorkRootUnusable
from awe_client.daemon.spool import Spool
from tests.support.descriptors import open_below
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio

JOB = "5e4f3c2b-1a09-4d8c-b7a6-958473625140"
A, B, C, KEEP, LAST, WITHDRAWN = (f"{JOB}_{name}_1" for name in ("a", "b", "c", "keep", "last", "withdrawn"))


def a_report(work: str, attempt: int = 1, **more: Any) -> Any:
    return {"work": work, "attempt": attempt, "token": "t", "outcome": "done", **more}


def full(*_: object) -> int:
    raise OSError(28, "No space left on device")


def opened(folder: Path) -> Spool:
    spool = Spool(folder)
    spool.open()
    return spool


async def test_reports_of_one_moment_cost_one_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(fd))
    spool = opened(tmp_path)
    spool.add(a_report(A))
    spool.add(a_report(B))
    assert spool.has_fresh
    await spool.flush()
    assert not spool.has_fresh
    assert [r["work"] for r in spool.reports()] == [A, B]
    assert len(synced) == 1
    spool.close()


async def test_L_05_a_slow_disk_is_not_waited_for_and_takes_what_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, sync = threading.Event(), os.fdatasync

    def hanging(fd: int) -> None:
        slow.wait(20)
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", hanging)
    spool = opened(tmp_path)
    spool.add(a_report(A))
    spool.add(a_report(WITHDRAWN))
    assert spool.busy_s == 0
    spool.write()
    await eventually(lambda: spool.busy_s > 0.05)
    spool.add(a_report(B))
    spool.acknowledge((WITHDRAWN, 1))
    spool.write()
    assert spool.keys == [(A, 1), (B, 1)]
    slow.set()
    path = tmp_path / "reports.log"
    await eventually(lambda: B.encode() in path.read_bytes())
    again = Spool(tmp_path)  # no close: as after kill -9
    assert again.open() == [(A, 1), (B, 1)]
    await spool.end()
    again.close()


async def test_open_reports_are_found_by_the_next_incarnation_and_acknowledged_ones_are_not(
    tmp_path: Path,
) -> None:
    spool = opened(tmp_path)
    for name in (A, B, C):
        spool.add(a_report(name))
    await spool.flush()
    spool.acknowledge((B, 1))
    await spool.flush()
    # No close: as after kill -9.
    again = Spool(tmp_path)
    assert again.open() == [(A, 1), (C, 1)]
    spool.close()
    again.close()


async def test_D_04_a_torn_line_is_cut_off_and_an_unreadable_one_passed_over(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.add(a_report(A))
    await spool.flush()
    path = tmp_path / "reports.log"
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0\0\0\n" + whole.replace(A.encode(), B.encode()) + b'{"r": {"work": "tor')
    again = Spool(tmp_path)
    assert again.open() == [(A, 1), (B, 1)]
    again.add(a_report(C))
    await again.flush()
    third = Spool(tmp_path)
    assert third.open() == [(A, 1), (B, 1), (C, 1)]
    for one in (spool, again, third):
        one.close()


@pytest.mark.parametrize(
    "line",
    [
        "5",
        "null",
        '"text"',
        "[]",
        "{}",
        '{"r": {}}',
        '{"r": null}',
        '{"a": 5}',
        '{"a": [1]}',
        '{"a": [[], {}]}',
        '{"r": {"work": ["x"], "attempt": 1, "token": "t", "outcome": "done"}}',
        '{"r": {"work": "no workunit", "attempt": 1, "token": "t", "outcome": "done"}}',
        f'{{"r": {{"work": "{B}", "attempt": -1, "token": "t", "outcome": "done"}}}}',
        f'{{"r": {{"work": "{B}", "attempt": 1, "token": "t", "outcome": "done", "stdout_tail": 5}}}}',
        "[" * 5000,
    ],
)
async def test_D_04_a_line_that_says_nothing_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    """Whoever wrote it: the client starts, and no server refuses it and what else is in the spool."""
    spool = opened(tmp_path)
    spool.add(a_report(A))
    await spool.flush()
    path = tmp_path / "reports.log"
    path.write_bytes(line.encode() + b"\n" + path.read_bytes() + line.encode() + b"\n")
    again = Spool(tmp_path)
    assert again.open() == [(A, 1)]
    assert caplog.text.count("spool_line_unreadable") == 2
    for one in (spool, again):
        one.close()


async def test_lines_that_cannot_be_read_are_kept_beside_the_spool(tmp_path: Path) -> None:
    """A result may be in them: of a newer version, or damaged by the disk."""
    path, unread = tmp_path / "reports.log", tmp_path / "reports.unread"
    opened(tmp_path).close()
    assert not unread.exists()
    for line in (b'{"newer": "report"}\n', b"\0\xff\n"):
        path.write_bytes(line)
        opened(tmp_path).close()
        assert path.read_bytes() == b""
    assert unread.read_bytes() == b'{"newer": "report"}\n\0\xff\n'
    assert unread.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("ends", [True, False])
async def test_lines_that_cannot_be_kept_elsewhere_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ends: bool
) -> None:
    """Until they can be: also past reports that are acknowledged, which else empty the file."""
    path, unread = tmp_path / "reports.log", tmp_path / "reports.unread"
    path.write_bytes(b"5\n")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        spool = opened(tmp_path)
        assert "unread_lines_not_moved" in caplog.text
        assert "spool_not_rewritten" in caplog.text
        spool.add(a_report(A))
        await spool.flush()
        spool.acknowledge((A, 1))
        await spool.flush()
        if ends:
            spool.close()
        assert (path.read_bytes(), unread.read_bytes()) == (b"5\n", b"")
    if ends:
        spool = opened(tmp_path)
    else:
        spool.add(a_report(B))
        await spool.flush()
        spool.acknowledge((B, 1))
        await spool.flush()
    assert (path.read_bytes(), unread.read_bytes()) == (b"", b"5\n")
    spool.close()
    assert (path.read_bytes(), unread.read_bytes()) == (b"", b"5\n")


async def test_a_spool_that_is_written_anew_takes_the_lines_along_that_cannot_be_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "REWRITE_BYTES", 100)
    path, unread = tmp_path / "reports.log", tmp_path / "reports.unread"
    path.write_bytes(b"5\n")
    unread.mkdir()
    spool = opened(tmp_path)
    spool.add(a_report(A, stdout_tail="x" * 100))
    await spool.flush()
    spool.acknowledge((A, 1))
    await spool.flush()
    assert path.read_bytes().startswith(b"5\n")
    spool.close()
    again = Spool(tmp_path)
    assert again.open() == []
    unread.rmdir()
    again.close()
    assert (path.read_bytes(), unread.read_bytes()) == (b"", b"5\n")


@pytest.mark.parametrize("fails", ["rename", "pwrite"])
async def test_starts_that_fail_on_the_way_leave_no_copies_of_lines_and_no_part_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path, unread = tmp_path / "reports.log", tmp_path / "reports.unread"
    path.write_bytes(b"damaged\n")
    unread.write_bytes(b"older\n")
    write = os.pwrite

    def a_part(fd: int, data: bytes, offset: int) -> int:
        return write(fd, data[:3], offset) if data.startswith(b"dam") else full()

    for _ in range(3):
        with monkeypatch.context() as patched:
            patched.setattr(os, fails, full if fails == "rename" else a_part)
            opened(tmp_path).abandon()
        assert (path.read_bytes(), unread.read_bytes()) == (b"damaged\n", b"older\n")
        assert not (tmp_path / "reports.part").exists()
    opened(tmp_path).close()
    assert (path.read_bytes(), unread.read_bytes()) == (b"", b"older\ndamaged\n")


async def test_the_file_for_lines_that_cannot_be_read_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unread_lines, "UNREAD_BYTES", 10)
    path, unread = tmp_path / "reports.log", tmp_path / "reports.unread"
    for line in (b"1234\n56\n7890\n", b"x\n", b"y\n"):
        path.write_bytes(line)
        opened(tmp_path).close()
        assert path.read_bytes() == b""
    assert unread.read_bytes() == b"1234\n56\nx\n"
    assert caplog.text.count("unread_lines_dropped") == 2


@pytest.mark.parametrize("fails", ["open", "fsync"])
async def test_a_folder_that_cannot_be_synced_loses_no_report_and_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    """Some file systems answer EINVAL; the file has its place all the same."""
    make, sync = os.open, os.fsync

    def open_no_folder(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_DIRECTORY:
            raise OSError(24, "Too many open files")
        return make(path, flags, *more, **named)

    def sync_no_folder(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(22, "Invalid argument")
        sync(fd)

    before = open_below(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, fails, open_no_folder if fails == "open" else sync_no_folder)
        spool = opened(tmp_path)
        spool.add(a_report(A))
        await spool.flush()
    assert "spool_folder_not_synced" in caplog.text
    again = Spool(tmp_path)  # no close: as after kill -9
    assert again.open() == [(A, 1)]
    for one in (spool, again):
        one.close()
    assert open_below(tmp_path) == before


@pytest.mark.parametrize("what", ["fifo", "directory", "link", "socket"])
def test_what_is_no_file_in_its_place_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "reports.log"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    elif what == "link":
        path.symlink_to("elsewhere")
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    with pytest.raises(WorkRootUnusable, match=r"reports\.log: is no regular file"):
        Spool(tmp_path).open()
    assert not (tmp_path / "elsewhere").exists()


async def test_a_daemon_that_has_lost_its_folder_changes_nothing_of_the_next_ones(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.add(a_report(A))
    await first.flush()
    second = opened(tmp_path)
    second.add(a_report(B))
    await second.flush()
    first.add(a_report(C))
    await first.flush()
    first.abandon()
    for name in (A, C):
        first.acknowledge((name, 1))
    await first.end()
    third = Spool(tmp_path)
    assert third.open() == [(A, 1), (B, 1)]
    for one in (second, third):
        one.close()


async def test_the_file_is_emptied_when_nothing_is_open(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.add(a_report(A))
    await spool.flush()
    spool.acknowledge((A, 1))
    assert spool.is_empty
    await spool.flush()
    assert (tmp_path / "reports.log").stat().st_size == 0
    spool.close()


async def test_an_acknowledgement_is_soon_written_also_if_no_report_follows(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for name in (A, B):
        spool.add(a_report(name))
    await spool.flush()
    spool.acknowledge((A, 1))
    path = tmp_path / "reports.log"
    await eventually(lambda: b'{"a"' in path.read_bytes())
    spool.acknowledge((B, 1))
    await eventually(lambda: path.read_bytes() == b"")
    spool.close()


async def test_a_large_file_is_written_anew_with_what_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "REWRITE_BYTES", 10_000)
    spool = opened(tmp_path)
    spool.add(a_report(KEEP))
    for i in range(100):
        spool.add(a_report(f"w{i}", stdout_tail="x" * 100))
    await spool.flush()
    for i in range(100):
        spool.acknowledge((f"w{i}", 1))
    spool.add(a_report(LAST))
    await spool.flush()
    assert (tmp_path / "reports.log").stat().st_size < 1000
    again = Spool(tmp_path)
    assert again.open() == [(KEEP, 1), (LAST, 1)]
    spool.close()
    again.close()


async def test_a_full_disk_does_not_hold_results_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool = opened(tmp_path)
    spool.add(a_report(A))
    await spool.flush()

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        spool.add(a_report(B))
        await spool.flush()
    assert [r["work"] for r in spool.reports()] == [A, B]
    assert "spool_not_written" in caplog.text
    spool.add(a_report(C))
    await spool.flush()
    again = Spool(tmp_path)
    assert again.open() == [(A, 1), (B, 1), (C, 1)]
    spool.close()
    again.close()


async def test_what_a_full_disk_refused_is_written_again_while_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may be away, and the client be killed before it is back."""
    monkeypatch.setattr(spool_module, "WRITE_AGAIN_S", 0.05)
    tries, write = 0, os.pwrite

    def full_for_a_moment(fd: int, data: bytes, offset: int) -> int:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise OSError(28, "No space left on device")
        return write(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", full_for_a_moment)
    spool = opened(tmp_path)
    spool.add(a_report(A))
    spool.add(a_report("told meanwhile"))
    await spool.flush()
    assert [r["work"] for r in spool.reports()] == [A, "told meanwhile"]
    spool.acknowledge(("told meanwhile", 1))
    await eventually(lambda: A.encode() in (tmp_path / "reports.log").read_bytes())
    again = Spool(tmp_path)
    assert again.open() == [(A, 1)]
    await spool.flush()
    done = tries
    await asyncio.sleep(0.2)
    assert tries == done, "it is on the disk, and needs no writing any more"
    spool.close()
    again.close()


async def test_what_a_full_disk_refused_is_tried_once_more_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = opened(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        spool.add(a_report(A))
        await spool.flush()
    await spool.end()
    again = Spool(tmp_path)
    assert again.open() == [(A, 1)]
    again.close()


async def test_the_spool_holds_tokens_and_is_private(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    assert (tmp_path / "reports.log").stat().st_mode & 0o077 == 0
    spool.close()
