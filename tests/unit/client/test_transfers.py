"""Sources of every kind into files: whole or a piece, unpacked or not, whatever happens on the way."""
# ruff: noqa: ASYNC240 — a look at a temporary folder blocks nobody here

import asyncio
import contextlib
import gzip
import hashlib
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from awe_client.daemon.progress import Meter, MeteredBody
from awe_client.daemon.servers import Patience, Servers
from awe_client.daemon.transfer import FOREIGN_ATTEMPTS, Sources, StepError
from awe_client.sdk.bodies import FileBody
from awe_client.sdk.download import Wanted
from shared_models.errors import AweError
from shared_models.states import FailureKind
from shared_models.versions import file_version
from tests.support.cutting import CuttingProxy
from tests.support.eventually import eventually_sync
from tests.support.fake_server import FakeServer
from tests.support.http_files import HttpFiles
from tests.support.memory import peak_rss_bytes, reset_peak
from tests.support.s3 import S3Server
from tests.support.shock import ShockServer

pytestmark = pytest.mark.anyio

MB = 1_000_000
KINDS = ("own", "shock", "http", "file", "s3")


def md5_of(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@contextlib.asynccontextmanager
async def sources_for(server_url: str = "http://127.0.0.1:9", **more: Any) -> AsyncIterator[Sources]:
    """Sources that are quick to try again."""
    transfers = more.pop("transfers", 8)
    servers = Servers([server_url], authorization="", transfer_timeout_s=5.0, transfers=transfers)
    sources = Sources(servers, **({"timeout_s": 5.0, "retry_base_s": 0.001} | more))
    try:
        yield sources
    finally:
        await sources.close()
        await servers.close()


@pytest.fixture
async def sources() -> AsyncIterator[Sources]:
    async with sources_for() as made:
        yield made


@pytest.fixture
def files(tmp_path: Path) -> Iterator[HttpFiles]:
    with HttpFiles(tmp_path / "www") as served:
        yield served


@pytest.fixture
def shock(tmp_path: Path) -> Iterator[ShockServer]:
    with ShockServer(tmp_path / "shock") as served:
        yield served


class Place:
    """Where a test puts a source of some kind, and how it is fetched."""

    def __init__(self, request: pytest.FixtureRequest, server: FakeServer, tmp_path: Path) -> None:
        self._request = request
        self._server = server
        self.root = tmp_path / "shared"

    def put(self, kind: str, data: bytes) -> str:
        """Store bytes; returns the address."""
        if kind == "own":
            return f"/node/{self._server.add_node(data)}?download"
        if kind == "shock":
            shock: ShockServer = self._request.getfixturevalue("shock")
            return shock.node_url(shock.add(data))
        if kind == "http":
            files: HttpFiles = self._request.getfixturevalue("files")
            return files.put("in.bin", data)
        if kind == "s3":
            s3: S3Server = self._request.getfixturevalue("s3_server")
            patch: pytest.MonkeyPatch = self._request.getfixturevalue("monkeypatch")
            for name, value in s3.env().items():
                patch.setenv(name, value)
            return s3.put(self._request.getfixturevalue("s3_bucket"), "in.bin", data)
        self.root.mkdir(exist_ok=True)
        (self.root / "in.bin").write_bytes(data)
        return f"file://{self.root}/in.bin"

    def behind(self, url: str, proxy: Callable[[str], CuttingProxy]) -> tuple[str, CuttingProxy]:
        """The address through a proxy, which is to be entered."""
        if url.startswith("/"):
            return url, proxy(self._server.url)
        if url.startswith("s3:"):
            made = proxy(os.environ["AWS_ENDPOINT_URL"])
            self._request.getfixturevalue("monkeypatch").setenv("AWS_ENDPOINT_URL", made.url)
            return url, made
        made = proxy(url)
        return made.url + url.partition("://")[2].removeprefix(url.split("/")[2]), made

    @property
    def roots(self) -> tuple[str, ...]:
        return (str(self.root),)


@pytest.fixture
def place(request: pytest.FixtureRequest, server: FakeServer, tmp_path: Path) -> Place:
    return Place(request, server, tmp_path)


# --- every kind ----------------------------------------------------------------------------------


@pytest.mark.parametrize("unpack", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("piece", [False, True], ids=["whole", "piece"])
@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_source_arrives_whole_or_by_piece_unpacked_or_not(
    place: Place, server: FakeServer, tmp_path: Path, kind: str, piece: bool, unpack: bool
) -> None:
    data = random.Random(f"{kind}{piece}{unpack}").randbytes(2 * MB + 17)
    source, wanted = data, Wanted(size=len(data), md5=md5_of(data))
    if unpack:
        source = gzip.compress(data, 1)
        wanted = Wanted(size=len(source), md5=md5_of(source), gunzip=True)
    if piece:
        wanted = Wanted(offset=1000, length=len(source), gunzip=unpack)
        source = b"x" * 1000 + source + b"y" * 1000
    target = tmp_path / "target"
    async with sources_for(server.url, file_roots=place.roots) as sources:
        got = await sources.get(place.put(kind, source), target, wanted, is_shock=kind == "shock")
    assert target.read_bytes() == data
    assert got.size == len(source) - (2000 if piece else 0)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("kind", ["own", "shock", "http", "s3"])
async def test_a_transfer_cut_at_50_random_places_ends_with_the_right_checksum(
    place: Place, server: FakeServer, tmp_path: Path, kind: str
) -> None:
    chance = random.Random(20260101)
    data = chance.randbytes(24 * MB)
    at = [0, *sorted(chance.sample(range(len(data)), 50))]
    gaps = [b - a + 400 for a, b in pairwise(at)]
    url, proxy = place.behind(place.put(kind, data), lambda url: CuttingProxy(url, down=gaps))
    target = tmp_path / "target"
    told: list[tuple[int, int]] = []

    class Told(Meter):
        def moved(self, key: str, done: int, total: int) -> None:
            super().moved(key, done, total)
            told.append((done, total))

    with proxy:
        async with sources_for(proxy.url if kind == "own" else server.url) as sources:
            wanted = Wanted(md5=md5_of(data))
            follow = Told("fetching").follow("in.bin")
            await sources.get(url, target, wanted, follow, is_shock=kind == "shock")
    assert proxy.cuts == 50
    assert md5_of(target.read_bytes()) == wanted.md5
    assert told[-1] == (len(data), len(data))
    # Resumed each time, not begun anew: nothing that was there was given up.
    assert [done for done, _ in told] == sorted(done for done, _ in told)


async def test_a_piece_cut_many_times_is_exactly_that_piece(
    files: HttpFiles, sources: Sources, tmp_path: Path
) -> None:
    data = random.Random(1).randbytes(5 * MB)
    url = files.put("x", data)
    for at in range(300_000, 3 * MB, 300_000):
        files.faults.cut(at)
    await sources.get(url, tmp_path / "x", Wanted(offset=MB, length=3 * MB))
    assert (tmp_path / "x").read_bytes() == data[MB : 4 * MB]
    first, *others = files.seen("GET")
    assert "if-match" not in first.headers
    assert others
    assert all(seen.headers["if-match"].startswith('"') for seen in others)


# --- what is worth another try -------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 507])
@pytest.mark.parametrize("kind", ["http", "shock"])
async def test_passing_trouble_is_tried_again(
    request: pytest.FixtureRequest, place: Place, sources: Sources, tmp_path: Path, kind: str, status: int
) -> None:
    url = place.put(kind, b"hello")
    served = request.getfixturevalue("files" if kind == "http" else "shock")
    served.faults.fail(status, FOREIGN_ATTEMPTS - 1)
    await sources.get(url, tmp_path / "x", Wanted(), is_shock=kind == "shock")
    assert (tmp_path / "x").read_bytes() == b"hello"
    served.faults.fail(status, FOREIGN_ATTEMPTS)
    before = len(served.requests)
    with pytest.raises(StepError, match="cannot fetch") as caught:
        await sources.get(url, tmp_path / "y", Wanted(), is_shock=kind == "shock")
    assert caught.value.failure.kind == FailureKind.INPUT
    assert len(served.requests) - before == FOREIGN_ATTEMPTS
    assert not (tmp_path / "y").exists()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 410, 451])
@pytest.mark.parametrize("kind", ["http", "shock"])
async def test_a_refusal_is_not(
    request: pytest.FixtureRequest, place: Place, sources: Sources, tmp_path: Path, kind: str, status: int
) -> None:
    url = place.put(kind, b"hello")
    served = request.getfixturevalue("files" if kind == "http" else "shock")
    served.faults.fail(status)
    with pytest.raises(StepError, match="cannot fetch"):
        await sources.get(url, tmp_path / "x", Wanted(), is_shock=kind == "shock")
    assert len(served.requests) == 1
    assert list(tmp_path.glob("x*")) == []


async def test_retry_after_is_honoured_as_seconds_and_as_a_date(
    files: HttpFiles, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    delay_s = Patience.delay_s

    def noted(patience: Patience, error: AweError) -> float:
        pauses.append(delay_s(patience, error))
        return 0.0

    monkeypatch.setattr(Patience, "delay_s", noted)
    url = files.put("x", b"hello")
    files.faults.fail(429, headers={"Retry-After": "7"})
    files.faults.fail(503, headers={"Retry-After": time.strftime(
        "%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 30)
    )})  # fmt: skip
    files.faults.fail(503, headers={"Retry-After": "999999"})
    await sources.get(url, tmp_path / "x", Wanted())
    assert 7 <= pauses[0] <= 8
    assert 28 <= pauses[1] <= 31
    assert 30 < pauses[2] <= 61


async def test_a_shock_that_is_joining_parts_is_waited_for(
    shock: ShockServer, sources: Sources, tmp_path: Path
) -> None:
    url = shock.node_url(shock.add(b"hello"))
    shock.faults.fail(400, 2, text="Node file is locked from download or indexing")
    await sources.get(url, tmp_path / "x", Wanted(), is_shock=True)
    assert (tmp_path / "x").read_bytes() == b"hello"


async def test_a_piece_by_index_and_part_begins_anew_after_a_cut(
    shock: ShockServer, sources: Sources, tmp_path: Path
) -> None:
    data = random.Random(2).randbytes(3 * 1048576)
    node = shock.add(data)
    shock.faults.cut(1_500_000)
    url = f"{shock.node_url(node)}&index=size&part=2-3"
    await sources.get(url, tmp_path / "x", Wanted(), is_shock=True)
    assert (tmp_path / "x").read_bytes() == data[1048576:]
    assert all("seek" not in seen.query for seen in shock.requests)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
async def test_object_stores_are_told_apart_by_what_they_answer(
    files: HttpFiles, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    keys = dict.fromkeys(("private_key", "private_key_id", "client_email"), "")
    account = json.dumps({"gcs_base_url": files.url, "disable_oauth": True, **keys})
    env = {
        "s3": {"AWS_ENDPOINT_URL": files.url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
               "AWS_REGION": "r", "AWS_ALLOW_HTTP": "true"},
        "gs": {"GOOGLE_SERVICE_ACCOUNT_KEY": account, "GOOGLE_ALLOW_HTTP": "true"},
        "az": {"AZURE_STORAGE_ENDPOINT": files.url, "AZURE_STORAGE_ACCOUNT_NAME": "a",
               "AZURE_SKIP_SIGNATURE": "true", "AZURE_ALLOW_HTTP": "true"},
    }  # fmt: skip
    for name, value in env[scheme].items():
        monkeypatch.setenv(name, value)
    files.put("bucket/a b.txt", b"hello")
    url = f"{scheme}://bucket/a%20b.txt"
    files.faults.fail(503, FOREIGN_ATTEMPTS - 1)
    await sources.get(url, tmp_path / "x", Wanted())
    assert (tmp_path / "x").read_bytes() == b"hello"
    for status, says in ((403, "refuses access"), (404, "no such object"), (400, "answered 400 Bad Request")):
        files.requests.clear()
        files.faults.fail(status)
        with pytest.raises(StepError, match=f"cannot fetch {re.escape(url)}: .*{says}"):
            await sources.get(url, tmp_path / "y", Wanted())
        assert len(files.requests) == 1


# --- wrong bytes, changed sources ----------------------------------------------------------------


@pytest.mark.parametrize("wrong", [1, 2])
async def test_wrong_bytes_are_fetched_once_more_and_never_seen(
    files: HttpFiles, sources: Sources, tmp_path: Path, wrong: int
) -> None:
    data = b"hello" * 1000
    url = files.put("x", data)
    files.faults.flip(100, wrong)
    wanted = Wanted(size=len(data), md5=md5_of(data))
    if wrong == 1:
        await sources.get(url, tmp_path / "x", wanted)
        assert (tmp_path / "x").read_bytes() == data
    else:
        with pytest.raises(StepError, match="checksum mismatch"):
            await sources.get(url, tmp_path / "x", wanted)
        assert list(tmp_path.glob("x*")) == []
    assert len(files.requests) == 2


async def test_a_whole_source_that_changed_meanwhile_is_taken_as_it_is_now(
    files: HttpFiles, sources: Sources, tmp_path: Path
) -> None:
    new = b"b" * 2 * MB
    url = files.put("x", b"a" * 2 * MB)
    files.faults.cut(1_500_000)
    files.replace_after("x", 1, new)
    await sources.get(url, tmp_path / "x", Wanted())
    assert (tmp_path / "x").read_bytes() == new


@pytest.mark.parametrize("told", [True, False], ids=["etag", "date only"])
async def test_a_piece_of_a_source_that_changed_is_refused_at_once(
    files: HttpFiles, sources: Sources, tmp_path: Path, told: bool
) -> None:
    files.etags = told
    url = files.put("x", b"a" * 2 * MB)
    os.utime(files.folder / "x", (1_000_000_000, 1_000_000_000))
    files.faults.cut(1_200_000)
    files.replace_after("x", 1, b"b" * 2 * MB)
    with pytest.raises(StepError, match="changed while it was being used"):
        await sources.get(url, tmp_path / "x", Wanted(offset=10, length=2 * MB - 10))
    assert len(files.requests) == 2
    assert list(tmp_path.glob("x*")) == []


@pytest.mark.parametrize("kind", ["http", "s3", "file"])
async def test_a_version_that_was_promised_is_the_only_one_that_is_taken(
    place: Place, server: FakeServer, tmp_path: Path, kind: str
) -> None:
    url = place.put(kind, b"hello")
    async with sources_for(server.url, file_roots=place.roots) as sources:
        for wanted in (Wanted(etag='"old"'), Wanted(etag='"old"', offset=1, length=2)):
            with pytest.raises(StepError, match="changed while it was being used"):
                await sources.get(url, tmp_path / "x", wanted)
    assert not (tmp_path / "x").exists()


async def test_without_any_validator_nothing_is_mixed(
    files: HttpFiles, sources: Sources, tmp_path: Path
) -> None:
    files.etags = files.dates = False
    new = b"b" * 2 * MB
    url = files.put("x", b"a" * 2 * MB)
    files.faults.cut(1_500_000)
    files.replace_after("x", 1, new)
    await sources.get(url, tmp_path / "x", Wanted())
    assert (tmp_path / "x").read_bytes() == new
    assert all("range" not in seen.headers for seen in files.requests)


async def test_servers_that_know_no_ranges_give_wholes_and_no_pieces(
    files: HttpFiles, sources: Sources, tmp_path: Path
) -> None:
    files.ranges = files.lengths = False
    data = random.Random(3).randbytes(2 * MB)
    url = files.put("x", data)
    files.faults.cut(1_500_000)
    await sources.get(url, tmp_path / "x", Wanted())
    assert (tmp_path / "x").read_bytes() == data
    with pytest.raises(StepError, match="no byte ranges"):
        await sources.get(url, tmp_path / "y", Wanted(offset=5, length=5))


async def test_what_is_said_of_the_size_must_be_true(
    files: HttpFiles, sources: Sources, tmp_path: Path
) -> None:
    url = files.put("x", b"hello")
    with pytest.raises(StepError, match="gives 5 bytes where 4 were expected"):
        await sources.get(url, tmp_path / "x", Wanted(size=4))


# --- shared files --------------------------------------------------------------------------------


async def test_a_whole_shared_file_is_linked_not_copied(place: Place, tmp_path: Path) -> None:
    url = place.put("file", b"hello")
    file = place.root / "in.bin"
    (place.root / "alias").symlink_to("in.bin")
    version = file_version(file.stat())
    async with sources_for(file_roots=place.roots) as sources:
        for i, name in enumerate(("in.bin", "alias")):
            target = tmp_path / f"x{i}"
            wanted = Wanted(size=5, etag=version)
            found = await sources.link(url.replace("in.bin", name), target, wanted)
            assert target.is_symlink()
            assert target.readlink() == found == file
        with pytest.raises(StepError, match="5 bytes, 4 were expected"):
            await sources.link(url, tmp_path / "y", Wanted(size=4))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shared", "x0", "x1"]


@pytest.mark.parametrize("name", ["folder", "pipe", "missing", "out", "../x"])
async def test_what_is_no_file_below_a_root_is_refused(place: Place, tmp_path: Path, name: str) -> None:
    place.put("file", b"hello")
    (tmp_path / "x").write_bytes(b"not yours")
    (place.root / "folder").mkdir()
    os.mkfifo(place.root / "pipe")
    (place.root / "out").symlink_to(tmp_path / "x")
    url = f"file://{place.root}/{name}"
    wanted = Wanted(offset=1, length=2)
    async with sources_for(file_roots=place.roots) as sources:
        for get in (sources.link, sources.get):
            with pytest.raises(StepError, match="cannot fetch file://"):
                await asyncio.wait_for(get(url, tmp_path / "y", wanted), 5)
    assert not (tmp_path / "y").exists()


async def test_a_client_that_opens_nothing_is_to_blame_not_the_input(place: Place, tmp_path: Path) -> None:
    url = place.put("file", b"hello")
    async with sources_for() as sources:
        with pytest.raises(StepError, match="--file-root") as caught:
            await sources.link(url, tmp_path / "y", Wanted())
    assert caught.value.failure.kind == FailureKind.NODE


# --- manners -------------------------------------------------------------------------------------


async def test_messages_name_the_address_without_secrets(
    files: HttpFiles, sources: Sources, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files.put("x", b"hello")
    url = files.url_of("x").replace("://", "://user:top-secret@") + "?token=top-secret#top-secret"
    for status in (503, 404):
        files.faults.fail(status, FOREIGN_ATTEMPTS)
        with caplog.at_level(logging.INFO), pytest.raises(StepError) as caught:
            await sources.get(url, tmp_path / "x", Wanted())
        assert files.url_of("x") in str(caught.value)
        assert "secret" not in str(caught.value)
        files.faults.clear()
    retries = [record for record in caplog.records if record.msg == "fetch_retried"]
    assert len(retries) == FOREIGN_ATTEMPTS - 1
    assert all("secret" not in str(vars(record)) for record in retries)


async def test_what_a_host_tells_one_job_is_not_sent_with_the_requests_of_another(
    files: HttpFiles, sources: Sources, tmp_path: Path
) -> None:
    url = files.put("x", b"x")
    files.faults.fail(503, headers={"Set-Cookie": "session=of-one-job"})
    await sources.get(url, tmp_path / "x", Wanted())
    await sources.get(url, tmp_path / "y", Wanted())
    assert [seen.headers.get("cookie") for seen in files.seen("GET")] == [None] * 3


async def test_a_redirect_leads_to_http_only(files: HttpFiles, sources: Sources, tmp_path: Path) -> None:
    files.put("x", b"hello")
    await sources.get(files.redirect("there", files.url_of("x")), tmp_path / "x", Wanted())
    assert (tmp_path / "x").read_bytes() == b"hello"
    for target in ("file:///etc/passwd", "ftp://127.0.0.1/x", files.url_of("loop")):
        url = files.redirect("loop", target)
        with pytest.raises(StepError, match="cannot fetch"):
            await sources.get(url, tmp_path / "y", Wanted())
    assert not (tmp_path / "y").exists()


_FETCH = """
import asyncio, sys
from itertools import pairwise
from pathlib import Path
from awe_client.daemon.progress import MeteredBody
from awe_client.daemon.servers import Patience, Servers
from awe_client.daemon.transfer import Sources
from awe_client.sdk.bodies import FileBody
from awe_client.sdk.download import Wanted
async def main():
    servers = Servers(["http://127.0.0.1:9"], authorization="", transfer_timeout_s=60, transfers=1)
    await Sources(servers, timeout_s=60.0).get(sys.argv[1], Path(sys.argv[2]), Wanted())
asyncio.run(main())
"""


def test_after_kill_9_nothing_has_the_final_name(files: HttpFiles, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    url = files.put("x", b"a" * 8 * MB)
    files.faults.stall(6 * MB)
    child = subprocess.Popen([sys.executable, "-c", _FETCH, url, str(folder / "x")])
    try:
        eventually_sync(lambda: any(p.stat().st_size > 4 * MB for p in folder.iterdir()), within_s=20)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    assert [path.suffix for path in folder.iterdir()] == [".part"]


async def test_who_follows_hears_that_a_source_is_away_and_that_it_goes_on(
    sources: Sources, files: HttpFiles, tmp_path: Path
) -> None:
    class Told(Meter):
        def waits(self, reason: str) -> None:
            told.append(reason)

    told: list[str] = []
    url = files.put("in.bin", b"x")
    files.faults.fail(503)
    await sources.get(url, tmp_path / "target", Wanted(), Told("fetching").follow("in.bin"))
    assert told[0].startswith(f"{url} cannot be fetched for now: ")
    assert told[1:] == [""]


@pytest.mark.parametrize("kind", ["http", "s3", "file"])
async def test_memory_stays_flat(
    place: Place, server: FakeServer, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    size = 300 * MB
    url = place.put(kind, b"small") if kind != "s3" else ""
    if kind == "s3":
        files: HttpFiles = request.getfixturevalue("files")
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION"):
            patch.setenv(f"AWS_{name}", "x")
        patch.setenv("AWS_ENDPOINT_URL", files.url)
        patch.setenv("AWS_ALLOW_HTTP", "true")
        files.put("bucket/x", b"small")
        url = "s3://bucket/x"
    path = {"http": "www/in.bin", "s3": "www/bucket/x", "file": "shared/in.bin"}[kind]
    os.truncate(tmp_path / path, size)
    digest = hashlib.md5(b"small", usedforsecurity=False)
    for _ in range(300):
        digest.update(bytes(MB) if _ else bytes(MB - 5))
    reset_peak(os.getpid())
    before = peak_rss_bytes(os.getpid())
    async with sources_for(file_roots=place.roots) as sources:
        got = await sources.get(url, tmp_path / "target", Wanted(size=size, md5=digest.hexdigest()))
    assert got.size == size
    assert peak_rss_bytes(os.getpid()) - before < 150 * MB


async def test_memory_stays_flat_while_a_file_is_sent(files: HttpFiles, tmp_path: Path) -> None:
    size = 300 * MB
    (tmp_path / "out").touch()
    os.truncate(tmp_path / "out", size)
    told: list[tuple[int, int]] = []
    body = MeteredBody(FileBody(tmp_path / "out"), lambda *t: told.append(t))
    reset_peak(os.getpid())
    before = peak_rss_bytes(os.getpid())
    async with httpx.AsyncClient(timeout=60) as http:
        reply = await http.put(files.url_of("sent"), content=body, headers=body.headers)
    assert reply.status_code == 201
    assert (files.folder / "sent").stat().st_size == size
    assert told[-1] == (size, size)
    assert peak_rss_bytes(os.getpid()) - before < 150 * MB
