"""How replies leave: a head with the beginning of its body, everything in order, nothing kept."""

import asyncio

import pytest

from awe_server.api.one_packet import _Joining

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


class Sent(asyncio.Transport):
    """Remembers what it was given."""

    def __init__(self) -> None:
        super().__init__({"peername": "somebody"})
        self.pieces: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    def close(self) -> None:
        self.pieces.append(b"<closed>")


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
async def connection(sent: Sent) -> _Joining:
    return _Joining(sent, asyncio.get_running_loop())


async def test_a_head_goes_with_what_follows(connection: _Joining, sent: Sent) -> None:
    for _ in range(2):
        connection.write(HEAD)
        connection.write(b"body")
    assert sent.pieces == [HEAD + b"body"] * 2
    await asyncio.sleep(0)
    assert sent.pieces == [HEAD + b"body"] * 2
    assert connection.get_extra_info("peername") == "somebody"


async def test_a_head_waits_for_nothing_that_comes_later(connection: _Joining, sent: Sent) -> None:
    connection.write(HEAD)
    await asyncio.sleep(0)
    assert sent.pieces == [HEAD]
    connection.write(b"data: 1\n\n")
    assert sent.pieces == [HEAD, b"data: 1\n\n"]


async def test_a_large_body_is_not_copied_and_one_like_a_head_comes_in_order(
    connection: _Joining, sent: Sent
) -> None:
    large = bytes(100_000)
    for piece in (HEAD, large, b"HTTP/1.1 quoted", b"end"):
        connection.write(piece)
    assert sent.pieces == [HEAD, large, b"HTTP/1.1 quotedend"]


async def test_what_is_held_back_goes_before_the_end(connection: _Joining, sent: Sent) -> None:
    connection.write(HEAD)
    connection.close()
    await asyncio.sleep(0)
    assert sent.pieces == [HEAD, b"<closed>"]
