"""Full logs: written by the holder alone, read by anybody, in pieces, while they grow."""

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from awe_server.data.log_writer import LogWriter, put_whole
from awe_server.data.logs import Log, Logs
from shared_models.errors import Conflict
from shared_models.ids import WorkunitId
from shared_models.limits import MAX_LOG_BYTES, MAX_NOTES_CHARS
from tests.api.conftest import Api
from tests.api.test_exchange import Native, native

pytestmark = pytest.mark.anyio
__all__ = ["native"]


@pytest.fixture
async def held(api: Api) -> dict[str, Any]:
    """A workunit that is held, and what its holder needs."""
    await api.submit()
    work = await api.checkout(await api.register())
    token = api.services.engine.state.workunits[WorkunitId(work["id"])].token
    return {**work, "path": f"/work/{work['id']}/log", "headers": {"Awe-Lease": token}}


async def put(api: Api, held: dict[str, Any], offset: int, content: bytes, stream: str = "stdout") -> Any:
    path = f"{held['path']}/{stream}?attempt=1&offset={offset}"
    return await api.ok("PUT", path, content=content, headers=held["headers"])


async def test_X_08_a_log_grows_in_pieces_and_is_read_by_range(api: Api, held: dict[str, Any]) -> None:
    assert (await api.http.get(f"{held['path']}/stdout")).content == b""
    assert await put(api, held, 0, b"hello ") == {"size": 6}
    assert await put(api, held, 6, b"world") == {"size": 11}
    log = await api.http.get(f"{held['path']}/stdout")
    assert log.content == b"hello world"
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    assert log.headers["x-content-type-options"] == "nosniff"
    tail = await api.http.get(f"{held['path']}/stdout", headers={"Range": "bytes=6-"})
    assert (tail.status_code, tail.content) == (206, b"world")
    assert tail.headers["content-range"] == "bytes 6-10/11"
    behind = await api.http.get(f"{held['path']}/stdout", headers={"Range": "bytes=11-"})
    assert behind.status_code == 416
    assert behind.headers["content-range"] == "bytes */11"
    assert await api.ok("GET", f"/work/{held['id']}?report=stdout") == "hello world"


async def test_a_repeated_piece_changes_nothing_and_a_hole_is_refused(api: Api, held: dict[str, Any]) -> None:
    await put(api, held, 0, b"abc")
    await put(api, held, 3, b"def")
    await put(api, held, 3, b"def")
    path = f"{held['path']}/stdout?attempt=1&offset=10"
    await api.refused("PUT", path, 409, "conflict", content=b"x", headers=held["headers"])
    assert (await api.http.get(f"{held['path']}/stdout")).content == b"abcdef"


async def test_only_the_holder_writes(api: Api, held: dict[str, Any]) -> None:
    path = f"{held['path']}/stdout?attempt=1"
    await api.refused("PUT", path, 409, "lease_lost", content=b"x", headers={"Awe-Lease": "wrong"})
    await api.refused("PUT", path, 400, "invalid_request", content=b"x")
    other = f"{held['path']}/stdout?attempt=2"
    await api.refused("PUT", other, 409, "lease_lost", content=b"x", headers=held["headers"])
    await api.report(held)
    await api.refused("PUT", path, 409, "lease_lost", content=b"x", headers=held["headers"])
    assert (await api.http.get(f"{held['path']}/stdout")).content == b""


async def test_a_log_is_bounded(api: Api, held: dict[str, Any]) -> None:
    await put(api, held, 0, b"x" * MAX_LOG_BYTES)
    path = f"{held['path']}/stdout?attempt=1&offset={MAX_LOG_BYTES}"
    await api.refused("PUT", path, 413, "too_large", content=b"x", headers=held["headers"])


@pytest.mark.parametrize("name", ["passwd", "stdout.1", "..%2f..%2fx"])
async def test_other_names_are_refused(api: Api, held: dict[str, Any], name: str) -> None:
    reply = await api.http.get(f"{held['path']}/{name}")
    assert reply.status_code in (400, 404)


async def test_each_attempt_keeps_its_own_log(api: Api) -> None:
    await api.submit()
    clients = [await api.register("a"), await api.register("b")]
    for client, text in zip(clients, (b"first", b"second"), strict=True):
        work = await api.checkout(client)
        path = f"/work/{work['id']}?status=fail&client={client['id']}"
        await api.ok("PUT", path, files={"stderr": ("e", text)})
    log = f"/work/{work['id']}/log/stderr"
    assert (await api.http.get(log)).content == b"second"
    assert (await api.http.get(f"{log}?attempt=1")).content == b"first"


async def test_odd_task_names_do_not_become_paths(api: Api) -> None:
    name = "a" * 250
    job = await api.submit({"taskid": name, "cmd": {"name": "x"}})
    work = await api.checkout(await api.register())
    await api.ok(
        "PUT", f"/work/{work['id']}?status=done&client={work['client']}", files={"stdout": ("o", b"hi")}
    )
    assert (await api.http.get(f"/work/{work['id']}/log/stdout")).content == b"hi"
    folders = [path.name for path in api.services.logs_dir.iterdir()]
    assert folders == [job["id"]]


@pytest.mark.parametrize(
    ("live", "tail", "kept"),
    [
        (b"line 1\n", b"line 1\nline 2\n", b"line 1\nline 2\n"),
        ("g\u00fcn".encode()[:2], "g\u00fcn".encode(), "g\u00fcn".encode()),
        (b"all \xff of it", "all \ufffd of it".encode(), b"all \xff of it"),
        (b"x" * 100, b"x" * 10, b"x" * 100),
    ],
)
async def test_what_a_live_log_lacks_comes_with_the_report(
    api: Api, held: dict[str, Any], live: bytes, tail: bytes, kept: bytes
) -> None:
    await put(api, held, 0, live)
    client = await api.ok("GET", f"/client/{held['client']}")
    path = f"/work/{held['id']}?status=done&client={client['id']}&report"
    await api.ok("PUT", path, files={"stdout": ("out", tail)})
    assert (await api.http.get(f"{held['path']}/stdout")).content == kept


def all_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def files(api: Api) -> dict[str, bytes]:
    """Everything in the folder of logs."""
    return all_files(api.services.logs_dir)


class Disk:
    """Takes so many bytes of each file in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.room = 1 << 40
        self._write = os.write

    def write(self, descriptor: int, data: bytes) -> int:
        if not Path(os.readlink(f"/proc/self/fd/{descriptor}")).is_relative_to(self.folder):
            return self._write(descriptor, data)
        fits = data[: max(0, self.room - os.lseek(descriptor, 0, os.SEEK_CUR))]
        if not fits:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._write(descriptor, fits)


@pytest.fixture
def disk(api: Api, monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk(api.services.logs_dir)
    monkeypatch.setattr("awe_server.data.log_writer.os.write", found.write)
    return found


NO_SPACE = "was not kept: no space left on the server's disk"


async def test_F_13_a_full_disk_leaves_no_empty_log(api: Api, held: dict[str, Any], disk: Disk) -> None:
    disk.room = 3
    path = f"/work/{held['id']}?status=done&client={held['client']}&report"
    printed = {"stdout": ("o", b"printed"), "stderr": ("e", b"err"), "notes": ("n", b"fine")}
    await api.ok("PUT", path, files=printed)
    assert files(api) == {f"{held['id']}.1.stderr": b"err"}, "the others are tried"
    work = await api.ok("GET", f"/work/{held['id']}")
    assert (work["state"], work["notes"]) == ("completed", f"fine; stdout {NO_SPACE}")
    report = await api.ok("GET", f"/job/{held['jobid']}?report")
    [unit] = report["tasks"][0]["workunits"]
    assert unit["logs"] == {"stdout": "", "stderr": "err", "worknotes": ""}
    assert unit["notes"] == work["notes"]


async def test_F_13_each_report_of_an_exchange_says_what_of_it_is_missing(
    api: Api, native: Native, disk: Disk
) -> None:
    await api.submit({"taskid": "0", "cmd": {"name": "x"}, "totalwork": 3})
    grants = await native.take(3)
    disk.room = 5
    ends: list[dict[str, Any]] = [
        {"stdout_tail": "too long", "stderr_tail": "too long"},
        {"stdout_tail": "short"},
        {"outcome": "failed", "kind": "command", "message": "x" * 5000, "stderr_tail": "too long"},
    ]
    reports = [native.report(grant, **end) for grant, end in zip(grants, ends, strict=True)]
    reply = await native.exchange(reports=reports)
    assert [row["result"] for row in reply["results"]] == ["accepted"] * 3
    first, second, third = [(await api.ok("GET", f"/work/{grant['id']}"))["notes"] for grant in grants]
    assert (first, second) == (f"stdout {NO_SPACE}; stderr {NO_SPACE}", "")
    assert third.endswith(f"xxx; stderr {NO_SPACE}")
    assert len(third) == MAX_NOTES_CHARS
    assert files(api) == {f"{grants[1]['id']}.1.stdout": b"short"}


async def test_F_13_a_log_that_finds_no_room_is_as_it_was_and_may_be_sent_again(
    api: Api, held: dict[str, Any], disk: Disk
) -> None:
    async def no_room(offset: int, content: bytes) -> None:
        reply = await api.http.put(
            f"{held['path']}/stdout?attempt=1&offset={offset}", content=content, headers=held["headers"]
        )
        assert (reply.status_code, reply.json()["code"]) == (507, "no_space")
        assert int(reply.headers["retry-after"]) > 0

    name, disk.room = f"{held['id']}.1.stdout", 4
    await no_room(0, b"hello ")
    assert files(api) == {}
    disk.room = 100
    await put(api, held, 0, b"hello ")
    disk.room = 8
    for offset, content in ((6, b"world"), (3, b"LO WORLD"), (0, b"all of it")):
        await no_room(offset, content)
        assert files(api) == {name: b"hello "}
    disk.room = 100
    assert await put(api, held, 6, b"world") == {"size": 11}
    assert files(api) == {name: b"hello world"}


async def test_F_13_a_longer_tail_that_finds_no_room_leaves_what_was_sent_before(
    api: Api, held: dict[str, Any], disk: Disk
) -> None:
    await put(api, held, 0, b"line 1\n")
    disk.room = 10
    path = f"/work/{held['id']}?status=done&client={held['client']}&report"
    await api.ok("PUT", path, files={"stdout": ("out", b"line 1\nline 2\n")})
    assert files(api) == {f"{held['id']}.1.stdout": b"line 1\n"}
    assert (await api.ok("GET", f"/work/{held['id']}"))["notes"] == f"stdout {NO_SPACE}"


async def test_F_13_an_output_that_is_missing_does_not_hide_a_log_that_is(api: Api, disk: Disk) -> None:
    await api.submit({"taskid": "0", "cmd": {"name": "x"}, "outputs": [{"filename": "o"}]})
    work = await api.checkout(await api.register())
    disk.room = 0
    path = f"/work/{work['id']}?status=done&client={work['client']}&report"
    await api.ok("PUT", path, files={"stdout": ("out", b"printed")})
    notes = (await api.ok("GET", f"/work/{work['id']}"))["notes"]
    assert notes == f"output o: nothing was uploaded; stdout {NO_SPACE}"


async def test_another_trouble_of_the_disk_is_not_called_a_full_one(
    api: Api, held: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int, data: bytes) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr("awe_server.data.log_writer._write", broken)
    path = f"{held['path']}/stdout?attempt=1&offset=0"
    await api.refused("PUT", path, 500, "internal", content=b"x", headers=held["headers"])
    assert files(api) == {}


async def test_a_log_that_cannot_be_kept_refuses_no_report(api: Api, held: dict[str, Any]) -> None:
    api.services.logs_dir.parent.mkdir(exist_ok=True)
    api.services.logs_dir.write_text("in the way")
    path = f"/work/{held['id']}?status=done&client={held['client']}&report"
    await api.ok("PUT", path, files={"stdout": ("out", b"printed")})
    work = await api.ok("GET", f"/work/{held['id']}")
    assert work["state"] == "completed"
    assert work["notes"] == "stdout was not kept: the server cannot write it (Not a directory)"


@pytest.mark.parametrize("offset", [0, 1, 3])
async def test_a_piece_that_breaks_off_leaves_the_log_as_it_was(tmp_path: Path, offset: int) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"some of it"
        raise ConnectionError

    logs, log = Logs(tmp_path), Log(WorkunitId("job_t_0"), 1, "stdout")
    put_whole(logs.path(log), b"abc")
    with pytest.raises(ConnectionError):
        await logs.write(log, offset, chunks())
    assert all_files(tmp_path) == {"job_t_0.1.stdout": b"abc"}


@pytest.mark.parametrize(("begun", "is_whole"), [(b"", False), (b"de", False), (b"de", True)])
def test_a_sender_that_was_given_up_does_not_touch_what_its_successor_wrote(
    tmp_path: Path, begun: bytes, is_whole: bool
) -> None:
    log = tmp_path / "log"
    put_whole(log, b"abc")
    before, after = LogWriter(log, 3), LogWriter(log, 3)
    if begun:
        before.write(begun)
    after.write(b"def")
    after.finish()
    before.finish() if is_whole else before.abort()
    assert log.read_bytes() == b"abcdef"
    with pytest.raises(Conflict, match="offset 7 leaves a hole"):
        LogWriter(log, 7).write(b"x")
    assert os.listdir(tmp_path) == ["log"]


async def test_finished_work_waits_for_nothing(api: Api, held: dict[str, Any]) -> None:
    await api.report(held)
    await api.state_of({"id": held["jobid"]}, "completed")
    assert await api.ok("GET", f"/work/{held['id']}?why") == []


async def test_finished_work_of_a_job_that_runs_waits_for_nothing_and_shows_its_log(api: Api) -> None:
    job = await api.submit({"taskid": "0", "cmd": {"name": "true"}, "totalwork": 2})
    work = await api.checkout(client := await api.register())
    path = f"/work/{work['id']}"
    query = {"status": "done", "client": client["id"], "report": "1"}
    await api.ok("PUT", path, params=query, files={"stdout": ("out", b"printed")})
    assert await api.ok("GET", f"{path}?why") == []
    assert (await api.http.get(f"{path}/log/stdout")).text == "printed"
    assert await api.ok("GET", f"{path}?report=stdout") == "printed"
    assert (await api.ok("GET", f"/job/{job['id']}"))["state"] == "in-progress"
