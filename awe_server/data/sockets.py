"""Large bodies go between a connection and a file in threads; the event loop only hears how far they are.

A thread moves what is there, a few megabytes at most, and comes back; it waits for the other side for a
moment only. What a slow line takes is waited for by the event loop, so slow callers hold no thread. What a
thread does here is done without Python's lock, but for a few lines for each block: copy, hash, write.
"""

import asyncio
import os
import select
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import TypeVar

import anyio

from awe_server.data.ports import Sink
from shared_models.limits import MIB

BLOCK_BYTES = MIB  #: what is written and hashed at once
STEP_BYTES = 4 * MIB  #: what a thread moves before it comes back
MOMENT_MS = 2  #: how long it waits for the other side
#: More would not be faster, but exchanges twice as slow beside them: copying and hashing is work for cores.
THREADS = max(2, os.cpu_count() or 2)
NICE = 2  #: requests that are answered at once go before, and on a busy machine a transfer still gets on

T = TypeVar("T")
_buffers = threading.local()


def yield_to_others() -> None:
    """Let this thread go after those that answer at once."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


#: Threads of their own: who waits for a disk elsewhere does not wait for transfers.
_threads = ThreadPoolExecutor(THREADS, "transfer", yield_to_others)


async def in_thread(work: Callable[[], T]) -> T:
    """Do a step of a transfer. Whoever is cancelled meanwhile has still done it."""
    with anyio.CancelScope(shield=True):
        done = await asyncio.get_running_loop().run_in_executor(_threads, work)
    return done


class Socket:
    """A connection's socket under a descriptor of our own: it stays ours when the connection is closed."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self._busy = threading.Lock()
        self.received = 0  #: bytes, also those that nobody could write

    def close(self) -> None:
        """Let go of it; the connection stays."""
        with self._busy:
            self._socket.close()

    async def readable(self) -> None:
        """Wait for bytes, or the end."""
        loop = asyncio.get_running_loop()
        await _told(loop.add_reader, loop.remove_reader, self._socket.fileno())

    async def writable(self) -> None:
        """Wait for room, or the end."""
        loop = asyncio.get_running_loop()
        await _told(loop.add_writer, loop.remove_writer, self._socket.fileno())

    def receive(self, most: int, sink: Sink) -> tuple[int, bool]:
        """Give up to `most` bytes to `sink`, in blocks: how many; and whether the sender is still there.

        While the sink is still busy with one block, the next one is filled.
        Blocking, in a thread. Raises what the sink raises.
        """
        with self._busy:
            moved, is_open, blocks = 0, True, cycle(_blocks())
            try:
                while moved < most:
                    wanted = next(blocks)[: most - moved]
                    came, is_open = self._fill(wanted)
                    if came:
                        sink.begin(wanted[:came])
                        moved += came
                    if came < len(wanted):
                        break
            finally:
                sink.settle()
            return moved, is_open

    def _fill(self, block: memoryview) -> tuple[int, bool]:
        """Bytes from the line until the block is full, or none came for a moment."""
        came = 0
        while came < len(block):
            try:
                count = self._socket.recv_into(block[came:])
            except BlockingIOError:
                if not _wait(self._socket.fileno(), select.POLLIN):
                    return came, True
                continue
            except OSError:
                return came, False
            if not count:
                return came, False
            came += count
            self.received += count
        return came, True

    def send_file(self, file: int, offset: int, most: int) -> int:
        """Send bytes of a file; how many: 0 if the line takes none now.

        Blocking, in a thread. Raises OSError when the other side is gone, EOFError if the file is too short.
        """
        with self._busy:
            sent = 0
            while sent < most:
                try:
                    count = os.sendfile(self._socket.fileno(), file, offset + sent, most - sent)
                except BlockingIOError:
                    if not _wait(self._socket.fileno(), select.POLLOUT):
                        break
                    continue
                if not count:
                    if sent:
                        break
                    raise EOFError
                sent += count
            return sent


def _blocks() -> tuple[memoryview, memoryview]:
    """The thread's own."""
    if not hasattr(_buffers, "blocks"):
        _buffers.blocks = memoryview(bytearray(BLOCK_BYTES)), memoryview(bytearray(BLOCK_BYTES))
    blocks: tuple[memoryview, memoryview] = _buffers.blocks
    return blocks


def _wait(descriptor: int, event: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(MOMENT_MS))


async def _told(add: Callable[..., object], remove: Callable[[int], object], descriptor: int) -> None:
    """Wait until the event loop has something to tell of a descriptor."""
    told = asyncio.Event()
    add(descriptor, told.set)
    try:
        await told.wait()
    finally:
        remove(descriptor)
