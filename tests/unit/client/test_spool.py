"""The spool: durable before sent, once, whatever a crash leaves."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon import spool as spool_module
from awe_client.daemon.spool import Spool
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio


def a_report(work: str, attempt: int = 1, **more: Any) -> Any:
    return {"work": work, "attempt": attempt, "token": "t", "outcome": "done", **more}


def opened(folder: Path) -> Spool:
    spool = Spool(folder)
    spool.open()
    return spool


async def test_a_report_is_ready_only_after_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(fd))
    spool = opened(tmp_path)
    spool.add(a_report("a"))
    spool.add(a_report("b"))
    assert spool.ready() == []
    assert spool.has_fresh
    await spool.flush()
    assert [r["work"] for r in spool.ready()] == ["a", "b"]
    assert len(synced) == 1
    spool.close()


async def test_L_05_a_slow_disk_is_waited_for_no_longer_than_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, sync = threading.Event(), os.fdatasync

    def hanging(fd: int) -> None:
        slow.wait(20)
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", hanging)
    spool = opened(tmp_path)
    spool.add(a_report("a"))
    spool.add(a_report("withdrawn"))
    assert not await spool.flush(0.05)
    spool.add(a_report("b"))
    spool.acknowledge(("withdrawn", 1))
    assert (spool.ready(), spool.is_empty) == ([], False)
    assert spool.unwritten == [("a", 1), ("b", 1)]
    written = asyncio.Event()
    spool.when_written(written.set)
    slow.set()
    await written.wait()
    assert await spool.flush(20.0)
    assert [r["work"] for r in spool.ready()] == ["a", "b"]
    await spool.end()
    again = Spool(tmp_path)
    assert again.open() == [("a", 1), ("b", 1)]
    again.close()


async def test_open_reports_are_found_by_the_next_incarnation_and_acknowledged_ones_are_not(
    tmp_path: Path,
) -> None:
    spool = opened(tmp_path)
    for name in "abc":
        spool.add(a_report(name))
    await spool.flush()
    spool.acknowledge(("b", 1))
    await spool.flush()
    # No close: as after kill -9.
    again = Spool(tmp_path)
    assert again.open() == [("a", 1), ("c", 1)]
    spool.close()
    again.close()


async def test_D_04_a_torn_line_is_cut_off_and_an_unreadable_one_passed_over(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.add(a_report("a"))
    await spool.flush()
    path = tmp_path / "reports.log"
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0\0\0\n" + whole.replace(b'"a"', b'"b"') + b'{"r": {"work": "tor')
    again = Spool(tmp_path)
    assert again.open() == [("a", 1), ("b", 1)]
    again.add(a_report("c"))
    await again.flush()
    third = Spool(tmp_path)
    assert third.open() == [("a", 1), ("b", 1), ("c", 1)]
    for one in (spool, again, third):
        one.close()


async def test_the_file_is_emptied_when_nothing_is_open(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.add(a_report("a"))
    await spool.flush()
    spool.acknowledge(("a", 1))
    assert spool.is_empty
    await spool.flush()
    assert (tmp_path / "reports.log").stat().st_size == 0
    spool.close()


async def test_a_large_file_is_written_anew_with_what_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "REWRITE_BYTES", 10_000)
    spool = opened(tmp_path)
    spool.add(a_report("keep"))
    for i in range(100):
        spool.add(a_report(f"w{i}", stdout_tail="x" * 100))
    await spool.flush()
    for i in range(100):
        spool.acknowledge((f"w{i}", 1))
    spool.add(a_report("last"))
    await spool.flush()
    assert (tmp_path / "reports.log").stat().st_size < 1000
    again = Spool(tmp_path)
    assert again.open() == [("keep", 1), ("last", 1)]
    spool.close()
    again.close()


async def test_a_full_disk_does_not_hold_results_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool = opened(tmp_path)
    spool.add(a_report("a"))
    await spool.flush()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        spool.add(a_report("b"))
        await spool.flush()
    assert [r["work"] for r in spool.ready()] == ["a", "b"]
    assert "spool_not_written" in caplog.text
    spool.add(a_report("c"))
    await spool.flush()
    again = Spool(tmp_path)
    assert again.open() == [("a", 1), ("b", 1), ("c", 1)]
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
    spool.add(a_report("a"))
    spool.add(a_report("told meanwhile"))
    await spool.flush()
    assert [r["work"] for r in spool.ready()] == ["a", "told meanwhile"]
    spool.acknowledge(("told meanwhile", 1))
    await eventually(lambda: b'"a"' in (tmp_path / "reports.log").read_bytes())
    again = Spool(tmp_path)
    assert again.open() == [("a", 1)]
    await spool.flush()
    done = tries
    await asyncio.sleep(0.2)
    assert tries == done, "it is on the disk, and needs no writing any more"
    spool.close()
    again.close()


async def test_what_a_full_disk_refused_is_tried_once_more_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    spool = opened(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        spool.add(a_report("a"))
        await spool.flush()
    await spool.end()
    again = Spool(tmp_path)
    assert again.open() == [("a", 1)]
    again.close()


async def test_the_spool_holds_tokens_and_is_private(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    assert (tmp_path / "reports.log").stat().st_mode & 0o077 == 0
    spool.close()
