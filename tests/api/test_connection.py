"""Large bodies on real connections: they pass the loop by, and are refused, cut and continued as ever."""

import asyncio
import contextlib
import errno
import gc
import hashlib
import json
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from awe_server.api import bodies, connection
from awe_server.api.connection import LARGE_BYTES, Connection
from awe_server.data import downloads
from awe_server.data.blobs import Intake
from awe_server.data.sockets import BLOCK_BYTES, THREADS, Socket
from tests.api.conftest import Api
from tests.support.descriptors import open_below
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio

STEP_BYTES = 2 * BLOCK_BYTES  #: here; in earnest it is more
LARGE = os.urandom(2 * STEP_BYTES + LARGE_BYTES + 12_345)


@dataclass
class Line:
    """One connection to the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next reply."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head[:-4].split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return int(first.split()[1]), headers

    async def reply(self) -> tuple[int, bytes]:
        status, headers = await self.head()
        return status, await self.reader.readexactly(int(headers["content-length"]))

    async def ok(self) -> Any:
        status, body = await self.reply()
        assert status == 200, body
        return json.loads(body)["data"]

    def reset(self) -> None:
        line: socket.socket = self.writer.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@dataclass
class Served:
    """Where the server listens, and how much passed its loop by."""

    port: int
    received: list[int]
    sent: list[int]
    connections: set[Any]

    lines: list[Line] = field(default_factory=list)

    async def line(self) -> Line:
        self.lines.append(Line(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self.lines[-1]


@pytest.fixture
async def served(api: Api, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        api.app, http=Connection, lifespan="off", ws="none", log_config=None, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    received, sent = list[int](), list[int]()
    plain_receive, plain_send = Socket.receive, Socket.send_file

    def receive(self: Socket, *args: Any) -> tuple[int, bool]:
        found = plain_receive(self, *args)
        received.append(found[0])
        return found

    def send_file(self: Socket, *args: Any) -> int:
        sent.append(plain_send(self, *args))
        return sent[-1]

    for module in (bodies, connection, downloads):
        monkeypatch.setattr(module, "STEP_BYTES", STEP_BYTES)
    monkeypatch.setattr(Socket, "receive", receive)
    monkeypatch.setattr(Socket, "send_file", send_file)
    serving = asyncio.create_task(server._serve([listener]))
    await eventually(lambda: server.started)
    served = Served(listener.getsockname()[1], received, sent, server.server_state.connections)
    yield served
    for line in served.lines:
        line.writer.close()
        with contextlib.suppress(ConnectionError):
            await line.writer.wait_closed()
    server.should_exit = True
    await serving


def request(method: str, path: str, length: int = 0, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {length}", *headers]
    kind = ["Content-Type: application/octet-stream"] if length else []
    return "\r\n".join([*lines, *kind, "", ""]).encode()


async def test_a_large_body_passes_the_loop_and_the_connection_goes_on(served: Served) -> None:
    line = await served.line()
    for number in range(2):
        await line.send(request("POST", f"/node?file_name=f{number}", len(LARGE)), LARGE)
        node = await line.ok()
        assert node["file"]["size"] == len(LARGE)
        assert node["file"]["checksum"]["md5"] == hashlib.md5(LARGE).hexdigest()
        await line.send(request("GET", f"/node/{node['id']}?download"))
        assert await line.reply() == (200, LARGE)
    assert sum(served.received) > LARGE_BYTES
    assert sum(served.sent) == 2 * len(LARGE)


async def test_what_follows_a_body_at_once_is_the_next_request(served: Served) -> None:
    line = await served.line()
    uploads = [request("POST", "/node", len(LARGE)) + LARGE for _ in range(2)]
    replies = asyncio.gather(line.ok(), return_exceptions=True)
    await line.send(*uploads, request("GET", "/health"))
    [first] = await replies
    assert first["file"]["size"] == (await line.ok())["file"]["size"] == len(LARGE)
    assert (await line.reply())[0] == 200


async def test_a_range_passes_the_loop_too(served: Served) -> None:
    line = await served.line()
    await line.send(request("POST", "/node", len(LARGE)), LARGE)
    node = await line.ok()
    await line.send(request("GET", f"/node/{node['id']}?download", 0, f"Range: bytes=1000-{len(LARGE) - 11}"))
    assert await line.reply() == (206, LARGE[1000:-10])
    assert sum(served.sent) == len(LARGE) - 1010


@pytest.mark.parametrize("is_reset", [True, False])
async def test_a_large_upload_that_is_cut_goes_on_where_it_was_cut(served: Served, is_reset: bool) -> None:
    line = await served.line()
    await line.send(request("POST", "/node"))
    path = f"/node/{(await line.ok())['id']}"
    cut = 2 * STEP_BYTES + 17
    await line.send(request("PUT", f"{path}?offset=0", len(LARGE)), LARGE[:cut])
    if is_reset:
        await eventually(lambda: sum(served.received) > STEP_BYTES)
        line.reset()
    else:
        line.writer.close()
    line = await served.line()
    await line.send(request("GET", f"{path}?unfinished"))
    offset = (await line.ok())["offset"]
    assert LARGE_BYTES < offset <= cut
    assert is_reset or offset == cut
    await line.send(request("PUT", f"{path}?offset={offset}", len(LARGE) - offset), LARGE[offset:])
    assert (await line.ok())["file"]["checksum"]["md5"] == hashlib.md5(LARGE).hexdigest()


async def test_a_connection_that_is_lost_before_its_body_is_taken_from_it_keeps_what_came(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_flush = Intake.flush
    line = await served.line()
    await line.send(request("POST", "/node"))
    path = f"/node/{(await line.ok())['id']}"

    async def flush(self: Intake) -> None:
        if line.writer.transport.is_closing():
            await plain_flush(self)
            return
        line.reset()
        await eventually(lambda: not served.connections)
        await plain_flush(self)

    monkeypatch.setattr(Intake, "flush", flush)
    await line.send(request("PUT", f"{path}?offset=0", len(LARGE)), LARGE[:1000])
    await eventually(lambda: not served.connections)
    other = await served.line()
    await other.send(request("GET", f"{path}?unfinished"))
    assert (await other.ok())["offset"] == 1000
    assert served.received == []


async def test_a_large_upload_that_stalls_is_given_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "STALL_S", 0.2)
    line = await served.line()
    await line.send(request("POST", "/node", len(LARGE)), LARGE[: STEP_BYTES + LARGE_BYTES])
    status, body = await line.reply()
    assert status == 400
    assert b"stalled" in body
    assert served.received


async def test_a_disk_that_is_full_in_the_middle_refuses_and_closes(
    served: Served, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_write, written = os.write, 0

    def write(descriptor: int, data: Any) -> int:
        nonlocal written
        written += len(data)
        if written > STEP_BYTES:
            raise OSError(errno.ENOSPC, "full")
        return plain_write(descriptor, data)

    monkeypatch.setattr("awe_server.data.blobs.os.write", write)
    line = await served.line()
    sending = asyncio.create_task(line.send(request("POST", "/node", len(LARGE)), LARGE))
    status, headers = await line.head()
    assert (status, headers["connection"]) == (507, "close")
    await asyncio.gather(sending, return_exceptions=True)
    assert served.received == [] or sum(served.received) < len(LARGE)
    monkeypatch.undo()
    assert await api.ok("GET", "/node") == []


async def test_a_caller_who_leaves_a_download_leaves_nothing_open(served: Served, tmp_path: Path) -> None:
    line = await served.line()
    body = LARGE * 3
    await line.send(request("POST", "/node", len(body)), body)
    node = await line.ok()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        other = await served.line()
        await other.send(request("GET", f"/node/{node['id']}?download"))
        assert (await other.head())[0] == 200
        other.reset()
    await eventually(lambda: not open_below(tmp_path / "data" / "memory" / "nodes" / "blobs"))
    await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)
    await line.send(request("GET", f"/node/{node['id']}"))
    assert (await line.ok())["id"] == node["id"]


async def test_a_slow_caller_gets_all_and_holds_no_thread(served: Served) -> None:
    line = await served.line()
    body = LARGE * 3
    await line.send(request("POST", "/node", len(body)), body)
    node = await line.ok()
    await line.send(request("GET", f"/node/{node['id']}?download"))
    await eventually(
        lambda: bool(served.sent) and served.sent[-1] < STEP_BYTES
    )  # the line takes no more: nobody waits for it in a thread
    assert await line.reply() == (200, body)


async def test_a_file_that_is_cut_short_ends_the_connection(served: Served, tmp_path: Path) -> None:
    line = await served.line()
    await line.send(request("POST", "/node", len(LARGE)), LARGE)
    node = await line.ok()
    [blob] = [path for path in (tmp_path / "data").rglob(f"{node['id']}.*") if path.is_file()]
    os.truncate(blob, STEP_BYTES)
    await line.send(request("GET", f"/node/{node['id']}?download"))
    assert (await line.head())[0] == 200
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await line.reader.readexactly(len(LARGE))
    blob.write_bytes(LARGE)


async def test_connections_and_requests_that_are_over_are_no_garbage_that_waits_for_a_collection(
    served: Served,
) -> None:
    """Python looks for cycles seldom: what 100,000 of them hold would be taken for a leak."""
    line = await served.line()
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            await line.send(request("GET", "/health"))
            await line.ok()
        for over in ("by itself", "cut off", "while it waits"):
            other = await served.line()
            await other.send(request("GET", "/job/x" if over != "while it waits" else "/events?wait_s=30"))
            if over != "while it waits":
                await other.head()
            other.reset() if over == "cut off" else other.writer.close()
        await eventually(lambda: len(served.connections) == 1)
        await eventually(lambda: [type(o).__name__ for o in gc.get_objects()].count("Connection") == 1)
        assert [type(o).__name__ for o in gc.get_objects()].count("RequestResponseCycle") <= 1
    finally:
        gc.enable()


async def test_uploads_that_trickle_hold_up_no_other_one(served: Served) -> None:
    async def trickle(line: Line) -> None:
        while True:
            await line.send(b"x")
            await asyncio.sleep(0.0005)

    slow = [await served.line() for _ in range(THREADS)]
    for line in slow:
        await line.send(request("POST", "/node", 1 << 30), LARGE[:LARGE_BYTES])
    trickling = [asyncio.create_task(trickle(line)) for line in slow]
    await eventually(lambda: len(served.received) >= THREADS)
    line = await served.line()
    await line.send(request("POST", "/node", len(LARGE)), LARGE)
    assert (await line.ok())["file"]["checksum"]["md5"] == hashlib.md5(LARGE).hexdigest()
    for task in trickling:
        task.cancel()
    await asyncio.gather(*trickling, return_exceptions=True)


async def test_a_disk_that_hangs_under_uploads_holds_up_no_download(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await served.line()
    await line.send(request("POST", "/node", len(LARGE)), LARGE)
    node = await line.ok()
    hung, goes_on, plain_write = list[int](), threading.Event(), os.write

    def write(descriptor: int, data: Any) -> int:
        if not threading.current_thread().name.startswith("AnyIO"):  # the first bytes go another way
            hung.append(descriptor)
            goes_on.wait(60)
        return plain_write(descriptor, data)

    monkeypatch.setattr("awe_server.data.blobs.os.write", write)
    uploads = [await served.line() for _ in range(THREADS)]
    try:
        sending = [
            asyncio.create_task(up.send(request("POST", "/node", len(LARGE)), LARGE)) for up in uploads
        ]
        await eventually(lambda: len(hung) == THREADS)
        await line.send(request("GET", f"/node/{node['id']}?download"))
        assert await asyncio.wait_for(line.reply(), 20.0) == (200, LARGE)
    finally:
        goes_on.set()
    await asyncio.gather(*sending)
    for up in uploads:
        assert (await up.ok())["file"]["size"] == len(LARGE)


async def stuck_download(served: Served) -> Line:
    """A download of which its caller takes nothing more."""
    line = await served.line()
    body = LARGE * 3
    await line.send(request("POST", "/node", len(body)), body)
    node = await line.ok()
    other = await served.line()
    other.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    other.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await other.send(request("GET", f"/node/{node['id']}?download"))
    await eventually(lambda: bool(served.sent) and served.sent[-1] < STEP_BYTES)
    return other


async def nothing_open(served: Served, tmp_path: Path) -> None:
    await eventually(lambda: not open_below(tmp_path / "data" / "memory" / "nodes" / "blobs"))
    await eventually(lambda: len(served.connections) == 1)


async def test_a_caller_who_shuts_its_side_and_takes_nothing_leaves_nothing_open(
    served: Served, tmp_path: Path
) -> None:
    line = await stuck_download(served)
    line.writer.write_eof()
    await nothing_open(served, tmp_path)


async def test_a_caller_who_takes_nothing_is_given_up(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STALL_S", 0.3)
    line = await stuck_download(served)
    await nothing_open(served, tmp_path)
    line.writer.transport.resume_reading()  # type: ignore[attr-defined]
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await line.reply()


async def test_what_is_no_http_behind_a_request_does_not_get_into_its_answer(served: Served) -> None:
    line = await stuck_download(served)
    await line.send(b"\0 no HTTP\r\n\r\n")
    await eventually(lambda: len(served.connections) == 1)
    line.writer.transport.resume_reading()  # type: ignore[attr-defined]
    came = bytearray()
    with contextlib.suppress(ConnectionError):
        while some := await line.reader.read(STEP_BYTES):
            came += some
    head, _, body = bytes(came).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert len(body) < 3 * len(LARGE)
    assert (LARGE * 3).startswith(body)
