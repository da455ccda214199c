"""Building indexes, in threads and in processes."""

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import anyio
import pytest

from awe_server.data import builder as builder_module
from awe_server.data import worker
from awe_server.data.builder import INLINE_BYTES, PROCESSES, IndexBuilder
from awe_server.data.indexes import locate_in
from awe_server.data.nodes import NodeStore
from awe_server.data.ports import IndexFact, Unreadable
from shared_models.errors import AweError, BadRequest, Conflict, InvalidData, NoSpace, NotCuttable
from tests.support.eventually import eventually, eventually_sync
from tests.unit.data.port import MemoryPort, stream
from tests.unit.data.samples import READS, assert_4_line_fastq, four_line_starts

pytestmark = pytest.mark.anyio

LARGE = READS * 30  #: more than is scanned in a thread


@pytest.mark.parametrize(
    ("data", "kind", "fact"),
    [
        (READS, "size", IndexFact("size", 1, "size")),
        (READS, "line", IndexFact("line", 1000, "line")),
        (READS, "record", IndexFact("record", 250, "fastq", 250)),
        (READS, "chunkrecord", IndexFact("chunkrecord", 1, "fastq")),
        (LARGE, "record", IndexFact("record", 7500, "fastq", 7500)),
        (LARGE, "chunkrecord", IndexFact("chunkrecord", 3, "fastq")),
        (b"", "size", IndexFact("size", 1, "size")),
        (b"", "line", IndexFact("line", 1, "line")),
        (b"", "record", IndexFact("record", 1, "text", 0)),
        (b"", "chunkrecord", IndexFact("chunkrecord", 1, "text")),
        (b"\n", "record", IndexFact("record", 1, "text", 0)),
        (b"\n\n  \n", "line", IndexFact("line", 3, "line")),
        (b"# only\n# comments\n", "chunkrecord", IndexFact("chunkrecord", 1, "text")),
        (b">one\nACGT\n", "record", IndexFact("record", 1, "fasta", 1)),
        (b"A" * 4_000_000, "chunkrecord", IndexFact("chunkrecord", 1, "text")),
        (b"@w\nAC\nGT\n+\n@I\n+I\n" * 30_000, "chunkrecord", IndexFact("chunkrecord", 1, "fastq", 30_000)),
        (b"@w\nAC\nGT\n+\n@I\n+I\n" * 100_000, "chunkrecord", IndexFact("chunkrecord", 2, "fastq", 100_000)),
        (b"@HD\tVN:1.6\n", "record", IndexFact("record", 1, "sam", 0)),
    ],
    ids=lambda value: value[:9] if isinstance(value, bytes) else None,
)
async def test_every_kind_of_every_file(nodes: NodeStore, data: bytes, kind: str, fact: IndexFact) -> None:
    await nodes.create(stream(data))
    assert await nodes.build_index("node-1", kind) == fact
    document = await nodes.get("node-1")
    assert document["indexes"][kind]["total_units"] == fact.total_units
    assert document["indexes"][kind]["format"] == fact.format
    assert document["indexes"][kind]["records"] == fact.records
    assert await nodes.build_index("node-1", kind) == fact
    assert locate_in(await nodes.ready(document, kind), f"1-{fact.total_units}") == (0, len(data))


@pytest.mark.parametrize("size", [1, INLINE_BYTES + 1])
async def test_scans_in_threads_on_a_disk_that_hangs_leave_threads_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    blob, begun, goes_on = tmp_path / "blob", list[str](), threading.Event()
    blob.write_bytes(b"x" * size)

    def build_index(_: Path, kind: str, name: str, **__: object) -> IndexFact:
        begun.append(name)
        goes_on.wait(60)
        return IndexFact(kind, 1, "text")

    monkeypatch.setattr(builder_module, "build_index", build_index)
    builder = IndexBuilder()
    builds = [asyncio.create_task(builder.build(blob, "chunkrecord", f"f{n}")) for n in range(50)]
    try:
        await eventually(lambda: len(begun) >= builder_module.THREADS)
        for _ in range(40):
            await asyncio.wait_for(anyio.to_thread.run_sync(int), 20.0)
        assert len(begun) == builder_module.THREADS
    finally:
        goes_on.set()
    await asyncio.gather(*builds)
    assert len(begun) == 50


async def test_large_reads_are_cut_when_they_come(
    nodes: NodeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder_module, "AHEAD_BYTES", len(LARGE))
    created = await nodes.create(stream(LARGE))
    assert created["indexes"].keys() == {"size", "chunkrecord"}
    monkeypatch.setattr(builder_module, "build_index", None)  # nobody builds it again
    assert await nodes.build_index("node-1", "chunkrecord") == IndexFact("chunkrecord", 3, "fastq")
    assert locate_in(await nodes.ready(created, "chunkrecord"), "1-3") == (0, len(LARGE))
    replaced = await nodes.upload("node-1", stream(LARGE, READS), offset=0)
    assert replaced["indexes"]["chunkrecord"]["total_units"] == 3
    assert locate_in(await nodes.ready(replaced, "chunkrecord"), "1-3") == (0, len(LARGE + READS))
    assert len(_index_files(tmp_path)) == 1
    assert "chunkrecord" not in (await nodes.upload("node-1", stream(READS)))["indexes"]


@pytest.mark.parametrize(
    "data",
    [
        LARGE + b"@r\nACGT\n+\nII",
        b"@w\nAC\nGT\n+\n@I\n+I\n" * 90_000,
        b">r\nACGT\n" * 200_000,
        b"\0" * len(LARGE),
    ],
    ids=["truncated", "wrapped", "fasta", "binary"],
)
async def test_what_windows_do_not_show_is_left_to_who_asks_for_it(
    nodes: NodeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(builder_module, "AHEAD_BYTES", 1)
    assert (await nodes.create(stream(data)))["indexes"].keys() == {"size"}
    assert not _index_files(tmp_path)


@pytest.mark.parametrize("kind", ["record", "chunkrecord"])
@pytest.mark.parametrize("copies", [1, 30])
async def test_F_02_a_truncated_file_is_refused_with_name_record_and_line(
    nodes: NodeStore, kind: str, copies: int
) -> None:
    await nodes.create(stream(READS * copies, b"@r\nACGT\n+\nII"), name="cut.fastq")
    before = await nodes.get("node-1")
    with pytest.raises(InvalidData) as caught:
        await nodes.build_index("node-1", kind)
    assert caught.value.message == (
        f"cut.fastq: record {250 * copies + 1}, line {1000 * copies + 4}: "
        "the quality has 2 symbols, the sequence has 4"
    )
    assert await nodes.get("node-1") == before


async def test_F_02_chunkrecord_counts_no_records_and_never_tears_a_broken_one_record_names_it(
    nodes: NodeStore,
) -> None:
    """F-02 wants such a file refused, and its records counted. `record` does both. `chunkrecord` is there to
    look only at windows, docs/decisions/0003 says why: what is broken between two of them stays in one piece.
    """
    broken = b"@r\nACGT\n+\nII\n"
    content = READS * 20 + broken + READS * 20
    await nodes.create(stream(content), name="broken.fastq")
    assert await nodes.build_index("node-1", "chunkrecord") == IndexFact("chunkrecord", 4, "fastq", None)
    document = await nodes.get("node-1")
    assert document["indexes"]["chunkrecord"]["records"] is None
    index = await nodes.ready(document, "chunkrecord")
    located = [locate_in(index, str(unit)) for unit in range(1, 5)]
    units = [content[offset : offset + length] for offset, length in located]
    assert b"".join(units) == content
    assert [broken in unit for unit in units] == [False, True, False, False]
    for unit in units:
        assert_4_line_fastq(unit.replace(broken, b""))
    with pytest.raises(InvalidData) as caught:
        await nodes.build_index("node-1", "record")
    assert caught.value.message == (
        "broken.fastq: record 5001, line 20004: the quality has 2 symbols, the sequence has 4"
    )


async def test_a_large_file_whose_windows_are_clear_needs_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def in_process(self: IndexBuilder, blob: Path, *args: Any) -> IndexFact:
        asked.append(blob.name)
        return IndexFact("chunkrecord", 1, "fastq")

    monkeypatch.setattr(IndexBuilder, "_in_process", in_process)
    clear, wrapped = tmp_path / "clear", tmp_path / "wrapped"
    clear.write_bytes(LARGE)
    wrapped.write_bytes(b"@w\nAC\nGT\n+\n@I\n+I\n" * 100_000)
    builder = IndexBuilder()
    assert (await builder.build(clear, "chunkrecord", "x")).total_units == 3
    await builder.build(wrapped, "chunkrecord", "x")
    await builder.build(clear, "record", "x")
    assert asked == ["wrapped", "clear"]


@pytest.mark.parametrize("kind", ["line", "record", "chunkrecord"])
async def test_F_02_packed_files_are_not_cut_and_say_so(nodes: NodeStore, kind: str) -> None:
    packed = gzip.compress(READS)
    await nodes.create(stream(packed[: len(packed) * 9 // 10]), name="reads.fastq.gz")
    with pytest.raises(NotCuttable, match=r"reads\.fastq\.gz cannot be cut: it is packed with gzip"):
        await nodes.build_index("node-1", kind)
    assert (await nodes.build_index("node-1", "size")).total_units == 1


@pytest.mark.parametrize("kind", ["", "bai", "../x", "Record"])
async def test_an_unknown_kind_is_refused(nodes: NodeStore, kind: str) -> None:
    await nodes.create(stream(b"x"))
    with pytest.raises(BadRequest, match="expected size, line, record, chunkrecord"):
        await nodes.build_index("node-1", kind)


@pytest.mark.parametrize(
    "error",
    [
        InvalidData(file="a", record=1, line=2, problem="p"),
        NotCuttable(file="a", reason="r"),
        NoSpace(),
        Unreadable(file="a", reason="r"),
        FileNotFoundError(),
    ],
)
def test_a_refusal_comes_out_of_a_process_as_it_went_in(error: Exception) -> None:
    with mock.patch("awe_server.data.worker.build_index", side_effect=error):
        reply = worker.answer({"blob": "b", "kind": "record", "name": "n"})
    with pytest.raises(type(error)) as caught:
        worker.read_answer(json.dumps(reply).encode())
    assert str(caught.value) == str(error)


def test_what_is_no_refusal_is_not_answered() -> None:
    with mock.patch("awe_server.data.worker.build_index", side_effect=AweError()), pytest.raises(AweError):
        worker.answer({"blob": "b", "kind": "record", "name": "n"})


async def test_an_index_is_built_once(nodes: NodeStore, port: MemoryPort) -> None:
    await nodes.create(stream(READS))
    facts = await asyncio.gather(*(nodes.build_index("node-1", "record") for _ in range(5)))
    assert len(set(facts)) == 1
    assert port.puts == 2


@pytest.mark.parametrize("damage", ["lost", "an offset changed", "an offset out of order"])
async def test_an_index_file_that_is_lost_or_damaged_is_built_again(
    nodes: NodeStore, tmp_path: Path, damage: str
) -> None:
    await nodes.create(stream(READS))
    await nodes.build_index("node-1", "record")
    [index] = _index_files(tmp_path)
    content = bytearray(index.read_bytes())
    index.unlink()
    if damage != "lost":
        content[32:40] = (17 if damage == "an offset changed" else len(READS) * 2).to_bytes(8, "little")
        index.write_bytes(content)
    second, third = four_line_starts(READS)[1:3]
    download = await nodes.open_range("node-1", index="record", part="2")
    assert b"".join([chunk async for chunk in download.chunks]) == READS[second:third]
    assert len(_index_files(tmp_path)) == 1


async def test_a_file_that_is_lost_is_said_to_be_lost(nodes: NodeStore, tmp_path: Path) -> None:
    await nodes.create(stream(READS))
    [blob] = [path for path in (tmp_path / "data" / "blobs").rglob("*") if path.is_file()]
    blob.unlink()
    with pytest.raises(AweError, match="The file of node node-1 is missing on the server's disk"):
        await nodes.build_index("node-1", "record")


async def test_an_index_of_replaced_content_is_thrown_away(
    nodes: NodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.create(stream(b"a\nb\n"))
    plain_build = IndexBuilder.build
    contents = [b"a\nb\nc\n"]

    async def build_while_replaced(self: IndexBuilder, blob: Path, kind: str, name: str) -> IndexFact:
        fact = await plain_build(self, blob, kind, name)
        if contents:
            await nodes.upload("node-1", stream(contents.pop()))
        return fact

    monkeypatch.setattr(IndexBuilder, "build", build_while_replaced)
    assert (await nodes.build_index("node-1", "line")).total_units == 3
    assert (await nodes.get("node-1"))["indexes"]["line"]["total_units"] == 3
    await nodes.upload("node-1", stream(b"x\n"))
    contents += [b"1\n", b"2\n", b"3\n"]
    with pytest.raises(Conflict, match="changes too fast"):
        await nodes.build_index("node-1", "line")


async def test_a_full_disk_stops_an_index_cleanly(
    nodes: NodeStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await nodes.create(stream(READS))

    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("awe_server.data.build.write_index", full)
    with pytest.raises(NoSpace):
        await nodes.build_index("node-1", "record")


async def test_the_loop_runs_on_while_a_process_scans(nodes: NodeStore) -> None:
    await nodes.create(stream(b"@w\nAC\nGT\n+\n@I\n+I\n" * 150_000))
    longest = 0.0
    scan = asyncio.create_task(nodes.build_index("node-1", "record"))
    while not scan.done():
        before = time.thread_time()
        await asyncio.sleep(0.001)
        longest = max(longest, time.thread_time() - before)
    assert (await scan).total_units == 150_000
    assert longest < 0.5


async def test_F_02_a_killed_scan_is_an_error_and_takes_no_other_scan_with_it(tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    blob.write_bytes(LARGE)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)  # opening it never returns
    builder = IndexBuilder()
    hanging = asyncio.create_task(builder._in_process(fifo, "record", "reads"))
    await eventually(lambda: len(builder._running) == 1)
    (process,) = builder._running
    assert (await builder.build(blob, "record", "reads")).total_units == 7500
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(AweError, match=r"reads cannot be read: the scan for index 'record' ended with -9"):
        await hanging


async def test_no_scan_goes_on_after_its_end_or_its_cancellation(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    builder = IndexBuilder()
    scans = [asyncio.create_task(builder._in_process(fifo, "record", "reads")) for _ in range(2)]
    await eventually(lambda: len(builder._running) == 2)
    processes = list(builder._running)
    scans[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await scans[0]
    await builder.close()
    with pytest.raises(AweError):
        await scans[1]
    await builder.close()
    assert not any(_is_alive(process.pid) for process in processes)


@pytest.mark.parametrize("stuck", ["until it is killed", "even then"])
async def test_a_scan_that_is_stuck_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stuck: str
) -> None:
    monkeypatch.setattr(builder_module, "END_S", 0.1)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 1000\n")  # it looks at no stdin, as one stuck in a read
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    builder = IndexBuilder()
    scan = asyncio.create_task(builder._in_process(tmp_path / "blob", "record", "reads"))
    await eventually(lambda: len(builder._running) == 1)
    [process] = builder._running
    if stuck == "even then":
        monkeypatch.setattr(process, "kill", lambda: None)
    scan.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await scan
        await builder.close()
    assert _is_alive(process.pid) == (stuck == "even then")
    if stuck == "even then":
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()


async def test_what_a_killed_scan_left_on_a_disk_that_hangs_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nkill -9 $$\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.setattr(builder_module, "END_S", 1.0)
    answers = threading.Event()
    monkeypatch.setattr(builder_module, "_remove", lambda _: answers.wait(20))
    try:
        async with asyncio.timeout(10):
            with pytest.raises(Unreadable):
                await IndexBuilder()._in_process(tmp_path / "blob", "record", "reads")
    finally:
        answers.set()
    assert "scan_file_left" in caplog.messages


async def test_a_scan_that_fails_for_an_unknown_reason_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = "from awe_server.data import worker; worker.build_index = int; worker.main()"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{broken}"\n')
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    with pytest.raises(Unreadable, match="ended with 1"):
        await IndexBuilder()._in_process(tmp_path / "blob", "record", "reads")
    assert "TypeError" in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["line", "record", "chunkrecord"])
async def test_F_02_a_folder_in_place_of_a_file_is_unreadable(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "blob"
    folder.mkdir()
    for build in (IndexBuilder().build, IndexBuilder()._in_process):
        with pytest.raises(Unreadable, match=r"^reads cannot be read: Is a directory$"):
            await build(folder, kind, "reads")
    assert not _index_files(tmp_path)


def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kib: int) -> None:
    """Have scans run with so little memory (address space, libraries and all)."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -v {kib}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))


@pytest.mark.parametrize(
    ("piece", "pieces", "records", "chunks"),
    [
        (READS, 1200, 300_000, 102),
        (b"@r\n" + b"A" * 6_000_000 + b"\n+\n" + b"@" * 6_000_000 + b"\n", 9, 9, 9),
    ],
    ids=["short reads", "reads longer than windows"],
)
async def test_F_02_a_file_of_over_100_mb_is_scanned_in_64_mb_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: bytes, pieces: int, records: int, chunks: int
) -> None:
    blob = tmp_path / "blob"
    with blob.open("wb") as file:
        file.writelines(piece for _ in range(pieces))
    assert blob.stat().st_size > 100_000_000
    limited(tmp_path, monkeypatch, 64 * 1024)
    builder = IndexBuilder()
    assert await builder.build(blob, "record", "reads") == IndexFact("record", records, "fastq", records)
    assert (await builder.build(blob, "chunkrecord", "reads")).total_units == chunks
    assert (await builder.build(blob, "line", "reads")).total_units == 4 * records


async def test_F_02_a_scan_without_memory_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "blob").write_bytes(LARGE)
    limited(tmp_path, monkeypatch, 20_000)
    with pytest.raises(Unreadable, match="the scan for index 'record' ended with"):
        await IndexBuilder().build(tmp_path / "blob", "record", "reads")
    assert not _index_files(tmp_path)


def test_F_02_memory_that_runs_out_during_a_scan_is_told(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(READS)
    request = {"blob": str(tmp_path / "blob"), "kind": "record", "name": "reads"}
    with mock.patch("awe_server.data.build.FileSource.read_at", side_effect=MemoryError):
        reply = worker.answer(request)
    with pytest.raises(Unreadable, match=r"^reads cannot be read: not enough memory to index it$"):
        worker.read_answer(json.dumps(reply).encode())


async def test_F_02_a_scan_that_is_killed_once_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blob").write_bytes(LARGE)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nmkdir {tmp_path}/once && kill -9 $$\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    assert (await IndexBuilder().build(tmp_path / "blob", "record", "reads")).records == 7500


#: A worker that gets no further once it has begun to write.
HALF = """#!/bin/sh
exec PYTHON -c '
import signal
from awe_server.data import scan_fastq, worker

plain = scan_fastq.FastqScanner.feed

def feed(self, block):
    if self.records:
        signal.pause()
    return plain(self, block)

scan_fastq.FastqScanner.feed = feed
worker.main()
'"""


@pytest.mark.parametrize("end", ["killed", "cancelled", "closed"])
async def test_what_a_scan_began_to_write_goes_as_soon_as_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    folder = tmp_path / "blobs"
    folder.mkdir()
    (folder / "blob").write_bytes(LARGE)
    other = folder / ".tmp-another"
    other.touch()
    python = tmp_path / "python"
    python.write_text(HALF.replace("PYTHON", sys.executable))
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    builder = IndexBuilder()
    scan = asyncio.create_task(builder._in_process(folder / "blob", "record", "reads"))
    await eventually(lambda: len(list(folder.glob(".tmp-blob.record.idx.*"))) == 1)
    if end == "killed":
        os.kill(next(iter(builder._running)).pid, signal.SIGKILL)
    elif end == "cancelled":
        scan.cancel()
    else:
        await builder.close()
    with pytest.raises((Unreadable, asyncio.CancelledError)):
        await scan
    assert sorted(folder.iterdir()) == [other, folder / "blob"]


async def test_only_so_many_scans_run_at_once(nodes: NodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    plain = IndexBuilder._in_process

    async def counted(self: IndexBuilder, *asked: Any) -> IndexFact:
        nonlocal most
        most = max(most, len(self._running) + 1)
        return await plain(self, *asked)

    monkeypatch.setattr(IndexBuilder, "_in_process", counted)
    for _ in range(4):
        await nodes.create(stream(LARGE))
    await asyncio.gather(*(nodes.build_index(f"node-{number}", "record") for number in range(1, 5)))
    assert most <= PROCESSES


SERVER = """
import asyncio, sys
from pathlib import Path
from awe_server.data.builder import IndexBuilder

async def main():
    builder = IndexBuilder()
    scan = asyncio.create_task(builder._in_process(Path(sys.argv[1]), 'record', 'x'))
    while not builder._running:
        await asyncio.sleep(0.01)
    print(*(process.pid for process in builder._running), flush=True)
    await scan

asyncio.run(main())
"""


def test_a_scan_ends_with_its_server_even_if_that_is_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen([sys.executable, "-c", SERVER, fifo], stdout=subprocess.PIPE, env=env) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        assert _is_alive(pid)
        server.kill()
    eventually_sync(lambda: not _is_alive(pid))


def _index_files(root: Path) -> list[Path]:
    return list(root.rglob("*.idx"))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_small_files_are_scanned_in_a_thread() -> None:
    assert len(READS) < INLINE_BYTES < len(LARGE)
