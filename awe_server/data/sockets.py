"""Large bodies go between a connection and a file in threads; the event loop only hears how far they are.

A thread moves what is there, some megabytes at most, and comes back; it waits for the other side only if
much has moved already, and for a moment in each block. What a slow line takes is waited for by the event
loop, so slow callers hold no thread. What a thread does here is done without Python's lock, but for a few
lines for each block: copy, hash, write.
"""

import array
import asyncio
import fcntl
import os
import select
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from typing import TypeVar

import anyio

from awe_server.data.ports import Sink
from shared_models.limits import MIB

#: What is written and hashed at once: of 1 MiB a fifth slower, of 4 too much for a core's cache.
BLOCK_BYTES = 2 * MIB
STEP_BYTES = 16 * MIB  #: what a thread moves before it comes back
#: How long a thread waits in each block for the other side: a line that does not move a block in that time is
#: waited for by the event loop.
MOMENT_S = 0.002
FAST_BYTES = 64 * 1024  #: who did not move so much at once is not waited for in a thread at all
#: Of uploads, of downloads, and of MD5, each. More would not be faster, but exchanges slower beside them (of
#: two cores with two each by a third): copying and hashing is work for cores.
THREADS = max(1, (os.cpu_count() or 2) // 2)
NICE = 2  #: requests that are answered at once go before, and on a busy machine a transfer still gets on

T = TypeVar("T")
_buffers = threading.local()


def yield_to_others() -> None:
    """Let this thread go after those that answer at once."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


#: Threads of their own: who waits for a disk elsewhere does not wait for transfers, nor does a download for
#: a disk that takes nothing.
UPLOADS = ThreadPoolExecutor(THREADS, "upload", yield_to_others)
DOWNLOADS = ThreadPoolExecutor(THREADS, "download", yield_to_others)


async def in_thread(threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    """Do a step of a transfer. Whoever is cancelled meanwhile has still done it."""
    with anyio.CancelScope(shield=True):
        done = await asyncio.get_running_loop().run_in_executor(threads, work)
    return done


class Socket:
    """A connection's socket under a descriptor of our own: it stays ours when the connection is closed."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self._busy = threading.Lock()
        self._is_over = False
        self._told = asyncio.Event()
        self.received = 0  #: bytes, also those that nobody could write

    def close(self) -> bool:
        """Let go of it; the connection stays. False: a thread is still at it, and closes it in a moment.

        Waits for nobody: that thread may wait for a disk that hangs.
        """
        self._is_over = True
        if not self._busy.acquire(blocking=False):
            return False
        try:
            self._socket.close()
        finally:
            self._busy.release()
        return True

    def abort(self) -> None:
        """As `close`, for a connection that is over: what the other side did not take yet is dropped."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    @contextmanager
    def _used(self) -> Iterator[None]:
        """A thread is at it."""
        try:
            with self._busy:
                yield
        finally:
            if self._is_over:
                self.close()

    async def readable(self) -> None:
        """Wait for bytes, or the end."""
        loop = asyncio.get_running_loop()
        await self._wait_told(loop.add_reader, loop.remove_reader)

    async def writable(self) -> None:
        """Wait for room, the end, or `wake`."""
        loop = asyncio.get_running_loop()
        await self._wait_told(loop.add_writer, loop.remove_writer)

    async def _wait_told(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        self._told.clear()
        descriptor = self._socket.fileno()
        add(descriptor, self._told.set)
        try:
            await self._told.wait()
        finally:
            remove(descriptor)

    def wake(self) -> None:
        """Whoever waits for the line looks again."""
        self._told.set()

    @property
    def here(self) -> int:
        """How many bytes came that nobody took from the line."""
        return self._counted(termios.FIONREAD)

    @property
    def under_way(self) -> int:
        """How many bytes were sent that the other side did not take yet."""
        return self._counted(termios.TIOCOUTQ)

    def _counted(self, what: int) -> int:
        count = array.array("i", [0])
        fcntl.ioctl(self._socket.fileno(), what, count)
        return count[0]

    def receive(self, most: int, sink: Sink) -> tuple[int, bool]:
        """Give up to `most` bytes to `sink`, in blocks: how many; and whether the sender is still there.

        While the sink is still busy with one block, the next one is filled.
        Blocking, in a thread. Raises what the sink raises.
        """
        with self._used():
            moved, is_open, blocks = 0, True, cycle(_blocks())
            try:
                while moved < most and not self._is_over:
                    wanted = next(blocks)[: most - moved]
                    came, is_open = self._fill(wanted, is_fast=moved > 0)
                    if came:
                        sink.begin(wanted[:came])
                        moved += came
                    if came < len(wanted):
                        break
            finally:
                sink.settle()
            return moved, is_open

    def _fill(self, block: memoryview, *, is_fast: bool) -> tuple[int, bool]:
        """Bytes from the line until the block is full, or the line is not worth a wait."""
        came, until = 0, time.monotonic() + MOMENT_S
        while came < len(block):
            try:
                count = self._socket.recv_into(block[came:])
            except BlockingIOError:
                if (is_fast or came >= FAST_BYTES) and self._comes(select.POLLIN, until):
                    continue
                return came, True
            except OSError:
                return came, False
            if not count:
                return came, False
            came += count
            self.received += count
        return came, True

    def send_file(self, file: int, offset: int, most: int) -> int:
        """Send bytes of a file; how many: less than `most` if the line takes no more now.

        Blocking, in a thread. Raises OSError when the other side is gone, EOFError if the file is too short.
        """
        with self._used():
            sent, renewed, until = 0, 0, time.monotonic() + MOMENT_S
            while sent < most and not self._is_over:
                try:
                    count = os.sendfile(self._socket.fileno(), file, offset + sent, most - sent)
                except BlockingIOError:
                    if sent >= FAST_BYTES and self._comes(select.POLLOUT, until):
                        continue
                    break
                if not count:
                    if sent:
                        break
                    raise EOFError
                sent += count
                if sent - renewed >= BLOCK_BYTES:
                    renewed, until = sent, time.monotonic() + MOMENT_S
            return sent

    def _comes(self, event: int, until: float) -> bool:
        """Whether it comes in time, and in time to be waited for."""
        left_s = until - time.monotonic()
        if left_s <= 0:
            return False
        poll = select.poll()
        poll.register(self._socket.fileno(), event)
        return bool(poll.poll(left_s * 1000))


def _blocks() -> tuple[memoryview, memoryview]:
    """The thread's own."""
    if not hasattr(_buffers, "blocks"):
        _buffers.blocks = memoryview(bytearray(BLOCK_BYTES)), memoryview(bytearray(BLOCK_BYTES))
    blocks: tuple[memoryview, memoryview] = _buffers.blocks
    return blocks
