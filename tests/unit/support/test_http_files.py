"""The file server of tests: it does what such servers do, and fails as it is told."""

import base64
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.eventually import eventually_sync
from tests.support.faults import ALWAYS
from tests.support.http_files import HttpFiles

DATA = bytes(range(256)) * 1024


@pytest.fixture
def files(tmp_path: Path) -> Iterator[HttpFiles]:
    with HttpFiles(tmp_path / "files") as server:
        yield server


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=10, trust_env=False) as client:
        yield client


def test_a_file_comes_with_its_length_and_validators(files: HttpFiles, http: httpx.Client) -> None:
    url = files.put("deep/er.txt", DATA)
    reply, head = http.get(url), http.head(url)
    assert (reply.status_code, reply.content) == (200, DATA)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("etag", "last-modified", "accept-ranges", "content-length"):
        assert reply.headers[name] == head.headers[name]
    assert http.get(files.url_of("other")).status_code == 404


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [("0-9", 0, 10), ("100-", 100, None), ("-7", -7, None), ("9-9999999", 9, None)],
)
def test_ranges(files: HttpFiles, http: httpx.Client, asked: str, start: int, stop: int | None) -> None:
    reply = http.get(files.put("f", DATA), headers={"Range": f"bytes={asked}"})
    assert (reply.status_code, reply.content) == (206, DATA[start:stop])
    first = len(DATA) + start if start < 0 else start
    assert reply.headers["content-range"] == f"bytes {first}-{first + len(reply.content) - 1}/{len(DATA)}"


def test_a_range_behind_the_end_is_refused(files: HttpFiles, http: httpx.Client) -> None:
    reply = http.get(files.put("f", b"abc"), headers={"Range": "bytes=3-"})
    assert (reply.status_code, reply.headers["content-range"]) == (416, "bytes */3")


def test_validators_tell_a_changed_file(files: HttpFiles, http: httpx.Client) -> None:
    old = http.get(files.put("f", DATA)).headers["etag"]
    url = files.put("f", DATA[::-1])
    new = http.get(url).headers["etag"]
    part = {"Range": "bytes=0-9"}
    assert new != old
    assert http.get(url, headers=part | {"If-Match": old}).status_code == 412
    assert http.get(url, headers=part | {"If-Match": new}).status_code == 206
    assert http.get(url, headers=part | {"If-Range": old}).status_code == 200
    assert http.get(url, headers=part | {"If-Range": new}).status_code == 206
    assert http.get(url, headers={"If-None-Match": new}).status_code == 304


def test_servers_without_ranges_lengths_validators_or_head(files: HttpFiles, http: httpx.Client) -> None:
    url = files.put("f", DATA)
    files.ranges = files.lengths = files.etags = files.dates = files.heads = False
    reply = http.get(url, headers={"Range": "bytes=0-9", "If-Match": '"x"'})
    assert (reply.status_code, reply.content) == (200, DATA)
    assert not {"content-length", "etag", "last-modified", "accept-ranges"} & set(reply.headers)
    assert http.head(url).status_code == 403


def test_a_body_is_cut_where_it_was_asked_for(files: HttpFiles, http: httpx.Client) -> None:
    url = files.put("f", DATA)
    for lengths in (True, False):
        files.lengths = lengths
        files.faults.cut(70_000, times=2)
        for _ in range(2):
            got = b""
            with pytest.raises(httpx.RemoteProtocolError), http.stream("GET", url) as reply:  # noqa: PT012
                for piece in reply.iter_raw():
                    got += piece
            assert got == DATA[:70_000]
        assert http.get(url).content == DATA


def test_the_file_changes_between_two_requests(files: HttpFiles, http: httpx.Client) -> None:
    url = files.put("f", DATA)
    files.replace_after("f", 1, b"new")
    first = http.get(url)
    again = http.get(url, headers={"Range": "bytes=10-", "If-Match": first.headers["etag"]})
    assert (first.content, again.status_code) == (DATA, 412)
    assert http.get(url).content == b"new"


def test_one_byte_is_wrong(files: HttpFiles, http: httpx.Client) -> None:
    url = files.put("f", DATA)
    files.faults.flip(66_000)
    wrong = http.get(url).content
    assert [at for at in range(len(DATA)) if wrong[at] != DATA[at]] == [66_000]
    assert http.get(url).content == DATA


def test_failures_are_answered_as_often_as_asked_for(files: HttpFiles, http: httpx.Client) -> None:
    url, other = files.put("f", DATA), files.put("other", DATA)
    files.faults.fail(503, 2, where="/f", headers={"Retry-After": "1"})
    assert http.get(other).status_code == 200
    replies = [http.get(url) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [503, 503, 200]
    assert replies[0].headers["retry-after"] == "1"
    files.faults.fail(404, ALWAYS)
    assert {http.get(url).status_code for _ in range(5)} == {404}
    files.faults.clear()
    assert http.get(url).status_code == 200
    assert len(files.seen("GET", "/f")) == 9


def test_a_stalled_download_goes_on_when_released(files: HttpFiles, http: httpx.Client) -> None:
    url = files.put("f", DATA)
    files.faults.stall(100_000)
    with http.stream("GET", url) as reply:
        pieces = reply.iter_raw()
        got = b""
        while len(got) < 100_000:
            got += next(pieces)
        eventually_sync(lambda: files.faults.stalled == 1)
        files.faults.release()
        assert got + b"".join(pieces) == DATA


def test_a_server_that_stalls_can_be_stopped_and_comes_back(files: HttpFiles, http: httpx.Client) -> None:
    url = files.put("f", DATA)
    files.faults.stall(10)
    failed = []

    def download() -> None:
        try:
            http.get(url)
        except httpx.TransportError as problem:
            failed.append(problem)

    thread = threading.Thread(target=download)
    thread.start()
    eventually_sync(lambda: files.faults.stalled == 1)
    port = files.port
    files.stop()
    thread.join(5)
    assert len(failed) == 1
    with pytest.raises(httpx.ConnectError):
        http.get(url)
    files.faults.clear()
    files.start(port)
    assert http.get(url).content == DATA


def test_uploads_are_stored_whole_or_not(files: HttpFiles, http: httpx.Client) -> None:
    url = files.url_of("new/f")
    right = base64.b64encode(hashlib.md5(DATA).digest()).decode()
    assert http.put(url, content=DATA, headers={"Content-MD5": right[::-1]}).status_code == 400
    assert http.get(url).status_code == 404
    stored = http.put(url, content=DATA, headers={"Content-MD5": right})
    assert (stored.status_code, http.get(url).headers["etag"]) == (201, stored.headers["etag"])
    assert http.put(url, content=b"x").status_code == 204
    assert http.put(url, content=b"y", headers={"If-None-Match": "*"}).status_code == 412
    assert http.get(url).content == b"x"
    assert http.delete(url).status_code == 204
    assert http.delete(url).status_code == 404


def test_uploads_are_refused_or_cut(files: HttpFiles, http: httpx.Client) -> None:
    url = files.url_of("f")
    files.full = True
    assert http.put(url, content=DATA).status_code == 507
    files.full, files.stores = False, False
    assert http.put(url, content=DATA).status_code == 405
    files.stores = True
    files.faults.cut(1000, method="PUT")
    with pytest.raises(httpx.TransportError):
        http.put(url, content=DATA * 40)
    assert [path for path in files.folder.rglob("*") if path.is_file()] == []
    assert http.put(url, content=DATA).status_code == 201


def test_redirects(files: HttpFiles, http: httpx.Client) -> None:
    target = files.put("f", DATA)
    url = files.redirect("old", target, 307)
    assert http.get(url).headers["location"] == target
    assert http.get(url, follow_redirects=True).content == DATA
