"""A line: what servers and what is between may do to it, and httpx's own errors for all of that."""

import asyncio
import errno
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import httpx
import pytest

from awe_client.api import AsyncAweClient
from awe_client.sdk import line as line_module
from awe_client.sdk.line import Line, line_to
from awe_client.sdk.transport import RetryPolicy
from shared_models.errors import NotAnAweServer, ServerUnreachable
from tests.support.eventually import eventually
from tests.support.ports import HeldPort

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """The daemon runs on uvloop, whose transports and errors are its own."""
    return "asyncio", {"use_uvloop": request.param}


class Peer:
    """Answers each request on any connection with the next of its replies; None = with nothing."""

    def __init__(self, replies: Sequence[bytes | None], *, closes: bool = False) -> None:
        self.replies = list(replies)
        self.closes = closes  #: after each reply
        self.pause_s, self.piece = 0.0, 20  #: before each piece of a reply
        self.requests: list[bytes] = []
        self.connections = self.open = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                reply = self.replies.pop(0) or b""
                for at in range(0, len(reply), self.piece):
                    await asyncio.sleep(self.pause_s)
                    writer.write(reply[at : at + self.piece])
                if self.closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def a_line(
    *replies: bytes | None, closes: bool = False, path: str = ""
) -> AsyncIterator[tuple[Line, Peer, Callable[..., Awaitable[httpx.Response]]]]:
    peer = Peer(replies, closes=closes)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    peer.port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{peer.port}{path}"
    line = line_to(url)
    assert line is not None

    async def post(content: bytes = b"{}", timeout_s: float = 20.0, **headers: str) -> httpx.Response:
        assert line is not None
        return await line.post(f"{url}/x", content, headers, timeout_s=timeout_s, connect_timeout_s=20.0)

    try:
        yield line, peer, post
    finally:
        line.close()
        await eventually(lambda: not peer.open)
        server.close()
        await server.wait_closed()


async def test_requests_that_follow_each_other_share_a_connection() -> None:
    async with a_line(OK, OK, OK, path="/below") as (_, peer, post):
        for content in (b"1", b"", b"3" * 100_000):
            reply = await post(content, Authorization="bearer t")
            assert (reply.status_code, reply.content) == (200, b"hello")
        assert (peer.connections, str(reply.request.url)) == (1, f"http://127.0.0.1:{peer.port}/below/x")
        host = f"Host: 127.0.0.1:{peer.port}"
        head = f"POST /below/x HTTP/1.1\r\n{host}\r\nAuthorization: bearer t\r\nContent-Length: 1\r\n\r\n1"
        assert peer.requests[0] == head.encode()


async def test_requests_at_one_time_have_a_connection_each_and_the_newest_is_used_again() -> None:
    async with a_line(None, OK, OK) as (_, peer, post):
        waiting = asyncio.ensure_future(post())
        await eventually(lambda: len(peer.requests) == 1)
        for _ in range(2):
            await post()
        assert peer.connections == 2
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await eventually(lambda: peer.open == 1)


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", b"hello"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK, b"hello"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 25\r\n\r\n", b"hello"),
    ],
    ids=["chunked", "announced", "empty", "packed"],
)
async def test_replies_of_every_form(reply: bytes, body: bytes) -> None:
    if b"gzip" in reply:
        reply += gzip.compress(b"hello", mtime=0)
    async with a_line(reply, OK) as (_, peer, post):
        assert (await post()).content == body
        assert (await post()).content == b"hello"
        assert peer.connections == 1


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
    ],
    ids=["until the end", "old", "said"],
)
async def test_a_connection_that_the_server_closes_is_not_used_again(reply: bytes) -> None:
    async with a_line(reply, reply, closes=True) as (_, peer, post):
        for _ in range(2):
            assert (await post()).content == b"hello"
        assert peer.connections == 2


async def test_a_connection_that_was_closed_or_idle_meanwhile_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_line(OK, OK, OK, closes=True) as (line, peer, post):
        await post()
        await eventually(lambda: not line._idle[0].is_usable)
        peer.closes = False
        await post()
        monkeypatch.setattr(line_module, "IDLE_S", -1.0)
        await post()
        assert peer.connections == 3


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "no HTTP", "another protocol"],
)
async def test_what_is_no_whole_reply(reply: bytes) -> None:
    async with a_line(reply, closes=True) as (_, _, post):
        with pytest.raises(httpx.RemoteProtocolError):
            await post()


async def test_a_server_that_is_silent_is_given_up_and_one_that_is_slow_is_not() -> None:
    async with a_line(None, OK) as (_, peer, post):
        with pytest.raises(httpx.ReadTimeout):
            await post(timeout_s=0.05)
        await eventually(lambda: not peer.open)
        peer.pause_s = 0.6
        assert (await post(timeout_s=1.5)).content == b"hello"


async def test_what_nobody_asked_for_ends_the_connection() -> None:
    async with a_line(OK + OK, OK) as (_, peer, post):
        assert (await post()).content == b"hello"
        await eventually(lambda: not peer.open)
        assert (await post()).content == b"hello"


async def test_a_server_that_is_not_there_is_said_in_the_systems_words() -> None:
    with HeldPort() as held:
        url = f"http://127.0.0.1:{held.number}"
        async with AsyncAweClient(url, line=line_to(url), retry=RetryPolicy(attempts=1)) as awe:
            with pytest.raises(ServerUnreachable, match="Connection refused") as raised:
                await awe.exchange("c", {})
    cause = raised.value.__cause__
    assert isinstance(cause, httpx.ConnectError)
    assert isinstance(cause.__cause__, OSError)
    assert cause.__cause__.errno == errno.ECONNREFUSED


async def test_a_server_that_takes_no_connection_is_waited_for_only_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    line = line_to("http://127.0.0.1:9")
    assert line is not None
    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    with pytest.raises(httpx.ConnectTimeout):
        await line.post("http://127.0.0.1:9/x", b"", {}, timeout_s=20.0, connect_timeout_s=0.05)


async def test_a_page_of_somebody_else_is_no_server_of_ours() -> None:
    async with a_line(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>") as (line, peer, _):
        url = f"http://127.0.0.1:{peer.port}"
        async with AsyncAweClient(url, line=line) as awe:
            with pytest.raises(NotAnAweServer, match=f"{url}/client/c/exchange answered 200"):
                await awe.exchange("c", {})


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb", "ü"])
async def test_a_header_is_one_line_of_ascii(value: str) -> None:
    async with a_line(OK) as (_, peer, post):
        with pytest.raises(httpx.LocalProtocolError):
            await post(Authorization=value)
        assert not peer.connections


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://awe.example", ""),
        ("http://anna:secret@awe.example", ""),
        ("http://awe.example", "http_proxy"),
        ("http://awe.example", "ALL_PROXY"),
    ],
)
def test_what_needs_httpx_has_no_line(monkeypatch: pytest.MonkeyPatch, url: str, proxy: str) -> None:
    if proxy:
        monkeypatch.setenv(proxy, "http://proxy.example:3128")
    assert line_to(url) is None


@pytest.mark.parametrize("url", ["http://awe.example", "http://[::1]:8001/below"])
def test_a_plain_address_has_a_line(url: str) -> None:
    assert line_to(url) is not None
