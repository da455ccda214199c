"""A thread stays with a line while much moves; a line can be let go of while a thread is at it."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from awe_server.data.downloads import open_reader
from awe_server.data.ports import Buffer
from awe_server.data.sockets import BLOCK_BYTES, FAST_BYTES, STEP_BYTES, Socket

LONG_S = 20.0


class Slow:
    """A line on which there is always a byte more, and never two: a wait for the next one is not in vain."""

    def __init__(self, at_once: int = 0) -> None:
        self._at_once = at_once
        self._is_next = True
        self._ready, other = socket.socketpair()
        with other:
            other.send(b"x")
        self.fileno, self.close = self._ready.fileno, self._ready.close

    def moved(self, most: int) -> int:
        if self._at_once:
            moved, self._at_once = min(most, self._at_once), max(self._at_once - most, 0)
            return moved
        self._is_next = not self._is_next
        if not self._is_next:
            raise BlockingIOError
        return 1

    def recv_into(self, block: memoryview) -> int:
        return self.moved(len(block))


def line_of(slow: Slow) -> Socket:
    line = Socket(slow.fileno())
    line._socket.close()
    line._socket = cast(socket.socket, slow)
    return line


class Taken:
    """Takes bytes; at the first ones it may be made to wait."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.began = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def write(self, data: Buffer) -> None:
        self.data += data

    def begin(self, data: Buffer) -> None:
        self.began.set()
        assert self.may_go_on.wait(LONG_S)
        self.write(data)

    def settle(self) -> None: ...


@pytest.fixture
def pair() -> Iterator[tuple[Socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    line = Socket(ours.fileno())
    ours.close()
    with theirs:
        yield line, theirs
    line.close()


def ends(work: Callable[[], object]) -> bool:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(LONG_S / 4)
    return not thread.is_alive()


@pytest.mark.parametrize("at_once", [0, 1000, BLOCK_BYTES])
def test_who_sends_little_at_a_time_holds_no_thread(at_once: int) -> None:
    line, sink = line_of(Slow(at_once)), Taken()
    moved, is_open = line.receive(STEP_BYTES, sink)
    assert is_open
    assert at_once <= moved == len(sink.data) < STEP_BYTES
    if at_once < FAST_BYTES:
        assert moved <= at_once + 1, "it is not waited for at all"
    line.close()


@pytest.mark.parametrize("at_once", [0, 1000, BLOCK_BYTES])
def test_who_takes_little_at_a_time_holds_no_thread(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(at_once)
    monkeypatch.setattr("awe_server.data.sockets.os.sendfile", lambda *wanted: slow.moved(wanted[-1]))
    line = line_of(slow)
    assert at_once <= line.send_file(0, 0, STEP_BYTES) < STEP_BYTES
    line.close()


def test_a_line_is_let_go_of_while_a_thread_is_at_it(pair: tuple[Socket, socket.socket]) -> None:
    line, theirs = pair
    sink = Taken()
    sink.may_go_on.clear()
    theirs.send(b"some")
    receiving = threading.Thread(target=lambda: line.receive(STEP_BYTES, sink))
    receiving.start()
    assert sink.began.wait(LONG_S)
    told: list[bool] = []
    assert ends(lambda: told.append(line.close()))
    assert told == [False]
    theirs.send(b"more")
    sink.may_go_on.set()
    receiving.join(LONG_S)
    assert sink.data == b"some"
    theirs.settimeout(LONG_S)
    with pytest.raises(ConnectionResetError):  # it left what came unread
        theirs.recv(1)
    assert line.close()


def test_a_file_that_is_closed_while_a_thread_sends_it_is_sent_all_the_same(
    pair: tuple[Socket, socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"data")
    (tmp_path / "other").write_bytes(b"lost")
    reader = open_reader(tmp_path / "file", 0, 4)
    line, theirs = pair
    plain_send = Socket.send_file

    def send_file(self: Socket, file: int, offset: int, most: int) -> int:
        reader._close()
        with (tmp_path / "other").open():
            return plain_send(self, file, offset, most)

    monkeypatch.setattr(Socket, "send_file", send_file)
    assert reader.send_to(line) == 4
    assert theirs.recv(4) == b"data"
