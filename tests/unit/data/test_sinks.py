"""Sinks: what they do with every kind of refusal and trouble, and with a delivery that is repeated."""

import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from awe_server.data.downloads import ByteReader, open_reader
from awe_server.data.objects import Objects
from awe_server.data.sinks.base import About, SinkBusy, SinkRefused
from awe_server.data.sinks.http import HttpSink
from awe_server.data.sinks.objects import ObjectSink
from awe_server.data.sinks.shock import ShockSink
from awe_server.data.sinks.web import Web
from shared_models.limits import MIB
from tests.support.http_files import HttpFiles
from tests.support.s3 import S3Server, s3_bucket, s3_server
from tests.support.shock import ShockServer

__all__ = ["s3_bucket", "s3_server"]

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


class Notes:
    """A memo that forgets when it is told to."""

    marker = "awe-output-1"

    def __init__(self) -> None:
        self.noted: dict[str, Any] = {}
        self.dies_at = ""

    async def read(self) -> dict[str, Any]:
        return self.noted

    async def note(self, what: dict[str, Any]) -> None:
        if self.dies_at in what:
            raise ConnectionError("killed")
        self.noted = what


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with httpx.AsyncClient(trust_env=False) as http:
        yield Web(http)


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
        sink = HttpSink(Web(http))
        await sink.deliver("http://x/a", content)
        assert seen == [("http://x/a", len(DATA)), ("http://x/b", len(DATA))]
        with pytest.raises(SinkRefused, match="answers 302"):
            await sink.deliver("http://x/seen", content)
        with pytest.raises(SinkRefused, match="leads on"):
            await sink.deliver("http://x/round", content)


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
    sink = ObjectSink(Objects())
    for _ in range(2):
        await sink.deliver(f"s3://{s3_bucket}/a%20b/c", File(tmp_path / "f", data))
    assert s3.get(s3_bucket, "a b/c") == data
    assert s3.uploads(s3_bucket) == []
    for _ in range(2):
        await sink.delete(f"s3://{s3_bucket}/a%20b/c")
    assert s3.keys(s3_bucket) == []


async def test_a_bucket_that_is_not_there_is_a_refusal(s3: S3Server, content: File) -> None:
    with pytest.raises(SinkRefused, match="there is no bucket nobodys-bucket"):
        await ObjectSink(Objects()).deliver("s3://nobodys-bucket/x", content)


async def test_a_store_that_is_away_is_tried_again(
    s3: S3Server, content: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(SinkBusy):
        await ObjectSink(Objects()).deliver("s3://some-bucket/x", content)


async def test_a_file_that_breaks_off_here_leaves_no_object(
    s3: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    content = File(tmp_path / "f", bytes(20 * MIB))
    content.size += 1
    with pytest.raises(Exception, match="too early"):
        await ObjectSink(Objects()).deliver(f"s3://{s3_bucket}/x", content)
    assert (s3.keys(s3_bucket), s3.uploads(s3_bucket)) == ([], [])
