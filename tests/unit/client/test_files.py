"""Files in and out: whole, right, and inside the work directory (F-08, F-10, F-11, F-13)."""
# ruff: noqa: ASYNC240 — a look at a temporary folder blocks nobody here

import asyncio
import errno
import gzip
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from awe_client.daemon import live_logs
from awe_client.daemon.daemon import Daemon
from awe_client.daemon.leavings import open_log
from awe_client.daemon.live_logs import LiveLogs
from awe_client.daemon.progress import Followers, Meter
from awe_client.daemon.servers import Patience
from tests.support.cutting import CuttingProxy
from tests.support.eventually import eventually
from tests.support.fake_server import FakeServer, Unit, refusal
from tests.support.shock import ShockServer
from tests.support.tmpfs import tmpfs
from tests.support.trees import Tree, tree
from tests.unit.client.conftest import MakeDaemon, settings_for

pytestmark = pytest.mark.anyio


async def test_an_input_arrives_whole_although_the_connection_is_cut(
    server: FakeServer, start: MakeDaemon
) -> None:
    data = os.urandom(3_000_000)
    server.cut_downloads_after = [1_200_000, 600_000]
    start()
    out = server.output("out.bin")
    [work] = await server.add_task(
        script=["cp in.bin out.bin"], inputs=[server.input("in.bin", data)], outputs=[out]
    )
    report = await server.result(work)
    assert report["outcome"] == "done"
    assert server.uploads[out["node"], work, 1] == data
    ranges = [
        h.get("range") for _, method, path, h in server.requests if method == "GET" and "/node/" in path
    ]
    assert ranges[0] is None
    assert all(r is not None and not r.startswith("bytes=0-") for r in ranges[1:])


async def test_a_wrong_checksum_is_the_inputs_fault(server: FakeServer, start: MakeDaemon) -> None:
    start()
    entry = server.input("in.txt", b"right")
    server.nodes[entry["node"]] = b"wrong"
    [work] = await server.add_task(inputs=[entry])
    report = await server.result(work)
    assert report["kind"] == "input"
    assert "checksum mismatch" in report["message"]


async def test_a_missing_node_is_the_inputs_fault(server: FakeServer, start: MakeDaemon) -> None:
    start()
    entry = server.input("in.txt", b"x")
    del server.nodes[entry["node"]]
    [work] = await server.add_task(inputs=[entry])
    report = await server.result(work)
    assert (report["outcome"], report["kind"]) == ("failed", "input")
    assert "Node not found" in report["message"]


async def test_a_part_is_exactly_its_bytes(server: FakeServer, start: MakeDaemon) -> None:
    start()
    data = b"".join(b"line %d\n" % i for i in range(100))
    cuts = [(0, 300), (300, 0), (300, len(data) - 300)]
    works = await server.add_task(
        "cat",
        "@in.txt",
        ranks=3,
        grants=[{"part": "1-2", "pieces": [piece]} for piece in cuts],
        inputs=[server.input("in.txt", data), server.input("other.txt", b"whole")],
        part_inputs=["in.txt"],
        index="line",
    )
    texts = [(await server.result(work))["stdout_tail"].encode() for work in works]
    assert texts == [data[a : a + n] for a, n in cuts]


async def test_F_02_a_gzipped_input_is_unpacked_and_a_broken_one_refused(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    packed = gzip.compress(b"one\n" * 1000) + gzip.compress(b"two\n")
    good = server.input("good.txt", packed, uncompress="gzip")
    bad = server.input("bad.txt", packed[:-20], uncompress="gzip")
    [first] = await server.add_task("md5sum", "@good.txt", inputs=[good])
    [second] = await server.add_task("md5sum", "@bad.txt", inputs=[bad])
    assert (await server.result(first))["outcome"] == "done"
    report = await server.result(second)
    assert report["kind"] == "input"
    assert report["message"].startswith(f"bad.txt: /node/{bad['node']}: ")
    assert "gzip" in report["message"]


async def test_F_04_an_empty_gzip_file_is_an_empty_file(server: FakeServer, start: MakeDaemon) -> None:
    start()
    empty = gzip.compress(b"")
    inputs = [
        server.input("one.fa", empty, uncompress="gzip"),
        server.input("two.fa", empty + empty, uncompress="gzip"),
        server.input("padded.fa", empty + bytes(512), uncompress="gzip"),
        server.input("kept.fa", empty, uncompress="gzip", cache=True),
    ]
    predata = [server.input("db.fa", empty, uncompress="gzip")]
    out = server.output("one.fa")
    [work] = await server.add_task(
        "wc", "-c @one.fa @two.fa @padded.fa @kept.fa db.fa", inputs=inputs, predata=predata, outputs=[out]
    )
    report = await server.result(work)
    assert [line.split()[0] for line in report["stdout_tail"].splitlines()] == ["0"] * 6
    assert server.uploads == {(out["node"], work, 1): b""}
    [work] = await server.add_task(inputs=[server.input("none.fa", b"", uncompress="gzip")])
    report = await server.result(work)
    assert report["kind"] == "input"
    assert "gzip" in report["message"]


async def test_attributes_user_attributes_and_inputs_without_data(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    entry = server.input("in.txt", b"never fetched", nofile=True, attrfile="in.json")
    server.attributes[entry["node"]] = {"sample": 7}
    [work] = await server.add_task(
        script=["cat in.json; echo; cat userattr.json; ls"], inputs=[entry], userattr={"project": "p"}
    )
    text = (await server.result(work))["stdout_tail"]
    assert json.loads(text.splitlines()[0]) == {"sample": 7}
    assert '"project": "p"' in text
    assert "in.txt" not in text


def foreign(server: FakeServer, attributes: object) -> dict[str, object]:
    """An input in another Shock, with an attribute file."""
    entry = server.input("in.txt", b"x", attrfile="in.json", host=server.url)
    server.attributes[entry["node"]] = attributes
    return {**entry, "url": f"{server.url}/node/{entry['node']}?download"}


async def test_attributes_of_a_node_in_another_store_are_fetched_there(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    [work] = await server.add_task("cat", "in.json", inputs=[foreign(server, {"sample": 7})])
    assert (await server.result(work))["stdout_tail"] == '{"sample": 7}'


async def test_what_is_no_node_document_is_the_inputs_fault(server: FakeServer, start: MakeDaemon) -> None:
    start()
    for data, says in (
        (b"<html>", "cannot read the attributes of http://127.0.0.1.*not a node's document"),
        (b"x" * 3_000_000, "cannot fetch http://127.0.0.1.*it has more than 2097152 bytes"),
    ):
        entry = foreign(server, {})
        server.documents[str(entry["node"])] = data
        [work] = await server.add_task("cat", "in.json", inputs=[entry])
        report = await server.result(work)
        assert report["kind"] == "input"
        assert re.match(f"in.txt: {says}", report["message"])


async def test_what_is_written_under_the_name_of_predata_does_not_reach_the_shared_copy(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    start()
    shared = server.input("in.json", b"shared\n")
    entry = server.input("in.txt", b"x", attrfile="in.json")
    server.attributes[entry["node"]] = {"a": 1}
    [work] = await server.add_task("cat", "in.json", inputs=[entry], predata=[shared])
    assert (await server.result(work))["stdout_tail"] == '{"a": 1}'
    [kept] = (tmp_path / "work" / "cache").iterdir()
    assert kept.read_bytes() == b"shared\n"


async def test_predata_is_fetched_once_and_linked(server: FakeServer, start: MakeDaemon) -> None:
    start(slots=2)
    entry = server.input("ref/db.txt", b"reference\n")
    del entry["md5"]
    works = await server.add_task("cat", "ref/db.txt", ranks=4, predata=[entry])
    for work in works:
        assert (await server.result(work))["stdout_tail"] == "reference\n"
    assert server.gets(entry) == 1


async def test_F_08_outputs_are_found_in_their_directories(server: FakeServer, start: MakeDaemon) -> None:
    start()
    deep, plain = server.output("sub/dir/ok.txt"), server.output("x.txt", directory="results")
    [work] = await server.add_task(
        script=["mkdir -p sub/dir results; echo deep > sub/dir/ok.txt; echo plain > results/x.txt"],
        outputs=[deep, plain],
    )
    report = await server.result(work)
    assert report["outcome"] == "done"
    assert server.uploads[deep["node"], work, 1] == b"deep\n"
    assert server.uploads[plain["node"], work, 1] == b"plain\n"
    assert [o["filename"] for o in report["outputs"]] == ["sub/dir/ok.txt", "x.txt"]
    assert [o["size"] for o in report["outputs"]] == [5, 6]


@pytest.mark.parametrize(
    ("script", "output", "says"),
    [
        (": nothing", {}, "declared output out.txt missing; the work directory has: awe_stderr.txt"),
        ("echo x > Out.txt", {}, "Out.txt"),
        ("mkdir out.txt", {}, "output out.txt is a directory"),
        (": > out.txt", {"nonzero": True}, "output out.txt is empty"),
        ("mkfifo out.txt", {}, "not a plain file"),
        ("ln -s /etc/passwd out.txt", {}, "leaves the work directory"),
        ("ln -s out.txt out.txt", {}, "links in a circle"),
    ],
)
async def test_F_08_F_10_a_declared_output_must_be_a_file_that_is_there(
    server: FakeServer, start: MakeDaemon, script: str, output: dict[str, object], says: str
) -> None:
    start()
    [work] = await server.add_task(script=[script], outputs=[server.output("out.txt", **output)])
    report = await server.result(work)
    assert (report["outcome"], report["kind"]) == ("failed", "output")
    assert says in report["message"]
    assert server.uploads == {}


async def test_F_08_a_linked_sub_directory_is_not_followed_out(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    (tmp_path / "canary").mkdir()
    (tmp_path / "canary" / "out.txt").write_text("secret")
    start()
    [work] = await server.add_task(
        script=[f"ln -s {tmp_path}/canary results"],
        outputs=[server.output("out.txt", directory="results")],
    )
    report = await server.result(work)
    assert "leaves the work directory" in report["message"]
    assert (tmp_path / "canary" / "out.txt").read_text() == "secret"


async def test_F_10_missing_optional_outputs_and_empty_ones_are_fine(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    empty = server.output("empty.txt")
    outputs = [server.output("a.txt", optional=True), server.output("b.txt", nofile=True), empty]
    [work] = await server.add_task(script=[": > empty.txt"], outputs=outputs)
    report = await server.result(work)
    assert report["outcome"] == "done"
    assert server.uploads == {(empty["node"], work, 1): b""}


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a/../../x", "~/x", "x/", "C:\\x", "n" * 300, "a\0b"])
async def test_F_08_names_that_leave_the_work_directory_are_refused(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, name: str
) -> None:
    start()
    before = await with_canaries(server, tmp_path)
    [first] = await server.add_task(inputs=[server.input(name, b"evil")])
    [second] = await server.add_task(outputs=[server.output(name)])
    [third] = await server.add_task("cat", cmd={"stdin": name})
    [fourth] = await server.add_task("true", cmd={"stdout": name})
    [fifth] = await server.add_task(predata=[server.input(name, b"evil")])
    entry = server.input("in.txt", b"x", attrfile=name)
    server.attributes[entry["node"]] = {"evil": 1}
    [sixth] = await server.add_task(inputs=[entry])
    assert (await server.result(first))["kind"] == "input"
    assert (await server.result(third))["kind"] == "input"
    assert (await server.result(fourth))["kind"] == "input"
    assert (await server.result(second))["kind"] in ("output", "input")
    assert (await server.result(fifth))["kind"] == "input"
    assert (await server.result(sixth))["kind"] == "input"
    assert outside(tmp_path) == before


SECRET = "a secret of somebody else"

#: An attempt's own directory, and what a client writes for itself.
_OF_ATTEMPTS = re.compile(r"work/(attempts/..(/..){2}/[^/]+\.\d+|alive|fresh|spool)")


def outside(tmp_path: Path) -> Tree:
    """All that no attempt of a test has any business with, below the work directory, too."""
    return tree(tmp_path, lambda name: "another" not in name and _OF_ATTEMPTS.fullmatch(name) is not None)


async def with_canaries(server: FakeServer, tmp_path: Path) -> Tree:
    """Put files around the directories of attempts, and into one of another attempt; all that is there."""
    [ready] = await server.add_task(task_name="ready")
    await server.result(ready)
    job, attempts = server.job_id, tmp_path / "work" / "attempts"
    above = attempts / job[0:2] / job[2:4] / job[4:6]
    for folder in (tmp_path, tmp_path / "elsewhere", *above.parents[:4], above, above / "another.1"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "x").write_text(SECRET)
        (folder / "secret.json").write_text(json.dumps({"is": SECRET}))
    return outside(tmp_path)


#: How a command puts a link in the place of a file, and what its task declares.
LINKS: dict[str, tuple[str, dict[str, Any]]] = {
    "output": ("ln -s $T/x out", {"outputs": [{"filename": "out"}]}),
    "output in a linked folder": ("ln -s $T out", {"outputs": [{"filename": "out/x"}]}),
    "folder": ("ln -s $T out", {"outputs": [{"filename": "out/"}]}),
    "pattern": ("ln -s $T/x out.txt; echo 1 > b.txt", {"outputs": [{"filename": "*.txt"}]}),
    "attrfile": (
        "echo 1 > out; ln -s $T/secret.json attr.json",
        {"outputs": [{"filename": "out", "attrfile": "attr.json"}]},
    ),
    "awe_stdout.txt": ("head -c 100000 /dev/zero; ln -sf $T/x awe_stdout.txt", {}),
    "awe_stderr.txt": ("head -c 100000 /dev/zero >&2; ln -sf $T/x awe_stderr.txt", {}),
    "folder of a log": ("rm -r logs; ln -s $T logs", {"cmd": {"stdout": "logs/x"}}),
    "work directory": ('here="$PWD"; cd /; rm -r "$here"; ln -s $T "$here"', {"cmd": {"stdout": "x"}}),
}


@pytest.mark.parametrize("where", ["elsewhere", "another attempt"])
@pytest.mark.parametrize("what", LINKS)
async def test_F_08_no_link_leads_to_a_file_elsewhere(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, what: str, where: str
) -> None:
    start(keep_failed_s=0.0)
    before = await with_canaries(server, tmp_path)
    [there] = [path for path in tmp_path.rglob(where.replace(" attempt", ".1"))]
    script, keys = LINKS[what]
    outputs = [{**server.output(""), **output} for output in keys.get("outputs", ())]
    command = ["-c", f"T={there}\n{script}"]
    cmd = {"name": "sh", "args": "", "args_array": command, **keys.get("cmd", {})}
    [work] = await server.add_task("", cmd=cmd, outputs=outputs, keep_failed=True)
    report = await server.result(work)
    if outputs:
        assert (report["outcome"], report["kind"]) == ("failed", "output")
        assert "leaves the work directory" in report["message"]
    assert SECRET not in everything_sent(server)
    assert outside(tmp_path) == before


async def test_F_08_a_log_that_is_followed_leads_to_no_file_elsewhere(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    server.lease_s = 0.6  # exchanges come often
    start()
    before = await with_canaries(server, tmp_path)
    go, there = tmp_path / "go", tmp_path / "elsewhere" / "x"
    wait = f"until [ -e {go} ]; do sleep 0.02; done"
    [work] = await server.add_task(script=[f"echo begun; {wait}; ln -sf {there} awe_stdout.txt; echo later"])
    server.follow = [(work, 1)]
    await server.until(lambda: server.logs.get((work, 1, "stdout")) == b"begun\n")
    go.touch()
    assert (await server.result(work))["outcome"] == "done"
    assert SECRET not in everything_sent(server)
    go.unlink()
    assert outside(tmp_path) == before


async def test_F_08_a_log_that_becomes_a_link_while_it_is_sent_shows_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command in a container sees less than we do, and it may be quicker."""
    directory, sent = tmp_path / "work", list[bytes]()
    log = directory / "logs" / "out.txt"
    log.parent.mkdir(parents=True)
    log.write_text("begun\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "out.txt").write_text(SECRET)

    async def write_log(work: str, kind: str, piece: bytes, **_: object) -> None:
        sent.append(piece)

    def opened(*of: bytes) -> int:
        descriptor = open_log(*of)
        if not log.parent.is_symlink():
            log.parent.rename(directory / "away")
            log.parent.symlink_to(tmp_path / "elsewhere")
        return descriptor

    monkeypatch.setattr(live_logs, "open_log", opened)

    server = SimpleNamespace(current=SimpleNamespace(write_log=write_log))
    names = SimpleNamespace(stdout="logs/out.txt", stderr="logs/out.txt")
    attempt = SimpleNamespace(key=("w", 1), id="w", number=1, token="t", directory=directory, task=names)
    logs = LiveLogs(server)  # type: ignore[arg-type]
    logs.follow([attempt])  # type: ignore[list-item]
    await eventually(lambda: bool(sent))
    await logs.end(("w", 1))
    assert sent == [b"begun\n"]


async def test_who_is_dropped_while_a_log_is_read_leaves_it_to_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that is closed means another file in the next moment."""
    go_on, opened, read = threading.Event(), list[int](), list[bytes]()
    (tmp_path / "out.txt").write_text("begun\n")
    (tmp_path / "other").write_text(SECRET)
    pread = os.pread

    def slow(descriptor: int, *more: int) -> bytes:
        opened.append(descriptor)
        go_on.wait(20)
        read.append(pread(descriptor, *more))
        return read[-1]

    monkeypatch.setattr(os, "pread", slow)
    names = SimpleNamespace(stdout="out.txt", stderr="out.txt")
    attempt = SimpleNamespace(key=("w", 1), id="w", number=1, token="t", directory=tmp_path, task=names)
    logs = LiveLogs(SimpleNamespace())  # type: ignore[arg-type]
    logs.follow([attempt])  # type: ignore[list-item]
    await eventually(lambda: bool(opened))
    logs.drop(("w", 1))
    await asyncio.sleep(0)
    others = [os.open(tmp_path / "other", os.O_RDONLY) for _ in range(4)]
    go_on.set()
    await eventually(lambda: bool(read))
    assert read == [b"begun\n"]
    for descriptor in others:
        os.close(descriptor)


async def test_a_long_log_is_sent_in_pieces_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_logs, "_PIECE_BYTES", 1000)
    (tmp_path / "out.txt").write_bytes(bytes(2500))
    sent: list[tuple[int, int]] = []

    async def write_log(work: str, kind: str, piece: bytes, *, offset: int, **_: object) -> None:
        if kind == "stdout":
            sent.append((offset, len(piece)))

    server = SimpleNamespace(current=SimpleNamespace(write_log=write_log))
    names = SimpleNamespace(stdout="out.txt", stderr="none.txt")
    attempt = SimpleNamespace(key=("w", 1), id="w", number=1, token="t", directory=tmp_path, task=names)
    logs = LiveLogs(server, pause_s=100)  # type: ignore[arg-type]
    logs.follow([attempt])  # type: ignore[list-item]
    await eventually(lambda: len(sent) == 3)
    await logs.end(("w", 1))
    assert sent == [(0, 1000), (1000, 1000), (2000, 500)]


def everything_sent(server: FakeServer) -> str:
    """All bytes that a server was sent: outputs, attributes, logs, reports."""
    stored = (server.uploads, server.kept, server.logs, server.attributes)
    return repr([list(of_a_kind.values()) for of_a_kind in stored]) + json.dumps(server.exchanges)


async def test_F_11_another_attempt_starts_in_an_empty_directory(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    out = server.output("out.txt")
    script = ["test -f out.txt || echo attempt $AWE_ATTEMPT > out.txt", "[ $AWE_ATTEMPT = 2 ]"]
    [work] = await server.add_task(script=script, outputs=[out])
    assert (await server.result(work))["outcome"] == "failed"
    first = server.results.pop(work)
    server.queue.append(next(iter(units_of(server, work, first))))
    await server.wake()
    assert (await server.result(work))["outcome"] == "done"
    assert server.uploads == {(out["node"], work, 2): b"attempt 2\n"}


def units_of(server: FakeServer, work: str, report: dict[str, object]) -> list[Unit]:
    """The workunit again, to be queued for another attempt."""
    task = server._tasks[work.rpartition("_")[0]]
    return [Unit(task, 0, {}, attempt=int(str(report["attempt"])))]


async def test_an_upload_waits_for_a_server_that_has_no_room(server: FakeServer, start: MakeDaemon) -> None:
    busy = refusal(503, "unavailable", "later", {"Retry-After": "0"})
    server.upload_answers = [busy, refusal(507, "no_space", "full")]
    start()
    out = server.output("out.txt")
    [work] = await server.add_task(script=["echo x > out.txt"], outputs=[out])
    assert (await server.result(work))["outcome"] == "done"
    assert server.uploads[out["node"], work, 1] == b"x\n"


async def test_an_upload_that_has_no_room_at_the_server_holds_up_no_other(
    server: FakeServer, start: MakeDaemon
) -> None:
    """It may wait for hours; those that fit, and those that go elsewhere, need not."""
    server.upload_answers = [refusal(507, "quota_exceeded", "9 of 9 bytes are taken", {"Retry-After": "60"})]
    start(transfers=1)
    [large] = await server.add_task(script=["echo x > out.txt"], outputs=[server.output("out.txt")])
    await server.until(lambda: not server.upload_answers)
    out = server.output("out.txt")
    [small] = await server.add_task(script=["echo y > out.txt"], outputs=[out])
    assert (await server.result(small, 20.0))["outcome"] == "done"
    assert large in server.leased


async def test_what_an_upload_waits_for_is_told_until_the_server_takes_it(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awe_client.daemon.workshop.PROGRESS_AFTER_S", 0.0)
    monkeypatch.setattr("awe_client.daemon.daemon.PROGRESS_S", 0.02)
    monkeypatch.setattr("awe_client.daemon.servers.jittered_delay_s", lambda *_, **__: 0.02)
    no_room = refusal(507, "quota_exceeded", "9 of 9 bytes are taken")
    server.upload_answers = [no_room] * 10_000
    start()
    [work] = await server.add_task(script=["echo x > out.txt"], outputs=[server.output("out.txt")])
    await server.until(lambda: any("waits" in x for x in server.exchanges))
    [told] = next(x["waits"] for x in server.exchanges if "waits" in x)
    assert told == [work, "its output out.txt (0.0 MB) is refused for now: 9 of 9 bytes are taken"]
    server.upload_answers.clear()
    assert (await server.result(work))["outcome"] == "done"
    assert "waits" not in server.exchanges[-1]


def test_a_meter_forgets_what_it_waits_for_when_more_moves_than_ever() -> None:
    meter = Meter("pushing")
    moved = meter.follow("a")
    moved(5, 9)
    moved.waits("no room")
    for again in (0, 5):
        moved(again, 9)
        assert meter.waits_for == "no room"
    moved(6, 9)
    assert meter.waits_for == ""


def test_who_joins_a_transfer_hears_what_it_waits_for() -> None:
    meters = [Meter("fetching"), Meter("fetching")]
    followers = Followers()
    for meter in meters:
        followers.join(meter.follow("a"))
        followers.waits("its host is away")
    assert [meter.waits_for for meter in meters] == ["its host is away"] * 2
    followers.waits("")
    assert [meter.waits_for for meter in meters] == ["", ""]


async def test_an_upload_after_a_lost_lease_ends_the_attempt_without_a_word(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    daemon = start()
    server.upload_answers = [refusal(409, "lease_lost", "lease lost")]
    await server.add_task(script=["echo x > out.txt"], outputs=[server.output("out.txt")])
    await server.until(lambda: not server.upload_answers)
    await server.until(lambda: bool(server.exchanges) and not server.exchanges[-1]["holds"])
    assert server.reports == []
    daemon.drain("test")
    await daemon.task  # type: ignore[attr-defined]
    assert list((tmp_path / "work").rglob("out.txt")) == []
    assert [r["attempt"] for r in server.reports if r["outcome"] != "released"] == []


async def test_a_refused_output_is_a_failure_with_the_servers_words(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    server.upload_answers = [refusal(413, "too_large", "the output is too large")]
    [work] = await server.add_task(script=["echo x > out.txt"], outputs=[server.output("out.txt")])
    report = await server.result(work)
    assert report["kind"] == "output"
    assert "the output is too large" in report["message"]


async def test_attributes_of_an_output_are_stored(server: FakeServer, start: MakeDaemon) -> None:
    start()
    out = server.output("out.txt", attrfile="attr.json")
    [work] = await server.add_task(script=["echo x > out.txt; echo '{\"a\": 1}' > attr.json"], outputs=[out])
    assert (await server.result(work))["outcome"] == "done"
    assert b'{"a": 1}' in server.attributes[out["node"]]


async def test_F_13_a_full_disk_is_no_success_and_stops_the_asking(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [10**9]
    monkeypatch.setattr("awe_client.daemon.work_disk.free_disk", lambda path: free[0])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    start(free_floor_bytes=10**6)
    monkeypatch.setattr("awe_client.sdk.download.Download._take", full)
    [work] = await server.add_task(inputs=[server.input("in.txt", b"x")])
    report = await server.result(work)
    assert report["kind"] == "node"
    assert "no space left" in report["message"]
    free[0] = 0
    [work] = await server.add_task()
    await server.until(lambda: any("disk nearly full" in x.get("trouble", "") for x in server.exchanges))
    assert server.exchanges[-1]["want"] == 0


async def test_an_interrupted_upload_is_sent_again_and_counts_once(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(3_000_000)
    out = server.output("out.bin")
    [work] = await server.add_task(
        script=["cp in.bin out.bin"], inputs=[server.input("in.bin", data)], outputs=[out]
    )
    with CuttingProxy(server.url, up=[1_000_000] * 40) as proxy:
        monkeypatch.setitem(Patience.__init__.__kwdefaults__, "base_s", 0.01)  # type: ignore[arg-type]
        start(servers=(proxy.url,))
        report = await server.result(work, 30)
        assert proxy.cuts >= 2
    assert report["outcome"] == "done"
    assert server.uploads == {(out["node"], work, 1): data}
    assert report["outputs"][0]["md5"] == hashlib.md5(data, usedforsecurity=False).hexdigest()


async def test_an_upload_survives_an_internal_error_of_the_server(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    server.upload_answers = [refusal(500, "internal", "incident 1")]
    [work] = await server.add_task(script=["echo x > out.txt"], outputs=[server.output("out.txt")])
    assert (await server.result(work))["outcome"] == "done"


async def test_inputs_of_a_shock_and_of_a_shared_file_system(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "ref.txt").write_text("reference\n")
    data = b"".join(b"line %d\n" % i for i in range(300_000))
    with ShockServer(tmp_path / "shock") as shock:
        node = shock.add(data)
        place = {"host": shock.url, "node": node, "url": shock.node_url(node)}
        inputs = [
            {"filename": "whole.txt", **place, "size": len(data)},
            {"filename": "in.txt", **place},
            {"filename": "ref.txt", "url": f"file://{shared}/ref.txt", "size": 10},
        ]
        predata = [{"filename": "db.txt", "url": f"file://{shared}/ref.txt"}]
        start(file_roots=(str(shared),))
        works = await server.add_task(
            script=["wc -c < whole.txt; cat ref.txt; readlink ref.txt; md5sum < in.txt; readlink db.txt"],
            ranks=2,
            grants=[{"part": "1-2", "pieces": [(8, 2_000_000)]}, {"part": "2-3", "pieces": [(-1, -1)]}],
            inputs=inputs,
            predata=predata,
            part_inputs=["in.txt"],
            index="size",
        )
        texts = [(await server.result(work))["stdout_tail"].split() for work in works]
    pieces = [data[8:2_000_008], data[1048576 : 3 * 1048576]]
    for text, piece in zip(texts, pieces, strict=True):
        md5 = hashlib.md5(piece, usedforsecurity=False).hexdigest()
        ref = str(shared / "ref.txt")
        assert text == [str(len(data)), "reference", ref, md5, "-", ref]


async def test_slow_transfers_are_told_to_the_server_while_they_last(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awe_client.daemon.workshop.PROGRESS_AFTER_S", 0.1)
    monkeypatch.setattr("awe_client.daemon.daemon.PROGRESS_S", 0.1)
    server.download_delay_s = 0.05
    start()
    data = os.urandom(2_500_000)
    [work] = await server.add_task("true", inputs=[server.input("a", data), server.input("b", b"x")])
    await server.result(work)
    rows = [row for x in server.exchanges for row in x.get("progress", ())]
    assert len(rows) > 3
    assert all(row[:2] == [work, "fetching"] and row[3] == len(data) + 1 for row in rows)
    done = [row[2] for row in rows]
    assert done == sorted(done)
    assert done[0] < done[-1] <= len(data) + 1
    assert "progress" not in server.exchanges[-1]


async def test_transfers_are_bounded(server: FakeServer, start: MakeDaemon) -> None:
    server.download_delay_s = 0.02
    start(slots=8, transfers=2)
    works = []
    for i in range(6):
        works += await server.add_task("true", inputs=[server.input(f"in{i}", os.urandom(500_000))])
    for work in works:
        await server.result(work)
    assert server.most_downloads == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    with tmpfs(tmp_path / "disk", 4 << 20) as folder:
        yield folder


async def test_F_13_on_a_small_disk_nothing_is_taken_for_whole_and_room_makes_it_work_again(
    server: FakeServer, small_disk: Path
) -> None:
    daemon = Daemon(settings_for(server.url, small_disk / "w", slots=1, keep_failed_s=0.0))
    task = asyncio.ensure_future(daemon.run())
    big, zeros, out = os.urandom(10_000_000), "head -c 10000000 /dev/zero", server.output("out.bin")
    [fetched] = await server.add_task("true", inputs=[server.input("in.bin", big)])
    [printed] = await server.add_task(script=[f"{zeros}; exit 0"])
    [written] = await server.add_task(script=[f"{zeros} > out.bin; exit 0"], outputs=[out])
    for work in (fetched, printed, written):
        report = await server.result(work)
        assert (report["outcome"], report["kind"]) == ("failed", "node")
        assert "no space left" in report["message"]
    assert server.uploads == {}
    [fine] = await server.add_task("echo", "room again")
    assert (await server.result(fine))["outcome"] == "done"
    daemon.drain("test")
    assert await task == 0


async def test_directories_of_failed_attempts_stay_for_a_while_and_others_do_not(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    daemon = start()
    [good] = await server.add_task(script=["touch here; chmod 000 ."])
    [bad] = await server.add_task(script=["touch here; exit 1"])
    await server.result(good)
    await server.result(bad)
    daemon.drain("test")
    await daemon.task  # type: ignore[attr-defined]
    kept = [path.parent.name for path in (tmp_path / "work").rglob("here")]
    assert kept == [f"{bad}.1"]
