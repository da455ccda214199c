"""Sizes of files on other hosts: each doubt is an Unknown with its cause, and costs little."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from awe_server.data.root_threads import MAX_PER_ROOT, RootThreads
from awe_server.data.sources.asking import MAX_REDIRECTS
from awe_server.data.sources.facts import Fact, SourceMissing
from awe_server.runtime import foreign
from awe_server.runtime.foreign import Away, ForeignFiles, Unknown
from tests.unit.runtime.workshop import Hands

pytestmark = pytest.mark.anyio

FILE = {"filename": "a", "url": "http://user:secret@data.example:81/a", "host": "", "node": ""}
NODE = {
    **FILE,
    "url": "http://data.example:81/node/n?download",
    "host": "http://data.example:81",
    "node": "n",
}


PACKED = {"content-encoding": "gzip"}


class Asked:
    """Other hosts, and who was asked."""

    def __init__(self, answer: Callable[[httpx.Request], Any]) -> None:
        self.requests: list[httpx.Request] = []
        self.hands = Hands()
        self._answer = answer
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._handle))
        self.files = ForeignFiles(http, self.hands.clock.monotonic, RootThreads(()))

    def _handle(self, request: httpx.Request) -> Any:
        self.requests.append(request)
        return self._answer(request)

    async def unknown(self, io: dict[str, Any]) -> str:
        with pytest.raises(Unknown) as unknown:
            await self.files.look(io)
        return str(unknown.value)


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield bytes(65536)


async def trickle() -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await asyncio.sleep(0.001)


async def test_sizes_come_from_the_header_or_the_node() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "HEAD":
            return httpx.Response(200, headers={"content-length": "77"})
        return httpx.Response(200, json={"data": {"file": {"size": 5}}})

    hosts = Asked(answer)
    assert ((await hosts.files.look(FILE)).size_bytes, (await hosts.files.look(NODE)).size_bytes) == (77, 5)


async def test_redirects_are_followed_but_not_for_ever_and_their_bodies_not_read() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/a":
            return httpx.Response(302, headers={"location": "/b"}, stream=Body(endless()))
        return httpx.Response(200, headers={"content-length": "3"})

    assert (await Asked(answer).files.look(FILE)).size_bytes == 3
    circle = Asked(lambda request: httpx.Response(302, headers={"location": "/a"}))
    assert "too many redirects" in await circle.unknown(FILE)
    assert len(circle.requests) == 1 + MAX_REDIRECTS


class Body(httpx.AsyncByteStream):
    """Chunks as they come."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (
            lambda: httpx.Response(403),
            "data.example:81: it cannot be read from the server: its host answers 403",
        ),
        (lambda: httpx.Response(503), "data.example:81: it cannot be read now: its host answers 503"),
        (lambda: httpx.Response(200, stream=Body(endless())), "longer than 1048576 bytes"),
        (lambda: httpx.Response(200, headers=PACKED, stream=Body(endless())), "packed"),
        (lambda: httpx.Response(200, content=b"<html>"), "does not tell it"),
        (lambda: httpx.Response(200, json={"data": None}), "does not tell it"),
        (lambda: httpx.Response(200, json={"data": {"file": {"size": -5}}}), "-5 is no size"),
        (
            lambda: httpx.Response(200, content=b'{"data": {"file": {"size": 99999999999999999999}}}'),
            "no size",
        ),
    ],
    ids=[
        "forbidden",
        "overloaded",
        "endless",
        "packed",
        "no JSON",
        "no file",
        "negative",
        "more than can be kept",
    ],
)
async def test_a_reply_that_makes_no_sense_is_an_unknown_size_and_no_reason_to_stay_away(
    reply: Callable[[], httpx.Response], reason: str
) -> None:
    hosts = Asked(lambda request: reply())
    for _ in range(2):
        assert reason in await hosts.unknown(NODE)
    assert len(hosts.requests) == 2


@pytest.mark.parametrize("io", [FILE, NODE], ids=["file", "node"])
async def test_what_its_host_does_not_have_is_missing_not_unknown(io: dict[str, Any]) -> None:
    with pytest.raises(SourceMissing, match="its host answers 404"):
        await Asked(lambda request: httpx.Response(404)).files.look(io)


@pytest.mark.parametrize("kind", ["silent", "trickling", "refusing"])
async def test_a_host_that_does_not_answer_is_left_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(foreign, "LOOK_S", 0.02)

    async def answer(request: httpx.Request) -> httpx.Response:
        if kind == "silent":
            await asyncio.Event().wait()
        if kind == "refusing":
            raise httpx.ConnectError("refused")
        return httpx.Response(200, stream=Body(trickle()))

    hosts = Asked(answer)
    reason = await hosts.unknown(NODE)
    assert (
        "cannot be reached: refused" if kind == "refusing" else "no answer from data.example:81"
    ) in reason
    assert await hosts.unknown(FILE) == reason
    assert len(hosts.requests) == 1
    hosts.hands.monotonic_s += foreign.DOWN_S
    await hosts.unknown(NODE)
    assert len(hosts.requests) == 2


@pytest.mark.parametrize("kind", ["silent", "refusing"])
async def test_a_host_that_leads_to_a_dead_one_is_not_blamed_for_it(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(foreign, "LOOK_S", 0.2)

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "dead.example":
            if kind == "refusing":
                raise httpx.ConnectError("refused", request=request)
            await asyncio.Event().wait()
        if request.url.path == "/moved":
            return httpx.Response(302, headers={"location": "http://dead.example:82/a"})
        return httpx.Response(200, headers={"content-length": "7"})

    hosts = Asked(answer)
    moved = {**FILE, "url": "http://data.example:81/moved"}
    for _ in range(2):
        with pytest.raises(Away, match=r"dead\.example:82"):
            await hosts.files.look(moved)
    assert [request.url.host for request in hosts.requests] == [
        "data.example",
        "dead.example",
        "data.example",
    ]
    assert (await hosts.files.look(FILE)).size_bytes == 7


async def test_who_took_the_time_is_blamed_not_who_was_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "LOOK_S", 0.3)

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "data.example":
            await asyncio.sleep(0.25)
            return httpx.Response(302, headers={"location": "http://quick.example/late"})
        if request.url.path == "/late":
            await asyncio.Event().wait()
        return httpx.Response(200, headers={"content-length": "7"})

    hosts = Asked(answer)
    assert await hosts.unknown(FILE) == "no answer from data.example:81 in 0.3 s"
    assert (await hosts.files.look({**FILE, "url": "http://quick.example/a"})).size_bytes == 7


@pytest.mark.parametrize("location", ["ftp://data.example/a", "file:///etc/passwd", "http://[::1"])
@pytest.mark.parametrize("io", [FILE, NODE], ids=["file", "node"])
async def test_a_redirect_to_what_nobody_can_ask_is_the_files_and_not_the_hosts(
    io: dict[str, Any], location: str
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/good":
            return httpx.Response(200, headers={"content-length": "7"})
        return httpx.Response(302, headers={"location": location})

    hosts = Asked(answer)
    with pytest.raises(Unknown, match=r"data\.example:81: .* it leads to ") as unknown:
        await hosts.files.look(io)
    assert not isinstance(unknown.value, Away)
    assert (await hosts.files.look({**FILE, "url": "http://data.example:81/good"})).size_bytes == 7


async def test_so_many_questions_at_once_to_one_host_and_no_more() -> None:
    open_now, most, release = 0, 0, asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        if open_now == foreign.MAX_AT_ONCE:
            release.set()
        await release.wait()
        open_now -= 1
        return httpx.Response(200, headers={"content-length": "1"})

    hosts = Asked(answer)
    facts = await asyncio.gather(*(hosts.files.look(FILE) for _ in range(3 * foreign.MAX_AT_ONCE)))
    assert (sum(fact.size_bytes for fact in facts), most) == (3 * foreign.MAX_AT_ONCE, foreign.MAX_AT_ONCE)
    assert not hosts.files._gates


async def test_a_file_system_that_hangs_costs_a_few_threads_however_often_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, looks = threading.Event(), 0

    def hang(*_: Any) -> Fact:
        nonlocal looks
        looks += 1
        answers.wait()
        return Fact(7)

    monkeypatch.setattr(foreign, "LOOK_S", 0.02)
    monkeypatch.setattr(foreign.shared, "look", hang)
    hands = Hands()
    files = ForeignFiles(httpx.AsyncClient(), hands.clock.monotonic, RootThreads(["/hung"]))
    io = {"filename": "a", "url": "file:///hung/a", "host": "", "node": ""}
    try:
        for _ in range(2 * MAX_PER_ROOT):
            with pytest.raises(Away, match=r"no answer from file:///hung in 0\.02 s"):
                await files.look(io)
            hands.monotonic_s += foreign.DOWN_S
        assert looks == MAX_PER_ROOT
    finally:
        answers.set()
    monkeypatch.setattr(foreign, "LOOK_S", 5.0)
    assert (await files.look(io)).size_bytes == 7


async def test_hosts_that_did_not_answer_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    hosts = Asked(refuse)
    monkeypatch.setattr(foreign, "MAX_DOWN", 5)

    async def ask(first: int, last: int) -> None:
        for number in range(first, last):
            await hosts.unknown({**FILE, "url": f"http://h{number}/a"})

    await ask(0, 8)
    assert list(hosts.files._down) == [f"h{number}" for number in range(3, 8)]
    hosts.hands.monotonic_s += foreign.DOWN_S / 2
    await ask(8, 10)
    hosts.hands.monotonic_s += foreign.DOWN_S / 2
    await ask(10, 11)
    assert list(hosts.files._down) == ["h8", "h9", "h10"]
