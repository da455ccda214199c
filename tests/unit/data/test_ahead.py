"""One block is filled while the one before is still hashed: none changes too early."""

import hashlib
import os
import socket
import threading
from pathlib import Path

import pytest

from awe_server.data.blobs import Writer
from awe_server.data.hashes import BESIDE_BYTES, Hashes
from awe_server.data.ports import Buffer
from awe_server.data.sockets import BLOCK_BYTES, Socket

DATA = os.urandom(5 * BLOCK_BYTES + BESIDE_BYTES + 12_345)


class Late:
    """Looks at bytes as late as it may."""

    def __init__(self) -> None:
        self.taken = bytearray()
        self._begun: Buffer = b""

    def write(self, data: Buffer) -> None:
        self.begin(data)
        self.settle()

    def begin(self, data: Buffer) -> None:
        self.settle()
        self._begun = data

    def settle(self) -> None:
        self.taken += self._begun
        self._begun = b""


@pytest.fixture
def line() -> Socket:
    """A connection to somebody who sends all of it and leaves."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        with theirs:
            theirs.sendall(DATA)

    threading.Thread(target=send).start()
    line = Socket(ours.fileno())
    ours.close()
    return line


def receive(line: Socket, sink: Late | Writer) -> None:
    moved, is_open = 0, True
    while is_open:
        count, is_open = line.receive(3 * BLOCK_BYTES, sink)
        moved += count
    line.close()
    assert moved == len(DATA)


def test_a_sink_may_look_at_a_block_until_it_is_given_the_next_one(line: Socket) -> None:
    sink = Late()
    receive(line, sink)
    assert sink.taken == DATA


def test_a_file_that_comes_over_a_line_is_hashed_and_written_as_it_was_sent(
    line: Socket, tmp_path: Path
) -> None:
    writer = Writer(tmp_path, 0)
    receive(line, writer)
    fact = writer.finish(b"end", lambda _: tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == DATA + b"end"
    whole = DATA + b"end"
    assert (fact.size, fact.md5) == (len(whole), hashlib.md5(whole).hexdigest())
    assert fact.sha256 == hashlib.sha256(whole).hexdigest()


def test_what_was_hashed_may_change_once_the_next_bytes_were_taken() -> None:
    hashes, blocks = Hashes(), [bytearray(BESIDE_BYTES), bytearray(BESIDE_BYTES)]
    whole = b""
    for number in range(50):
        block = blocks[number % 2]
        block[:] = os.urandom(BESIDE_BYTES)
        whole += block
        hashes.begin(memoryview(block))
    assert hashes.md5 == hashlib.md5(whole).hexdigest()
    assert hashes.sha256 == hashlib.sha256(whole).hexdigest()


def test_what_was_written_may_change_also_when_it_could_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = threading.Event()
    writer = Writer(tmp_path, 0)
    monkeypatch.setattr(writer._hashes, "settle", hashed.set)

    def full(*_: object) -> int:
        raise OSError("full")

    monkeypatch.setattr("awe_server.data.blobs.os.write", full)
    with pytest.raises(OSError, match="full"):
        writer.write(DATA)
    assert hashed.is_set()
    writer.abort()
