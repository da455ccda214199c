"""A large file of a person is sent once, whatever becomes of the answers; who gives up does not wait long."""

import hashlib
import random
from pathlib import Path

import anyio
import httpx
import pytest

from awe_client.api import AsyncAweClient
from awe_client.sdk import large_files, nodes

pytestmark = pytest.mark.anyio

DATA = random.Random(3).randbytes(3_000_000)
MD5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
ID = "1" * 8 + "-1111-1111-1111-" + "1" * 12


class Server:
    """Takes a node's file; `answers` are given, one for each body, instead of the node."""

    def __init__(self) -> None:
        self.bodies: list[tuple[int, int]] = []  #: offset, bytes
        self.here = b""
        self.file: bytes | None = None
        self.stays = False
        self.answers: list[httpx.Response] = []
        self.hangs = False

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        query = request.url.params
        if request.method == "DELETE" and self.hangs:
            await anyio.sleep_forever()
        if "unfinished" in query:
            return _ok({"offset": len(self.here)})
        if request.method == "PUT" and "offset" in query:
            data = await request.aread()
            self.bodies.append((int(query["offset"]), len(data)))
            self.file = self.here[: int(query["offset"])] + data
            if self.answers:
                return self.answers.pop(0)
        if request.method == "PUT":
            self.stays = "remove_expiration" in query
        return _ok(self._node())

    def _node(self) -> dict[str, object]:
        if self.file is None:
            return {"id": ID, "file": None}
        md5 = hashlib.md5(self.file, usedforsecurity=False).hexdigest()
        return {"id": ID, "file": {"name": "x", "size": len(self.file), "checksum": {"md5": md5}}}


def _ok(data: object) -> httpx.Response:
    return httpx.Response(200, json={"status": 200, "data": data, "error": None})


def _refusal(code: str) -> httpx.Response:
    return httpx.Response(503, json={"status": 503, "data": None, "error": ["no"], "code": code})


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(large_files, "LARGE_BYTES", 1000)
    (tmp_path / "x").write_bytes(DATA)
    return tmp_path / "x"


def client(server: Server) -> AsyncAweClient:
    return AsyncAweClient("http://awe.example", http=httpx.AsyncClient(transport=httpx.MockTransport(server)))


@pytest.mark.parametrize("code", ["not_confirmed", "unavailable"])
async def test_what_arrived_is_not_sent_again_because_its_answer_was_bad(source: Path, code: str) -> None:
    server = Server()
    server.answers = [_refusal(code)]
    async with client(server) as awe:
        node = await awe.create_node(source)
    assert server.bodies == [(0, len(DATA))]
    assert server.stays
    assert node.file is not None


async def test_what_was_not_stored_is_sent_again(source: Path) -> None:
    server = Server()
    answer = _refusal("not_confirmed")

    async def forgetful(request: httpx.Request) -> httpx.Response:
        reply = await server(request)
        if reply is answer:
            server.file = None
        return reply

    server.answers = [answer]
    http = httpx.AsyncClient(transport=httpx.MockTransport(forgetful))
    async with AsyncAweClient("http://awe.example", http=http) as awe:
        await awe.create_node(source)
    assert server.bodies == [(0, len(DATA))] * 2


async def test_who_gives_up_does_not_wait_long_for_a_server_that_hangs(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "TIDY_S", 0.05)
    server = Server()
    server.hangs = True
    server.answers = [
        httpx.Response(400, json={"status": 400, "data": None, "error": ["no"], "code": "bad_range"})
    ]
    async with client(server) as awe:
        with anyio.fail_after(5), pytest.raises(Exception, match="no"):
            await awe.create_node(source)
