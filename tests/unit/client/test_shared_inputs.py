"""What attempts have in common is fetched once, and none of them can spoil it for the others."""

import asyncio
import errno
import gzip
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from awe_client.daemon import looks
from awe_client.daemon.copies import IsStopped
from awe_client.daemon.fetch import Fetcher
from awe_client.daemon.unpack import Refused, unpack
from shared_models.versions import file_version
from tests.support.eventually import eventually
from tests.support.fake_server import FakeServer
from tests.support.http_files import HttpFiles
from tests.support.tmpfs import fill, tmpfs
from tests.unit.client.conftest import MakeDaemon
from tests.unit.client.test_archive import made

pytestmark = pytest.mark.anyio

IN_PLACE = ["cat in.txt; echo changed >> in.txt; test ! -L in.txt"]


async def texts_of(server: FakeServer, works: list[str]) -> list[str]:
    reports = [await server.result(work) for work in works]
    assert {report["outcome"] for report in reports} == {"done"}, reports
    return [report["stdout_tail"] for report in reports]


async def test_ranks_of_an_array_fetch_a_file_once_and_may_change_their_copies(
    server: FakeServer, start: MakeDaemon
) -> None:
    start(slots=4)
    entry = server.input("in.txt", b"shared\n")
    works = await server.add_task(script=IN_PLACE, ranks=12, inputs=[entry])
    assert set(await texts_of(server, works)) == {"shared\n"}
    assert server.gets(entry) == 1


async def test_what_is_here_already_is_taken_by_other_tasks_and_what_one_reads_alone_is_not_kept(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    start()
    alone, entry = server.input("alone.txt", b"alone\n"), server.input("in.txt", b"shared\n")
    await texts_of(server, await server.add_task("cat", "alone.txt", inputs=[alone]))
    assert list((tmp_path / "work" / "cache").iterdir()) == []
    await texts_of(server, await server.add_task(script=IN_PLACE, ranks=2, inputs=[entry]))
    same = {**entry, "url": "/node/elsewhere?download"}
    assert await texts_of(server, await server.add_task(script=IN_PLACE, inputs=[same])) == ["shared\n"]
    assert server.gets(entry) == 1


@pytest.mark.parametrize("given_as", ["predata", "inputs"])
async def test_predata_and_inputs_marked_cache_are_links_to_one_read_only_file(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, given_as: str
) -> None:
    start()
    entry = server.input("ref/db.txt", b"reference\n", cache=given_as == "inputs")
    for _ in range(2):
        files: dict[str, Any] = {given_as: [entry]}
        script = ["readlink ref/db.txt; stat -Lc %a ref/db.txt; cat ref/db.txt"]
        [work] = await server.add_task(script=script, **files)
        [text] = await texts_of(server, [work])
        [kept] = (tmp_path / "work" / "cache").iterdir()
        assert text == f"{kept}\n444\nreference\n"
    assert server.gets(entry) == 1


@pytest.mark.parametrize("is_unpacked", [False, True])
async def test_a_command_that_writes_through_its_link_spoils_nothing_for_later_ones(
    server: FakeServer, start: MakeDaemon, is_unpacked: bool
) -> None:
    start(slots=1)
    data = gzip.compress(b"reference\n") if is_unpacked else b"reference\n"
    entry = server.input("db.txt", data, uncompress="gzip" if is_unpacked else "")
    script = ["cat db.txt; chmod u+w $(readlink db.txt); echo spoilt >> db.txt"]
    for count in (1, 2):
        [work] = await server.add_task(script=script, predata=[entry])
        report = await server.result(work)
        assert (report["kind"], report["stdout_tail"]) == ("node", "reference\n")
        assert report["out_of_reach"], "the client is fine"
        assert server.gets(entry) == count
    assert await texts_of(server, await server.add_task("cat", "db.txt", predata=[entry])) == ["reference\n"]


def waits_for(path: Path) -> str:
    return f"until [ -e {path} ]; do sleep 0.02; done"


@pytest.mark.parametrize("end", ["exit 0", "exit 42", "kill -BUS $$"])
async def test_a_command_whose_reference_another_one_changed_meanwhile_has_not_done_well(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, end: str
) -> None:
    start(slots=2)
    entry, out = server.input("db.txt", b"reference\n"), server.output("out.txt")
    reading, written = tmp_path / "reading", tmp_path / "written"
    reads = f"touch {reading}; {waits_for(written)}; cat db.txt | tee out.txt; {end}"
    writes = f"{waits_for(reading)}; chmod u+w $(readlink db.txt); echo otherwise > db.txt; touch {written}"
    [reader] = await server.add_task(script=[reads], predata=[entry], outputs=[out])
    [writer] = await server.add_task(script=[writes], predata=[entry])
    for work in (reader, writer):
        report = await server.result(work)
        assert (report["outcome"], report["kind"], report["out_of_reach"]) == ("failed", "node", True)
        assert report["message"].startswith("db.txt was changed in this client's cache while the command ran")
    assert server.uploads == {}
    again = await server.add_task("cat", "db.txt", predata=[entry])
    assert await texts_of(server, again) == ["reference\n"]
    assert server.gets(entry) == 2


async def test_another_mode_or_name_of_a_reference_file_harms_nobody(
    server: FakeServer, start: MakeDaemon
) -> None:
    start(slots=1)
    entry = server.input("db.txt", b"reference\n")
    script = ["cat db.txt; chmod u+w db.txt; ln $(readlink db.txt) mine"]
    for _ in range(2):
        assert await texts_of(server, await server.add_task(script=script, predata=[entry])) == [
            "reference\n"
        ]
    assert server.gets(entry) == 1


@pytest.mark.parametrize("is_versioned", [False, True])
@pytest.mark.parametrize("harm", ["append", "replace", "remove"])
async def test_a_shared_file_must_be_the_same_before_and_after_the_command(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, harm: str, is_versioned: bool
) -> None:
    shared, reading, changed = tmp_path / "shared", tmp_path / "reading", tmp_path / "changed"
    shared.mkdir()
    file = shared / "ref.txt"
    file.write_text("reference\n")
    start(file_roots=(str(shared),))
    entry: dict[str, Any] = {"filename": "in.txt", "url": f"file://{file}"}
    if is_versioned:
        entry |= {"etag": file_version(file.stat())}
    out = server.output("out.txt")
    script = [f"cp in.txt out.txt; touch {reading}; {waits_for(changed)}"]
    [work] = await server.add_task(script=script, inputs=[entry], outputs=[out])
    await eventually(reading.exists)
    if harm == "append":
        with file.open("a") as opened:
            opened.write("more\n")
    elif harm == "replace":
        (shared / "new").write_text("preferred\n")
        (shared / "new").rename(file)
    else:
        file.unlink()
    changed.touch()
    report = await server.result(work)
    assert (report["outcome"], report["kind"]) == ("failed", "input")
    assert f"in.txt: the shared file {file} was changed or removed" in report["message"]
    assert server.uploads == {}


async def test_a_shared_file_that_stays_as_it_is_is_fine(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/ref.txt").write_text("reference\n")
    start(file_roots=(str(tmp_path / "shared"),))
    entry = {"filename": "in.txt", "url": f"file://{tmp_path}/shared/ref.txt"}
    works = await server.add_task("cat", "in.txt", ranks=3, inputs=[entry])
    assert set(await texts_of(server, works)) == {"reference\n"}


@pytest.mark.parametrize(("times", "outcome"), [(2, "done"), (99, "failed")])
@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO, errno.ESTALE, errno.EACCES, errno.ETIMEDOUT])
async def test_a_shared_file_that_cannot_be_read_afterwards_has_not_changed(
    server: FakeServer,
    start: MakeDaemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: int,
    times: int,
    outcome: str,
) -> None:
    def version(_: object) -> str:
        looked.append(error)
        if 1 < len(looked) <= times + 1:
            raise OSError(error, os.strerror(error))
        return "the same"

    looked: list[int] = []
    monkeypatch.setattr(looks, "file_version", version)
    monkeypatch.setattr(looks, "LOOK_PAUSE_S", 0.001)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/ref.txt").write_text("reference\n")
    start(file_roots=(str(tmp_path / "shared"),))
    entry = {"filename": "in.txt", "url": f"file://{tmp_path}/shared/ref.txt"}
    [work] = await server.add_task("cat", "in.txt", inputs=[entry])
    report = await server.result(work)
    assert report["outcome"] == outcome
    if outcome == "failed":
        assert (report["kind"], report["out_of_reach"]) == ("node", True)
        assert f"{tmp_path}/shared/ref.txt cannot be read: {os.strerror(error).lower()}" in report["message"]


async def test_no_thread_is_begun_to_look_at_links_of_which_none_is_of_a_shared_file(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "file_work", None)
    start()
    [work] = await server.add_task("cat", "db.txt", predata=[server.input("db.txt", b"reference\n")])
    assert await texts_of(server, [work]) == ["reference\n"]


async def test_a_look_at_files_that_hang_holds_up_no_release(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = asyncio.Event()

    async def hangs(*_: object) -> None:
        looking.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Fetcher, "spoilt", hangs)
    daemon = start()
    [work] = await server.add_task("true", predata=[server.input("db.txt", b"x")])
    await looking.wait()
    daemon.release("test")
    assert (await server.result(work))["outcome"] == "released"


async def test_an_unpacked_file_is_kept_unpacked(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    start()
    entry = server.input("in.txt", gzip.compress(b"plain\n"), uncompress="gzip")
    works = await server.add_task("cat", "in.txt", ranks=4, inputs=[entry])
    assert set(await texts_of(server, works)) == {"plain\n"}
    [kept] = (tmp_path / "work" / "cache").iterdir()
    assert kept.read_bytes() == b"plain\n"
    assert server.gets(entry) == 1


async def test_an_archive_that_all_ranks_unpack_is_fetched_once(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    archive = server.input("out/", made(("out/a", tarfile.REGTYPE, "a\n")))
    works = await server.add_task("cat", "out/a", ranks=4, inputs=[archive])
    assert set(await texts_of(server, works)) == {"a\n"}
    assert server.gets(archive) == 1


@pytest.mark.parametrize("is_refused", [False, True])
async def test_what_came_out_of_an_archive_that_changed_meanwhile_is_not_used(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    def spoils(is_stopped: IsStopped, archive: Path, directory: Path, name: str) -> set[str]:
        names = unpack(is_stopped, archive, directory, name)
        if not spoilt:
            spoilt.append(archive)
            os.truncate(archive, 5000)
            if is_refused:
                raise Refused("it is not a whole tar")
        return names

    spoilt: list[Path] = []
    monkeypatch.setattr("awe_client.daemon.fetch.unpack", spoils)
    start(slots=1, transfers=1)
    archive = server.input("out/", made(("out/a", tarfile.REGTYPE, "a\n")))
    first, *others = await server.add_task("cat", "out/a", ranks=3, inputs=[archive])
    report = await server.result(first)
    assert (report["outcome"], report["kind"], report["out_of_reach"]) == ("failed", "node", True)
    assert report["message"].startswith("out/ was changed in this client's cache while it was unpacked")
    assert set(await texts_of(server, others)) == {"a\n"}
    assert server.gets(archive) == 2


async def test_a_file_that_nothing_tells_apart_from_its_next_version_is_shared_within_its_job_only(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    start()
    with HttpFiles(tmp_path / "www") as files:
        entry = {"filename": "in.txt", "url": files.put("in.txt", b"old\n")}
        first = await server.add_task("cat", "in.txt", ranks=3, inputs=[entry])
        assert set(await texts_of(server, first)) == {"old\n"}
        files.put("in.txt", b"new\n")
        same_job = await server.add_task("cat", "in.txt", ranks=3, inputs=[entry])
        assert set(await texts_of(server, same_job)) == {"old\n"}
        other_job = await server.add_task("cat", "in.txt", ranks=3, inputs=[entry], jobid="another")
        assert set(await texts_of(server, other_job)) == {"new\n"}
        versioned = await server.add_task("cat", "in.txt", ranks=3, inputs=[{**entry, "etag": '"?"'}])
        assert {(await server.result(work))["kind"] for work in versioned} == {"input"}


async def test_a_file_larger_than_the_cache_is_fetched_without_it(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    start(cache_bytes=1000)
    data = b"reference\n" * 200
    entry, shared = server.input("in.txt", data), server.input("db.txt", data)
    works = await server.add_task(
        script=["wc -c < in.txt; stat -c %a db.txt; cmp in.txt db.txt"],
        ranks=3,
        inputs=[entry],
        predata=[shared],
    )
    assert set(await texts_of(server, works)) == {"2000\n444\n"}
    assert (server.gets(entry), server.gets(shared)) == (3, 3)
    assert list((tmp_path / "work" / "cache").iterdir()) == []


async def test_links_stay_good_while_they_are_in_use_and_go_afterwards(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    start(slots=2, cache_bytes=15_000)
    first, second = server.input("a", bytes(10_000)), server.input("b", bytes(range(250)) * 40)
    go_on, folder = tmp_path / "go-on", tmp_path / "work" / "cache"
    [waits] = await server.add_task(
        script=[f"while [ ! -e {go_on} ]; do sleep 0.05; done; wc -c < a"], predata=[first]
    )
    await eventually(lambda: server.gets(first) == 1)
    [work] = await server.add_task("wc", "-c b", predata=[second])
    await texts_of(server, [work])
    assert len(list(folder.iterdir())) == 1
    go_on.touch()
    assert await texts_of(server, [waits]) == ["10000\n"]
    await texts_of(server, await server.add_task("wc", "-c b", predata=[second]))
    assert [path.name.startswith(f"md5-{second['md5']}") for path in folder.iterdir()] == [True]


async def test_a_short_disk_takes_back_what_the_cache_keeps_before_work_is_refused(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    floor = 1 << 20
    with tmpfs(tmp_path / "work", 16 << 20) as disk:
        daemon = start(free_floor_bytes=floor)
        entry = server.input("db", os.urandom(8 << 20))
        await texts_of(server, await server.add_task("true", predata=[entry]))
        fill(disk, leave_bytes=floor // 2)
        await texts_of(server, await server.add_task("true"))
        await eventually(lambda: not list((disk / "cache").iterdir()))
        assert not any(x.get("trouble") for x in server.exchanges)
        # What an attempt is about to fetch makes room for itself.
        (disk / ".ballast").unlink()
        await texts_of(server, await server.add_task("true", predata=[entry]))
        other = server.input("db", os.urandom(12 << 20))
        await texts_of(server, await server.add_task("true", inputs=[other]))
        assert server.gets(other) == 1
        daemon.release("the disk goes")
        await daemon.task  # type: ignore[attr-defined]
