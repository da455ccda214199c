"""The fault proxy passes on what it does not spoil, and spoils exactly what it was told to."""

import asyncio
import hashlib
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from tests.support import tally
from tests.support.eventually import eventually_sync
from tests.support.fault_proxy import FaultProxy
from tests.support.faults import ALWAYS
from tests.support.memory import peak_rss_bytes, reset_peak, rss_bytes
from tests.support.raw_http import FIRST
from tests.support.served import Served

MIB = 2**20


class Origin(Served):
    """Says what it was asked, and remembers it."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []  #: bodies of requests that came whole, or their sums
        self.left = 0  #: requests whose client went while they waited

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/long", self._long),
            Route("/stream", self._stream),
            Route("/refused", self._refused, methods=["PUT"]),
            Route("/{path:path}", self._echo, methods=["GET", "HEAD", "POST", "PUT", "DELETE"]),
        ]

    async def _echo(self, request: Request) -> Response:
        size, digest, head = 0, hashlib.md5(), b""
        try:
            async for piece in request.stream():
                size, head = size + len(piece), (head + piece)[:64]
                digest.update(piece)
        except ClientDisconnect:
            return Response("", 400)
        self.done.append(head.decode("latin-1") if size <= 64 else digest.hexdigest())
        body = {"path": str(request.url.path), "query": request.url.query, "size": size}
        return JSONResponse(body, headers={"X-Seen": request.headers.get("X-Asked", "")})

    async def _long(self, request: Request) -> Response:
        while not await request.is_disconnected():  # noqa: ASYNC110 - starlette has no event for it
            await asyncio.sleep(0.01)
        self.left += 1
        return Response("")

    async def _stream(self, request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(int(request.query_params["n"])):
                yield bytes(MIB)

        return StreamingResponse(pieces())

    async def _refused(self, request: Request) -> Response:
        return Response("not wanted", 409)


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What the tally is told here: these faults hit no real server, and are left out of the figures."""
    told: Counter[str] = Counter()
    monkeypatch.setattr(tally, "count", lambda kind: told.update([kind]))
    return told


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as origin:
        yield origin


@pytest.fixture
def proxy(origin: Origin) -> Iterator[FaultProxy]:
    with FaultProxy(origin.url) as proxy:
        yield proxy


@pytest.fixture
def http(proxy: FaultProxy) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=proxy.url, timeout=20, trust_env=False) as http:
        yield http


def test_requests_and_replies_are_passed_on_as_they_are(http: httpx.Client, origin: Origin) -> None:
    reply = http.post("/a%20b?x=1&y=%2F", content=b"body", headers={"X-Asked": "a b"})
    assert reply.json() == {"path": "/a b", "query": "x=1&y=%2F", "size": 4}
    assert reply.headers["X-Seen"] == "a b"
    assert origin.done == ["body"]
    head = http.head("/x")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0
    assert http.get("/x").status_code == http.delete("/x").status_code == 200


def test_bodies_without_a_length_are_passed_on(http: httpx.Client, origin: Origin) -> None:
    assert http.put("/x", content=iter([b"one", b"two"])).json()["size"] == 6
    assert origin.done == ["onetwo"]
    assert len(http.get("/stream?n=3").content) == 3 * MIB


def test_a_connection_is_used_again(proxy: FaultProxy) -> None:
    with socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2]))) as line:
        for name in ("one", "two"):
            line.sendall(f"GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert f'"/{name}"'.encode() in _until(line, b"}")


def _until(line: socket.socket, end: bytes) -> bytes:
    got = b""
    while not got.endswith(end):
        got += line.recv(65536)
    return got


def test_large_bodies_stream(http: httpx.Client, origin: Origin) -> None:
    block = bytes(MIB)
    reset_peak(pid := threading.get_native_id())
    before = rss_bytes(pid)
    assert http.put("/x", content=(block for _ in range(64))).json()["size"] == 64 * MIB
    with http.stream("GET", "/stream?n=64") as reply:
        assert sum(len(piece) for piece in reply.iter_raw()) == 64 * MIB
    assert peak_rss_bytes(pid) < before + 40 * MIB


def test_an_early_refusal_arrives(http: httpx.Client) -> None:
    reply = http.put("/refused", content=bytes(8 * MIB))
    assert (reply.status_code, reply.text) == (409, "not wanted")


def test_who_gives_up_is_gone_for_the_server_too(http: httpx.Client, origin: Origin) -> None:
    with pytest.raises(httpx.ReadTimeout):
        http.get("/long", timeout=0.1)
    eventually_sync(lambda: origin.left == 1)


def test_a_server_that_is_down_gives_no_answer_and_comes_back(http: httpx.Client, origin: Origin) -> None:
    port = origin.port
    origin.stop()
    with pytest.raises(httpx.TransportError):
        http.get("/x")
    origin.start(port)
    assert http.get("/x").status_code == 200


def test_a_reply_is_lost_when_the_server_has_acted(
    proxy: FaultProxy, http: httpx.Client, origin: Origin
) -> None:
    proxy.faults.drop_reply(2, method="POST", where="/exchange")
    http.get("/client/1/exchange")
    http.post("/other")
    for word in ("one", "two"):
        with pytest.raises(httpx.RemoteProtocolError):
            http.post("/client/1/exchange", content=word)
    assert http.post("/client/1/exchange", content="three").status_code == 200
    assert origin.done[2:] == ["one", "two", "three"]
    assert proxy.dropped == 2


def test_a_reply_is_lost_by_what_it_says(proxy: FaultProxy, http: httpx.Client, origin: Origin) -> None:
    proxy.drops = lambda seen, reply: seen.path == "/b" and reply.json()["size"] == 3
    assert http.post("/a", content="abc").status_code == 200
    assert http.post("/b", content="ab").json() == {"path": "/b", "query": "", "size": 2}
    with pytest.raises(httpx.RemoteProtocolError):
        http.post("/b", content="abc")
    assert len(origin.done) == 3
    assert proxy.dropped == 1


def test_a_reply_is_cut(proxy: FaultProxy, http: httpx.Client) -> None:
    proxy.faults.cut(5)
    with http.stream("POST", "/x") as reply:
        pieces = reply.iter_raw()
        assert next(pieces) == b'{"pat'
        with pytest.raises(httpx.RemoteProtocolError):
            next(pieces)
    proxy.faults.cut(MIB + 7, where="/stream")
    with pytest.raises(httpx.RemoteProtocolError):
        http.get("/stream?n=2")
    assert http.get("/stream?n=2").status_code == 200


@pytest.mark.parametrize("after", [0, 3, MIB + 1])
def test_a_request_is_cut_and_never_carried_out(
    proxy: FaultProxy, http: httpx.Client, origin: Origin, after: int
) -> None:
    proxy.faults.cut_request(after, method="PUT")
    with pytest.raises(httpx.TransportError):
        http.put("/x", content=bytes(2 * MIB))
    http.get("/after")
    assert origin.done == [""]


def test_a_stall_holds_the_request_back_until_it_is_released(
    proxy: FaultProxy, http: httpx.Client, origin: Origin
) -> None:
    proxy.faults.stall(method="PUT", where="/node/")
    replies: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: replies.append(http.put("/node/1", content=b"x" * 65)))
    asking.start()
    eventually_sync(lambda: proxy.faults.stalled == 1)
    assert http.put("/other").status_code == 200
    assert origin.done == [""]
    proxy.faults.release()
    asking.join(20)
    assert [reply.json()["size"] for reply in replies] == [65]


def test_a_refusal_in_the_servers_place(proxy: FaultProxy, http: httpx.Client, origin: Origin) -> None:
    proxy.faults.fail(503, headers={"Retry-After": "3"})
    proxy.faults.fail(502)
    reply = http.put("/x", content=bytes(MIB))
    assert (reply.status_code, reply.headers["Retry-After"]) == (503, "3")
    assert http.get("/x").status_code == 502
    assert origin.done == []
    assert proxy.counts == {"503-retry-after": 1, "502": 1}


@pytest.mark.parametrize("size", [5, 3 * MIB])
def test_a_request_is_sent_twice(proxy: FaultProxy, http: httpx.Client, origin: Origin, size: int) -> None:
    proxy.faults.repeat()
    assert http.post("/x", content=bytes(size)).json()["size"] == size
    assert len(origin.done) == 2
    assert len(set(origin.done)) == 1


def test_a_connection_is_reset(proxy: FaultProxy, http: httpx.Client, origin: Origin) -> None:
    proxy.faults.reset()
    with pytest.raises(httpx.ReadError):
        http.get("/x")
    assert origin.done == []


def test_a_fault_may_last(proxy: FaultProxy, http: httpx.Client) -> None:
    proxy.faults.fail(times=ALWAYS)
    assert {http.get("/x").status_code for _ in range(5)} == {503}
    proxy.clear()
    assert http.get("/x").status_code == 200


ODDS = dict.fromkeys(("503", "503-retry-after", "reset", "cut-request", "repeat", "drop-reply", "cut"), 0.08)


def _faults(proxy: FaultProxy, seed: int, others: int = 0) -> list[Counter[str]]:
    """What was done to each of forty requests of one kind, while others ask for something else."""
    proxy.seed(seed, {**ODDS, "stall": 0.05}, stall_s=0.01)
    done = []
    with httpx.Client(base_url=proxy.url, timeout=20, trust_env=False) as http:
        for i in range(40):
            for _ in range(others):
                _asked(http, "/other")
            before = proxy.counts.copy()
            _asked(http, f"/job/00000000-0000-0000-0000-{i + others:012}")
            done.append(proxy.counts - before)
    return done


def _asked(http: httpx.Client, path: str) -> str:
    try:
        return str(http.put(path, content=b"x" * 500).status_code)
    except httpx.TransportError as exc:
        return type(exc).__name__


def test_the_same_seed_gives_the_same_faults_whoever_else_asks(proxy: FaultProxy) -> None:
    first = _faults(proxy, 3)
    assert sum(first, Counter()).total() >= 10
    assert _faults(proxy, 3, others=1) == first
    assert _faults(proxy, 4) != first


def test_every_fault_is_counted(proxy: FaultProxy, told: Counter[str]) -> None:
    for seed in range(5):
        _faults(proxy, seed)
    assert set(proxy.counts) == {*ODDS, "stall"}
    assert told == {f"fault {kind}": times for kind, times in proxy.counts.items()}


def test_a_second_reply_says_what_the_first_was(proxy: FaultProxy) -> None:
    proxy.faults.repeat()
    with httpx.Client(base_url=proxy.url, timeout=20, trust_env=False) as http:
        assert [http.get("/x").headers.get(FIRST) for _ in range(2)] == ["200", None]


def test_what_must_not_be_repeated_blindly_is_not(proxy: FaultProxy, origin: Origin) -> None:
    proxy.seed(1, {"repeat": 1.0})
    with httpx.Client(base_url=proxy.url, timeout=20, trust_env=False) as http:
        http.post("/node")
        http.post("/job")
        assert len(origin.done) == 2
        http.post("/node?work=w&attempt=1")
        http.post("/job", headers={"Idempotency-Key": "k"})
        http.post("/client/x/exchange")
    assert len(origin.done) == 8


def test_the_end_of_the_proxy_ends_what_waits(origin: Origin) -> None:
    with FaultProxy(origin.url) as proxy:
        proxy.faults.stall()
        ended: list[str] = []
        with httpx.Client(base_url=proxy.url, timeout=20, trust_env=False) as http:
            asking = threading.Thread(target=lambda: ended.append(_asked(http, "/x")))
            asking.start()
            eventually_sync(lambda: proxy.faults.stalled == 1)
            began = time.monotonic()
            proxy.stop()
            asking.join(10)
    assert time.monotonic() - began < 5
    assert ended == ["RemoteProtocolError"]
