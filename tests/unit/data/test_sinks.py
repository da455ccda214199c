"""Sinks: what they do with every kind of refusal and trouble, and with a delivery that is repeated."""

import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import obstore
import pytest

from awe_server.data import objects as objects_module
from awe_server.data.downloads import ByteReader, open_reader
from awe_server.data.objects import (
    CONCURRENCY,
    MAX_OBJECT_BYTES,
    USUAL_PIECE_BYTES,
    ObjectMissing,
    Objects,
    piece_bytes,
)
from awe_server.data.root_threads import RootThreads
from awe_server.data.sinks.base import About, Content, SinkBusy, SinkRefused
from awe_server.data.sinks.http import HttpSink
from awe_server.data.sinks.objects import ObjectSink
from awe_server.data.sinks.shock import ShockSink
from awe_server.data.sinks.sinks import Sinks
from awe_server.data.sinks.web import Web
from shared_models.errors import NodeNotFound
from shared_models.limits import MIB
from tests.support.http_files import HttpFiles
from tests.support.lead import leads
from tests.support.s3 import S3Server
from tests.support.shock import ShockServer

pytestmark = pytest.mark.anyio

DATA = bytes(range(256)) * 4096 * 3


class File:
    """A whole file that is to be delivered."""

    def __init__(self, path: Path, data: bytes = DATA) -> None:
        path.write_bytes(data)
        self._path = path
        self.size = len(data)
        self.md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()

    async def chunks(self) -> ByteReader:
        return open_reader(self._path, 0, self.size)

    def damage(self) -> None:
        """Flip a bit on the disk."""
        data = bytearray(self._path.read_bytes())
        data[len(data) // 2] ^= 1
        self._path.write_bytes(data)


class Notes:
    """A memo that forgets when it is told to."""

    marker = "awe-output-1"

    def __init__(self) -> None:
        self.noted: dict[str, Any] = {}
        self.dies_at = ""
        self.error: Exception = ConnectionError("killed")

    async def read(self) -> dict[str, Any]:
        return self.noted

    async def note(self, what: dict[str, Any]) -> None:
        if self.dies_at in what:
            raise self.error
        self.noted = what


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with httpx.AsyncClient(trust_env=False) as http:
        yield Web(http, leads)


@pytest.fixture
def content(tmp_path: Path) -> File:
    return File(tmp_path / "content")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[HttpFiles]:
    (tmp_path / "web").mkdir()
    with HttpFiles(tmp_path / "web") as server:
        yield server


@pytest.fixture
def shock(tmp_path: Path) -> Iterator[ShockServer]:
    with ShockServer(tmp_path / "shock") as server:
        yield server


# ---- http


async def test_a_put_has_length_and_checksum(web: Web, files: HttpFiles, content: File) -> None:
    await HttpSink(web).deliver(files.url_of("a/b.txt"), content)
    assert (files.folder / "a" / "b.txt").read_bytes() == DATA
    headers = files.seen("PUT")[0].headers
    assert headers["content-length"] == str(len(DATA))
    assert "content-md5" in headers
    assert "transfer-encoding" not in headers


async def test_an_empty_file_is_delivered(web: Web, files: HttpFiles, tmp_path: Path) -> None:
    await HttpSink(web).deliver(files.url_of("empty"), File(tmp_path / "empty", b""))
    assert (files.folder / "empty").read_bytes() == b""


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 507])
async def test_what_may_pass_is_tried_again(web: Web, files: HttpFiles, content: File, status: int) -> None:
    files.faults.fail(status, headers={"Retry-After": "7"})
    with pytest.raises(SinkBusy, match=f"answers {status}") as caught:
        await HttpSink(web).deliver(f"{files.url_of('x')}?signature=not-a-secret", content)
    assert caught.value.retryable
    assert caught.value.fields["retry_after_s"] == 7
    assert "not-a-secret" not in caught.value.message


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 411, 413, 501])
async def test_a_refusal_is_for_good(web: Web, files: HttpFiles, content: File, status: int) -> None:
    files.faults.fail(status)
    with pytest.raises(SinkRefused, match=f"answers {status}"):
        await HttpSink(web).deliver(files.url_of("x"), content)


async def test_a_cut_upload_leaves_nothing_and_is_tried_again(
    web: Web, files: HttpFiles, content: File
) -> None:
    files.faults.cut(MIB, method="PUT")
    with pytest.raises(SinkBusy):
        await HttpSink(web).deliver(files.url_of("x"), content)
    assert not (files.folder / "x").exists()
    await HttpSink(web).deliver(files.url_of("x"), content)
    assert (files.folder / "x").read_bytes() == DATA


async def test_nobody_there_is_tried_again(web: Web, content: File) -> None:
    with pytest.raises(SinkBusy, match=r"127\.0\.0\.1:9/x"):
        await HttpSink(web).deliver("http://127.0.0.1:9/x", content)


async def test_a_put_follows_only_what_repeats_it(content: File, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        seen.append((str(request.url), len(await request.aread())))
        path = request.url.path
        if path == "/a":
            return httpx.Response(307, headers={"Location": "/b"})
        if path == "/round":
            return httpx.Response(308, headers={"Location": "/round"})
        return httpx.Response(302, headers={"Location": "/b"}) if path == "/seen" else httpx.Response(201)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        sink = HttpSink(Web(http, leads))
        await sink.deliver("http://x/a", content)
        assert seen == [("http://x/a", len(DATA)), ("http://x/b", len(DATA))]
        with pytest.raises(SinkRefused, match="answers 302"):
            await sink.deliver("http://x/seen", content)
        with pytest.raises(SinkRefused, match="leads on"):
            await sink.deliver("http://x/round", content)


async def test_a_put_is_not_led_to_what_is_no_web_address(web: Web, files: HttpFiles, content: File) -> None:
    for target in ("ftp://127.0.0.1/x", "file:///etc/passwd"):
        files.faults.fail(307, headers={"Location": target})
        with pytest.raises(SinkRefused, match=f"leads to a '{target.partition(':')[0]}:' address"):
            await HttpSink(web).deliver(files.url_of("x"), content)


async def test_an_address_without_a_host_is_a_refusal(web: Web, content: File) -> None:
    with pytest.raises(SinkRefused, match="is no address"):
        await HttpSink(web).deliver("http:///x", content)


async def test_a_file_that_was_damaged_here_is_stored_nowhere(
    web: Web, files: HttpFiles, content: File
) -> None:
    content.damage()
    with pytest.raises(SinkRefused, match="damaged on this server's disk"):
        await HttpSink(web).deliver(files.url_of("x"), content)
    assert not (files.folder / "x").exists()


# ---- Shock


ABOUT = About("out.txt", {"kind": "count"})


async def test_a_node_is_made_with_name_and_attributes(web: Web, shock: ShockServer, content: File) -> None:
    node = await ShockSink(web).deliver(shock.url, content, ABOUT, Notes())
    assert shock.content(node) == DATA
    assert (shock.nodes[node].name, shock.nodes[node].attributes) == ("out.txt", {"kind": "count"})


@pytest.mark.parametrize("dies_at", ["begun", "node"])
async def test_a_delivery_that_died_makes_no_second_node(
    web: Web, shock: ShockServer, content: File, dies_at: str
) -> None:
    memo = Notes()
    memo.dies_at = dies_at
    with pytest.raises(ConnectionError):
        await ShockSink(web).deliver(shock.url, content, ABOUT, memo)
    memo.dies_at = "nothing"
    node = await ShockSink(web).deliver(shock.url, content, ABOUT, memo)
    assert list(shock.nodes) == [node]
    assert shock.content(node) == DATA


async def test_a_file_that_is_there_already_is_not_sent_again(
    web: Web, shock: ShockServer, content: File
) -> None:
    memo = Notes()
    node = await ShockSink(web).deliver(shock.url, content, ABOUT, memo)
    assert await ShockSink(web).deliver(shock.url, content, ABOUT, memo) == node
    assert len(shock.seen("PUT")) == 1


async def test_a_cut_upload_goes_on_in_the_same_node(web: Web, shock: ShockServer, content: File) -> None:
    memo = Notes()
    shock.faults.cut(MIB, method="PUT")
    with pytest.raises(SinkBusy):
        await ShockSink(web).deliver(shock.url, content, ABOUT, memo)
    node = await ShockSink(web).deliver(shock.url, content, ABOUT, memo)
    assert list(shock.nodes) == [node]


async def test_a_node_that_was_deleted_or_holds_other_bytes_is_made_again(
    web: Web, shock: ShockServer, content: File
) -> None:
    memo = Notes()
    memo.noted = {"node": shock.add(b"other")}
    with pytest.raises(SinkBusy, match="other bytes"):
        await ShockSink(web).deliver(shock.url, content, ABOUT, memo)
    node = await ShockSink(web).deliver(shock.url, content, ABOUT, memo)
    assert list(shock.nodes) == [node]
    del shock.nodes[node]
    assert shock.content(await ShockSink(web).deliver(shock.url, content, ABOUT, memo)) == DATA


async def test_the_data_token_opens_a_shock_and_is_in_no_text(
    web: Web, shock: ShockServer, content: File
) -> None:
    shock.token = "canary-1234"
    with pytest.raises(SinkRefused, match="answers 401"):
        await ShockSink(web).deliver(shock.url, content, ABOUT, Notes())
    node = await ShockSink(web).deliver(shock.url, content, About("x", token="canary-1234"), Notes())
    assert shock.content(node) == DATA
    shock.faults.fail(403, text="no canary-1234 here")
    with pytest.raises(SinkRefused) as caught:
        await ShockSink(web).deliver(shock.url, content, About("x", token="canary-1234"), Notes())
    assert "canary" not in caught.value.message


async def test_a_shock_gets_no_file_that_was_damaged_here(
    web: Web, shock: ShockServer, content: File
) -> None:
    content.damage()
    with pytest.raises(SinkRefused, match="damaged on this server's disk"):
        await ShockSink(web).deliver(shock.url, content, ABOUT, Notes())
    assert [shock.content(node) for node in shock.nodes] == [None]


async def test_a_delivery_that_nobody_wants_any_more_leaves_no_node(
    web: Web, shock: ShockServer, content: File
) -> None:
    memo = Notes()
    memo.dies_at, memo.error = "node", NodeNotFound(node_id="its own")
    with pytest.raises(NodeNotFound):
        await ShockSink(web).deliver(shock.url, content, ABOUT, memo)
    assert not shock.nodes


@pytest.mark.parametrize("dies_at", ["begun", "node", "never"])
async def test_what_a_delivery_made_is_taken_back_also_if_it_died(
    web: Web, shock: ShockServer, content: File, dies_at: str
) -> None:
    memo = Notes()
    memo.dies_at = dies_at
    with contextlib.suppress(ConnectionError):
        await ShockSink(web).deliver(shock.url, content, ABOUT, memo)
    assert len(shock.nodes) == (dies_at != "begun")
    for _ in range(2):
        await ShockSink(web).take_back(shock.url, "", memo)
    assert not shock.nodes


async def test_a_full_shock_is_waited_for(web: Web, shock: ShockServer, content: File) -> None:
    shock.full = True
    with pytest.raises(SinkBusy, match="no space left"):
        await ShockSink(web).deliver(shock.url, content, ABOUT, Notes())


async def test_what_is_no_shock_is_refused(web: Web, files: HttpFiles, content: File) -> None:
    with pytest.raises(SinkRefused):
        await ShockSink(web).deliver(files.url, content, ABOUT, Notes())


async def test_a_node_is_removed_once(web: Web, shock: ShockServer) -> None:
    node = shock.add(b"x")
    for _ in range(2):
        await ShockSink(web).delete(f"{shock.url}/node/{node}", "")
    assert not shock.nodes


# ---- object stores


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in s3_server.env().items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.mark.parametrize("size", [0, 10, 20 * MIB])
async def test_objects_of_any_size_are_stored_and_removed(
    s3: S3Server, s3_bucket: str, tmp_path: Path, size: int
) -> None:
    data = bytes(size)
    sink = ObjectSink(Objects(), leads)
    for _ in range(2):
        await sink.deliver(f"s3://{s3_bucket}/a%20b/c", File(tmp_path / "f", data))
    assert s3.get(s3_bucket, "a b/c") == data
    assert s3.uploads(s3_bucket) == []
    for _ in range(2):
        await sink.delete(f"s3://{s3_bucket}/a%20b/c")
    assert s3.keys(s3_bucket) == []


async def test_a_bucket_that_is_not_there_is_a_refusal(s3: S3Server, content: File) -> None:
    with pytest.raises(SinkRefused, match="there is no bucket nobodys-bucket"):
        await ObjectSink(Objects(), leads).deliver("s3://nobodys-bucket/x", content)


async def test_a_store_that_is_away_is_tried_again(
    s3: S3Server, content: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(SinkBusy):
        await ObjectSink(Objects(), leads).deliver("s3://some-bucket/x", content)


async def test_a_file_that_breaks_off_here_leaves_no_object(
    s3: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    content = File(tmp_path / "f", bytes(20 * MIB))
    content.size += 1
    with pytest.raises(Exception, match="too early"):
        await ObjectSink(Objects(), leads).deliver(f"s3://{s3_bucket}/x", content)
    assert (s3.keys(s3_bucket), s3.uploads(s3_bucket)) == ([], [])


@pytest.mark.parametrize("size", [10, 20 * MIB])
async def test_an_object_that_was_damaged_here_is_stored_nowhere(
    s3: S3Server, s3_bucket: str, tmp_path: Path, size: int
) -> None:
    content = File(tmp_path / "f", bytes(size))
    content.damage()
    with pytest.raises(SinkRefused, match="damaged on this server's disk"):
        await ObjectSink(Objects(), leads).deliver(f"s3://{s3_bucket}/x", content)
    assert (s3.keys(s3_bucket), s3.uploads(s3_bucket)) == ([], [])


async def test_pieces_go_to_s3_with_checksums(s3: S3Server, s3_bucket: str, tmp_path: Path) -> None:
    await ObjectSink(Objects(), leads).deliver(f"s3://{s3_bucket}/x", File(tmp_path / "f", DATA * 4))
    assert s3.about(s3_bucket, "x")["x-amz-checksum-algorithm"] == "SHA256"


@pytest.mark.parametrize("size", [1, 75 * 10**9, 10**11, 314 * 10**9, 10**12, MAX_OBJECT_BYTES])
def test_an_upload_has_no_more_pieces_than_stores_take_and_little_in_memory(size: int) -> None:
    piece = piece_bytes(size)
    assert -(-size // piece) <= 10_000
    if piece <= USUAL_PIECE_BYTES:
        assert piece * (CONCURRENCY + 1) < 100_000_000
    else:
        assert size > 314 * 10**9
        assert piece * 2 < 1_150_000_000
    assert piece >= 5 * MIB  # S3 takes no smaller ones


async def test_pieces_larger_than_usual_are_those_of_one_upload_at_a_time(
    s3: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[int] = []
    most: list[int] = []
    put = obstore.put_async

    async def watched(*args: Any, **options: Any) -> Any:
        running.append(options["max_concurrency"])
        most.append(sum(running))
        try:
            return await put(*args, **options)
        finally:
            running.pop()

    monkeypatch.setattr(obstore, "put_async", watched)
    monkeypatch.setattr(objects_module, "PLAIN_BYTES", MIB)
    monkeypatch.setattr(objects_module, "USUAL_PIECE_BYTES", MIB)
    monkeypatch.setattr(objects_module, "piece_bytes", lambda size: 5 * MIB)
    sink = ObjectSink(Objects(), leads)
    async with anyio.create_task_group() as group:
        for i in range(3):
            group.start_soon(sink.deliver, f"s3://{s3_bucket}/{i}", File(tmp_path / f"f{i}", DATA * 4))
    assert sorted(s3.keys(s3_bucket)) == ["0", "1", "2"]
    assert most == [1, 1, 1]


async def test_what_is_too_large_for_an_object_is_a_refusal(s3: S3Server, content: File) -> None:
    content.size = MAX_OBJECT_BYTES + 1
    with pytest.raises(SinkRefused, match=r"more than one object may have here \(5497 GB\)"):
        await ObjectSink(Objects(), leads).deliver("s3://some-bucket/x", content)


async def test_connections_of_a_few_buckets_are_kept(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_module, "MAX_STORES", 2)
    objects = Objects()
    buckets = [s3.bucket() for _ in range(3)]
    for bucket in (*buckets, buckets[1], buckets[0]):
        with pytest.raises(ObjectMissing):
            await objects.head(f"s3://{bucket}/x")
    assert [bucket for _, bucket in objects._stores] == [buckets[1], buckets[0]]


# ---- all together


async def test_nothing_is_put_where_something_is_being_removed(
    content: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, go_on = anyio.Event(), anyio.Event()

    async def remove(sink: ObjectSink, url: str) -> None:
        removing.set()
        await go_on.wait()

    async def deliver(sink: ObjectSink, url: str, content: Content) -> None:
        stored.append(url)

    stored: list[str] = []
    monkeypatch.setattr(ObjectSink, "delete", remove)
    monkeypatch.setattr(ObjectSink, "deliver", deliver)
    async with httpx.AsyncClient() as http, anyio.create_task_group() as group:
        sinks = Sinks(http, RootThreads((str(tmp_path),)), leads)
        group.start_soon(sinks.remove, "s3://b/x", "")
        await removing.wait()
        await sinks.to_url("s3://b/y", content)
        with pytest.raises(SinkBusy, match="still being removed"):
            await sinks.to_url("s3://b/x", content)
        go_on.set()
        await anyio.wait_all_tasks_blocked()
        await sinks.to_url("s3://b/x", content)
    assert stored == ["s3://b/y", "s3://b/x"]
