"""Every kind of source is cut as a file of our own is, of the one version that was looked at."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio import to_thread

from awe_server.data.build import build_index
from awe_server.data.indexes import sidecar
from awe_server.data.objects import Objects
from awe_server.data.ports import IndexFact
from awe_server.data.sources import objects, reading, shared, shock, web
from awe_server.data.sources.facts import (
    Fact,
    Kind,
    NoRanges,
    Place,
    SourceChanged,
    SourceMissing,
    SourceRefused,
    SourceUnreachable,
)
from awe_server.data.sources.reading import AHEAD_BYTES, ForeignSource, open_source
from shared_models.errors import AweError, InvalidData
from tests.support.http_files import HttpFiles
from tests.support.s3 import S3Server
from tests.support.shock import ShockServer
from tests.unit.data.samples import READS

pytestmark = pytest.mark.anyio

LARGE = READS * 60
KINDS: tuple[Kind, ...] = ("web", "shock", "file", "object")


@dataclass
class Site:
    """A file that can be put at every kind of place."""

    folder: Path
    files: HttpFiles
    shock: ShockServer
    s3: S3Server
    bucket: str

    def put(self, kind: Kind, data: bytes) -> str:
        """Its URL."""
        if kind == "web":
            return self.files.put("reads.fastq", data)
        if kind == "object":
            return self.s3.put(self.bucket, "reads.fastq", data)
        if kind == "shock":
            return self.shock.node_url(self.shock.add(data))
        path = self.folder / "reads.fastq"
        path.write_bytes(data)
        return f"file://{path}"

    async def look(self, kind: Kind, url: str, *, to_cut: bool = True) -> Fact:
        if kind == "file":
            return shared.look(url, [str(self.folder)])
        if kind == "object":
            return await objects.look(Objects(), url)
        async with httpx.AsyncClient(trust_env=False) as http:
            if kind == "shock":
                return await shock.look(http, url.partition("?")[0])
            return await web.look(http, url, to_cut=to_cut)

    async def place(self, kind: Kind, data: bytes) -> Place:
        url = self.put(kind, data)
        fact = await self.look(kind, url)
        assert (fact.size_bytes, fact.ranged) == (len(data), True)
        roots = (str(self.folder),) if kind == "file" else ()
        return Place(kind, url, fact.size_bytes, fact.version, roots)


async def cut(blob: Path, kind: str, place: Place) -> IndexFact:
    """Index a source as the process of a scan does: on no event loop."""
    return await to_thread.run_sync(build_index, blob, kind, "reads.fastq", place)


@pytest.fixture
def site(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    for name, value in s3_server.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(reading, "FIRST_PAUSE_S", 0.01)
    (tmp_path / "shared").mkdir()
    with HttpFiles(tmp_path / "web") as files, ShockServer(tmp_path / "shock") as other:
        yield Site(tmp_path / "shared", files, other, s3_server, s3_bucket)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", ["line", "record", "chunkrecord"])
@pytest.mark.parametrize(
    "data", [LARGE, READS, b"", b"@r\nACGT\n+\nIIII"], ids=["large", "small", "empty", "one"]
)
async def test_a_source_is_cut_as_a_file_of_our_own_is(
    site: Site, tmp_path: Path, kind: Kind, index: str, data: bytes
) -> None:
    own, foreign = tmp_path / "own", tmp_path / "foreign"
    own.write_bytes(data)
    wanted = build_index(own, index, "reads.fastq")
    assert await cut(foreign, index, await site.place(kind, data)) == wanted
    assert sidecar(foreign, index).read_bytes() == sidecar(own, index).read_bytes()


async def test_only_windows_are_read_for_large_units(site: Site, tmp_path: Path) -> None:
    place = await site.place("web", LARGE)
    site.files.requests.clear()
    await cut(tmp_path / "x", "chunkrecord", place)
    spans = [seen.headers["range"].removeprefix("bytes=").split("-") for seen in site.files.requests]
    assert sum(int(last) - int(first) + 1 for first, last in spans) < len(LARGE) / 4
    assert all(seen.headers["if-match"] == place.version for seen in site.files.requests)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "shock"])
async def test_a_source_that_changes_while_it_is_read_is_not_indexed(
    site: Site, tmp_path: Path, kind: Kind
) -> None:
    """A Shock's node is left out: its file never changes."""
    place = await site.place(kind, LARGE)

    def read() -> None:
        with open_source(place) as source:
            assert source.read_at(0, 100) == LARGE[:100]
            site.put(kind, b">" + LARGE[1:])
            source.read_at(1_000_000, 100)

    with pytest.raises(SourceChanged):
        await to_thread.run_sync(read)


async def test_what_looks_broken_because_it_was_changed_is_called_changed(site: Site) -> None:
    place = await site.place("file", READS)

    def read() -> None:
        with open_source(place):
            site.put("file", READS + b"x")
            raise InvalidData(file="reads.fastq", record=1, line=1, problem="")

    with pytest.raises(SourceChanged):
        read()


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_not_there_is_missing(site: Site, kind: Kind) -> None:
    url = site.put(kind, READS)
    if kind == "file":
        os.unlink(site.folder / "reads.fastq")
    elif kind == "web":
        os.unlink(site.files.folder / "reads.fastq")
    elif kind == "object":
        url += ".gz"
    else:
        site.shock.nodes.clear()
    with pytest.raises(SourceMissing):
        await site.look(kind, url)


@pytest.mark.parametrize("kind", ["web", "shock"])
async def test_pieces_that_break_off_or_are_refused_for_a_moment_are_asked_for_again(
    site: Site, tmp_path: Path, kind: Kind
) -> None:
    place = await site.place(kind, READS)
    server: Any = site.files if kind == "web" else site.shock
    server.faults.cut(100)
    server.faults.fail(503, times=2)
    assert (await cut(tmp_path / "x", "record", place)).total_units == 250
    server.faults.fail(503, times=reading.TRIES)
    with pytest.raises(SourceUnreachable, match="its host answers 503"):
        await cut(tmp_path / "y", "record", place)
    assert not sidecar(tmp_path / "y", "record").exists()


@pytest.mark.parametrize(
    ("switches", "fact"),
    [
        ({}, Fact(len(READS), ranged=True)),
        ({"heads": False}, Fact(len(READS), ranged=True)),
        ({"lengths": False}, Fact(len(READS), ranged=True)),
        ({"ranges": False}, Fact(len(READS), ranged=False)),
        ({"ranges": False, "heads": False}, Fact(len(READS), ranged=False)),
    ],
    ids=["plain", "without HEAD", "without lengths", "without ranges", "without both"],
)
async def test_web_servers_are_asked_until_they_told_all(
    site: Site, switches: dict[str, bool], fact: Fact
) -> None:
    url = site.put("web", READS)
    for name, value in switches.items():
        setattr(site.files, name, value)
    found = await site.look("web", url)
    assert replace(found, version="") == fact
    assert found.version.startswith('"')


async def test_versions_are_the_best_that_is_told(site: Site) -> None:
    url = site.put("web", READS)
    site.files.etags = False
    assert (await site.look("web", url)).version.endswith(" GMT")
    site.files.dates = False
    assert (await site.look("web", url)).version == ""


async def test_a_web_server_that_tells_no_length_is_unknown(site: Site) -> None:
    url = site.put("web", READS)
    site.files.lengths = site.files.ranges = False
    with pytest.raises(KeyError):
        await site.look("web", url)


async def test_a_host_that_sends_all_instead_of_a_piece_is_not_read(site: Site, tmp_path: Path) -> None:
    place = await site.place("web", LARGE)
    site.files.ranges = False
    with pytest.raises(NoRanges):
        await cut(tmp_path / "x", "record", place)


async def test_a_version_that_only_compares_is_compared(site: Site) -> None:
    place = replace(await site.place("web", LARGE), version='W/"old"')
    with pytest.raises(SourceChanged), open_source(place) as source:
        source.read_at(0, 10)


@dataclass
class Slow:
    """Pieces that cost time."""

    data: bytes
    tick: Callable[[], None] = lambda: None
    asked: list[tuple[int, int]] = field(default_factory=list)

    def fetch(self, offset: int, length: int) -> bytes:
        self.asked.append((offset, length))
        self.tick()
        return self.data[offset : offset + length]

    def check(self) -> None: ...

    def close(self) -> None: ...


def test_who_reads_on_gets_more_at_a_time_and_who_jumps_does_not() -> None:
    data = bytes(range(256)) * (3 * AHEAD_BYTES // 256)
    pieces = Slow(data)
    source = ForeignSource(Place("web", "", len(data), ""), pieces)
    step = 1 << 20
    assert b"".join(source.read_at(at, step) for at in range(0, len(data) + step, step)) == data
    assert len(pieces.asked) == 4
    assert source.read_at(77, 10) == data[77:87]
    assert pieces.asked[-1] == (77, 10)
    assert source.read_at(len(data) - 5, 10) == data[-5:]
    assert source.read_at(len(data), 10) == b""


def test_what_leads_to_no_http_address_is_not_asked_for_again(site: Site) -> None:
    url = site.files.redirect("reads.fastq", "ftp://data.example/reads.fastq")
    with (
        pytest.raises(SourceRefused, match="unsupported protocol 'ftp://'"),
        open_source(Place("web", url, 100, "v")) as source,
    ):
        source.read_at(0, 10)
    assert len(site.files.seen("GET")) == 1


def test_a_host_that_is_too_slow_for_the_scan_to_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr("awe_server.data.sources.reading.time.monotonic", lambda: now_s)

    def tick() -> None:
        nonlocal now_s
        now_s += 10.0

    source = ForeignSource(Place("web", "", 10**9, ""), Slow(bytes(10**6), tick))

    def read() -> None:
        for at in range(0, 10**6, 1000):
            source.read_at(at, 10)

    with pytest.raises(SourceUnreachable, match="bytes came"):
        read()
    assert reading.GRACE_S <= now_s <= reading.GRACE_S + 30


class TestIndexesOfAnotherShock:
    async def build(self, site: Site, url: str, kind: str = "record") -> int:
        async with httpx.AsyncClient(trust_env=False) as http:
            return await shock.build_index(http, url.partition("?")[0], kind)

    async def test_it_builds_them_and_is_waited_for(self, site: Site) -> None:
        url = site.put("shock", READS)
        site.shock.index_s = 0.3
        assert await self.build(site, url) == 250
        assert await self.build(site, url) == 250
        assert len(site.shock.seen("PUT", "/index/record")) == 1

    async def test_one_that_answers_only_when_it_is_built_is_asked_once(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shock, "_ASK_S", 0.2)
        url = site.put("shock", READS)
        site.shock.answers_late, site.shock.index_s = True, 0.6
        async with httpx.AsyncClient(trust_env=False, timeout=0.2) as http:
            assert await shock.build_index(http, url.partition("?")[0], "record") == 250
        assert len(site.shock.seen("PUT", "/index/record")) == 1

    @pytest.mark.parametrize("answers_late", [True, False])
    async def test_one_that_needs_too_long_builds_none(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, answers_late: bool
    ) -> None:
        monkeypatch.setattr(shock, "BUILD_S", 0.3)
        url = site.put("shock", READS)
        site.shock.answers_late, site.shock.index_s = answers_late, 2.0
        with pytest.raises(shock.NotBuilt, match=r"it was not built in 0\.3 s"):
            await self.build(site, url)

    @pytest.mark.parametrize("how", ["refused", "failing", "empty", "missing"])
    async def test_if_it_does_not_it_says_why(self, site: Site, how: str) -> None:
        url = site.put("shock", b"" if how == "empty" else READS)
        if how == "refused":
            site.shock.no_index.add("record")
        elif how == "failing":
            site.shock.index_errors["record"] = "no such file"
        elif how == "missing":
            site.shock.nodes.clear()
        with pytest.raises(shock.NotBuilt) as caught:
            await self.build(site, url)
        assert str(caught.value)

    async def test_a_file_whose_parts_are_being_joined_is_not_there_yet(self, site: Site) -> None:
        url = site.put("shock", READS)
        node = site.shock.nodes[url.partition("?")[0].rpartition("/")[2]]
        assert node.file is not None
        node.file.ready_at = float("inf")
        with pytest.raises(SourceUnreachable, match="joins"):
            await site.look("shock", url)


def test_errors_go_through_the_process_of_the_scan() -> None:
    for error in (NoRanges(reason="x"), SourceChanged(), SourceMissing(reason="y")):
        assert isinstance(error, AweError)
        assert type(error)(**error.fields).message == error.message
